"""From files to a report: every system's evaluation, comparisons, published rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbe.errors import FileFormatError
from qbe.evaluate.evaluation import evaluate
from qbe.evaluate.folds import Folds, load_folds
from qbe.evaluate.inputs import group_runs, read_qrels, read_runs
from qbe.evaluate.measures import DEFAULT_MEASURES, parse_measures
from qbe.evaluate.pools import POOL_PROTOCOLS, pool_protocol
from qbe.evaluate.protocol import csfcube_protocol, judged_scopes
from qbe.evaluate.published import PublishedRow, published_rows
from qbe.evaluate.results import Evaluation
from qbe.evaluate.significance import Comparison, compare

FOLDS_NAME = "folds.json"

PROTOCOLS = ("csfcube", *POOL_PROTOCOLS)


@dataclass(frozen=True, slots=True)
class Report:
    """All that one call of the command line found out.

    Attributes:
        protocol: one of PROTOCOLS, or None for plain means over the queries.
        split: the folds that the protocol ``csfcube`` averaged: ``test`` or ``dev``.
        rows: evaluations by system, in the order given; baselines after the others.
        files: run files by system.
        baselines: the systems that the others are compared with.
        comparisons: of the systems with the baselines.
        published: published rows to stand beside.
    """

    protocol: str | None
    split: str
    rows: Mapping[str, Evaluation]
    files: Mapping[str, tuple[Path, ...]]
    baselines: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    published: tuple[PublishedRow, ...] = ()


def build_report(
    qrels_files: Sequence[Path],
    run_files: Sequence[Path],
    *,
    measures: Sequence[str] = (),
    protocol: str | None = None,
    folds_file: Path | None = None,
    split: str = "test",
    baseline_files: Sequence[Path] = (),
    published: bool = False,
) -> Report:
    """Evaluate run files against qrels files.

    Args:
        qrels_files: TREC qrels, joined.
        run_files: TREC runs; the files of one system are joined as ``group_runs`` says.
        measures: names for ``parse_measures``; beside the protocol's own, or instead of the default ones.
        protocol: one of PROTOCOLS, or None.
        folds_file: the folds of ``csfcube``; ``folds.json`` beside the first qrels file when None.
        split: ``test`` or ``dev`` folds of ``csfcube``.
        baseline_files: runs that every system is compared with; they get rows as well.
        published: whether published rows belong in the report.

    Raises UsageError and FileFormatError as the functions that it calls.
    """
    if not protocol:
        measures = measures or DEFAULT_MEASURES
    if measures:
        parse_measures(measures)  # a misspelt name should not wait for the files
    qrels = read_qrels(qrels_files)
    folds = _folds(qrels_files, folds_file, split) if protocol == "csfcube" else None
    if folds:
        judged_scopes(folds, qrels)  # so that a mismatch of these two is not laid on a run
    groups = group_runs([*run_files, *(path for path in baseline_files if path not in run_files)])
    rows = {name: _evaluate(name, files, qrels, protocol, folds, measures) for name, files in groups.items()}
    baselines = {name: rows[name] for name, files in groups.items() if set(files) & set(baseline_files)}
    return Report(
        protocol,
        split,
        rows,
        groups,
        tuple(baselines),
        compare(rows, baselines) if baselines else (),
        published_rows() if published else (),
    )


def _evaluate(
    name: str,
    files: Sequence[Path],
    qrels: Mapping[str, Mapping[str, int]],
    protocol: str | None,
    folds: Folds | None,
    measures: Sequence[str],
) -> Evaluation:
    run = read_runs(files)
    try:
        if folds:
            return csfcube_protocol(qrels, run, folds, measures)
        return pool_protocol(qrels, run, protocol, measures) if protocol else evaluate(qrels, run, measures)
    except FileFormatError as error:
        raise FileFormatError(f"{name}: {error}") from error


def _folds(qrels_files: Sequence[Path], folds_file: Path | None, split: str) -> Folds:
    if folds_file is None:
        folds_file = qrels_files[0].parent / FOLDS_NAME
        if not folds_file.is_file():
            raise FileFormatError(
                f"expected the protocol's folds in {folds_file}, found no such file; give it with --folds"
            )
    return load_folds(folds_file, split)
