"""Memory and room on disks."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from qbe.doctor.check import Check, State
from qbe.doctor.units import in_bytes

LITTLE_MEMORY = 1_500_000_000
"""Bytes; the largest build that was measured took 1.4 GB."""

LITTLE_ROOM = 1_000_000_000
"""Bytes; an index of 75,000 papers."""

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux states how much memory a container may use, in the two versions of control groups."""


def memory_check() -> Check:
    """How much memory there is, and how much of it is available.

    >>> memory_check().values["total"] > 0
    True
    """
    total, available = total_memory(), available_memory()
    limit = memory_limit()
    if limit is not None and (total is None or limit < total):
        total = limit
        available = limit if available is None else min(available, limit)
    values = {"total": total, "available": available}
    if total is None:
        return Check("memory", State.OK, "unknown on this system", values=values)
    finding = in_bytes(total) + (f", {in_bytes(available)} available" if available is not None else "")
    if (total if available is None else available) < LITTLE_MEMORY:
        advice = "searching takes about 0.6 GB, and building a large index 1.4 GB"
        return Check("memory", State.ADVICE, finding, advice, values)
    return Check("memory", State.OK, finding, values=values)


def total_memory() -> int | None:
    """The machine's memory in bytes; None where it is unknown.

    >>> total_memory() > 1_000_000
    True
    """
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
    return total if total > 0 else None


def available_memory(path: Path = Path("/proc/meminfo")) -> int | None:
    r"""Bytes that programs can have without swapping, as Linux states; None where it is unknown.

    >>> _ = Path("meminfo").write_text("MemTotal: 16 kB\nMemAvailable: 8 kB\n")
    >>> available_memory(Path("meminfo"))
    8192
    """
    try:
        match = re.search(r"^MemAvailable:\s*(\d+) kB", path.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return int(match.group(1)) << 10 if match else None


def memory_limit() -> int | None:
    """Bytes that the container may use; None where there is no limit, or none is stated."""
    for path in map(Path, _LIMITS):
        try:
            text = path.read_text(encoding="utf-8").strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None
    return None


def disk_check(name: str, folder: Path) -> Check:
    """The free room at a folder, or where it would be created.

    >>> disk_check("this disk", Path()).values["free"] > 0
    True
    """
    place = nearest_existing(folder)
    values: dict[str, str | int | None] = {"folder": str(place), "free": None}
    try:
        free = values["free"] = shutil.disk_usage(place).free
    except OSError as error:
        return Check(name, State.ADVICE, f"{place}: {error.strerror}", "choose another folder", values)
    finding = f"{in_bytes(free)} free at {place}"
    if free < LITTLE_ROOM:
        return Check(name, State.ADVICE, finding, "an index takes about 13 kB a paper", values)
    return Check(name, State.OK, finding, values=values)


def nearest_existing(folder: Path) -> Path:
    """A folder, or the nearest one above it that exists.

    >>> nearest_existing(Path("no", "such")) == Path.cwd()
    True
    """
    folder = folder.absolute()
    return next((each for each in (folder, *folder.parents) if each.exists()), folder)
