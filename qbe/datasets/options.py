"""The options of ``qbe datasets``. Nothing heavy is imported, so that its help is fast."""

from __future__ import annotations

from qbe import _cli
from qbe.datasets.names import (
    CITEOMATIC,
    CORPORA,
    GRADED_PAIRS,
    NAMES,
    OF_CITATIONS,
    WITHOUT_RAW,
    WITHOUT_SOURCE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

PROGRAM = "qbe datasets"

EPILOG = """\
csfcube is read from --source, else from $QBE_DATA/csfcube; where that is absent it is downloaded from its
public repository (CC BY-NC 4.0; Mysore et al., 2021) to the cache ($QBE_CACHE, else ~/.cache/qbe). A query
paper is left out of its own pool and judgements. sample is demonstration data, not a benchmark.

relish, treccovid and scidocs have whole-abstract queries. They are read from --source, else from
$QBE_DATA/NAME: RELISH and TRECCOVID-RF as released by ASPIRE's authors (figshare), SciDocs as fetched by its
repository. Topics, pools and qrels are written for each split (dev and test; SciDocs: val and test of cite,
cocite, coview and coread). A paper without an abstract gets its title as its only sentence.

citations and citeomatic are for citation recommendation: a paper that cites others is a query, what it cites
is relevant. They have papers.jsonl and, for each split by time (train, dev, test), topics.SPLIT.tsv and
SPLIT.qrels. What papers of train cite is in papers.jsonl, too. citations --corpus FILE makes such a
collection of papers of your own, in a format of qbe index that says what they cite, by their ids: JSON lines
(metadata.cites), OpenAlex, Semantic Scholar, Crossref, PubMed, tables with a column cites. Both are read from
--source, else from $QBE_DATA/NAME; citeomatic is what get-data.sh of github.com/allenai/citeomatic fetches,
and Semantic Scholar's Open Corpus of 2017-02-21.

graded-pairs takes a file of graded pairs (tab-separated: query_id, paper_id, background, method, result) as
--source; the protocols crossed and exploration of qbe evaluate take the same file as judgements.

arxiv-cs and acl-anthology are corpora alone. arxiv-cs is made of arXiv's metadata snapshot
(arxiv-metadata-oai-snapshot.json, CC0), acl-anthology of the folder data/xml of the Anthology's repository;
--source names that file or folder. What to expect of time and space is said first; --limit is for a trial.

With --raw each abstract is one string without labels, as in most corpora (and in scidocs): qbe index splits
it and predicts facets. All other files stay the same, so that predicted and given labels can be compared.

examples:
  qbe datasets csfcube --output data/csfcube
  qbe datasets csfcube --raw --output data/csfcube-raw
  qbe datasets relish --source downloads/RELISH-Aspire --output data/relish
  qbe datasets citations --output data/citations
  qbe datasets citations --corpus works.jsonl --split-year 2018 2019 --output data/mine
  qbe datasets citeomatic --corpus dblp --source citeomatic-2018-02-12 --output data/dblp
  qbe datasets graded-pairs --source data/graded-pairs/dev-2.tsv --output data/dev-2
  qbe datasets arxiv-cs --source arxiv-metadata-oai-snapshot.json --output data/arxiv-cs
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
        command.set_defaults(source=None, raw=False, limit=None, corpus=None, split_year=(), leave_out=())
        if name in CORPORA:
            command.add_argument("--source", metavar="PATH", help="the downloaded file or folder")
            command.add_argument("--limit", type=int, metavar="N", help="the first N papers alone")
        elif name == GRADED_PAIRS:
            command.add_argument("--source", metavar="FILE", help="the pairs; required")
            command.add_argument(
                "--corpus", metavar="FILE", help="their papers (default: those of arXiv in $QBE_DATA)"
            )
        elif name not in WITHOUT_SOURCE:
            command.add_argument("--source", metavar="DIR", help="the folder of the release's files")
        if name in OF_CITATIONS:
            _add_citations(command, name)
        command.add_argument("--output", metavar="DIR", required=True, help="the folder to write to")
        command.add_argument(
            "--overwrite", action="store_true", help="replace files at --output that have another content"
        )
        if name not in WITHOUT_RAW:
            command.add_argument(
                "--raw",
                action="store_true",
                help="join the sentences of each abstract with spaces, and leave out their labels",
            )
    return parser


def _add_citations(command: argparse.ArgumentParser, name: str) -> None:
    """The options of collections of citation recommendation."""
    if name == "citeomatic":
        command.add_argument("--corpus", choices=CITEOMATIC, help="which collection; required")
    else:
        command.add_argument(
            "--corpus",
            metavar="FILE",
            help="a corpus of your own that says what its papers cite, in place of the release",
        )
        command.add_argument(
            "--split-year",
            type=int,
            nargs="+",
            metavar="YEAR",
            help="the last year of train, and of dev; with one YEAR there is no test (default: 80, 10 and 10 "
            "of a hundred papers that cite others, in the order of their years)",
        )
    command.add_argument(
        "--leave-out",
        nargs="+",
        metavar="FILE",
        help="papers of other collections: no paper with such a title (Jaccard above 0.7) is a query",
    )
