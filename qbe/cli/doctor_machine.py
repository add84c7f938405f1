"""What the machine is: processors, memory, room on disks, and the folders that qbe uses."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from qbe.cli.doctor_check import Check, checked, in_bytes
from qbe.util.files import cache_folder
from qbe.util.parallel import available_threads

INSTRUCTION_SETS = {
    "AVX2": ("avx2",),
    "VNNI": ("avx512_vnni", "avx_vnni"),
    "NEON": ("asimd",),
    "dot product": ("asimddp",),
}
"""What Linux calls those that matter for int8 models."""

LITTLE_MEMORY = 1_500_000_000
"""Bytes; the largest build that was measured took 1.4 GB."""

LITTLE_ROOM = 1_000_000_000
"""Bytes; an index of 75,000 papers."""

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux states how much memory a container may use, in the two versions of control groups."""


def machine_checks() -> list[Check]:
    """A check of each thing; nothing is started or written.

    >>> [check.name for check in machine_checks()][:3]
    ['processors', 'instructions', 'memory']
    """
    available, present = available_threads(), os.cpu_count() or 1
    found = f"{available} available" + (f" of {present}" if present != available else "")
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return [
        checked("processors", found, available=available, present=present),
        instructions_check(flags[1].split() if flags else None),
        memory_check(),
        disk_check("cache disk", cache_folder()),
        disk_check("this disk", Path()),
        cache_check(),
    ]


def instructions_check(flags: Iterable[str] | None) -> Check:
    """What a processor's flags (None: unknown) mean for encoding.

    >>> instructions_check(["avx2", "avx512_vnni"]).found
    'AVX2, VNNI: int8 models run at full speed'
    >>> instructions_check(["avx2"]).advice
    'int8 models run, but take several instructions where VNNI or a dot product takes one'
    """
    if flags is None:
        return checked("instructions", "unknown on this system", sets=None)
    known = set(flags)
    sets = [name for name, aliases in INSTRUCTION_SETS.items() if not known.isdisjoint(aliases)]
    found = ", ".join(sets) or f"none of {', '.join(INSTRUCTION_SETS)}"
    if {"VNNI", "dot product"} & set(sets):  # which multiply bytes and add the products in one instruction
        return checked("instructions", f"{found}: int8 models run at full speed", sets=sets)
    advice = "encoding is slow; build large indexes elsewhere"
    if sets:
        advice = "int8 models run, but take several instructions where VNNI or a dot product takes one"
    return checked("instructions", found, advice, sets=sets)


def memory_check() -> Check:
    """How much memory there is, that of the container where it has less, and how much of it is available.

    >>> memory_check().values["total"] > 0
    True
    """
    try:
        total: int | None = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        total = None
    free = re.search(r"^MemAvailable:\s*(\d+) kB", _text("/proc/meminfo"), re.MULTILINE)
    available = int(free.group(1)) << 10 if free else None
    limit = next(filter(None, map(_text, _LIMITS)), "").strip()
    if limit.isdigit() and (total is None or int(limit) < total):
        total = int(limit)
        available = total if available is None else min(available, total)
    if total is None:
        return checked("memory", "unknown on this system", total=None, available=available)
    found = in_bytes(total) + (f", {in_bytes(available)} available" if available is not None else "")
    little = (total if available is None else available) < LITTLE_MEMORY
    advice = "searching takes about 0.6 GB, and building a large index 1.4 GB" if little else ""
    return checked("memory", found, advice, total=total, available=available)


def _text(path: str) -> str:
    """The text of a file; nothing where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def disk_check(name: str, folder: Path) -> Check:
    """The free room at a folder, or where it would be created.

    >>> disk_check("this disk", Path("no", "such")).values["folder"] == str(Path.cwd())
    True
    """
    place = _nearest_existing(folder)
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return checked(
            name, f"{place}: {error.strerror}", "choose another folder", folder=str(place), free=None
        )
    advice = "an index takes about 13 kB a paper" if free < LITTLE_ROOM else ""
    return checked(name, f"{in_bytes(free)} free at {place}", advice, folder=str(place), free=free)


def _nearest_existing(folder: Path) -> Path:
    """A folder, or the nearest one above it that exists."""
    folder = folder.absolute()
    return next((each for each in (folder, *folder.parents) if each.exists()), folder)


def cache_check() -> Check:
    """The cache, and the bytes that it holds.

    >>> cache_check().name
    'cache'
    """
    folder, size = cache_folder(), 0
    for where, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):  # removed meanwhile
                size += Path(where, name).lstat().st_size
    place, advice = _nearest_existing(folder), ""
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        advice = "it cannot be written: set QBE_CACHE to a folder that can, or nothing is kept"
    return checked("cache", f"{folder}: {in_bytes(size)}", advice, folder=str(folder), size=size)
