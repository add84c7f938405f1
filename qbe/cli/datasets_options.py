"""The options of ``qbe datasets``. Nothing heavy is imported, so that its help is fast."""

from __future__ import annotations

from qbe.cli import common as _cli
from qbe.datasets.names import GRADED_PAIRS, NAMES, TAKEN_BY

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

PROGRAM = "qbe datasets"

EPILOG = """\
csfcube is read from --source, else from $QBE_DATA/csfcube; where that is absent it is downloaded from its
public repository (CC BY-NC 4.0; Mysore et al., 2021) to the cache ($QBE_CACHE, else ~/.cache/qbe). sample is
demonstration data, not a benchmark.

citations is for citation recommendation: a paper that cites others is a query, what it cites is relevant. It
has papers.jsonl and, for each split by time (train, dev, test), topics.SPLIT.tsv and SPLIT.qrels. With
--corpus FILE it is made of papers of your own, in a format of qbe index that says what they cite by their
ids. graded-pairs takes a file of graded pairs (tab-separated: query_id, paper_id, background, method and
result), or a folder of such files. arxiv-cs takes arXiv's metadata snapshot (CC0;
kaggle.com/datasets/Cornell-University/arxiv), and writes the papers of computer science to the end of 2019,
as qbe train and graded-pairs read them.

relish, treccovid and scidocs are whole-abstract queries with judged pools, in the layouts in which ASPIRE's
authors and SciDocs' repository release them (docs/evaluation.md says where).

examples:
  qbe datasets csfcube --output data/csfcube
  qbe datasets csfcube --raw --output data/csfcube-raw
  qbe datasets citations --output data/citations
  qbe datasets citations --corpus works.jsonl --split-year 2018 2019 --output data/mine
  qbe datasets graded-pairs --source data/graded-pairs/dev-2.tsv --output data/dev-2
  qbe datasets arxiv-cs --source arxiv-metadata-oai-snapshot.json --output "$QBE_DATA/arxiv-cs"
  qbe datasets relish --source RELISH-Aspire --output data/relish
  qbe datasets sample --output data/sample
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options; paths stay strings.

    >>> options = parser().parse_args(["sample", "--output", "data/sample"])
    >>> options.name, options.output, options.raw
    ('sample', 'data/sample', False)
    """
    parser = _cli.parser(PROGRAM, "Write a test collection: corpus, topics, pools, TREC qrels and folds.")
    parser.epilog = EPILOG
    names = parser.add_subparsers(dest="name", required=True, metavar=f"{{{','.join(NAMES)}}}")
    for name, description in NAMES.items():
        command = names.add_parser(name, help=description)
        command.set_defaults(source=None, raw=False, corpus=None, split_year=(), leave_out=())
        add = command.add_argument
        if name in TAKEN_BY["source"]:
            add("--source", metavar="PATH", help="the folder of the release, or its file")
        if name in TAKEN_BY["corpus"]:
            add(
                "--corpus",
                metavar="FILE",
                help="their papers (default: those of arXiv in $QBE_DATA)"
                if name == GRADED_PAIRS
                else "a corpus of your own that says what its papers cite, in place of the release",
            )
        if name in TAKEN_BY["split_years"]:
            add(
                "--split-year",
                type=int,
                nargs="+",
                metavar="YEAR",
                help="the last year of train, and of dev; with one YEAR there is no test (default: 80, 10 "
                "and 10 of a hundred papers that cite others, in the order of their years)",
            )
        if name in TAKEN_BY["leave_out"]:
            add(
                "--leave-out",
                nargs="+",
                metavar="FILE",
                help="papers of other collections: no paper with such a title (Jaccard above 0.7) is a query",
            )
        add("--output", metavar="DIR", required=True, help="the folder to write to")
        add("--overwrite", action="store_true", help="replace files at --output that have another content")
        if name in TAKEN_BY["raw"]:
            add(
                "--raw",
                action="store_true",
                help="join the sentences of each abstract with spaces, and leave out their labels",
            )
    return parser
