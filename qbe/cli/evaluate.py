"""``qbe evaluate``: runs against qrels, as tables and JSON."""

import json
import os

from qbe.cli import common
from qbe.cli.common import refuse
from qbe.cli.parser import parse
from qbe.errors import check_count
from qbe.evaluate.render import to_json, to_text
from qbe.evaluate.report import Report, Scoring, build_report
from qbe.util.files import check_output, write_text


def values_of_queries(report: Report) -> str:
    """Return a line for each measure and query, and then each scope, of each run."""
    lines = []
    for name, evaluation in report.evaluations.items():
        run = f"{name}\t" if len(report.evaluations) > 1 else ""
        for measure, values in evaluation.per_query.items():
            for query, value in (*sorted(values.items()), *evaluation.figures[measure].items()):
                lines.append(f"{run}{measure}\t{query}\t{'-' if value is None else f'{value:.4f}'}\n")
    return "".join(lines)


def main(arguments: list[str]) -> None:
    options = parse("evaluate", arguments)

    csfcube = options.protocol == "csfcube"
    told = "published figures are those of the test folds; leave out --published or --split dev"
    refuse(options.published and options.split == "dev", told)
    if options.worst is not None:
        told = "--worst needs --protocol csfcube and a --baseline; give both"
        refuse(not (csfcube and options.baseline), told)
        check_count("worst", options.worst)
    if options.output:
        check_output(options.output, options.overwrite)
    if options.plot:
        from qbe.evaluate.render import check_plot, write_plot

        check_plot(options.plot)
        check_output(options.plot, options.overwrite, "plot")
        is_same = options.output and os.path.realpath(options.plot) == os.path.realpath(options.output)
        refuse(is_same, f"expected --plot and --output to name two files, found {options.plot} for both")
    how = Scoring(options.protocol, tuple(options.measures or ()), options.split or "test", options.folds)
    report = build_report(
        options.qrels, options.run, how, baseline_files=options.baseline or (), published=options.published
    )
    for name, evaluation in report.evaluations.items():
        for warning in evaluation.warnings:
            common.note(f"warning: {name}: {warning}")
    worst = ""
    if options.worst:
        from qbe.corpus.reading import read_corpus
        from qbe.corpus.records import Reading
        from qbe.corpus.sentences import unsplit
        from qbe.evaluate.report import worst_to_text

        titles = dict[str, str]()
        if options.corpus:
            papers = read_corpus([options.corpus], unsplit, Reading(keep_without_abstract=True))
            titles = {paper.paper_id: paper.title for paper in papers}
        worst = worst_to_text(report, options.qrels, options.worst, titles)
    if options.plot:
        write_plot(options.plot, report, by_paper=options.by_paper)
    if options.output:
        text = json.dumps(to_json(report), indent=1, ensure_ascii=False, allow_nan=False)
        write_text(options.output, f"{text}\n")
    text = values_of_queries(report) if options.per_query else to_text(report, details=options.details)
    print(f"{text}\n{worst}" if worst else text, end="")
