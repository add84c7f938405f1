"""The options of ``qbe datasets``. Nothing heavy is imported, so that its help is fast."""

from __future__ import annotations

from qbe import _cli
from qbe.datasets.names import CORPORA, NAMES, WITHOUT_RAW, WITHOUT_SOURCE

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

arxiv-cs and acl-anthology are corpora alone. arxiv-cs is made of arXiv's metadata snapshot
(arxiv-metadata-oai-snapshot.json, CC0), acl-anthology of the folder data/xml of the Anthology's repository;
--source names that file or folder. What to expect of time and space is said first; --limit is for a trial.

With --raw each abstract is one string without labels, as in most corpora (and in scidocs): qbe index splits
it and predicts facets. All other files stay the same, so that predicted and given labels can be compared.

examples:
  qbe datasets csfcube --output data/csfcube
  qbe datasets csfcube --raw --output data/csfcube-raw
  qbe datasets relish --source downloads/RELISH-Aspire --output data/relish
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
        command.set_defaults(source=None, raw=False, limit=None)
        if name in CORPORA:
            command.add_argument("--source", metavar="PATH", help="the downloaded file or folder")
            command.add_argument("--limit", type=int, metavar="N", help="the first N papers alone")
        elif name not in WITHOUT_SOURCE:
            command.add_argument("--source", metavar="DIR", help="the folder of the release's files")
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
