"""The folders that qbe uses: the cache, test collections and training data."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from qbe.doctor.check import Check, State
from qbe.doctor.space import nearest_existing
from qbe.doctor.units import in_bytes
from qbe.files import cache_folder


def cache_check() -> Check:
    """The cache and what it holds: exported models, downloads, the index of the demonstration.

    >>> cache_check().name
    'cache'
    """
    folder = cache_folder()
    sizes = cached(folder)
    values = {"folder": str(folder), "content": sizes}
    finding = f"{folder}: " + (
        ", ".join(f"{name} {in_bytes(size)}" for name, size in sizes.items()) or "nothing yet"
    )
    place = nearest_existing(folder)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        advice = "it cannot be written: set QBE_CACHE to a folder that can, or nothing is kept"
        return Check("cache", State.ADVICE, finding, advice, values)
    return Check("cache", State.OK, finding, values=values)


def cached(folder: Path) -> dict[str, int]:
    """Bytes by name of what a cache holds: ``encoders/NAME`` for a folder of folders, ``csfcube`` for a
    folder of files.

    >>> Path("cache", "csfcube").mkdir(parents=True)
    >>> _ = Path("cache", "csfcube", "a.json").write_text("{}")
    >>> cached(Path("cache"))
    {'csfcube': 2}
    """
    sizes: Counter[str] = Counter()
    for where, _, files in os.walk(folder):
        parts = Path(where).relative_to(folder).parts
        for name in files:
            try:
                size = Path(where, name).lstat().st_size
            except OSError:  # removed meanwhile
                continue
            sizes["/".join(parts[:2]) or name] += size
    return dict(sorted(sizes.items()))


def data_check() -> Check:
    """``QBE_DATA``, and the folders below it.

    >>> data_check().name
    'QBE_DATA'
    """
    name, value = "QBE_DATA", os.environ.get("QBE_DATA")
    if not value:
        finding = "not set; only test collections and training read it"
        return Check(name, State.OK, finding, values={"folder": None, "content": []})
    try:
        content = sorted(entry.name for entry in Path(value).iterdir() if entry.is_dir())
    except OSError as error:
        advice = "set it to a folder that can be read, or unset it"
        values = {"folder": value, "content": []}
        return Check(name, State.ADVICE, f"{value}: {error.strerror}", advice, values)
    finding = f"{value}: {', '.join(content) or 'no folder below it'}"
    return Check(name, State.OK, finding, values={"folder": value, "content": content})
