"""``qbe pack`` and ``qbe pull``: an index as one file, and an index from an address."""

from __future__ import annotations

from qbe.cli import common
from qbe.cli.common import Parser

PACK = Parser(
    "qbe pack",
    "Pack an index into one file, from which qbe pull makes the same index.",
    """
INDEX  the folder of the index
FILE  the pack, such as arxiv-cs.tar.zst
--license TEXT  licence of the papers, such as CC0-1.0
--source TEXT  where the papers are from
--without-abstracts  leave out the sentences of abstracts, where their licence forbids to pass them on
--threads N  that compress (default: all processors)
""",
)
PULL = Parser(
    "qbe pull",
    "Pull an index that qbe pack has packed, or bring one up to date that was pulled before.",
    """
ADDRESS  https://..., hf:OWNER/NAME (a data set at Hugging Face), s3://..., or a file
--output DIR  folder of the index (default: in the cache, where --index ADDRESS finds it)
--overwrite  replace an index that was changed here, or was not pulled
""",
)


def pack_main(arguments: list[str]) -> None:
    options = PACK.parse_args(arguments)

    from qbe.index.share import pack_index

    with common.Bar("packing", "B", unit_scale=True) as progress:
        pack, size = pack_index(
            options.index,
            options.file,
            license=options.license,
            source=options.source,
            abstracts=not options.without_abstracts,
            threads=common.threads(options.threads),
            progress=progress,
        )
    print(
        f"{options.file}: {pack.papers:,} papers{'' if pack.abstracts else ', abstracts not included'}, "
        f"{size / 1e6:,.1f} MB (the index {pack.bytes / 1e6:,.1f}), license {pack.license or 'not stated'}, "
        f"digest {pack.digest[:12]}"
    )


def pull_main(arguments: list[str]) -> None:
    options = PULL.parse_args(arguments)

    from qbe.index.share import pull
    from qbe.util.text import plain

    with common.Bar("pulling", "B", unit_scale=True) as progress:
        folder, pack, was_there = pull(
            options.address, options.output, overwrite=options.overwrite, progress=progress
        )
    print(
        plain(
            f"{folder}: {pack.papers:,} papers{'' if pack.abstracts else ', abstracts not included'}, "
            f"{pack.bytes / 1e6:,.1f} MB{', was there' if was_there else ''}, "
            f"license {pack.license or 'not stated'}, digest {pack.digest[:12]}"
        )
    )
