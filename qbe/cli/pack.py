"""``qbe pack``: an index as one file, for others to pull."""

from __future__ import annotations

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

PROGRAM = "qbe pack"
OPTIONS = {"folder": "INDEX", "output": "FILE"}


def parser() -> argparse.ArgumentParser:
    """The command's parser."""
    parser = _cli.parser(PROGRAM, "Pack an index into one file, from which qbe pull makes the same index.")
    parser.add_argument("index", metavar="INDEX", help="the folder of the index")
    parser.add_argument("file", metavar="FILE", help="the pack, such as arxiv-cs.tar.zst")
    parser.add_argument("--license", metavar="TEXT", help="licence of the papers, such as CC0-1.0")
    parser.add_argument("--source", metavar="TEXT", help="where the papers are from")
    parser.add_argument(
        "--without-abstracts",
        action="store_true",
        help="leave out the sentences of abstracts, where their licence forbids to pass them on",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="that compress (default: all processors)")
    return parser


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)

    from qbe.index.share import pack_index

    with _cli.megabytes("packing") as progress:
        packed = pack_index(
            options.index,
            options.file,
            license=options.license,
            source=options.source,
            abstracts=not options.without_abstracts,
            threads=_cli.threads(options.threads),
            progress=progress,
        )
    pack = packed.pack
    abstracts = "" if pack.abstracts else ", abstracts not included"
    print(
        f"{options.file}: {pack.papers:,} papers{abstracts}, {packed.bytes / 1e6:,.1f} MB (the index "
        f"{pack.bytes / 1e6:,.1f}), license {pack.license or 'not stated'}, digest {pack.digest[:12]}"
    )


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
