"""What all commands share: errors as exit codes, notes, progress bars, objects made of options."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time

from qbe.cli.parser import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from collections.abc import Callable
    from typing import Any, Self, TypeVar

    T = TypeVar("T")

_OPTIONS = """
before=--year categories=--category cluster=--address columns=--format first_date=--from form=--format
folder=--index,--output,--model,INDEX k=--hits key_file=--api-key-file labels=--facets links=--no-links
max_rejected=--on-error output=FILE path=--watches workers=--threads
"""
"""Parameters of the library whose options have quite other names: of each the first that the command has."""

TOPICS, CORPUS, INDEXES = "qrels/topics.tsv", "qrels/corpus.jsonl", "indexes"
VARIABLE = "QBE_INDEX"
EVERY = 60.0  # seconds between lines of progress where there is no terminal
_BUILT = ("--corpus", "--output", "--append", "--update", "--sync", "--delete")
"""What is taken where nothing is named: the layout that ``make reproduce`` leaves."""


def run(program: str, main: Callable[[list[str]], None], arguments: list[str] | None = None) -> None:
    """Run a command's ``main`` and end the process with the right exit code.

    0 when it returns, 2 for usage errors, 1 for all other expected failures (a package that is not installed
    is one), each with one line on standard error; 130 when interrupted. Any other exception is a bug, and
    keeps its traceback.
    """
    Parser.program = program
    try:
        folder = os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        note("expected a working folder, found one that was removed; change to another")
        sys.exit(1)
    if "-m" in sys.orig_argv and not sys.flags.safe_path and sys.path[:1] == [folder]:
        del sys.path[0]  # `python -m` puts the working directory before all other places
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started the process: no file takes its number
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Products of a few query vectors are over before a pool of threads has woken up, and the pool then
    # spins against FAISS's. Read by numpy when it is loaded; results do not depend on it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if "-h" not in given and "--help" not in given:
        import logging

        logger = logging.getLogger("qbe")
        logger.handlers = [log_handler()]
        logger.setLevel(logging.INFO)
    code: int | str | None = 0
    try:
        try:
            main(given)
        except SystemExit as end:  # of argparse: after help, or a usage error that it has printed
            code = end.code
        sys.stdout.flush()
    except KeyboardInterrupt as error:
        print(f"{Parser.program}: interrupted{error}", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        code = 1  # the reader went away (``| head``): quietly
    except Exception as error:
        told = _expected(error)
        if told is None:
            raise
        from qbe.util.text import one_line

        note(one_line(told))
        code = getattr(told, "exit_code", 1)
    finally:
        _lost_output()
    sys.exit(code)


def _expected(error: Exception) -> Exception | None:
    """The error that a user is told, None for a bug."""
    from qbe.errors import FULL, QbeError, file_error, output_error, package_error

    if isinstance(error, QbeError):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] != "qbe":
        return package_error(error, error.name)
    if isinstance(error, UnicodeEncodeError):  # of an option that is no UTF-8, or for such a terminal
        told = f"expected text that {error.encoding} can write, found {error.object[error.start]!a}"
        return QbeError(f"{told}; mend it, or set PYTHONIOENCODING=utf-8")
    if isinstance(error, OSError) and error.filename:
        return file_error(error)
    if isinstance(error, OSError) and (_lost_output() or error.errno in FULL):
        return output_error("standard output", error)
    return None


def _lost_output() -> bool:
    """Whether standard output takes no more text; it is dropped, so that there is no second error."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def note(text: str | None) -> None:
    """Tell users something on standard error, where there is something to tell.

    Parameters that a library's message names in backquotes become options of the command; one that is no
    option, but a stage's, keeps its name.
    """
    if not text:
        return
    others = dict(each.split("=") for each in _OPTIONS.split())

    def option(match: re.Match[str]) -> str:
        name = match.group(1)
        usual = f"--{name.replace('_', '-')}"  # also without its ending, as in paper_ids and run_files
        candidates = [usual, *others.get(name, "").split(","), re.sub("-(?:files?|ids)$|s$", "", usual)]
        return next((each for each in candidates if each in Parser.known), name if Parser.known else usual)

    told = re.sub(r"`([a-z][a-z0-9_]*)`", option, text)
    print(f"{Parser.program}: {told}", file=sys.stderr)


def refuse(wrong: object, message: str) -> None:
    if wrong:
        from qbe.errors import UsageError

        raise UsageError(message)


def made(kind: Callable[..., T], options: argparse.Namespace, **values: Any) -> T:
    """An object of a dataclass, of options named as its fields and of other values; None keeps a default."""
    from dataclasses import fields

    named = {each.name: getattr(options, each.name, None) for each in fields(kind) if each.init}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in {**named, **values}.items() if value is not None})


def log_handler(form: str = "%(message)s") -> logging.Handler:
    """A handler that logs to standard error, each message as one harmless line of a form of `logging`."""
    import logging

    from qbe.errors import without_secrets
    from qbe.util.text import plain

    class Plain(logging.Formatter):
        def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
            return without_secrets(plain(super().formatMessage(record)))

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Plain(form))
    return handler


class Bar:
    """A progress bar on standard error, elsewhere a line a minute; a context to call with what is done."""

    def __init__(self, name: str, unit: str, total: int | None = None, **settings: Any) -> None:
        self._settings, self._bar = {"desc": name, "unit": f" {unit}", "total": total} | settings, None
        self._done, self._due = 0, time.monotonic() + EVERY

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(**self._settings, dynamic_ncols=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, done: int, total: int | None = None) -> None:
        """Count items as done; with a total, ``done`` is the number of all that are."""
        self._done = self._done + done if total is None else done
        total = total or self._settings["total"]
        if self._bar is not None:
            self._bar.total = total
            self._bar.update(self._done - self._bar.n)
        elif time.monotonic() >= self._due:
            self._due, of = time.monotonic() + EVERY, f" of {total:,}" if total else ""
            print(f"{self._settings['desc']}: {self._done:,}{of}{self._settings['unit']}", file=sys.stderr)


def searched(parser: Parser, arguments: list[str]) -> list[str]:
    """The index in $QBE_INDEX, else the only one under ``indexes``, and ``qrels/topics.tsv``."""
    from pathlib import Path

    given, added = {word.partition("=")[0] for word in arguments}, list[str]()
    if "--index" not in given:
        index, names = os.environ.get(VARIABLE), ("CURRENT", "manifest.json")
        folders = [] if index else sorted(Path(INDEXES).glob("*"))
        found = [str(each) for each in folders if any((each / name).is_file() for name in names)]
        told = f"expected an `index`, found none, and several under {INDEXES}: {', '.join(found)}"
        refuse(len(found) > 1, f"{told}; give one, or set ${VARIABLE}")
        if chosen := [index] if index else found:
            added += ["--index", *chosen]
    required = (group for group in parser._mutually_exclusive_groups if group.required)
    starts = [name for group in required for each in group._group_actions for name in each.option_strings]
    if starts and given.isdisjoint(starts) and Path(TOPICS).is_file():
        added += ["--topics", TOPICS]
    return _told(added)


def built(_: Parser, arguments: list[str]) -> list[str]:
    """``qrels/corpus.jsonl``, or where there is none the collection in the package, and an output."""
    from importlib import resources
    from pathlib import Path

    if not {word.partition("=")[0] for word in arguments}.isdisjoint(_BUILT):
        return []
    if Path(CORPUS).is_file():
        return _told(["--corpus", CORPUS, "--output", f"{INDEXES}/corpus"])
    papers = resources.files("qbe.datasets").joinpath("mini", "papers.jsonl.xz")
    return _told(["--corpus", str(papers), "--output", f"{INDEXES}/mini"])


def _told(added: list[str]) -> list[str]:
    if added:
        note(f"taken, since none is given: {' '.join(added)}")
    return added
