"""Runs: rankings by query id, which know how to be written, evaluated, compared and fused."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from qbe.errors import UsageError, check_package
from qbe.runs import Qrels, as_written, check_hits, format_run
from qbe.types import Hit
from qbe.util.files import StrPath, write_text

if TYPE_CHECKING:
    import pandas as pd

    from qbe.evaluate.evaluation import Evaluation
    from qbe.evaluate.significance import Comparison

COLUMNS = ("qid", "docno", "score", "rank")  # of PyTerrier's results


@dataclass(frozen=True, slots=True)
class Run(Mapping[str, Sequence[Hit]]):
    """Ranked lists by query id, best first, under one run tag: a mapping of query ids to hits.

    >>> run = Run("my-run", {"p1_method": (Hit("p7", 2.5), Hit("p3", 1.0))})
    >>> run["p1_method"][0].paper_id, len(run)
    ('p7', 1)
    """

    tag: str
    rankings: Mapping[str, Sequence[Hit]]

    def __post_init__(self) -> None:
        if not isinstance(self.tag, str) or not isinstance(self.rankings, Mapping):
            kinds = f"{type(self.tag).__name__} and {type(self.rankings).__name__}"
            raise TypeError(f"expected a tag (str) and a mapping of query ids to hits, found {kinds}")

    def __getitem__(self, query_id: str) -> Sequence[Hit]:
        return self.rankings[query_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rankings)

    def __len__(self) -> int:
        return len(self.rankings)

    @classmethod
    def from_trec(cls, *paths: StrPath) -> Run:
        """Read the TREC run files of one system, such as one for each facet, with the first file's tag.

        Hits are ordered as trec_eval does: by score in single precision, ties by document id, both
        descending.
        """
        from qbe.evaluate.report import read_runs

        return cls(*read_runs(paths))

    @classmethod
    def from_dataframe(cls, frame: pd.DataFrame, tag: str = "run") -> Run:
        """Make a run of columns ``qid``, ``docno`` and ``score``, such as PyTerrier's results."""
        if not hasattr(frame, "isna"):
            raise TypeError(f"expected a pandas.DataFrame, found {type(frame).__name__}")
        if missing := [name for name in COLUMNS[:3] if name not in frame.columns]:
            expected = "the columns qid, docno and score"
            raise UsageError(f"expected {expected}, found no {', '.join(missing)}; rename columns")
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
        ordered = {query_id: _sorted(hits) for query_id, hits in rankings.items()}
        as_written(ordered)  # what cannot be written
        return cls(tag, ordered)

    def to_dataframe(self) -> pd.DataFrame:
        """Return the columns ``qid``, ``docno``, ``score`` and ``rank`` (from 0), as in PyTerrier."""
        check_package("pandas")
        import pandas as pd

        check_hits(self)
        rows = [
            (query_id, hit.paper_id, hit.score, rank)
            for query_id, hits in self.items()
            for rank, hit in enumerate(hits)
        ]
        return pd.DataFrame(rows, columns=list(COLUMNS))

    def write(self, path: StrPath) -> None:
        """Write a TREC run file atomically, with strictly decreasing single-precision scores."""
        write_text(path, format_run(self.tag, self.rankings))

    def evaluate(self, qrels: Qrels, measures: Sequence[str] = ("nDCG", "AP")) -> Evaluation:
        """Evaluate the run by query, by facet (the end of the query id) and over all queries.

        Measures are names of ir-measures (``nDCG@20``, ``AP(rel=2)``) or of CSFCube's protocol (``NDCG%20``).
        A judged query that is missing in the run scores as an empty ranking.

        >>> run = Run("my-run", {"p1": (Hit("p7", 2.5), Hit("p3", 1.0))})
        >>> run.evaluate({"p1": {"p3": 1}}, ["RR", "P@1"]).figures
        {'RR': {'all': 0.5}, 'P@1': {'all': 0.0}}
        """
        from qbe.evaluate.evaluation import evaluate

        return evaluate(qrels, as_written(self), measures)

    def compare(
        self, other: Run, qrels: Qrels, measures: Sequence[str] = ("nDCG", "AP")
    ) -> tuple[Comparison, ...]:
        """Compare with another run, by measure and scope, with paired two-sided tests (see `Comparison`).

        >>> qrels = {"p1": {"p3": 1}, "p2": {"p3": 1}}
        >>> one, two = Hit("p3", 1.0), Hit("p7", 2.5)
        >>> run = Run("good", {"p1": (one,), "p2": (one,)})
        >>> (result,) = run.compare(Run("bad", {"p1": (two,), "p2": (two, one)}), qrels, ["RR"])
        >>> result.difference, result.randomization_p
        (0.75, 0.5)
        """
        from qbe.evaluate.significance import compare

        if not isinstance(other, Run):
            raise TypeError(f"expected a qbe.Run to compare with, found {type(other).__name__}")
        name = other.tag if other.tag != self.tag else f"{other.tag} (other)"
        ours, theirs = self.evaluate(qrels, measures), other.evaluate(qrels, measures)
        return compare({self.tag: ours}, {name: theirs})

    def fuse(self, *others: Run, weights: Sequence[float] | None = None, tag: str = "fused") -> Run:
        """Sum the z-scores of several runs, weighted (CombSUM of standardized scores).

        A paper that a run lacks has that run's lowest score there; only queries of all runs are fused.

        >>> bm25 = Run("bm25", {"p1": (Hit("a", 9.0), Hit("b", 5.0))})
        >>> dense = Run("dense", {"p1": (Hit("b", 0.75), Hit("a", 0.5), Hit("c", 0.25))})
        >>> [hit.paper_id for hit in bm25.fuse(dense)["p1"]]
        ['a', 'b', 'c']
        """
        runs = (self, *others)
        for run in runs:
            if not isinstance(run, Run):
                raise TypeError(f"expected a qbe.Run to fuse with, found {type(run).__name__}")
            as_written(run)  # what cannot be written
        weights = [1.0] * len(runs) if weights is None else weights
        if len(weights) != len(runs):
            raise UsageError(f"expected {len(runs)} `weights`, one for each run, found {len(weights)}")
        if not all(map(math.isfinite, weights)):
            raise UsageError(f"expected finite numbers as `weights`, found {', '.join(map(str, weights))}")
        shared = [query_id for query_id in self if all(query_id in run for run in others)]
        if not shared:
            raise UsageError("expected a query of all runs, found none; fuse runs of the same topics")
        return Run(tag, {q: _fused([run[q] for run in runs], weights) for q in shared})


def _fused(rankings: Sequence[Sequence[Hit]], weights: Sequence[float]) -> tuple[Hit, ...]:
    total = dict.fromkeys((hit.paper_id for hits in rankings for hit in hits), 0.0)
    for hits, weight in zip(rankings, weights, strict=True):
        scores = [hit.score for hit in hits]
        mean, deviation = (fmean(scores), pstdev(scores)) if scores else (0.0, 0.0)
        differ = deviation > 1e-9 * max(1.0, *map(abs, scores), 0.0)
        standard = {hit.paper_id: (hit.score - mean) / deviation if differ else 0.0 for hit in hits}
        lowest = min(standard.values(), default=0.0)
        for paper_id in total:
            total[paper_id] += weight * standard.get(paper_id, lowest)
    return _sorted(Hit(paper_id, score) for paper_id, score in total.items())


def _sorted(hits: Iterable[Hit]) -> tuple[Hit, ...]:
    return tuple(sorted(hits, key=lambda hit: (-hit.score, hit.paper_id)))
