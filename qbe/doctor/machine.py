"""What the machine is: processors, memory, room on disks, and the folders that qbe uses."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from subprocess import TimeoutExpired

from qbe import processes
from qbe.doctor.check import Check, checked, in_bytes
from qbe.doctor.installation import shadow_check
from qbe.files import cache_folder
from qbe.parallel import available_threads

INSTRUCTION_SETS: Mapping[str, tuple[str, ...]] = {
    "AVX2": ("avx2",),
    "AVX-512": ("avx512f",),
    "VNNI": ("avx512vnni", "avxvnni"),
    "bf16": ("avx512bf16", "bf16", "featbf16"),
    "AMX": ("amxtile",),
    "NEON": ("asimd", "advsimd", "neon"),
    "dot product": ("asimddp", "featdotprod"),
    "i8mm": ("i8mm", "feati8mm"),
}
"""What Linux and macOS call each; small letters and digits only."""

LITTLE_MEMORY = 1_500_000_000
"""Bytes; the largest build that was measured took 1.4 GB."""

LITTLE_ROOM = 1_000_000_000
"""Bytes; an index of 75,000 papers."""

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux states how much memory a container may use, in the two versions of control groups."""

_SYSCTL = ("sysctl", "machdep.cpu.features", "machdep.cpu.leaf7_features", "hw.optional")
_SYSCTL_SECONDS = 5.0


def machine_checks() -> list[Check]:
    """A check of each thing; nothing is started or written.

    >>> [check.name for check in machine_checks()][:3]
    ['processors', 'instructions', 'memory']
    """
    return [
        _processors(),
        instructions_check(processor_flags()),
        memory_check(),
        disk_check("cache disk", cache_folder()),
        disk_check("this disk", Path()),
        cache_check(),
        data_check(),
        shadow_check(Path()),
    ]


def _processors() -> Check:
    available, present = available_threads(), os.cpu_count() or 1
    found = f"{available} available" + (f" of {present}" if present != available else "")
    return checked("processors", found, available=available, present=present)


def instructions_check(flags: Iterable[str] | None) -> Check:
    """What a processor's flags (None: unknown) mean for encoding.

    >>> instructions_check(["avx2", "avx512_vnni"]).found
    'AVX2, VNNI: int8 models run at full speed'
    >>> instructions_check(["avx2"]).advice
    'int8 models run, but take several instructions where VNNI takes one'
    """
    if flags is None:
        return checked("instructions", "unknown on this system", sets=None)
    plain = {re.sub(r"[^a-z0-9]", "", flag.lower()) for flag in flags}
    sets = [name for name, aliases in INSTRUCTION_SETS.items() if not plain.isdisjoint(aliases)]
    found = ", ".join(sets) or "none of AVX2, AVX-512, VNNI, bf16, AMX"
    if {"VNNI", "dot product"} & set(sets):  # which multiply bytes and add the products in one instruction
        training = "; bf16 makes training faster" if {"bf16", "AMX"} & set(sets) else ""
        return checked("instructions", f"{found}: int8 models run at full speed{training}", sets=sets)
    advice = "encoding is slow; build large indexes elsewhere"
    if {"AVX2", "NEON"} & set(sets):
        lacking = "VNNI" if "AVX2" in sets else "a dot product"
        advice = f"int8 models run, but take several instructions where {lacking} takes one"
    return checked("instructions", found, advice, sets=sets)


def processor_flags() -> set[str] | None:
    """The flags of this machine's processor; None where they cannot be learnt."""
    try:
        if sys.platform == "darwin":
            return sysctl_flags(processes.run(_SYSCTL, _SYSCTL_SECONDS).stdout)
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except (OSError, TimeoutExpired):
        return None
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return set(match.group(1).split()) if match else None


def sysctl_flags(text: str) -> set[str] | None:
    r"""The flags in the output of macOS's ``sysctl``: lists of features, and settings that are 1; None where
    there are none.

    >>> sorted(sysctl_flags("machdep.cpu.leaf7_features: AVX2 BMI1\nhw.optional.arm.FEAT_BF16: 1\n"))
    ['AVX2', 'BMI1', 'FEAT_BF16']
    """
    flags: set[str] = set()
    for key, value in re.findall(r"^([\w.]+): *(.*)$", text, re.MULTILINE):
        if key.startswith("machdep."):
            flags.update(value.split())
        elif value.strip() == "1":
            flags.add(key.rpartition(".")[2])
    return flags or None


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
    """The cache and the bytes of what it holds: ``encoders/NAME`` for a folder of folders, ``csfcube`` for a
    folder of files.

    >>> cache_check().name
    'cache'
    """
    folder, sizes = cache_folder(), Counter[str]()
    for where, _, files in os.walk(folder):
        parts = Path(where).relative_to(folder).parts
        for name in files:
            try:
                sizes["/".join(parts[:2]) or name] += Path(where, name).lstat().st_size
            except OSError:  # removed meanwhile
                continue
    content = dict(sorted(sizes.items()))
    words = ", ".join(f"{name} {in_bytes(size)}" for name, size in content.items()) or "nothing yet"
    place, advice = _nearest_existing(folder), ""
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        advice = "it cannot be written: set QBE_CACHE to a folder that can, or nothing is kept"
    return checked("cache", f"{folder}: {words}", advice, folder=str(folder), content=content)


def data_check() -> Check:
    """``QBE_DATA``, and the folders below it.

    >>> data_check().name
    'QBE_DATA'
    """
    name, folder = "QBE_DATA", os.environ.get("QBE_DATA")
    if not folder:
        found = "not set; only test collections and training read it"
        return checked(name, found, folder=None, content=[])
    try:
        content = sorted(entry.name for entry in Path(folder).iterdir() if entry.is_dir())
    except OSError as error:
        advice = "set it to a folder that can be read, or unset it"
        return checked(name, f"{folder}: {error.strerror}", advice, folder=folder, content=[])
    found = f"{folder}: {', '.join(content) or 'no folder below it'}"
    return checked(name, found, folder=folder, content=content)
