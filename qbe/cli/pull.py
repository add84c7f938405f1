"""``qbe pull``: an index from an address."""

from __future__ import annotations

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

PROGRAM = "qbe pull"
OPTIONS: dict[str, str] = {"folder": "--output"}


def parser() -> argparse.ArgumentParser:
    """The command's parser."""
    parser = _cli.parser(
        PROGRAM,
        "Pull an index that qbe pack has packed, or bring one up to date that was pulled before.",
        {"--index": "--output", "--force": "--overwrite"},
    )
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        help="https://..., hf:OWNER/NAME (a data set at Hugging Face), s3://..., or a file",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="folder of the index (default: in the cache, where --index ADDRESS finds it)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an index that was changed here, or was not pulled"
    )
    return parser


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)

    from qbe.index.share import pull
    from qbe.util.text import plain

    with _cli.megabytes("pulling") as progress:
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


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
