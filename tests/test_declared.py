"""What the code imports is declared in setup.cfg, and what is declared there is used."""

import ast
import re
import sys
from configparser import ConfigParser
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from support.syntax import import_statements

from qbe.errors import requirement

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
CONFIG = ConfigParser()
CONFIG.read(ROOT / "setup.cfg", encoding="utf-8")
EXTRAS = CONFIG["options.extras_require"]
OWN = {"qbe", "support", "benchmarks", "scripts"}

# Files and folders that only work with an extra; all others do with what is always installed.
EXTRA_OF = {
    "qbe/cli/serve.py": "serve",
    "qbe/search/pipeline.py": "pyterrier",
    "qbe/cluster.py": "cluster",
    "qbe/corpus/tables.py": "huggingface",
    "qbe/corpus/streams.py": "huggingface",
    "qbe/evaluate": "evaluate",
    "qbe/evaluate/render.py": "plot",
    "qbe/models/export": "train",
    "qbe/models/gpu.py": "gpu",
    "qbe/models/endpoint.py": "label",
    "qbe/models/folders.py": "large",
    "qbe/serve": "serve",
    "qbe/train": "train",
}

OF_TRAINER = {"accelerate", "datasets"}  # which the trainer of sentence-transformers imports
TOOLS = {"mypy", "pytest-xdist", "ruff", "setuptools"}  # of the extra ``dev``, which are run, not imported


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(text: str) -> set[str]:
    return {normal(re.match(r"[\w.-]+", line)[0]) for line in text.split("\n") if line}


ALWAYS = declared(CONFIG["options"]["install_requires"])
EVERY = ALWAYS.union(*(declared(EXTRAS[extra]) for extra in EXTRAS))
DISTRIBUTIONS = {module: set(map(normal, names)) for module, names in packages_distributions().items()}
# A distribution without modules, and the one that it requires for them.
DISTRIBUTIONS["fastmcp"].add("fastmcp")
DISTRIBUTIONS["onnxruntime"].add("onnxruntime-gpu")  # other builds of the same modules
DISTRIBUTIONS["faiss"].add("faiss-gpu")


def imported(file: Path) -> set[str]:
    """Top-level modules of others that a file imports anywhere, for type checking too."""
    names: list[str] = []
    for statement in import_statements(file):
        if isinstance(statement, ast.Import):
            names += [alias.name for alias in statement.names]
        elif statement.module:
            names.append(statement.module)
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - OWN


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def used_in(*folders: str) -> set[str]:
    """Distributions of modules that are imported, or named in a text constant, as one only looked for is."""
    named = set()
    for file in (file for folder in folders for file in files(folder)):
        named |= {*imported(file), *re.findall(r"""["'](\w+)""", file.read_text(encoding="utf-8"))}
    return set().union(*(DISTRIBUTIONS.get(name, set()) for name in named))


@pytest.mark.parametrize("folder", ["qbe", "tests"])
def test_what_a_file_imports_is_declared(folder):
    for file in files(folder):
        place, allowed = file.relative_to(ROOT).as_posix(), set(ALWAYS if folder == "qbe" else EVERY)
        for prefix, extra in EXTRA_OF.items():
            if place == prefix or place.startswith(f"{prefix}/"):
                allowed |= declared(EXTRAS[extra])
        for module in imported(file):
            assert DISTRIBUTIONS[module] & allowed, f"{place} imports {module}, which no requirement brings"


def test_what_is_declared_is_used():
    used = used_in("qbe")
    for extra in EXTRAS:
        assert extra == "dev" or not declared(EXTRAS[extra]) - used - OF_TRAINER
    assert not ALWAYS - used
    assert not declared(EXTRAS["dev"]) - used_in("tests", "benchmarks", "scripts") - TOOLS


def test_a_missing_package_is_named_with_an_extra_that_brings_it():
    modules = {module for file in files("qbe") for module in imported(file)}
    assert {"starlette", "pandas", "torch"} <= modules
    for module in modules:
        if not DISTRIBUTIONS[module] & ALWAYS:
            named = re.fullmatch(r"'qbe\[(\w+)\]'", requirement(module))
            assert named, f"{module}: {requirement(module)}"
            assert DISTRIBUTIONS[module] & declared(EXTRAS[named[1]]), f"{named[1]} does not bring {module}"


def test_every_requirement_has_one_pinned_version():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("==") for line in lines if not line.startswith("#")]
    assert all(version for _, _, version in pairs)
    pins = [normal(name) for name, _, _ in pairs]
    of_a_python = {normal(name) for name, _, version in pairs if "; python_" in version}
    assert of_a_python == {"soupsieve"}
    assert sorted(pins) == sorted([*set(pins), *of_a_python])
    assert not EVERY - set(pins)
