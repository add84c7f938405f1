"""Which packages are installed, and in which versions; none of them is imported."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from qbe import _jvm
from qbe.doctor.check import Check, State, pip_line
from qbe.errors import MissingDependencyError


class Package(NamedTuple):
    """A package by the name it is imported by; ``distributions`` are the names it may be installed by,
    ``requirement`` is what pip installs and ``purpose`` says what needs it.
    """

    module: str
    requirement: str
    purpose: str
    distributions: tuple[str, ...]


NEEDED = (
    Package("numpy", "numpy>=2", "vectors", ("numpy",)),
    Package("faiss", "faiss-cpu", "nearest sentences", ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu12", "faiss")),
    Package("onnxruntime", "onnxruntime", "models", ("onnxruntime", "onnxruntime-gpu")),
    Package("tokenizers", "tokenizers", "models", ("tokenizers",)),
    Package("pyserini", _jvm.PYSERINI, "BM25", ("pyserini",)),
    Package("jnius", "pyjnius", "BM25", ("pyjnius",)),
)
"""What a search imports."""

OPTIONAL = (
    Package("torch", "torch==2.13.0", "training and export", ("torch",)),
    Package("transformers", "transformers", "training and export", ("transformers",)),
    Package("datasets", "datasets", "corpora from Hugging Face", ("datasets",)),
    Package("pyarrow", "pyarrow", "corpora in Parquet", ("pyarrow",)),
    Package("matplotlib", "matplotlib", "plots", ("matplotlib",)),
)
"""What other commands import."""


def package_checks() -> Iterator[Check]:
    """A check of each package, those that searching needs first.

    >>> [check.name for check in package_checks()][:3]
    ['numpy', 'faiss', 'onnxruntime']
    """
    for package in NEEDED:
        yield _check(package, State.MISSING)
    for package in OPTIONAL:
        yield _check(package, State.ADVICE)


def _check(package: Package, absent: State) -> Check:
    if not is_installed(package.module):
        return _incomplete(package, absent, "not installed")
    if package.module == "pyserini":
        try:
            _jvm.anserini_jar()
        except MissingDependencyError:
            return _incomplete(package, absent, "found without Anserini's jar")
    installed = installed_version(package.distributions)
    return Check(package.module, State.OK, installed or "version unknown", values={"version": installed})


def _incomplete(package: Package, state: State, finding: str) -> Check:
    check = Check(package.module, state, finding, values={"version": None}, requirement=package.requirement)
    return check._replace(advice=f"for {package.purpose}: {pip_line([check])}")


def is_installed(module: str) -> bool:
    """Whether a module can be imported; a mere folder of its name does not count.

    >>> from pathlib import Path
    >>> Path("numpyro").mkdir()
    >>> is_installed("numpyro"), is_installed("json")
    (False, True)
    """
    specification = importlib.util.find_spec(module)
    return specification is not None and specification.origin is not None


def installed_version(distributions: tuple[str, ...]) -> str | None:
    """The version of the first of these distributions that is installed; None where none is.

    >>> installed_version(("no-such-package",)) is None
    True
    """
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None
