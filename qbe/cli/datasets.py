"""``qbe datasets``: a test collection as corpus, topics, pools, qrels and folds."""

from __future__ import annotations

import sys

from qbe.cli import common
from qbe.datasets.names import GRADED_PAIRS, NAMES, TAKEN_BY

EPILOG = """\
csfcube is read from --source, else from $QBE_DATA/csfcube; where that is absent it is downloaded from its
public repository (CC BY-NC 4.0) to the cache. sample is demonstration data, not a benchmark.

citations: a paper that cites others is a query, what it cites is relevant; by time there are topics.SPLIT.tsv
and SPLIT.qrels for train, dev and test. With --corpus FILE it is made of papers of your own, in a format of
qbe index that says what they cite. graded-pairs takes a file of graded pairs (query_id, paper_id, background,
method, result), or a folder of such. arxiv-cs takes arXiv's metadata snapshot (CC0;
kaggle.com/datasets/Cornell-University/arxiv). relish, treccovid and scidocs are whole-abstract queries with
judged pools, as ASPIRE's authors and SciDocs release them. docs/evaluation.md has examples.
"""
OF_PAPERS = "a corpus of your own that says what its papers cite, in place of the release"
TAKEN = {
    "source": "--source PATH  the folder of the release, or its file",
    "corpus": "--corpus FILE  {of_papers}",
    "split_years": "--split-year YEAR...  the last year of train, and of dev; with one YEAR there is no test "
    "(default: 80, 10 and 10 of a hundred papers that cite others, in the order of their years)",
    "leave_out": "--leave-out FILE...  papers of other collections: no paper with such a title (Jaccard "
    "above 0.7) is a query",
    "raw": "--raw  join the sentences of each abstract with spaces, and leave out their labels",
}
OF_OUTPUT = """\
--output DIR!  the folder to write to
--overwrite  replace files at --output that have another content"""


def _options(name: str) -> str:
    of_papers = "their papers (default: those of arXiv in $QBE_DATA)" if name == GRADED_PAIRS else OF_PAPERS
    lines = [line.format(of_papers=of_papers) for option, line in TAKEN.items() if name in TAKEN_BY[option]]
    return "\n".join([*lines, OF_OUTPUT])


PARSER = common.commands_parser(
    "qbe datasets",
    "Write a test collection: corpus, topics, pools, TREC qrels and folds.",
    {name: (line, "", _options(name)) for name, line in NAMES.items()},
    EPILOG,
)


def main(arguments: list[str]) -> None:
    options = PARSER.parse_args(arguments)

    from qbe.datasets.registry import DatasetOptions, write_dataset

    years, leave_out = getattr(options, "split_year", None), getattr(options, "leave_out", None)
    chosen = common.made(
        DatasetOptions, options, split_years=tuple(years or ()), leave_out=tuple(leave_out or ())
    )

    def report(line: str) -> None:
        print(line, file=sys.stderr)

    name, output = options.command, options.output
    print(*write_dataset(name, output, chosen, overwrite=options.overwrite, report=report), sep="\n")
    print(f"written to {output}")
