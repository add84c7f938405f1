"""``python -m qbe.datasets``: a test collection as corpus, topics, pools, judgements and folds."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from qbe import _cli
from qbe.files import sha256

EPILOG = """\
csfcube is taken from --source, else from $QBE_DATA/csfcube, else downloaded from its public repository
(CC BY-NC 4.0; Mysore et al., 2021) into the cache ($QBE_CACHE, else ~/.cache/qbe). A query paper is left
out of its own pool and judgements. sample comes with the package; it demonstrates, and proves nothing.

relish, treccovid and scidocs are collections of whole-abstract queries, each taken from --source, else from
$QBE_DATA/NAME: RELISH and TRECCOVID-RF as ASPIRE's authors release them (figshare), SciDocs as its own
repository does. Topics, pools and judgements are written for each split (dev and test; SciDocs: val and test
of cite, cocite, coview and coread). A paper without an abstract stands with its title as its only sentence.

With --raw the corpus is as most corpora come (and as scidocs is): qbe.index splits its abstracts and
predicts their facets. All other files stay the same, so that predicted and given labels can be compared.

examples:
  python -m qbe.datasets csfcube --output data/csfcube
  python -m qbe.datasets csfcube --raw --output data/csfcube-raw
  python -m qbe.datasets relish --source downloads/RELISH-Aspire --output data/relish
  python -m qbe.datasets sample --output data/sample
"""

NAMES = {
    "csfcube": "the CSFCube collection (Mysore et al., 2021)",
    "relish": "RELISH (Brown et al., 2019), whole abstracts",
    "treccovid": "TRECCOVID-RF (Voorhees et al., 2020; Mysore et al., 2022), whole abstracts",
    "scidocs": "SciDocs (Cohan et al., 2020), whole abstracts",
    "sample": "the small collection that the package carries",
}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m qbe.datasets",
        description="Write a test collection: corpus, topics, pools, judgements (TREC qrels) and folds.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = parser.add_subparsers(dest="name", required=True, metavar=f"{{{','.join(NAMES)}}}")
    for name, what in NAMES.items():
        command = names.add_parser(name, help=what)
        if name != "sample":
            command.add_argument(
                "--source", type=Path, metavar="DIR", help="a folder that holds the release's files"
            )
        command.add_argument("--output", type=Path, metavar="DIR", required=True, help="where to write")
        if name != "scidocs":
            command.add_argument(
                "--raw",
                action="store_true",
                help="join each abstract's sentences with spaces, drop their labels",
            )
    return parser


def main(argv: list[str]) -> None:
    options = build_parser().parse_args(argv)
    if options.name == "sample":
        _copy_sample(options)
    elif options.name == "csfcube":
        _convert_csfcube(options)
    else:
        _convert_whole(options)
    print(f"written to {options.output}")


def _copy_sample(options: argparse.Namespace) -> None:
    from qbe.datasets.embedded import copy_sample

    names = copy_sample(options.output, raw=options.raw)
    print(f"sample: {', '.join(names)}")


def _convert_csfcube(options: argparse.Namespace) -> None:
    from qbe.datasets.csfcube import Summary, convert
    from qbe.datasets.release import changed_files, find_release

    source = find_release(options.source, tell=lambda line: print(line, file=sys.stderr))
    summary: Summary = convert(source, options.output, raw=options.raw)
    queries = ", ".join(f"{count} {facet}" for facet, count in summary.queries.items())
    print(f"csfcube: {summary.papers:,} papers ({summary.sentences:,} sentences) from {source}")
    judgments = sum(summary.judgments.values())
    print(f"  {sum(summary.queries.values())} queries ({queries}), {judgments:,} judgements")
    if summary.own_pool:
        print(f"  left out of its own pool: {', '.join(summary.own_pool)}")
    absent = ", ".join(summary.no_sentence) or "none"
    print(f"  queries without a sentence of their facet: {absent}")
    for name in changed_files(source):
        print(f"  {name} is not the release's, its form was checked (sha256 {sha256(source / name)})")


def _convert_whole(options: argparse.Namespace) -> None:
    from qbe.datasets import relish, scidocs, treccovid
    from qbe.datasets.source import find_source
    from qbe.datasets.whole import convert

    reader = {module.NAME: module for module in (relish, treccovid, scidocs)}[options.name]
    source = find_source(options.name, options.source, reader.FILES, reader.WHERE)
    papers, splits = reader.read(source)
    raw = options.name != "scidocs" and options.raw
    counts = convert(options.name, papers, splits, options.output, raw=raw)
    print(
        f"{options.name}: {len(papers.ids):,} papers ({papers.title_only:,} with a title alone) from {source}"
    )
    if papers.without_text:
        print(f"  left out, without a text: {_some(sorted(papers.without_text))}")
    for split in counts:
        print(f"  {split.name}: {split.queries:,} queries, {split.judgments:,} judgements")
        if split.unsearchable:
            print(f"    {split.unsearchable:,} of them of papers without a text: judged, but in no pool")
        if split.dropped:
            print(f"    queries without a text, left out: {_some(split.dropped)}")
        if split.own_pool:
            print(f"    left out of its own pool: {_some(split.own_pool)}")


def _some(ids: Sequence[str]) -> str:
    """The first of many ids, and their number."""
    return ", ".join(ids[:5]) + (f", ... ({len(ids):,})" if len(ids) > 5 else "")


if __name__ == "__main__":
    _cli.run("qbe.datasets", main)
