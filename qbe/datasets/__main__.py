"""``python -m qbe.datasets``: a test collection as corpus, topics, pools, judgements and folds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from qbe import _cli
from qbe.files import sha256

EPILOG = """\
csfcube is taken from --source, else from $QBE_DATA/csfcube, else downloaded from its public repository
(CC BY-NC 4.0; Mysore et al., 2021) into the cache ($QBE_CACHE, else ~/.cache/qbe). A query paper is left
out of its own pool and judgements. sample comes with the package; it demonstrates, and proves nothing.

With --raw the corpus is as most corpora come: qbe.index splits its abstracts and predicts their facets. All
other files stay the same, so that predicted and given labels can be compared.

examples:
  python -m qbe.datasets csfcube --output data/csfcube
  python -m qbe.datasets csfcube --raw --output data/csfcube-raw
  python -m qbe.datasets sample --output data/sample
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m qbe.datasets",
        description="Write a test collection: corpus, topics, pools, judgements (TREC qrels) and folds.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = parser.add_subparsers(dest="name", required=True, metavar="{csfcube,sample}")
    csfcube = names.add_parser("csfcube", help="the CSFCube collection (Mysore et al., 2021)")
    csfcube.add_argument("--source", type=Path, metavar="DIR", help="a folder that holds the release's files")
    sample = names.add_parser("sample", help="the small collection that the package carries")
    for command in (csfcube, sample):
        command.add_argument("--output", type=Path, metavar="DIR", required=True, help="where to write")
        command.add_argument(
            "--raw", action="store_true", help="join each abstract's sentences with spaces, drop their labels"
        )
    return parser


def main(argv: list[str]) -> None:
    options = build_parser().parse_args(argv)
    if options.name == "sample":
        from qbe.datasets.embedded import copy_sample

        names = copy_sample(options.output, raw=options.raw)
        print(f"sample: {', '.join(names)} written to {options.output}")
        return

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
    print(f"written to {options.output}")


if __name__ == "__main__":
    _cli.run("qbe.datasets", main)
