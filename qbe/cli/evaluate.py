"""``qbe evaluate``: runs against qrels, as tables and JSON."""

from __future__ import annotations

import sys

from qbe.cli import common as _cli
from qbe.cli.evaluate_options import PROGRAM, check, parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from qbe.evaluate.report import Report

OPTIONS = {
    "qrels_files": "--qrels",
    "run_files": "--run",
    "folds_file": "--folds",
    "baseline_files": "--baseline",
}


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)
    check(options)

    from qbe.evaluate.render import to_json, to_text
    from qbe.evaluate.report import Scoring, build_report
    from qbe.util.outputs import PLOT, REPORT, check_output

    if options.output:
        check_output(options.output, REPORT)
    if options.plot:
        from qbe.evaluate.plot import check_plot

        check_plot(options.plot)
        check_output(options.plot, PLOT, "plot")
    scoring = Scoring(
        options.protocol,
        tuple(options.measures),
        options.split or "test",
        options.folds,
    )
    report = build_report(
        options.qrels,
        options.run,
        scoring,
        baseline_files=options.baseline,
        published=options.published,
    )
    for name, evaluation in report.evaluations.items():
        for warning in evaluation.warnings:
            print(f"{PROGRAM}: warning: {name}: {warning}", file=sys.stderr)
    worst = _worst(report, options.qrels, options.worst, options.corpus) if options.worst else ""
    if options.plot:
        from qbe.evaluate.plot import write_plot

        write_plot(options.plot, report)
    if options.output:
        import json

        from qbe.util.files import write_text

        text = json.dumps(to_json(report), indent=1, ensure_ascii=False, allow_nan=False)
        write_text(options.output, f"{text}\n")
    print(to_text(report), end="")
    if worst:
        print(f"\n{worst}", end="")


def _worst(report: Report, qrels_files: list[str], count: int, corpus: str | None) -> str:
    from qbe.evaluate.inputs import read_titles
    from qbe.evaluate.queries import compare_runs, outcomes, worst_to_text

    comparison = compare_runs(report)
    titles = read_titles(corpus) if corpus else {}
    return worst_to_text(comparison, outcomes(report, comparison, qrels_files), count, titles)


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
