"""Addresses of packs and registries: which texts are some, and where an index of one is kept."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from qbe.files import cache_folder, is_address

HUB = "hf:"
WEB = ("http://", "https://")


def is_remote(address: str | Path) -> bool:
    """Whether a text is the address of a pack, and not a path.

    >>> is_remote("hf:someone/arxiv-cs"), is_remote("https://example.org/a.tar.zst"), is_remote("a.tar.zst")
    (True, True, False)
    """
    return str(address).startswith(HUB) or is_address(address)


def resolved(address: str, base: str) -> str:
    """An address that a registry states, which may be relative to that of the registry, ``base``.

    >>> resolved("packs/a.tar.zst", "https://example.org/registry.json")
    'https://example.org/packs/a.tar.zst'
    >>> resolved("packs/a.tar.zst", "/data/registry.json"), resolved("hf:someone/a", "/data/registry.json")
    ('/data/packs/a.tar.zst', 'hf:someone/a')
    """
    from urllib.parse import unquote, urljoin

    if is_remote(address):
        return address
    if base.startswith(WEB):
        return urljoin(base, address)
    if is_remote(base):
        return f"{base.rpartition('/')[0]}/{unquote(address)}"
    return str(Path(base).parent / unquote(address))


def cached_folder(address: str) -> Path:
    """Where the index of an address is in the cache.

    >>> cached_folder("hf:someone/arxiv-cs").name
    'arxiv-cs-cc4d6202'
    """
    named = address if is_remote(address) else os.path.realpath(address)
    name = Path(named.rstrip("/")).name.partition(".")[0]
    return cache_folder() / "indexes" / f"{name}-{hashlib.sha256(named.encode()).hexdigest()[:8]}"
