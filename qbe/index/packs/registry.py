"""Registries: JSON files that name packs, at addresses of the users' choice."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urljoin

from qbe.errors import PackError, UsageError, did_you_mean
from qbe.index.packs.packing import Packed
from qbe.index.packs.sources import WEB, read_whole
from qbe.util.files import change_lock, is_remote, write_text

VARIABLE = "QBE_REGISTRY"
"""The environment variable with the address of the registry that is used where none is given."""

_LONGEST = 16 << 20
_PACKS = "packs"


class Entry(NamedTuple):
    """A pack that a registry names: its address, the SHA-256 of its description, the bytes to read and those
    of the index, and what its description says.
    """

    address: str
    sha256: str
    bytes: int
    index_bytes: int
    papers: int
    encoder: str | None = None
    license: str | None = None
    source: str | None = None


def read_registry(address: str | None = None) -> dict[str, Entry]:
    """The packs of the registry at an address (by default that in $QBE_REGISTRY) by their names, with whole
    addresses.

    Raises UsageError where none is given, PackError for what cannot be read or is no registry.

    >>> _ = Path("registry.json").write_text('{"packs": {}}')
    >>> read_registry("registry.json")
    {}
    """
    address = address or os.environ.get(VARIABLE)
    if not address:
        raise UsageError(
            f"expected the address of a registry as `registry` or in ${VARIABLE}, found none; ask for "
            "that of your group"
        )
    entries = _entries(read_whole(address, _LONGEST), address)
    return {
        name: entry._replace(address=_resolved(entry.address, address)) for name, entry in entries.items()
    }


def _resolved(address: str, base: str) -> str:
    """An address that a registry states, which may be relative to that of the registry, ``base``.

    >>> _resolved("packs/a.tar.zst", "https://example.org/registry.json")
    'https://example.org/packs/a.tar.zst'
    >>> _resolved("packs/a.tar.zst", "/data/registry.json"), _resolved("hf:someone/a", "/data/registry.json")
    ('/data/packs/a.tar.zst', 'hf:someone/a')
    """
    if is_remote(address):
        return address
    if base.startswith(WEB):
        return urljoin(base, address)
    if is_remote(base):
        return f"{base.rpartition('/')[0]}/{unquote(address)}"
    return str(Path(base).parent / unquote(address))


def find_pack(name: str, address: str | None = None) -> Entry:
    """The pack of a name in a registry; raises UsageError where there is none, and what `read_registry` does.

    >>> _ = Path("registry.json").write_text('{"packs": {}}')
    >>> find_pack("arxiv-cs", "registry.json")
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected the name of a pack in the registry, found 'arxiv-cs'; ...
    """
    entries = read_registry(address)
    if name not in entries:
        where = f" --registry {address}" if address else ""
        hint = did_you_mean(name, entries, f"qbe pull --list{where} shows them")
        raise UsageError(f"expected the name of a pack in the registry, found {name!r}; {hint}")
    return entries[name]


def register(registry: Path, name: str, output: Path, packed: Packed) -> None:
    """Name a pack in a registry file, in place of one that had the name, whose licence and source stay where
    the pack states none; the file is made where there is none. Processes wait for each other.

    Raises PackError for a file that is no registry, OutputError where it cannot be written.

    >>> from qbe.index.packs.packing import pack_index
    >>> output = Path("sample.tar.zst")
    >>> register(Path("packs.json"), "sample", output, pack_index("indexes/sample", output))
    >>> find_pack("sample", "packs.json").address, find_pack("sample", "packs.json").papers
    ('sample.tar.zst', 128)
    """
    relative = os.path.relpath(output.absolute(), registry.absolute().parent)
    pack = packed.pack
    entry = Entry(
        quote(Path(relative).as_posix()),
        packed.sha256,
        packed.bytes,
        pack.bytes,
        pack.papers,
        pack.encoder,
        pack.license,
        pack.source,
    )
    with change_lock(registry):
        entries = _entries(registry.read_bytes(), str(registry)) if registry.exists() else {}
        if (former := entries.get(name)) is not None:
            entry = entry._replace(
                license=entry.license or former.license, source=entry.source or former.source
            )
        packs = {each: value._asdict() for each, value in sorted({**entries, name: entry}.items())}
        write_text(registry, json.dumps({_PACKS: packs}, indent=1, ensure_ascii=False) + "\n")


def _entries(data: bytes, address: str) -> dict[str, Entry]:
    try:
        record: Mapping[str, Mapping[str, Any]] = json.loads(data)[_PACKS]
        entries = {name: Entry(**entry) for name, entry in record.items()}
        for entry in entries.values():
            texts = (entry.address, entry.sha256)
            numbers = (entry.bytes, entry.index_bytes, entry.papers)
            optional = (entry.encoder, entry.license, entry.source)
            if not (
                all(isinstance(text, str) for text in texts)
                and all(type(number) is int for number in numbers)
                and all(text is None or isinstance(text, str) for text in optional)
            ):
                raise TypeError(f"the entry {entry}")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise PackError(
            f"{address}: expected a registry, as qbe pack --registry writes it, found something else "
            f"({error!s:.100}); check the address"
        ) from error
    return entries
