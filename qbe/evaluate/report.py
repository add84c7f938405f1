"""Evaluation from files to a report: each system's evaluation, comparisons, published figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from qbe.errors import FileFormatError, UsageError
from qbe.evaluate import collections, corners, exploration, facets
from qbe.evaluate.csfcube import CSFCUBE, Folds, csfcube_protocol, judged_scopes, load_folds
from qbe.evaluate.evaluation import Evaluation, evaluate
from qbe.evaluate.inputs import group_runs, read_runs
from qbe.evaluate.measures import DEFAULT_MEASURES, MEASURES, parse_measures
from qbe.evaluate.published import PublishedRow, published_rows
from qbe.evaluate.significance import Comparison, compare
from qbe.runs import Rankings, read_qrels
from qbe.util.files import StrPath

FOLDS_NAME = "folds.json"


IN_PER_CENT = {*MEASURES, *collections.POOL_DEFINITIONS}
"""Measures that publications give in per cent."""


class Protocol(NamedTuple):
    """A protocol as a report shows it.

    ``names`` are measures' names in ir-measures where publications name them otherwise; ``compared`` are the
    measures of significance tests (None: all).
    """

    title: str
    definitions: Mapping[str, str] = MappingProxyType({})
    names: Mapping[str, str] = MappingProxyType({})
    compared: Sequence[str] | None = None


PLAIN = Protocol("means over queries")
PROTOCOLS: Mapping[str, Protocol] = {
    CSFCUBE: Protocol("CSFCube protocol, {split} folds"),
    collections.POOLS: Protocol("judged pools, means over queries", collections.POOL_DEFINITIONS),
    facets.CROSSED: Protocol("crossed pairs, shares ranked right", facets.CROSSED_DEFINITIONS),
    # Other measures have values for some queries only, and `compare` pairs all queries of a scope.
    exploration.EXPLORATION: Protocol(
        "exploration, means over query papers",
        exploration.EXPLORATION_DEFINITIONS,
        compared=(exploration.NDCG,),
    ),
    corners.AS_ASKED: Protocol(
        "first hits that are as asked, means over query papers",
        corners.AS_ASKED_DEFINITIONS,
        compared=tuple(f"P@{k}" for k in corners.AS_ASKED_CUTOFFS),
    ),
    corners.DIVERSITY: Protocol(
        "first hits by corner, means over query papers",
        corners.DIVERSITY_DEFINITIONS,
        compared=(corners.ALPHA_NDCG, exploration.NDCG),
    ),
    collections.CITATIONS: Protocol(
        "citation recommendation, means over query papers",
        collections.CITATION_DEFINITIONS,
        collections.CITATION_NAMES,
    ),
}
FACET_GRADED: Mapping[str, Callable[[facets.FacetGrades, Rankings], Evaluation]] = {
    facets.CROSSED: facets.crossed_protocol,
    exploration.EXPLORATION: exploration.exploration_protocol,
    corners.AS_ASKED: corners.as_asked_protocol,
    corners.DIVERSITY: corners.diversity_protocol,
}
"""Protocols against grades by facet."""

Evaluator = Callable[[Rankings], Evaluation]


@dataclass(frozen=True, slots=True)
class Scoring:
    """How runs are scored: a protocol (None: means over queries), measures, split and folds of CSFCube.

    With a protocol, ``measures`` are computed in addition to its own. ``folds_file`` is by default
    ``folds.json`` next to the first qrels file.
    """

    protocol: str | None = None
    measures: Sequence[str] = ()
    split: str = "test"
    folds_file: StrPath | None = None

    @property
    def described(self) -> Protocol:
        """The protocol's title and definitions."""
        return PLAIN if self.protocol is None else PROTOCOLS[self.protocol]


@dataclass(frozen=True, slots=True)
class Report:
    """Evaluations and run files by system (baselines last), baselines, comparisons and published rows."""

    scoring: Scoring
    evaluations: Mapping[str, Evaluation]
    files: Mapping[str, tuple[Path, ...]]
    baselines: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    published: tuple[PublishedRow, ...] = ()


def build_report(
    qrels_files: Sequence[StrPath],
    run_files: Sequence[StrPath],
    scoring: Scoring | None = None,
    *,
    baseline_files: Sequence[StrPath] = (),
    published: bool = False,
) -> Report:
    """Evaluate run files against qrels files, which are joined; `group_runs` joins the files of a system.

    Every system is compared with the runs of ``baseline_files``. Raises UsageError for an unknown measure, a
    run file given twice, baselines that nothing can be compared with and a scoring that is not possible,
    FileFormatError for files that are malformed or do not match.
    """
    scoring = scoring or Scoring()
    if scoring.protocol is not None and scoring.protocol not in PROTOCOLS:
        raise UsageError(f"expected a `protocol` of {', '.join(PROTOCOLS)}, found {scoring.protocol!r}")
    if scoring.measures:
        parse_measures(scoring.measures)  # a misspelt name, before any file is read
    if scoring.protocol in FACET_GRADED and scoring.measures:
        raise UsageError(f"the `protocol` {scoring.protocol} has measures of its own; leave out `measures`")
    rows = published_rows(scoring.protocol) if published else ()
    run_paths, baseline_paths = [Path(path) for path in run_files], [Path(path) for path in baseline_files]
    evaluator = _evaluator(qrels_files, scoring)
    files = group_runs([*run_paths, *(path for path in baseline_paths if path not in run_paths)])

    def evaluation(name: str, paths: tuple[Path, ...]) -> Evaluation:
        run = read_runs(paths, explored=scoring.protocol in (exploration.EXPLORATION, corners.AS_ASKED))
        try:
            return evaluator(run.rankings)
        except FileFormatError as error:
            raise FileFormatError(f"{name}: {error}") from error

    evaluations = {name: evaluation(name, paths) for name, paths in files.items()}
    baselines = {name: evaluations[name] for name, paths in files.items() if set(paths) & set(baseline_paths)}
    comparisons = compare(evaluations, baselines, scoring.described.compared) if baselines else ()
    if baselines and not comparisons:
        raise UsageError(
            f"expected another run with figures to compare with {', '.join(baselines)}, the "
            f"`baseline_files`, found {'none' if len(files) > 1 else 'it alone'}; give `run_files` "
            "of another name"
        )
    return Report(scoring, evaluations, files, tuple(baselines), comparisons, rows)


def _evaluator(qrels_files: Sequence[StrPath], scoring: Scoring) -> Evaluator:
    """Read the judgements and what belongs to them; return what evaluates a run."""
    if scoring.protocol is not None and scoring.protocol in FACET_GRADED:
        return partial(FACET_GRADED[scoring.protocol], facets.read_facet_grades(qrels_files))
    qrels = read_qrels(*qrels_files)
    if not qrels:
        raise FileFormatError("expected judgements in the qrels files, found none; give other qrels files")
    if scoring.protocol == collections.POOLS:
        return partial(collections.pool_protocol, qrels, measures=scoring.measures)
    if scoring.protocol == collections.CITATIONS:
        return partial(collections.citations_protocol, qrels, measures=scoring.measures)
    if scoring.protocol == CSFCUBE:
        folds = _folds(Path(qrels_files[0]), scoring)
        judged_scopes(folds, qrels)  # a mismatch of these two is reported without the name of a run
        return partial(csfcube_protocol, qrels, folds=folds, measures=scoring.measures)
    return partial(evaluate, qrels, measures=scoring.measures or DEFAULT_MEASURES)


def _folds(qrels_file: Path, scoring: Scoring) -> Folds:
    folds_file = scoring.folds_file
    if folds_file is None:
        folds_file = qrels_file.parent / FOLDS_NAME
        if not folds_file.is_file():
            raise FileFormatError(
                f"expected the protocol's folds in {folds_file}, found no such file; give it as `folds_file`"
            )
    return load_folds(folds_file, scoring.split)
