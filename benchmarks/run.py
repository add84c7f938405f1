"""``make benchmarks``: all tables of `benchmarks/README.md`, made again on one machine by one version.

Runs the commands that the document shows, in its order, and prints first what it will run. Each command's
output is kept in a file of the folder of results; what is there already is not run again, so that an
interrupted call goes on. All results of a folder are of one version of qbe, one Python and one processor.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.common import processor
from qbe.cli import common as _cli
from qbe.errors import OutputError, UsageError
from qbe.util.files import atomic_file, write_text

DOCUMENT = Path(__file__).with_name("README.md")
MADE_BY = "machine.json"

PRODUCTS = {
    "make peers": ".venv-peers/installed",
    "make reproduce": "indexes/csfcube/CURRENT",
    "make whole": "indexes/whole/CURRENT",
    "qbe index --merge indexes/whole": "indexes/whole-4/segments.json",
}
"""Commands that prepare tables, by how they begin, with a file that each makes; run where it is absent."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=__doc__.split("\n\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="which of them (default: all)")
    parser.add_argument("--results", type=Path, default=Path("runs/benchmarks"), metavar="DIR")
    parser.add_argument("--list", action="store_true", help="say what would be run, and end")
    return parser


def product(command: str) -> str | None:
    """The file that a preparation makes; None for the command of a table."""
    return next((made for begin, made in PRODUCTS.items() if command.startswith(begin)), None)


def documented(text: str) -> dict[str, list[str]]:
    r"""The tables of the document by name, in its order: the preparations of each, then its command.
    A further command of one benchmark is numbered.

    >>> documented("    make peers\n    python -m benchmarks.bm25\n    python -m benchmarks.bm25 --hits 5\n")
    {'bm25': ['make peers', 'python -m benchmarks.bm25'],
     'bm25-2': ['make peers', 'python -m benchmarks.bm25 --hits 5']}
    """
    found: dict[str, list[str]] = {}
    for block in re.findall(r"(?:^    .+\n)+", text, re.MULTILINE):
        commands = [line.strip().removeprefix("QBE_DATA=... ") for line in block.splitlines()]
        needed = [command for command in commands if product(command)]
        for command in commands:
            named = re.match(r"(?:python -m benchmarks\.|make )(\w+(?: [a-z]+)?)", command)
            if named and command not in (*needed, "make benchmarks"):
                name = named[1].replace(" ", "-").replace("_", "-")
                others = sum(re.fullmatch(rf"{name}(-\d)?", other) is not None for other in found)
                found[f"{name}-{others + 1}" if others else name] = [*needed, command]
    return found


def chosen(tables: Mapping[str, list[str]], names: Sequence[str]) -> dict[str, list[str]]:
    """The tables of these names, all of them for none; raises UsageError for a name that no table has."""
    if unknown := [name for name in names if name not in tables]:
        raise UsageError(f"expected tables of {', '.join(tables)}, found {', '.join(unknown)}")
    return {name: commands for name, commands in tables.items() if not names or name in names}


def check_machine(results: Path) -> None:
    """Note what makes the results of a folder; raises OutputError where something else made those in it."""
    present = {"qbe": version("qbe"), "python": platform.python_version(), "processor": processor()}
    file = results / MADE_BY
    if not file.exists():
        results.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(present, indent=1) + "\n")
        return
    before = json.loads(file.read_text(encoding="utf-8"))
    if before != present:
        raise OutputError(
            f"{results}: expected results of {_described(present)}, found those of {_described(before)}; "
            "name another folder by --results"
        )


def _described(maker: dict[str, str]) -> str:
    return f"qbe {maker['qbe']} with Python {maker['python']} on {maker['processor']}"


def carry_out(command: str, output: Path | None) -> bool:
    """Run a command of the shell, and write what it prints to a file; returns whether it succeeded."""
    bin_folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ.get('PATH', '')}"}
    begin = time.monotonic()
    print(f"$ {command}", flush=True)
    done = subprocess.run(
        command, shell=True, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    print(f"  {(time.monotonic() - begin) / 60:.1f} minutes, exit status {done.returncode}", flush=True)
    if done.returncode == 0 and output is not None:
        with atomic_file(output) as stream:
            stream.write(f"$ {command}\n\n{done.stdout}".encode())
    return done.returncode == 0


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    tables = chosen(documented(DOCUMENT.read_text(encoding="utf-8")), options.tables)
    missing = {
        name: commands for name, commands in tables.items() if not (options.results / f"{name}.txt").exists()
    }
    for command in dict.fromkeys(command for commands in missing.values() for command in commands):
        made = product(command)
        if not (made and Path(made).exists()):
            print(command, flush=True)
    if options.list:
        return
    check_machine(options.results)
    failed = []
    for name, (*preparations, command) in missing.items():
        for preparation in preparations:
            made = product(preparation)
            if made and not Path(made).exists() and not carry_out(preparation, None):
                raise OutputError(f"expected {made}, found that its command failed; see above")
        if not carry_out(command, options.results / f"{name}.txt"):
            failed.append(name)
    if failed:
        raise OutputError(f"expected all tables, found that these failed: {', '.join(failed)}; see above")


if __name__ == "__main__":
    _cli.run("benchmarks.run", main)
