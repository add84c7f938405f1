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
        "--registry FILE": "a registry to name the pack in, by the name of its file",
        "--threads N": "that compress (default: all processors)",
    }
    parser.options(options)
    return parser


def pack_main(arguments: list[str]) -> None:
    """Parse the options, and pack an index."""
    options = pack_parser().parse_args(arguments)

    from pathlib import Path

    from qbe.index.packs.packing import pack_index
    from qbe.index.packs.registry import read_registry, register

    if options.registry and Path(options.registry).exists():
        read_registry(options.registry)  # a file that is none is told before the packing
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
    if options.registry:
        name = Path(options.file).name.partition(".")[0]
        register(Path(options.registry), name, Path(options.file), packed)
    print(
        f"{options.file}: {pack.papers:,} papers{'' if pack.abstracts else ', abstracts not included'}, "
        f"{packed.bytes / 1e6:,.1f} MB (the index {pack.bytes / 1e6:,.1f}), license "
        f"{pack.license or 'not stated'}, digest {pack.digest[:12]}"
    )


def pull_parser() -> Parser:
    """The options of ``qbe pull``."""
    parser = Parser(
        "qbe pull", "Pull an index that qbe pack has packed; of one that was pulled before, what it lacks."
    )
    options = {
        "[ADDRESS]": "https://..., hf:OWNER/NAME (a data set at Hugging Face), s3://..., a file, or the name "
        "of a pack in the registry",
        "--output DIR": "folder of the index (default: in the cache, where --index ADDRESS finds it)",
        "--overwrite": "replace an index that was changed here, or was not pulled",
        "--list": "list the packs of the registry",
        "--registry ADDRESS": "JSON file that names packs, or the address of one (default: $QBE_REGISTRY)",
    }
    parser.options(options)
    return parser


def pull_main(arguments: list[str]) -> None:
    """Parse the options, and pull an index or list the packs of a registry."""
    options = pull_parser().parse_args(arguments)

    import os
    from pathlib import Path

    from qbe.errors import UsageError
    from qbe.index.packs.pulling import pull
    from qbe.index.packs.registry import VARIABLE, find_pack, read_registry
    from qbe.util.files import is_remote
    from qbe.util.text import plain

    address, sha256 = options.address, None
    if options.list:
        entries = read_registry(options.registry)
        width = max(map(len, entries), default=0)
        for name, entry in entries.items():
            about = "; ".join(filter(None, (entry.license or "license not stated", entry.source)))
            size = f"{entry.bytes / 1e6:,.1f} MB"
            print(plain(f"{name:<{width}}  {entry.papers:>11,} papers  {size:>12}  {about}"))
        return
    if address is None:
        raise UsageError(
            "expected an address or the name of a pack, found none; qbe pull --list --registry ADDRESS shows "
            "names"
        )
    if not is_remote(address) and not Path(address).is_file():
        if not (options.registry or os.environ.get(VARIABLE)):
            raise UsageError(
                f"expected an address, a file, or the name of a pack in `registry`, found {address!r}; "
                "check it"
            )
        entry = find_pack(address, options.registry)
        address, sha256 = entry.address, entry.sha256
    with common.megabytes("pulling") as progress:
        pulled = pull(address, options.output, sha256=sha256, overwrite=options.overwrite, progress=progress)
    pack = pulled.pack
    kept = f", {pulled.kept / 1e6:,.1f} MB were there" if pulled.kept else ""
    abstracts = "" if pack.abstracts else ", abstracts not included"
    print(
        plain(
            f"{pulled.folder}: {pack.papers:,} papers{abstracts}, {pulled.read / 1e6:,.1f} MB read{kept}, "
            f"license {pack.license or 'not stated'}, digest {pack.digest[:12]}"
        )
    )
