"""Runs: rankings by query id, which know how to be written, evaluated, compared and fused."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from qbe.errors import UsageError, check_package, check_type
from qbe.runs import Qrels, as_written, format_run
from qbe.types import Hit
from qbe.util.files import StrPath, write_text

if TYPE_CHECKING:
    import pandas as pd

    from qbe.evaluate.evaluation import Evaluation
    from qbe.evaluate.significance import Comparison

COLUMNS = ("qid", "docno", "score", "rank")  # of PyTerrier's results
IR_MEASURES = {"query_id": "qid", "doc_id": "docno"}  # names that ir-measures has for them


@dataclass(frozen=True, slots=True, repr=False)
class Run(Mapping[str, Sequence[Hit]]):
    """Ranked lists by query id, best first, under one run tag: a mapping of query ids to hits."""

    tag: str
    rankings: Mapping[str, Sequence[Hit]]

    def __repr__(self) -> str:
        queries = f"{len(self):,} {'query' if len(self) == 1 else 'queries'}"
        return f"<Run {self.tag}: {queries}, {sum(map(len, self.values())):,} hits>"

    def __getitem__(self, query_id: str) -> Sequence[Hit]:
        return self.rankings[query_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rankings)

    def __len__(self) -> int:
        return len(self.rankings)

    @classmethod
    def from_trec(cls, *paths: StrPath) -> Run:
        """Read the TREC run files of one system, such as one for each facet, with the first file's tag.

        Hits are in trec_eval's order: by score in single precision, ties by document id, both descending.
        """
        from qbe.evaluate.report import read_runs

        return cls(*read_runs(paths))

    @classmethod
    def from_dataframe(cls, frame: pd.DataFrame, tag: str = "run") -> Run:
        """Make a run of columns ``qid``, ``docno``, ``score``, or ``query_id``, ``doc_id``, ``score``."""
        frame = frame.rename(columns=IR_MEASURES)
        if missing := [name for name in COLUMNS[:3] if name not in frame.columns]:
            raise UsageError(
                f"expected columns qid, docno and score, found no {', '.join(missing)}; rename them"
            )
        for name in COLUMNS[:2]:
            if frame[name].isna().any():
                raise UsageError(f"expected an id in each row of {name}, found none in some; leave these out")
        try:
            scores = [float(score) for score in frame["score"]]
        except (TypeError, ValueError) as error:
            raise UsageError(f"expected numbers as score, found another value ({error}); mend it") from error
        rankings: dict[str, list[Hit]] = {}
        for query_id, paper_id, score in zip(frame["qid"], frame["docno"], scores, strict=True):
            rankings.setdefault(str(query_id), []).append(Hit(str(paper_id), score))
        ordered = {
            query_id: tuple(sorted(hits, key=lambda hit: (-hit.score, hit.paper_id)))
            for query_id, hits in rankings.items()
        }
        as_written(ordered)  # what cannot be written
        return cls(tag, ordered)

    def to_dataframe(self, names: str = "pyterrier") -> pd.DataFrame:
        """Return ids, ``score`` and ``rank`` (from 0), with the ``names`` of pyterrier or ir_measures."""
        pandas = check_package("pandas")
        if names not in ("pyterrier", "ir_measures"):
            raise UsageError(f"expected `names` pyterrier or ir_measures, found {names!r}")
        rows = [
            (q, hit.paper_id, hit.score, rank) for q, hits in self.items() for rank, hit in enumerate(hits)
        ]
        columns = COLUMNS if names == "pyterrier" else (*IR_MEASURES, *COLUMNS[2:])
        frame: pd.DataFrame = pandas.DataFrame(rows, columns=list(columns))
        return frame

    def write(self, path: StrPath) -> None:
        """Write a TREC run file atomically, with strictly decreasing single-precision scores."""
        write_text(path, format_run(self.tag, self.rankings))

    def evaluate(
        self,
        qrels: Qrels,
        measures: Sequence[str] | str = (),
        protocol: str | None = None,
        *,
        folds: StrPath | None = None,
    ) -> Evaluation:
        """Evaluate the run by query, by facet (the end of the query id) and over all queries.

        Measures are names of ir-measures (``nDCG@20``, ``AP(rel=2)``) or of CSFCube's protocol (``NDCG%20``),
        by default nDCG and AP, or those of the ``protocol``: csfcube (with its file of ``folds``), pools,
        citations, reviewers or reviews. A judged query that is missing in the run scores as an empty ranking.
        """
        from qbe.evaluate.protocols import CSFCUBE
        from qbe.evaluate.report import PROTOCOLS, Scoring

        hint = "read a file with qbe.read_qrels(path)"
        check_type(qrels, Mapping, "`qrels` as a mapping of query ids to grades by paper id", hint)
        measures = [measures] if isinstance(measures, str) else measures
        of_qrels = [name for name, each in PROTOCOLS.items() if each.read is None]
        if protocol not in (None, *of_qrels):
            raise UsageError(f"expected a `protocol` of {', '.join(of_qrels)}, found {protocol!r}")
        if (protocol == CSFCUBE) != (folds is not None):
            raise UsageError(
                "expected a file of `folds` with the protocol csfcube, and with it alone; give "
                "folds='qrels/folds.json', which qbe datasets csfcube writes beside the qrels"
            )
        scoring = Scoring(protocol, measures or (() if protocol else ("nDCG", "AP")), folds_file=folds)
        return scoring.evaluator(qrels)(as_written(self))

    def compare(
        self, other: Run, qrels: Qrels, measures: Sequence[str] | str = ("nDCG", "AP")
    ) -> tuple[Comparison, ...]:
        """Compare with another run, by measure and scope, with paired two-sided tests (see `Comparison`)."""
        from qbe.evaluate.significance import compare

        check_type(other, Run, "another qbe.Run", "read a file with qbe.Run.from_trec(path)")
        name = other.tag if other.tag != self.tag else f"{other.tag} (other)"
        ours, theirs = self.evaluate(qrels, measures), other.evaluate(qrels, measures)
        return compare({self.tag: ours}, {name: theirs})

    def fuse(self, *others: Run, weights: Sequence[float] | None = None, tag: str = "fused") -> Run:
        """Sum the z-scores of several runs, weighted (CombSUM of standardized scores).

        A paper that a run lacks has that run's lowest score there; only queries of all runs are fused.
        """
        runs = (self, *others)
        for run in runs:
            check_type(run, Run, "qbe.Run objects", "read a file with qbe.Run.from_trec(path)")
            as_written(run)  # what cannot be written
        weights = [1.0] * len(runs) if weights is None else weights
        if len(weights) != len(runs):
            raise UsageError(f"expected {len(runs)} `weights`, one for each run, found {len(weights)}")
        if not all(map(math.isfinite, weights)):
            raise UsageError(f"expected finite numbers as `weights`, found {', '.join(map(str, weights))}")
        shared = [query_id for query_id in self if all(query_id in run for run in others)]
        if not shared:
            raise UsageError("expected a query of all runs, found none; fuse runs of the same topics")
        fused = dict[str, tuple[Hit, ...]]()
        for query_id in shared:
            total = dict.fromkeys((hit.paper_id for run in runs for hit in run[query_id]), 0.0)
            for run, weight in zip(runs, weights, strict=True):
                scores = {hit.paper_id: hit.score for hit in run[query_id]}
                mean, deviation = (f(scores.values()) if scores else 0.0 for f in (fmean, pstdev))
                differ = deviation > 1e-9 * max(1.0, *map(abs, scores.values()), 0.0)
                standard = {
                    name: (score - mean) / deviation if differ else 0.0 for name, score in scores.items()
                }
                lowest = min(standard.values(), default=0.0)
                for paper_id in total:
                    total[paper_id] += weight * standard.get(paper_id, lowest)
            fused[query_id] = tuple(Hit(*each) for each in sorted(total.items(), key=lambda e: (-e[1], e[0])))
        return Run(tag, fused)
