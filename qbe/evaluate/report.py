"""Evaluation from files to a report: each system's evaluation, comparisons, published figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from qbe.errors import FileFormatError, UsageError
from qbe.evaluate import as_asked, citations, crossed, diversity, exploration, pools
from qbe.evaluate.as_asked import AS_ASKED, CUTOFFS, as_asked_protocol
from qbe.evaluate.citations import CITATIONS, citations_protocol
from qbe.evaluate.crossed import CROSSED, FacetGrades, crossed_protocol, read_facet_grades
from qbe.evaluate.csfcube import CSFCUBE, MEASURES
from qbe.evaluate.diversity import DIVERSITY, diversity_protocol
from qbe.evaluate.evaluation import evaluate
from qbe.evaluate.exploration import EXPLORATION, NDCG, exploration_protocol
from qbe.evaluate.inputs import group_runs, read_runs
from qbe.evaluate.measures import DEFAULT_MEASURES, definition, parse_measures
from qbe.evaluate.pools import POOLS, pool_protocol
from qbe.evaluate.protocol import Folds, csfcube_protocol, judged_scopes, load_folds
from qbe.evaluate.published import PublishedRow, published_rows
from qbe.evaluate.results import Evaluation
from qbe.evaluate.significance import Comparison, compare
from qbe.runs import Rankings, read_qrels
from qbe.util.files import StrPath

FOLDS_NAME = "folds.json"


IN_PER_CENT = {*MEASURES, *pools.DEFINITIONS}
"""Measures under their names in publications, where they are given in per cent."""


class Protocol(NamedTuple):
    """How a protocol appears in a report: its title, the definitions of its measures, and the names in
    ir-measures of those that publications name otherwise. ``compared`` are the measures of comparisons (None:
    all).
    """

    title: str
    definitions: Mapping[str, str] = MappingProxyType({})
    names: Mapping[str, str] = MappingProxyType({})
    compared: Sequence[str] | None = None

    def definition(self, measure: str) -> str:
        """A one-line definition of a measure."""
        return self.definitions.get(measure) or definition(self.names.get(measure, measure))


PLAIN = Protocol("means over queries")

PROTOCOLS: Mapping[str, Protocol] = {
    CSFCUBE: Protocol("CSFCube protocol, {split} folds"),
    POOLS: Protocol("judged pools, means over queries", pools.DEFINITIONS),
    CROSSED: Protocol("crossed pairs, shares ranked right", crossed.DEFINITIONS),
    # `compare` pairs all queries of a scope: other measures have values for some only.
    EXPLORATION: Protocol("exploration, means over query papers", exploration.DEFINITIONS, compared=(NDCG,)),
    AS_ASKED: Protocol(
        "first hits that are as asked, means over query papers",
        as_asked.DEFINITIONS,
        compared=tuple(f"P@{k}" for k in CUTOFFS),
    ),
    DIVERSITY: Protocol(
        "first hits by corner, means over query papers",
        diversity.DEFINITIONS,
        compared=(diversity.ALPHA_NDCG, NDCG),
    ),
    CITATIONS: Protocol(
        "citation recommendation, means over query papers", citations.DEFINITIONS, citations.NAMES
    ),
}

FACET_GRADED: Mapping[str, Callable[[FacetGrades, Rankings], Evaluation]] = {
    CROSSED: crossed_protocol,
    EXPLORATION: exploration_protocol,
    AS_ASKED: as_asked_protocol,
    DIVERSITY: diversity_protocol,
}
"""Protocols against grades by facet, with measures of their own."""

Evaluator = Callable[[Rankings], Evaluation]


@dataclass(frozen=True, slots=True)
class Scoring:
    """How runs are scored.

    Attributes:
        protocol: one of PROTOCOLS, or None for plain means over the queries.
        measures: names for `parse_measures`. With a protocol they are computed in addition to its own
            measures; without one, instead of the default ones.
        split: the folds that the protocol ``csfcube`` averages: ``test`` or ``dev``.
        folds_file: the folds of ``csfcube``; None for ``folds.json`` next to the first qrels file.
    """

    protocol: str | None = None
    measures: Sequence[str] = ()
    split: str = "test"
    folds_file: StrPath | None = None

    @property
    def described(self) -> Protocol:
        """What a report says of the protocol."""
        return PLAIN if self.protocol is None else PROTOCOLS[self.protocol]


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `build_report`.

    Attributes:
        scoring: how the runs were scored.
        evaluations: evaluations by system, in the order in which the runs were given; baselines last.
        files: run files by system.
        baselines: names of the systems that the others are compared with.
        comparisons: of the systems with the baselines.
        published: published figures.
    """

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
    r"""Evaluate run files against qrels files.

    Args:
        qrels_files: TREC qrels, which are joined.
        run_files: TREC runs; the files of one system are joined as `group_runs` says.
        scoring: protocol, measures and folds; by default plain means of the default measures.
        baseline_files: runs that every system is compared with; they are evaluated as well.
        published: whether the report contains published figures.

    Raises UsageError for an unknown measure, a run file given twice, baselines that nothing can be compared
    with, or a scoring that is not possible,
    FileFormatError for a file that cannot be read, that does not follow its format, or that does not match
    the others.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     qrels, run = Path(folder, "a.qrels"), Path(folder, "bm25.trec")
    ...     _ = qrels.write_text("1 0 a 0\n1 0 b 1\n")
    ...     _ = run.write_text("1 Q0 a 1 9.5 bm25\n1 Q0 b 2 7.5 bm25\n")
    ...     report = build_report([qrels], [run], Scoring(measures=["RR"]))
    >>> report.evaluations["bm25"].figures
    {'RR': {'all': 0.5}}
    """
    scoring = scoring or Scoring()
    _check(scoring)
    rows = published_rows(scoring.protocol) if published else ()
    run_paths, baseline_paths = [Path(path) for path in run_files], [Path(path) for path in baseline_files]
    evaluator = _evaluator(qrels_files, scoring)
    files = group_runs([*run_paths, *(path for path in baseline_paths if path not in run_paths)])

    def evaluation(name: str, paths: tuple[Path, ...]) -> Evaluation:
        run = read_runs(paths, explored=scoring.protocol in (EXPLORATION, AS_ASKED))
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
    return Report(
        scoring,
        evaluations,
        files,
        tuple(baselines),
        comparisons,
        rows,
    )


def _check(scoring: Scoring) -> None:
    """Raise UsageError for what can be told before any file is read."""
    if scoring.protocol is not None and scoring.protocol not in PROTOCOLS:
        raise UsageError(f"expected a `protocol` of {', '.join(PROTOCOLS)}, found {scoring.protocol!r}")
    if scoring.measures:
        parse_measures(scoring.measures)  # a misspelt name
    if scoring.protocol in FACET_GRADED and scoring.measures:
        raise UsageError(f"the `protocol` {scoring.protocol} has measures of its own; leave out `measures`")


def _evaluator(qrels_files: Sequence[StrPath], scoring: Scoring) -> Evaluator:
    """Read the judgements and what belongs to them; return what evaluates a run."""
    if scoring.protocol is not None and scoring.protocol in FACET_GRADED:
        return partial(FACET_GRADED[scoring.protocol], read_facet_grades(qrels_files))
    qrels = read_qrels(*qrels_files)
    if not qrels:
        raise FileFormatError("expected judgements in the qrels files, found none; give other qrels files")
    if scoring.protocol == POOLS:
        return partial(pool_protocol, qrels, measures=scoring.measures)
    if scoring.protocol == CITATIONS:
        return partial(citations_protocol, qrels, measures=scoring.measures)
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
