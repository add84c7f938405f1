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
judged pools, as ASPIRE's authors and SciDocs release them. dblp, pubmed and open-research are Citeomatic's
collections, in the files that its get-data.sh fetches. cocitations takes S2ORC's folders metadata and
pdf_parses, or a corpus that says what its papers cite, and writes pairs that are cited together, as qbe train
encoder reads them. blended takes graded pairs and their papers with labelled sentences (qbe tag), and adds
candidates of the background of one paper, the method of another and the result of a third.
docs/evaluation.md has examples.
"""
OF_CORPUS = {
    "citations": "a corpus of your own that says what its papers cite, in place of the release",
    GRADED_PAIRS: "their papers (default: those of arXiv in $QBE_DATA)",
    "blended": "their papers with labelled sentences, as qbe tag writes them; required",
}
"""What --corpus is, by data set."""
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
    taken = "\n".join(line for option, line in TAKEN.items() if name in TAKEN_BY[option])
    return f"{taken.format(of_papers=OF_CORPUS.get(name))}\n{OF_OUTPUT}"


PARSER = common.commands_parser(
    "qbe datasets",
    "Write a test collection: corpus, topics, pools, TREC qrels and folds.",
    {name: (line, f"Write {line}.", _options(name)) for name, line in NAMES.items()},
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
