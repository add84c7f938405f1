"""Says whether the figures that ``make reproduce`` made are those of docs/reproduce.md.

    python -m scripts.reproduced mini csfcube

Reads ``runs/NAME.json`` and, of CSFCube, the digests of the published runs.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

from scripts.runs import MEASURES, ROOT, ROWS, SCOPES

CAUSE = "processors compute int8 differently (qbe doctor says whether this one has VNNI)"


def compared(name: str, runs: Path = Path("runs"), page: Path = ROOT / "docs" / "reproduce.md") -> str:
    """Compare the figures of a collection's runs with those of their rows on the page, to two digits."""
    made = {row["run"]: row["figures"] for row in json.loads((runs / f"{name}.json").read_text())["rows"]}
    row_of_table = r"^\| (.+?) \|((?: [\d.]+ / [\d.]+ \|){4})$"
    published = dict(re.findall(row_of_table, page.read_text(encoding="utf-8"), re.MULTILINE))
    differences = []
    for run, row in ROWS.items():
        collection, _, system = run.partition(".")
        if collection == "csfcube":
            cells = published[row.name if name == collection else row.name.removeprefix("qbe ")]
            figures = made[f"{name}.{system}"]
            ours = [f"{100 * figures[measure][scope]:.2f}" for scope in SCOPES for measure in MEASURES]
            theirs = re.findall(r"\d+\.\d+", cells)
            differences += [abs(float(a) - float(b)) for a, b in zip(ours, theirs, strict=True)]
    if largest := max(differences):
        return f"{name}: figures differ from those published by at most {largest:.2f}: {CAUSE}."
    if name != "csfcube":
        return f"{name}: all figures as published."
    digests = json.loads((ROOT / "runs" / "published" / "runs.json").read_text())
    names = [run for run in ROWS if run.startswith("csfcube.")]
    same = [
        hashlib.sha256((runs / f"{run}.trec").read_bytes()).hexdigest() == digests[run]["sha256"]
        for run in names
    ]
    return f"{name}: all figures as published; {sum(same)} of {len(same)} runs are the same to the byte."


if __name__ == "__main__":
    print("\n".join(map(compared, sys.argv[1:])))
