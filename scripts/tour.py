"""Run the notebook docs/tour.ipynb in a new folder, and write what its cells print into it.

    python scripts/tour.py

Cells are Python, or commands of a shell below a line ``%%bash``; they need no Jupyter.
"""

import contextlib
import io
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent.parent / "docs" / "tour.ipynb"
BASH = "%%bash\n"


def run(cells: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
    """Run the cells of code in order, in the working directory; yields each with what it prints."""
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        code = "".join(cell["source"])
        if code.startswith(BASH):
            command = ["bash", "-euo", "pipefail", "-c", code.removeprefix(BASH)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            yield cell, done.stdout
        else:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, NOTEBOOK.name, "exec"), names)  # noqa: S102  (a notebook is code)
            yield cell, printed.getvalue()


def main() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for number, (cell, text) in enumerate(run(notebook["cells"]), start=1):
            output = {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
            cell.update(execution_count=number, outputs=[output] if text else [])
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
