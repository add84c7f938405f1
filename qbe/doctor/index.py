"""An index: whether its files are as they were written, and what of a damaged one can be saved."""

from __future__ import annotations

import shlex
from pathlib import Path

from qbe.doctor.check import Check, State
from qbe.doctor.units import in_bytes
from qbe.index.checking import check_index, save_papers
from qbe.index.segments.commit import COMMIT, DELETED


def index_checks(folder: Path, save: Path | None = None) -> list[Check]:
    """A check of each damaged file of an index, and one of the whole; intact papers go to ``save``, if given.

    Raises IndexFormatError for a folder that is no index, OutputError where ``save`` cannot be written.
    """
    checked = check_index(folder)
    checks = [Check(name, State.DAMAGED, reason) for name, reason in checked.damages.items()]
    segments = "1 segment" if checked.segments == 1 else f"{checked.segments} segments"
    if not checks:
        found = f"{segments}, {checked.files} files, {in_bytes(checked.size)}: as they were written"
        values = {"segments": checked.segments, "files": checked.files, "bytes": checked.size}
        checks.append(Check("index", State.OK, found, values=values))
    elif checked.papers:
        found = f"intact in {len(checked.papers)} of {segments}"
        if any(name == COMMIT or name.startswith(DELETED) for name in checked.damages):
            found += ", deleted ones among them"
        checks.append(Check("papers", State.OK, found, _mend(folder, save)))
    else:
        advice = "put back a whole copy of the index, or build it again from its corpus"
        checks.append(Check("papers", State.DAMAGED, "none is known to be intact", advice))
    if save is not None:
        checks.append(Check("saved", State.OK, f"{save_papers(checked, save):,} papers in {save}"))
    return checks


def _mend(folder: Path, save: Path | None) -> str:
    """The commands that build an index again from the papers of a damaged one."""
    file = shlex.quote(str(save or "papers.jsonl"))
    build = f"qbe index --corpus {file} --output NEW"
    if save is not None:
        return f"build the index again, with its former options: {build}"
    saving = f"qbe doctor --index {shlex.quote(str(folder))} --save {file}"
    return f"save them, and build the index again, with its former options: {saving} && {build}"
