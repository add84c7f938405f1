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
        "Pull an index that qbe pack has packed; of one that was pulled before, what it lacks.",
        {"--index": "--output", "--force": "--overwrite"},
    )
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        nargs="?",
        help="https://..., hf:OWNER/NAME (a data set at Hugging Face), s3://..., a file, or the name of a "
        "pack in the registry",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="folder of the index (default: in the cache, where --index ADDRESS finds it)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an index that was changed here, or was not pulled"
    )
    parser.add_argument("--list", action="store_true", help="list the packs of the registry")
    parser.add_argument(
        "--registry",
        metavar="ADDRESS",
        help="JSON file that names packs, or the address of one (default: $QBE_REGISTRY)",
    )
    return parser


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)
    _check(options)
    if options.list:
        _list(options.registry)
        return

    import os
    from pathlib import Path

    from qbe.index.packs.pulling import pull
    from qbe.util.files import is_remote
    from qbe.util.text import plain

    address, sha256 = options.address, None
    if not is_remote(address) and not Path(address).is_file():
        from qbe.errors import UsageError
        from qbe.index.packs.registry import VARIABLE, find_pack

        if not (options.registry or os.environ.get(VARIABLE)):
            raise UsageError(
                f"expected an address, a file, or the name of a pack in `registry`, found {address!r}; "
                "check it"
            )
        entry = find_pack(address, options.registry)
        address, sha256 = entry.address, entry.sha256
    with _cli.megabytes("pulling") as progress:
        pulled = pull(address, options.output, sha256=sha256, overwrite=options.overwrite, progress=progress)
    pack = pulled.pack
    abstracts = "" if pack.abstracts else ", abstracts not included"
    kept = f", {pulled.kept / 1e6:,.1f} MB were there" if pulled.kept else ""
    print(
        plain(
            f"{pulled.folder}: {pack.papers:,} papers{abstracts}, {pulled.read / 1e6:,.1f} MB read{kept}, "
            f"license {pack.license or 'not stated'}, digest {pack.digest[:12]}"
        )
    )


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError for options that do not go together."""
    from qbe.errors import UsageError

    if options.list and (options.address or options.output or options.overwrite):
        raise UsageError("expected --list alone or with --registry, found more; drop the rest")
    if not options.list and options.address is None:
        where = f"--registry {options.registry}" if options.registry else "with --registry"
        raise UsageError(
            f"expected an address or the name of a pack, found none; qbe pull --list {where} shows names"
        )


def _list(registry: str | None) -> None:
    """Print the packs of a registry, one a line."""
    from qbe.index.packs.registry import read_registry
    from qbe.util.text import plain

    entries = read_registry(registry)
    width = max(map(len, entries), default=0)
    for name, entry in entries.items():
        size = f"{entry.bytes / 1e6:,.1f} MB"
        about = "; ".join(filter(None, (entry.license or "license not stated", entry.source)))
        print(plain(f"{name:<{width}}  {entry.papers:>11,} papers  {size:>12}  {about}"))


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
