"""``make benchmarks``: run the commands that `benchmarks/README.md` shows, each output in a file.

An output that is there already is not made again, so that an interrupted call continues.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.common import processor
from qbe.cli import common as _cli
from qbe.errors import OutputError, UsageError
from qbe.util.files import atomic_file

DOCUMENT = Path(__file__).with_name("README.md")
# Commands that prepare tables, with a file that each makes; run where it is absent.
PRODUCTS = {
    "make peers": ".venv-peers/installed",
    "make reproduce": "indexes/csfcube/CURRENT",
    "make whole": "indexes/whole/CURRENT",
}


def documented(text: str) -> dict[str, list[str]]:
    r"""Return the preparations and the command of each table by name; further commands of it are numbered.

    >>> documented("    make peers\n    python -m benchmarks.bm25\n    python -m benchmarks.bm25 --hits 5\n")
    {'bm25': ['make peers', 'python -m benchmarks.bm25'],
     'bm25-2': ['make peers', 'python -m benchmarks.bm25 --hits 5']}
    """
    found: dict[str, list[str]] = {}
    for block in re.findall(r"(?:^    .+\n)+", text, re.MULTILINE):
        commands = [line.strip().removeprefix("QBE_DATA=... ") for line in block.splitlines()]
        needed = [command for command in commands if command in PRODUCTS]
        for command in commands:
            named = re.match(r"(?:python -m benchmarks\.|make )(\w+(?: [a-z]+)?)", command)
            if named and command not in (*needed, "make benchmarks"):
                name = named[1].replace(" ", "-").replace("_", "-")
                others = sum(re.fullmatch(rf"{name}(-\d)?", other) is not None for other in found)
                found[f"{name}-{others + 1}" if others else name] = [*needed, command]
    return found


def succeeds(command: str, output: Path | None = None) -> bool:
    """Run a command of the shell; write what it prints to ``output`` if it succeeds."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    print(f"$ {command}", flush=True)
    begin = time.monotonic()
    done = subprocess.run(command, shell=True, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE)
    print(f"  {(time.monotonic() - begin) / 60:.1f} minutes, exit status {done.returncode}", flush=True)
    if done.returncode == 0 and output is not None:
        with atomic_file(output) as stream:
            stream.write(f"$ {command}\n({processor()})\n\n".encode() + done.stdout)
    return done.returncode == 0


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=__doc__.split("\n\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="which of them (default: all)")
    parser.add_argument("--results", type=Path, default=Path("runs/benchmarks"), metavar="DIR")
    parser.add_argument("--list", action="store_true", help="say what would be run, and end")
    options = parser.parse_args(argv)
    tables = documented(DOCUMENT.read_text(encoding="utf-8"))
    if unknown := [name for name in options.tables if name not in tables]:
        raise UsageError(f"expected tables of {', '.join(tables)}, found {', '.join(unknown)}")
    outputs = {name: options.results / f"{name}.txt" for name in options.tables or tables}
    missing = [name for name, output in outputs.items() if not output.exists()]
    planned = dict.fromkeys(command for name in missing for command in tables[name])
    for command in planned:
        if command not in PRODUCTS or not Path(PRODUCTS[command]).exists():
            print(command, flush=True)
    if options.list:
        return
    options.results.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in missing:
        *preparations, command = tables[name]
        ready = all(Path(PRODUCTS[each]).exists() or succeeds(each) for each in preparations)
        if not ready or not succeeds(command, outputs[name]):
            failed.append(name)
    if failed:
        raise OutputError(f"expected all tables, found that these failed: {', '.join(failed)}; see above")


if __name__ == "__main__":
    _cli.run("benchmarks.run", main)
