"""An index: whether its files are as they were written, and what of a damaged one can be saved."""

from __future__ import annotations

import shlex
from pathlib import Path

from qbe.cli.doctor_check import Check, State, checked, in_bytes
from qbe.index.packs.layout import pulled_as
from qbe.index.store import check_index, save_papers
from qbe.util.outputs import EMPTY, check_output
from qbe.util.text import plain


def index_checks(folder: Path, save: Path | None = None) -> list[Check]:
    """A check of each damaged file of an index, one of the whole, and licence and source of a pulled one;
    intact papers go to ``save``, if given.

    Raises IndexFormatError for a folder that is no index, OutputError where ``save`` cannot be written or has
    content already, before anything is read.
    """
    if save is not None:
        check_output(save, EMPTY, "save")
    result = check_index(folder)
    checks = [Check(name, State.DAMAGED, reason) for name, reason in result.damages.items()]
    if not checks:
        found = f"{result.files} files, {in_bytes(result.size)}: as they were written"
        counts = {"files": result.files, "bytes": result.size}
        checks.append(Check("index", State.OK, found, values=counts))
    elif result.papers:
        checks.append(Check("papers", State.OK, "intact", _mend(folder, save)))
    else:
        advice = "put back a whole copy of the index, or build it again from its corpus"
        checks.append(Check("papers", State.DAMAGED, "none is known to be intact", advice))
    if pulled := pulled_as(folder):
        about = f"license {pulled.license or 'not stated'}, source {pulled.source or 'not stated'}"
        checks.append(checked("pulled", plain(about)))
    if save is not None:
        checks.append(checked("saved", f"{save_papers(result, save):,} papers in {save}"))
    return checks


def _mend(folder: Path, save: Path | None) -> str:
    """The commands that build an index again from the papers of a damaged one."""
    file = shlex.quote(str(save or "papers.jsonl"))
    build = f"qbe index --corpus {file} --output NEW"
    if save is not None:
        return f"build the index again, with its former options: {build}"
    saving = f"qbe doctor --index {shlex.quote(str(folder))} --save {file}"
    return f"save them, and build the index again, with its former options: {saving} && {build}"
