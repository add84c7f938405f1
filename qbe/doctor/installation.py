"""Which qbe this is, and whether Python finds the same one in the current folder."""

from __future__ import annotations

import platform
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from qbe.doctor.check import Check, State
from qbe.doctor.packages import installed_version


def installation_check() -> Check:
    """The version and the place of qbe, and Python's version.

    >>> installation_check().values["python"].count(".")
    2
    """
    version, python = installed_version(("qbe",)), platform.python_version()
    place = package_folder()
    values = {"version": version, "python": python, "system": sys.platform, "folder": str(place)}
    finding = f"{version or 'of unknown version'} in {place}, Python {python} in {sys.prefix}"
    if version is None:
        advice = "qbe is not installed here; in its checkout run: pip install -c constraints.txt ."
        return Check("qbe", State.ADVICE, finding, advice, values)
    return Check("qbe", State.OK, finding, values=values)


def package_folder() -> Path:
    """The folder of the package that is running.

    >>> package_folder().name
    'qbe'
    """
    return Path(__file__).absolute().parent.parent


def shadow_check(folder: Path) -> Check:
    """Whether ``python`` started in a folder would import another qbe than the one that is running.

    Python looks into that folder first. A clone named ``qbe`` in it has no ``__init__.py``, so that it is
    imported as an empty package where nothing else on the path of modules is named so, as with an editable
    installation.

    >>> shadow_check(Path()).state
    <State.OK: 'ok'>
    """
    spec = PathFinder.find_spec("qbe", [str(folder.absolute()), *sys.path[1:]])
    clone = folder.absolute() / "qbe"
    values: dict[str, str | None] = {"imports": None}
    if spec is not None and spec.origin is None:
        values["imports"] = str(clone)
        advice = "start Python in another folder, or rename this one"
        text = f"import qbe gives the folder {clone}, which has no __init__.py"
        return Check("this folder", State.ADVICE, text, advice, values)
    if spec is not None and spec.origin is not None:
        values["imports"] = str(Path(spec.origin).parent)
        if Path(spec.origin).resolve().parent != package_folder().resolve():
            text = f"import qbe gives another copy, {values['imports']}"
            return Check("this folder", State.ADVICE, text, "start Python in another folder", values)
    return Check("this folder", State.OK, "import qbe gives this installation", values=values)
