"""``qbe evaluate``: runs against qrels, as tables and JSON."""

from __future__ import annotations

from qbe.cli import common
from qbe.cli.common import Parser, refuse

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
counts as not retrieved; standard error gets a warning of both.
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
--by-paper  with --plot: draw the first measure of papers that are queries by several facets, a panel a run
--worst N  print the N queries with the largest losses of the first run against the baseline, and the N with
  its lowest scores
--corpus FILE  papers: titles for --worst
"""
PARSER = Parser(PROGRAM, "Evaluate TREC runs against TREC qrels.", OPTIONS, EPILOG)


def main(arguments: list[str]) -> None:
    options = PARSER.parse_args(arguments)

    import json
    import os

    from qbe.errors import check_count
    from qbe.evaluate.render import to_json, to_text
    from qbe.evaluate.report import Scoring, build_report
    from qbe.util.files import check_output, write_text

    csfcube = options.protocol == "csfcube"
    if not csfcube:
        told = "--folds and --split go with CSFCube's protocol; add --protocol csfcube"
        refuse(options.folds or options.split, told)
    if options.published:
        told = "there are published figures for two protocols; add --protocol csfcube or --protocol citations"
        refuse(options.protocol not in ("csfcube", "citations"), told)
        told = "published figures are those of the test folds; leave out --published or --split dev"
        refuse(options.split == "dev", told)
    if options.worst is not None:
        told = "--worst needs --protocol csfcube and a --baseline; give both"
        refuse(not (csfcube and options.baseline), told)
        check_count("worst", options.worst)
    if options.output:
        check_output(options.output, options.overwrite)
    refuse(options.by_paper and not options.plot, "--by-paper says what --plot draws; add --plot")
    if options.plot:
        from qbe.evaluate.plot import check_plot, write_plot

        check_plot(options.plot)
        check_output(options.plot, options.overwrite, "plot")
        is_same = options.output and os.path.realpath(options.plot) == os.path.realpath(options.output)
        refuse(is_same, f"expected --plot and --output to name two files, found {options.plot} for both")
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
        write_plot(options.plot, report, by_paper=options.by_paper)
    if options.output:
        text = json.dumps(to_json(report), indent=1, ensure_ascii=False, allow_nan=False)
        write_text(options.output, f"{text}\n")
    print(to_text(report, details=options.details), end="")
    if worst:
        print(f"\n{worst}", end="")
