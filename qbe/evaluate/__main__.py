"""``python -m qbe.evaluate``: runs against judgements, as tables and JSON."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from qbe import _cli
from qbe.errors import UsageError

if TYPE_CHECKING:
    from qbe.evaluate.queries import RunComparison
    from qbe.evaluate.report import Report

EPILOG = """\
NAME.background.trec, NAME.method.trec and NAME.result.trec are one run, NAME, and get one row.
Query ids end in _background, _method or _result where figures by facet are wanted.

measures: those of ir-measures (nDCG@10, AP(rel=2), P@20, R@20, RR, ...; https://ir-measur.es) and of
the CSFCube protocol (NDCG%20, R-Precision; CSFCube_nDCG, CSFCube_AP, CSFCube_Rprec, CSFCube_P20,
CSFCube_R20).

--protocol relish, treccovid and scidocs score whole-abstract queries, one split's qrels at a time, over their
judged pools by the measures that these collections are published with.

A judged query that a run lacks scores as an empty ranking, a pool document that it lacks counts as not
retrieved, and both are told on standard error. A facet of which a run answers no query has no figure.

example:
  python -m qbe.evaluate --protocol csfcube --qrels qrels/csfcube.*.qrels --run runs/csfcube.*.trec \\
      --baseline runs/csfcube.bm25.*.trec --published --output runs/report.json
  python -m qbe.evaluate --protocol csfcube --qrels qrels/csfcube.*.qrels --corpus qrels/corpus.jsonl \\
      --run runs/csfcube.fused+rerank.*.trec --baseline runs/csfcube.fused.*.trec \\
      --plot runs/gains.svg --worst 10
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m qbe.evaluate",
        description="Evaluate TREC runs against TREC judgements.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--qrels", nargs="+", type=Path, required=True, metavar="FILE", help="TREC qrels files, joined")
    add("--run", nargs="+", type=Path, required=True, metavar="FILE", help="TREC run files")
    add("--measures", nargs="+", default=[], metavar="NAME", help="measures (default: nDCG AP P@20 R@20 RR)")
    add(
        "--protocol",
        choices=["csfcube", "relish", "treccovid", "scidocs"],
        help="as that collection's own scorer: judged pools, for csfcube two folds as well",
    )
    add("--folds", type=Path, metavar="FILE", help="the folds (default: folds.json beside the first qrels)")
    add("--split", choices=["test", "dev"], help="test folds (default), or fold1_dev alone")
    add(
        "--baseline", nargs="+", type=Path, default=[], metavar="FILE", help="runs to test the others against"
    )
    add("--published", action="store_true", help="show published figures beside (with --protocol csfcube)")
    add("--output", type=Path, metavar="FILE", help="write the whole report as JSON")
    add(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw what each query gains or loses against the baseline under the first run (.svg, .png)",
    )
    add(
        "--worst",
        type=int,
        metavar="N",
        help="print the N queries that lose most against the baseline under the first run, and its N lowest",
    )
    add("--corpus", type=Path, metavar="FILE", help="JSON lines with paper_id and title, for --worst")
    return parser


def main(argv: list[str]) -> None:
    options = build_parser().parse_args(argv)
    csfcube = options.protocol == "csfcube"
    if not csfcube and (options.folds or options.split or options.published):
        raise UsageError(
            "--folds, --split and --published go with CSFCube's protocol; add --protocol csfcube"
        )
    if options.published and options.split == "dev":
        raise UsageError(
            "published figures are those of the test folds; leave out --published or --split dev"
        )
    by_query = options.plot is not None or options.worst is not None
    if by_query and not (csfcube and options.baseline):
        raise UsageError("--plot and --worst need --protocol csfcube and a --baseline; give both")
    if options.worst is not None and options.worst < 1:
        raise UsageError(f"expected --worst of at least 1, found {options.worst}")
    if options.corpus and options.worst is None:
        raise UsageError("--corpus gives the titles that --worst prints; add --worst or leave out --corpus")

    from qbe.evaluate.plot import check_plot, write_plot
    from qbe.evaluate.queries import facing
    from qbe.evaluate.render import to_json, to_text
    from qbe.evaluate.report import build_report

    if options.plot:
        check_plot(options.plot)
    report = build_report(
        options.qrels,
        options.run,
        measures=options.measures,
        protocol=options.protocol,
        folds_file=options.folds,
        split=options.split or "test",
        baseline_files=options.baseline,
        published=options.published,
    )
    for name, evaluation in report.rows.items():
        for warning in evaluation.warnings:
            print(f"qbe.evaluate: warning: {name}: {warning}", file=sys.stderr)
    pair = facing(report) if by_query else None
    worst = _worst(report, pair, options) if pair and options.worst else ""
    if pair and options.plot:
        write_plot(options.plot, pair)
    if options.output:
        import json

        from qbe.files import write_text

        write_text(options.output, json.dumps(to_json(report), indent=1, ensure_ascii=False) + "\n")
    print(to_text(report), end="")
    if worst:
        print(f"\n{worst}", end="")


def _worst(report: Report, pair: RunComparison, options: argparse.Namespace) -> str:
    from qbe.evaluate.inputs import read_titles
    from qbe.evaluate.queries import outcomes
    from qbe.evaluate.worst import worst_to_text

    titles = read_titles(options.corpus) if options.corpus else {}
    return worst_to_text(pair, outcomes(report, pair, options.qrels), options.worst, titles)


if __name__ == "__main__":
    _cli.run("qbe.evaluate", main)
