"""What all commands share: parsers, errors to exit codes, progress bars, threads.

Nothing heavy is imported here: help and usage errors cost little more than a bare interpreter. (Importing
dataclasses alone would cost the help a third of its time.)
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, NoReturn, Self, TypeVar

    T = TypeVar("T")

HIDDEN = argparse.SUPPRESS
"""The help of an option that help does not show."""

_HELP = frozenset(("-h", "--help"))
_TYPES = {"N": int, "YEAR": int, "SECONDS": float, "RATE": float, "GRADE": float, "PASSES": float}
"""Types of values by their name in help; all others are texts."""

_OPTIONS = {
    "authors": "--author",
    "baseline_files": "--baseline",
    "before": "--year",
    "categories": "--category",
    "cluster": "--address",
    "columns": "--format",
    "first_date": "--from",
    "folder": "--index --output --model INDEX",
    "folds_file": "--folds",
    "form": "--format",
    "k": "--hits",
    "key_file": "--api-key-file",
    "labels": "--facets",
    "links": "--no-links",
    "max_rejected": "--on-error",
    "not_paper_ids": "--not-paper",
    "output": "FILE",
    "paper_ids": "--paper",
    "path": "--watches",
    "qrels_files": "--qrels",
    "run_files": "--run",
    "sets": "--set",
    "split_years": "--split-year",
    "workers": "--threads",
    "years": "--year",
}
"""Parameters of the library whose options have other names: of each the first that the command has."""

OVERWRITE = {"--overwrite": "replace a file that exists"}
THREADS = {"--threads N": "default: all processors this process may use"}
RERANK = {
    "--rerank NAME[:PARAMETER=VALUE,...]": "how hits are reranked, as of qbe search: none, projections "
    "(milliseconds), cross-encoder (seconds), matching, llm:model=NAME, or the folder of a model (default: "
    "grades or projections where the index's encoder has some, else cross-encoder)"
}
FILTERS = {
    "--year YEARS": "such as 2015-2019, 2015-, -2019 or 2018; query: not later than the query's own paper",
    "--category NAME...": "papers that have one of these categories, such as cs.CL, 'cs.*', or cs for all of "
    "cs",
    "--author NAME...": "papers by one of these; all words of a name must occur, upper case and accents "
    "apart",
    "--where KEY=VALUE...": "papers whose metadata has all these values (of a list, as one of its elements), "
    "such as tags=nlp or collections=thesis; technique=NAME: papers that name the technique in their title "
    "or where they say how, such as 'technique=conditional random field'",
}
PAPER_FORMATS = {"--format table|json|bibtex|ris (table)": "json: one object a line"}

_known: set[str] = set()
"""The options of the parsers that the command made."""


class _HelpFormatter(argparse.HelpFormatter):
    """Help as wide as the terminal, which keeps the line breaks of an epilog.

    argparse's own way to learn the width imports compression libraries.
    """

    width = 0

    def __init__(self, prog: str) -> None:
        if not _HelpFormatter.width:  # argparse makes a formatter for each option
            try:
                columns = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
            except (OSError, ValueError):
                columns = 80
            _HelpFormatter.width = min(columns, 100)
        super().__init__(prog, width=_HelpFormatter.width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """A parser of options that are declared as help shows them; none can be abbreviated.

    >>> command = Parser("qbe demo", "Show options.")
    >>> command.options({"WORD...": "words"})
    >>> command.options({"--hits N (10)": "hits", "--form a|b": "a form", "--also ID...": "more"}, "details")
    >>> command.parse_args(["x", "y", "--form", "a", "--also", "1", "2"])
    Namespace(word=['x', 'y'], hits=10, form='a', also=['1', '2'])
    """

    def __init__(self, prog: str, description: str | None = None, epilog: str | None = None) -> None:
        super().__init__(prog, None, description, epilog, formatter_class=_HelpFormatter, allow_abbrev=False)

    def options(
        self,
        declared: Mapping[str, str],
        group: str | None = None,
        *,
        required: bool = False,
        exclusive: bool = False,
    ) -> None:
        """Add options with their help, of which at most one may be given where they are ``exclusive``.

        ``--all`` is a flag, ``--name VALUE`` takes a value, ``VALUE...`` several, ``a|b`` one of these; a
        default stands in parentheses. ``VALUE`` alone is an argument, ``[VALUE]`` one that may be absent.
        """
        target: Any = self
        if group:
            same = (each for each in self._action_groups if each.title == group)
            target = next(same, None) or self.add_argument_group(group)
        if exclusive:
            target = target.add_mutually_exclusive_group(required=required)
        for text, line in declared.items():
            name, settings = _settings(text, line)
            if required and not exclusive:
                settings["required"] = True
            target.add_argument(name, **settings)
            _known.add(name if name[0] == "-" else name.upper())

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Report a misspelt option before those that are required, unlike argparse."""
        words = sys.argv[1:] if args is None else list(args)
        known = self._option_string_actions
        for word in words if _HELP.isdisjoint(words) else ():
            if word == "--" or (self._subparsers is not None and word[:1] != "-"):
                break
            name = word.partition("=")[0]
            is_option = word[:2] == "--" or (word[:1] == "-" and f"-{name}" in known)
            if is_option and name not in known and " " not in word:
                from qbe.errors import did_you_mean

                hint = did_you_mean(name, known)
                self.error(f"unrecognized argument: {name}{hint and f'; {hint}'}")
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """End the process with 2 and one line; the usage of commands with many options would hide it."""
        self.exit(2, f"{self.prog}: error: {_one_line(message)} ({self.prog} --help lists the options)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stderr).write(message)  # argparse drops errors of a full disk


def _settings(text: str, line: str) -> tuple[str, dict[str, Any]]:
    """The name of a declared option and what argparse is told of it."""
    text, _, default = text.removesuffix(")").partition(" (")
    name, _, value = text.partition(" ") if text[0] == "-" else (text, "", text)
    settings: dict[str, Any] = {"help": line}
    if default:
        settings["default"] = default
        if "default" not in line:
            settings["help"] = f"{line} (default: {default.replace('%', '%%')})"
    if name[0] == "-" and not value:
        return name, {**settings, "action": "store_true"}
    if name[0] != "-":
        name = name.strip("[].").lower()
    if value[0] == "[":
        value = value.strip("[]")
        settings["nargs"] = "*" if value.endswith("...") else "?"
    elif value.endswith("..."):
        settings["nargs"] = "+"
        if name[0] == "-":
            settings["action"] = "extend"
    elif " " in value:
        settings["nargs"] = len(value.split())
        value = value.split()[0]
    value = value.removesuffix("...")
    if "|" in value and not re.search("[A-Z][A-Z]", value):
        return name, {**settings, "choices": tuple(value.split("|"))}
    return name, {**settings, "metavar": value, "type": _TYPES.get(value)}


def commands_parser(
    program: str,
    description: str,
    commands: Mapping[str, str],
    command_parser: Callable[[str], argparse.ArgumentParser] | None = None,
) -> Parser:
    """A parser with commands, each with a line on what it does.

    ``command_parser`` gives the parser of a command by its name. Without it the parser serves for the help
    only, which needs no more than the names.
    """
    whole = Parser(program, description, f"{program} COMMAND --help shows the options of a command.")

    def make(prog: str, **_: object) -> argparse.ArgumentParser:
        return command_parser(prog.split()[-1]) if command_parser else whole

    # Typed as a class, but argparse only calls it.
    parser_class: type[argparse.ArgumentParser] = make  # type: ignore[assignment]
    added = whole.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", parser_class=parser_class, required=True
    )
    for name, line in commands.items():
        added.add_parser(name, help=line)
    return whole


def run(program: str, main: Callable[[list[str]], None], arguments: list[str] | None = None) -> None:
    """Run a command's ``main`` and end the process with the right exit code.

    0 when it returns, 2 for usage errors, 1 for all other expected failures, each with one line on
    standard error; 130 when interrupted. A package that is not installed is an expected failure. An
    unexpected exception keeps its traceback: it is a bug.
    """
    if sys.getfilesystemencoding() == "ascii":  # locale C: arguments and output are UTF-8 all the same
        # The same program again, with its own arguments: nothing else is started.
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606
    if "-m" in sys.orig_argv and not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109
        del sys.path[0]  # `python -m` puts the working directory before all other places
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started the process: no file takes its number
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Products of a few query vectors are over before a pool of threads has woken up, and the pool then
    # spins against FAISS's. Read by numpy when it is loaded; results do not depend on it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    only_help = not _HELP.isdisjoint(given)
    if only_help:
        gc.disable()  # collections, the interpreter's last one too, would be a sixth of the time it takes
    else:
        import logging

        logger = logging.getLogger("qbe")
        logger.handlers = [log_handler()]
        logger.setLevel(logging.INFO)
    _known.clear()
    code: int | str | None = 0
    try:
        try:
            main(given)
        except SystemExit as end:  # of argparse: after help, or a usage error that it has printed
            code = end.code
        sys.stdout.flush()
    except KeyboardInterrupt as error:
        print(f"{program}: interrupted{error}", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        code = 1  # the reader went away (``| head``): quietly
    except Exception as error:
        told = _expected(error)
        if told is None:
            raise
        print(f"{program}: {with_options(_one_line(told))}", file=sys.stderr)
        code = getattr(told, "exit_code", 1)
    finally:
        _lost_output()
        if only_help:
            gc.freeze()
            gc.enable()
    sys.exit(code)


def _expected(error: Exception) -> Exception | None:
    """The error that a user is told, None for a bug."""
    from qbe.errors import QbeError, file_error, is_full, output_error, package_error

    if isinstance(error, QbeError):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] != "qbe":
        return package_error(error, error.name)
    if isinstance(error, OSError):
        # Functions that write files raise OutputError, so that this is mostly a file that cannot be read.
        if error.filename:
            return file_error(error)
        if _lost_output() is not None or is_full(error):
            return output_error("standard output", error)
    return None


def _lost_output() -> OSError | None:
    """The error of a standard output that takes no more text, which is dropped: there is no second error at
    shutdown.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


def _one_line(value: object) -> str:
    from qbe.util.text import one_line

    return one_line(value)


def with_options(message: str) -> str:
    """A library's message with the options of the command for the parameters that it names in backquotes.

    A parameter that is no option, but one of a stage, keeps its name.

    >>> command = Parser("qbe demo")
    >>> command.options({"--hits N": "hits", "--rerank STAGE": "a stage"})
    >>> with_options("expected `k` of at least 1, found 0"), with_options("check `depth` of `rerank`")
    ('expected --hits of at least 1, found 0', 'check depth of --rerank')
    """

    def option(match: re.Match[str]) -> str:
        name = match.group(1)
        usual = f"--{name.replace('_', '-')}"
        candidates = [usual, *_OPTIONS.get(name, "").split()]
        return next((each for each in candidates if each in _known), name if _known else usual)

    return re.sub(r"`([a-z][a-z0-9_]*)`", option, message)


def made(kind: Callable[..., T], options: argparse.Namespace, **values: Any) -> T:
    """An object of a dataclass, out of the options of its fields' names and other values.

    None stands for what was not given, which keeps the default of the dataclass.

    >>> from qbe.corpus.records import Reading
    >>> made(Reading, argparse.Namespace(limit=5, dedupe=None, output="x"), format="csv").record()
    {'format': 'csv', 'limit': 5}
    """
    from dataclasses import fields

    named = {each.name: getattr(options, each.name, None) for each in fields(kind) if each.init}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in {**named, **values}.items() if value is not None})


def note(program: str, text: str | None) -> None:
    """Tell users something on standard error, where there is something to tell."""
    if text:
        print(f"{program}: {with_options(text)}", file=sys.stderr)


def log_handler(form: str = "%(message)s") -> logging.Handler:
    """A handler that logs to standard error, each message as one harmless line of a form of `logging`."""
    import logging

    from qbe.util.text import plain

    class Plain(logging.Formatter):
        def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
            return plain(super().formatMessage(record))

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Plain(form))
    return handler


class Bar:
    """A progress bar, which is shown when standard error is a terminal; a context to call with what is done.

    >>> with counter("reranking", "pairs", total=2) as advance:
    ...     advance(1)
    """

    def __init__(self, **settings: Any) -> None:
        self._settings, self._bar = settings, None

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
        if self._bar is not None:
            if total is not None:
                self._bar.total, done = total, done - self._bar.n
            self._bar.update(done)


def counter(description: str, unit: str, total: int | None) -> Bar:
    """A bar of a number of items."""
    return Bar(desc=description, unit=f" {unit}", total=total)


def megabytes(description: str) -> Bar:
    """A bar of bytes, to be called with those that are done and those of all."""
    return Bar(desc=description, unit="B", unit_scale=True)


def progress(items: Iterable[T], description: str, unit: str, total: int | None = None) -> Iterator[T]:
    """Pass items through, and count them.

    >>> [paper_id.upper() for paper_id in progress(["a", "b"], "reading", "papers", total=2)]
    ['A', 'B']
    """
    with counter(description, unit, total) as advance:
        for item in items:
            yield item
            advance(1)


def progress_by_share(
    items: Iterable[T], description: str, unit: str, share: Callable[[], float | None]
) -> Iterator[T]:
    """Pass items of an unknown number through, of which a ``share`` has been read.

    >>> list(progress_by_share(["a", "b"], "reading", "papers", lambda: 0.5))
    ['a', 'b']
    """
    if not sys.stderr.isatty():
        yield from items
        return
    from tqdm import tqdm

    form = "{desc}: {percentage:3.0f}%|{bar}| {postfix} [{elapsed}<{remaining}]"
    with tqdm(total=1.0, desc=description, bar_format=form, dynamic_ncols=True) as bar:
        for count, item in enumerate(items, start=1):
            if count % 500 == 0:
                bar.set_postfix_str(f"{count:,} {unit}", refresh=False)
                bar.update((share() or 0.0) - bar.n)
            yield item
        bar.update(1.0 - bar.n)


def threads(requested: int | None) -> int:
    """The value of ``--threads``, or all available ones; raises UsageError below 1.

    >>> threads(4)
    4
    """
    from qbe.util.work import thread_count

    return thread_count(requested)
