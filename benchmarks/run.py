"""``make benchmarks``: all tables of `benchmarks/README.md`, made again on one machine by one version.

Prints first what it will run and how long that takes on two processors. Each command's output is kept in a
file of the folder of results; what is there already is not run again, so that an interrupted call goes on.
All results of a folder are of one version of qbe, one Python and one processor.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import processor
from benchmarks.tables import PREPARATIONS, TABLES, Preparation, Table
from qbe import _cli
from qbe.errors import OutputError, UsageError
from qbe.files import atomic_file, write_text

MADE_BY = "machine.json"


class Plan(NamedTuple):
    """What is still to be done: ``preparations`` and ``tables``, in their order."""

    preparations: list[Preparation]
    tables: list[Table]

    @property
    def minutes(self) -> int:
        """How long it takes."""
        return sum(step.minutes for step in (*self.preparations, *self.tables))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=__doc__.split("\n\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="which of them (default: all)")
    parser.add_argument("--results", type=Path, default=Path("runs/benchmarks"), metavar="DIR")
    parser.add_argument("--list", action="store_true", help="say what would be run, and end")
    return parser


def chosen(names: Sequence[str]) -> list[Table]:
    """The tables of these names, all of them for none; raises UsageError for a name that no table has."""
    known = [table.name for table in TABLES]
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"expected tables of {', '.join(known)}, found {', '.join(unknown)}")
    return [table for table in TABLES if not names or table.name in names]


def plan(tables: Iterable[Table], results: Path) -> Plan:
    """What is missing of some tables."""
    missing = [table for table in tables if not (results / f"{table.name}.txt").exists()]
    needed = {name for table in missing for name in table.needs}
    for step in reversed(PREPARATIONS):
        if step.name in needed:
            needed.update(step.needs)
    steps = [step for step in PREPARATIONS if step.name in needed and not Path(step.makes).exists()]
    return Plan(steps, missing)


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
    todo = plan(chosen(options.tables), options.results)
    for step in (*todo.preparations, *todo.tables):
        print(f"{step.minutes:>4} min  {step.name}: {step.command}")
    print(f"{todo.minutes / 60:.1f} hours in all", flush=True)
    if options.list:
        return
    check_machine(options.results)
    for preparation in todo.preparations:
        if not carry_out(preparation.command, None):
            raise OutputError(f"expected {preparation.makes}, found that its command failed; see above")
    failed = [
        table.name
        for table in todo.tables
        if not carry_out(table.command, options.results / f"{table.name}.txt")
    ]
    if failed:
        raise OutputError(f"expected all tables, found that these failed: {', '.join(failed)}; see above")


if __name__ == "__main__":
    _cli.run("benchmarks.run", main)
