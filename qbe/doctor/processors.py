"""Processors, and the instruction sets that decide how fast models run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from subprocess import TimeoutExpired

from qbe import processes
from qbe.doctor.check import Check, State
from qbe.parallel import available_threads

NAMES: Mapping[str, tuple[str, ...]] = {
    "AVX2": ("avx2",),
    "AVX-512": ("avx512f",),
    "VNNI": ("avx512vnni", "avxvnni"),
    "bf16": ("avx512bf16", "bf16", "featbf16"),
    "AMX": ("amxtile",),
    "NEON": ("asimd", "advsimd", "neon"),
    "dot product": ("asimddp", "featdotprod"),
    "i8mm": ("i8mm", "feati8mm"),
}
"""Instruction sets, with what Linux and macOS call them; small letters and digits only."""

_BYTES = ("VNNI", "dot product")
"""Those that multiply bytes and add the products in one instruction, which models in int8 live on."""

_SYSCTL = ("machdep.cpu.features", "machdep.cpu.leaf7_features", "hw.optional")
_SYSCTL_SECONDS = 5.0


def processor_checks() -> list[Check]:
    """How many processors there are, and what they can do.

    >>> [check.name for check in processor_checks()]
    ['processors', 'instructions']
    """
    available, present = available_threads(), os.cpu_count() or 1
    finding = f"{available} available" + (f" of {present}" if present != available else "")
    values = {"available": available, "present": present}
    return [Check("processors", State.OK, finding, values=values), instructions_check(processor_flags())]


def instructions_check(flags: Iterable[str] | None) -> Check:
    """What a processor's flags (None: unknown) mean for encoding.

    >>> instructions_check(["avx2", "avx512_vnni"]).found
    'AVX2, VNNI: int8 models run at full speed'
    >>> instructions_check(["avx2"]).advice
    'int8 models run, but take several instructions where VNNI takes one'
    """
    name = "instructions"
    if flags is None:
        return Check(name, State.OK, "unknown on this system", values={"sets": None})
    sets = instruction_sets(flags)
    values = {"sets": sets}
    finding = ", ".join(sets) or "none of AVX2, AVX-512, VNNI, bf16, AMX"
    if any(fast in sets for fast in _BYTES):
        training = "; bf16 makes training faster" if {"bf16", "AMX"} & set(sets) else ""
        return Check(name, State.OK, f"{finding}: int8 models run at full speed{training}", values=values)
    if {"AVX2", "NEON"} & set(sets):
        wanted = "VNNI" if "AVX2" in sets else "a dot product"
        advice = f"int8 models run, but take several instructions where {wanted} takes one"
        return Check(name, State.ADVICE, finding, advice, values)
    return Check(name, State.ADVICE, finding, "encoding is slow; build large indexes elsewhere", values)


def instruction_sets(flags: Iterable[str]) -> list[str]:
    """The instruction sets that flags stand for, in the order of ``NAMES``.

    >>> instruction_sets({"sse2", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile"})
    ['AVX2', 'AVX-512', 'VNNI', 'bf16', 'AMX']
    """
    plain = {re.sub(r"[^a-z0-9]", "", flag.lower()) for flag in flags}
    return [name for name, aliases in NAMES.items() if not plain.isdisjoint(aliases)]


def processor_flags() -> set[str] | None:
    """The flags of this machine's processor; None where they cannot be learnt."""
    try:
        if sys.platform == "darwin":
            return sysctl_flags(processes.run(["sysctl", *_SYSCTL], _SYSCTL_SECONDS).stdout)
        return cpuinfo_flags(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    except (OSError, TimeoutExpired):
        return None


def cpuinfo_flags(text: str) -> set[str] | None:
    r"""The flags of the first processor in Linux's ``/proc/cpuinfo``; None where there are none.

    >>> sorted(cpuinfo_flags("processor : 0\nflags : fpu avx2\n"))
    ['avx2', 'fpu']
    """
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
