"""``qbe pack`` and ``qbe pull``: an index as one file, and an index from an address."""

from __future__ import annotations

from qbe.cli import common
from qbe.cli.common import Parser


def pack_parser() -> Parser:
    """The options of ``qbe pack``."""
    parser = Parser("qbe pack", "Pack an index into one file, from which qbe pull makes the same index.")
    options = {
        "INDEX": "the folder of the index",
        "FILE": "the pack, such as arxiv-cs.tar.zst",
        "--license TEXT": "licence of the papers, such as CC0-1.0",
        "--source TEXT": "where the papers are from",
        "--without-abstracts": "leave out the sentences of abstracts, where their licence forbids to pass "
        "them on",
        "--threads N": "that compress (default: all processors)",
    }
    parser.options(options)
    return parser


def pack_main(arguments: list[str]) -> None:
    """Parse the options, and pack an index."""
    options = pack_parser().parse_args(arguments)

    from qbe.index.share import pack_index

    with common.megabytes("packing") as progress:
        packed = pack_index(
            options.index,
            options.file,
            license=options.license,
            source=options.source,
            abstracts=not options.without_abstracts,
            threads=common.threads(options.threads),
            progress=progress,
        )
    pack = packed.pack
    print(
        f"{options.file}: {pack.papers:,} papers{'' if pack.abstracts else ', abstracts not included'}, "
        f"{packed.bytes / 1e6:,.1f} MB (the index {pack.bytes / 1e6:,.1f}), license "
        f"{pack.license or 'not stated'}, digest {pack.digest[:12]}"
    )


def pull_parser() -> Parser:
    """The options of ``qbe pull``."""
    parser = Parser(
        "qbe pull", "Pull an index that qbe pack has packed, or bring one up to date that was pulled before."
    )
    options = {
        "ADDRESS": "https://..., hf:OWNER/NAME (a data set at Hugging Face), s3://..., or a file",
        "--output DIR": "folder of the index (default: in the cache, where --index ADDRESS finds it)",
        "--overwrite": "replace an index that was changed here, or was not pulled",
    }
    parser.options(options)
    return parser


def pull_main(arguments: list[str]) -> None:
    """Parse the options, and pull an index."""
    options = pull_parser().parse_args(arguments)

    from qbe.index.share import pull
    from qbe.util.text import plain

    with common.megabytes("pulling") as progress:
        pulled = pull(options.address, options.output, overwrite=options.overwrite, progress=progress)
    pack = pulled.pack
    abstracts = "" if pack.abstracts else ", abstracts not included"
    there = ", was there" if pulled.was_there else ""
    print(
        plain(
            f"{pulled.folder}: {pack.papers:,} papers{abstracts}, {pack.bytes / 1e6:,.1f} MB{there}, "
            f"license {pack.license or 'not stated'}, digest {pack.digest[:12]}"
        )
    )
