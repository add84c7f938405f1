"""``qbe pack`` and ``qbe pull``: an index as one file, and an index from an address."""

from typing import Any

from qbe.cli import common
from qbe.cli.parser import parse
from qbe.util.text import plain


def pack_main(arguments: list[str]) -> None:
    options = parse("pack", arguments)

    from qbe.index.share import pack_index

    with common.Bar("packing", "B", unit_scale=True) as progress:
        pack, size = pack_index(
            options.index,
            options.file,
            license=options.license,
            source=options.source,
            abstracts=not options.without_abstracts,
            overwrite=options.overwrite,
            threads=options.threads,
            progress=progress,
        )
    _tell(options.file, pack, f"{size / 1e6:,.1f} MB (the index {pack.bytes / 1e6:,.1f})")


def pull_main(arguments: list[str]) -> None:
    options = parse("pull", arguments)

    from qbe.index.share import pull

    with common.Bar("pulling", "B", unit_scale=True) as progress:
        folder, pack, was_there = pull(
            options.address, options.output, overwrite=options.overwrite, progress=progress
        )
    _tell(folder, pack, f"{pack.bytes / 1e6:,.1f} MB{', was there' if was_there else ''}")


def _tell(name: object, pack: Any, size: str) -> None:
    without = "" if pack.abstracts else ", abstracts not included"
    about = f"license {pack.license or 'not stated'}, digest {pack.digest[:12]}"
    print(plain(f"{name}: {pack.papers:,} papers{without}, {size}, {about}"))
