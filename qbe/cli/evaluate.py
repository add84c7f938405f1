"""``qbe evaluate``: runs against qrels, as tables and JSON."""

from __future__ import annotations

import argparse

from qbe.cli import common
from qbe.cli.common import Parser

PROGRAM = "qbe evaluate"
EPILOG = """\
NAME.background.trec, NAME.method.trec and NAME.result.trec are one run, NAME, and get one row.
Figures by facet are given where all query ids end in _background, _method or _result.

measures: those of ir-measures (nDCG@10, AP(rel=2), P@20, R@20, RR, ...; https://ir-measur.es) and of
the CSFCube protocol (NDCG%20, R-Precision; CSFCube_nDCG, CSFCube_AP, CSFCube_Rprec, CSFCube_P20,
CSFCube_R20).

protocols (docs/evaluation.md defines them):
  csfcube      CSFCube's own scorer: judged pools in two folds
  pools        judged pools of whole-abstract queries, as of RELISH, TRECCOVID-RF and SciDocs; give the
               qrels of one split
  crossed      of pairs of papers of which each is better for one facet by a grade: the shares ranked right
               by the run of the first facet, of the second, and by both
  exploration  rankings by a liked and a disliked facet, of runs named NAME.background-not-method.trec or of
               queries such as 1*ID_background&-0.5*ID_method, or by the liked facet alone (ID_background)
  as-asked     of the first 5 and 10 hits over a whole corpus, those that are as asked; a hit without a grade
               counts as not asked for, and is reported
  diversity    of the first 10 hits of any list for a paper (ID, ID_anything), how many corners they come
               from: same problem and other method, same method and other problem, competitors
  citations    recommended citations over the whole ranking
crossed, exploration, as-asked and diversity take qrels of several facets of the same papers, or files of
graded pairs (tab-separated: query_id, paper_id, background, method, result).

A judged query that is missing in a run scores as an empty ranking, and a pool document that is missing
counts as not retrieved; standard error gets a warning of both. A facet without any query in a run has no
figure.

examples:
  qbe evaluate --protocol csfcube --qrels qrels/csfcube.*.qrels --run runs/csfcube.*.trec \\
      --baseline runs/csfcube.bm25.*.trec --published --output runs/report.json
  qbe evaluate --protocol csfcube --qrels qrels/csfcube.*.qrels --corpus qrels/corpus.jsonl \\
      --run runs/csfcube.fused+grades.*.trec --baseline runs/csfcube.fused.*.trec \\
      --worst 10
  qbe evaluate --protocol citations --qrels citations/dev.qrels --run runs/fused.trec \\
      --baseline runs/bm25.trec --published
"""


OPTIONS = f"""
--qrels FILE...!  TREC qrels files, which are joined
--run FILE...!  TREC run files
--measures NAME...  these measures alone (default: those of the protocol, or nDCG AP P@20 R@20 RR)
--protocol csfcube|pools|crossed|exploration|as-asked|diversity|citations  how runs are scored (default: means
  over queries, by measures of ir-measures)
--folds FILE  the folds (default: folds.json next to the first qrels file)
--split test|dev  the test folds (default), or fold1_dev
--baseline FILE...  runs that the others are compared with, by significance tests
--published  add published figures (csfcube and citations)
--details  print all measures, all published systems, and all significance tests
--output FILE  write the whole report as JSON
{common.OVERWRITE}\
--plot FILE  draw the figures of the runs in their order, with a --baseline the differences (.svg, .png)
--worst N  print the N queries with the largest losses of the first run against the baseline, and the N with
  its lowest scores
--corpus FILE  papers: titles for --worst
"""
PARSER = Parser(PROGRAM, "Evaluate TREC runs against TREC qrels.", OPTIONS, EPILOG)


def check(options: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go together, or a value out of range."""
    import os

    from qbe.errors import UsageError, check_count

    csfcube = options.protocol == "csfcube"
    if not csfcube and (options.folds or options.split):
        raise UsageError("--folds and --split go with CSFCube's protocol; add --protocol csfcube")
    if options.published and not (csfcube or options.protocol == "citations"):
        raise UsageError(
            "there are published figures for two protocols; add --protocol csfcube or --protocol citations"
        )
    if options.published and options.split == "dev":
        raise UsageError(
            "published figures are those of the test folds; leave out --published or --split dev"
        )
    if options.plot and options.output and os.path.realpath(options.plot) == os.path.realpath(options.output):
        raise UsageError(f"expected --plot and --output to name two files, found {options.plot} for both")
    if options.worst is not None:
        if not (csfcube and options.baseline):
            raise UsageError("--worst needs --protocol csfcube and a --baseline; give both")
        check_count("worst", options.worst)


def main(arguments: list[str]) -> None:
    options = PARSER.parse_args(arguments)
    check(options)

    import json

    from qbe.evaluate.render import to_json, to_text
    from qbe.evaluate.report import Scoring, build_report
    from qbe.util.files import check_output, write_text

    if options.output:
        check_output(options.output, options.overwrite)
    if options.plot:
        from qbe.evaluate.plot import check_plot, write_plot

        check_plot(options.plot)
        check_output(options.plot, options.overwrite, "plot")
    scoring = Scoring(options.protocol, tuple(options.measures or ()), options.split or "test", options.folds)
    report = build_report(
        options.qrels,
        options.run,
        scoring,
        baseline_files=options.baseline or (),
        published=options.published,
    )
    for name, evaluation in report.evaluations.items():
        for warning in evaluation.warnings:
            common.note(PROGRAM, f"warning: {name}: {warning}")
    worst = ""
    if options.worst:
        from qbe.evaluate.queries import compare_runs, outcomes, worst_to_text
        from qbe.evaluate.report import read_titles

        comparison = compare_runs(report)
        titles = read_titles(options.corpus) if options.corpus else {}
        worst = worst_to_text(comparison, outcomes(report, comparison, options.qrels), options.worst, titles)
    if options.plot:
        write_plot(options.plot, report)
    if options.output:
        text = json.dumps(to_json(report), indent=1, ensure_ascii=False, allow_nan=False)
        write_text(options.output, f"{text}\n")
    print(to_text(report, details=options.details), end="")
    if worst:
        print(f"\n{worst}", end="")
