"""What all commands share: parsers, errors as exit codes, progress bars; help imports nothing heavy."""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Mapping
    from typing import Any, NoReturn, Self, TypeVar

    T = TypeVar("T")

HIDDEN = argparse.SUPPRESS  # the help of an option that help does not show
_TYPES = {**dict.fromkeys(("N", "YEAR"), int), **dict.fromkeys(("SECONDS", "GRADE", "RATE", "X"), float)}
"""Types of values by their name in help; all others are texts."""

_OPTIONS = """
before=--year categories=--category cluster=--address columns=--format first_date=--from form=--format
folder=--index,--output,--model,INDEX k=--hits key_file=--api-key-file labels=--facets links=--no-links
max_rejected=--on-error output=FILE path=--watches workers=--threads
"""
"""Parameters of the library whose options have quite other names: of each the first that the command has."""

OVERWRITE = "--overwrite  replace a file that exists\n"
THREADS = "--threads N  default: all processors this process may use\n"
RERANK = """\
--rerank NAME[:PARAMETER=VALUE,...]  how hits are reranked, as of qbe search: none, projections
  (milliseconds), cross-encoder (seconds), matching, llm:model=NAME, or the folder of a model (default: grades
  or projections where the index's encoder has some, else cross-encoder)
"""
FILTERS = """\
--year YEARS  such as 2015-2019, 2015-, -2019 or 2018; query: not later than the query's own paper
--category NAME...  papers that have one of these categories, such as cs.CL, 'cs.*', or cs for all of cs
--author NAME...  papers by one of these; all words of a name must occur, upper case and accents apart
--where KEY=VALUE...  papers whose metadata has all these values (of a list, as one of its elements), such as
  tags=nlp or collections=thesis; technique=NAME: papers that name the technique in their title or where they
  say how, such as 'technique=conditional random field'
"""
PAPER_FORMATS = "--format table|json|bibtex|ris (table)  json: one object a line\n"

_known: set[str] = set()  # the options of the parsers that parsed the command line


class _HelpFormatter(argparse.HelpFormatter):
    """Help as wide as the terminal, whose width argparse learns by importing compression libraries."""

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
        except (OSError, ValueError):
            columns = 80
        super().__init__(prog, width=min(columns, 100))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """A parser of options that are declared as help shows them; none can be abbreviated."""

    def __init__(
        self, prog: str, description: str | None = None, options: str = "", epilog: str | None = None
    ) -> None:
        super().__init__(prog, None, description, epilog, formatter_class=_HelpFormatter, allow_abbrev=False)
        self.options(options)

    def options(self, declared: str) -> None:
        """Add options: each on a line with its help behind two spaces, which indented lines continue.

        ``--all`` is a flag, ``--name VALUE`` takes a value, ``VALUE...`` several, ``a|b`` one of these; a
        default stands in parentheses. ``VALUE`` alone is an argument, ``[VALUE]`` one that may be absent. One
        that ends with ``!`` is required. Of those that begin with ``? `` at most one may be given.
        ``# TITLE`` begins a group.
        """
        group: Any = self
        one_of: Any = None
        for entry in re.split(r"\n(?! )", declared.strip()) if declared else ():
            text, _, line = entry.partition("  ")
            if text[0] == "#":
                group, one_of = self.add_argument_group(text[2:]), None
                continue
            required = text[-1] == "!"
            if text[0] != "?":
                one_of = None
            elif one_of is None:
                one_of = group.add_mutually_exclusive_group(required=required)
            name, settings = _settings(text.removeprefix("? ").removesuffix("!"), " ".join(line.split()))
            if required and one_of is None:
                settings["required"] = True
            (one_of or group).add_argument(name, **settings)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        _known.clear()
        return super().parse_args(args, namespace)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Report a misspelt option before those that are required, unlike argparse."""
        words, known = sys.argv[1:] if args is None else list(args), self._option_string_actions
        _known.update(known, (action.dest.upper() for action in self._actions))
        for word in words:
            name = word.partition("=")[0]
            if word == "--" or (self._subparsers is not None and word[:1] != "-"):
                break
            is_option = word[:2] == "--" or (word[:1] == "-" and f"-{name}" in known)
            if is_option and name not in known and " " not in word:
                from qbe.errors import did_you_mean

                hint = did_you_mean(name, known)
                self.error(f"unrecognized argument: {name}{hint and f'; {hint}'}")
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """End the process with 2 and one line; the usage of commands with many options would hide it."""
        from qbe.util.text import one_line

        self.exit(2, f"{self.prog}: error: {one_line(message)} ({self.prog} --help lists the options)\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stderr).write(message)  # argparse drops errors of a full disk


def _settings(text: str, line: str) -> tuple[str, dict[str, Any]]:
    """The name of a declared option and what argparse is told of it."""
    text, _, default = text.removesuffix(")").partition(" (")
    name, _, value = text.partition(" ") if text[0] == "-" else (text.strip("[].").lower(), "", text)
    settings: dict[str, Any] = {"help": HIDDEN if line == HIDDEN else line}  # argparse asks by identity
    if default:
        settings["default"] = default
        if "default" not in line:
            settings["help"] += f" (default: {default.replace('%', '%%')})"
    if not value:
        return name, {**settings, "action": "store_true"}
    if value[0] == "[":
        value = value[1:-1]
        settings["nargs"] = "*" if value.endswith("...") else "?"
    elif value.endswith("..."):
        settings |= {"nargs": "+"} | ({"action": "extend"} if name[0] == "-" else {})
    elif " " in value:
        settings["nargs"] = len(value.split())
        value = value.split()[0]
    value = value.removesuffix("...")
    if "|" in value and not re.search("[A-Z][A-Z]", value):
        return name, {**settings, "choices": tuple(value.split("|"))}
    return name, {**settings, "metavar": value, "type": _TYPES.get(value)}


def commands_parser(
    program: str, about: str, commands: Mapping[str, tuple[str, str, str]], epilog: str = ""
) -> Parser:
    """A parser with commands: a line on what each does, its description (default: the line), its options."""
    whole = Parser(
        program, about, epilog=epilog or f"{program} COMMAND --help shows the options of a command."
    )
    added = whole.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for name, (line, description, options) in commands.items():
        described = description or f"{line[0].upper()}{line[1:]}."
        added.add_parser(name, help=line, description=described).options(options)
    return whole


def run(program: str, main: Callable[[list[str]], None], arguments: list[str] | None = None) -> None:
    """Run a command's ``main`` and end the process with the right exit code.

    0 when it returns, 2 for usage errors, 1 for all other expected failures (a package that is not installed
    is one), each with one line on standard error; 130 when interrupted. Any other exception is a bug, and
    keeps its traceback.
    """
    if "-m" in sys.orig_argv and not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109
        del sys.path[0]  # `python -m` puts the working directory before all other places
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started the process: no file takes its number
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Products of a few query vectors are over before a pool of threads has woken up, and the pool then
    # spins against FAISS's. Read by numpy when it is loaded; results do not depend on it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    only_help = "-h" in given or "--help" in given
    if only_help:
        gc.disable()  # collections, the interpreter's last one too, would be a sixth of the time it takes
    else:
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
        print(f"{program}: interrupted{error}", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        code = 1  # the reader went away (``| head``): quietly
    except Exception as error:
        told = _expected(error)
        if told is None:
            raise
        from qbe.util.text import one_line

        note(program, one_line(told))
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
    if isinstance(error, OSError) and error.filename:
        return file_error(error)
    if isinstance(error, OSError) and (_lost_output() or is_full(error)):
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


def with_options(message: str) -> str:
    """A library's message with the options of the command for the parameters that it names in backquotes.

    A parameter that is no option, but one of a stage, keeps its name.
    """
    others = dict(each.split("=") for each in _OPTIONS.split())

    def option(match: re.Match[str]) -> str:
        name = match.group(1)
        usual = f"--{name.replace('_', '-')}"  # also without its ending, as in paper_ids and run_files
        candidates = [usual, *others.get(name, "").split(","), re.sub("-(?:files?|ids)$|s$", "", usual)]
        return next((each for each in candidates if each in _known), name if _known else usual)

    return re.sub(r"`([a-z][a-z0-9_]*)`", option, message)


def refuse(wrong: object, message: str) -> None:
    """Raise UsageError where options are wrong."""
    if wrong:
        from qbe.errors import UsageError

        raise UsageError(message)


def made(kind: Callable[..., T], options: argparse.Namespace, **values: Any) -> T:
    """An object of a dataclass, out of the options of its fields' names and other values.

    None stands for what was not given, which keeps the default of the dataclass.
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
    """A progress bar on standard error, if that is a terminal; a context to call with what is done."""

    def __init__(self, name: str, unit: str, total: int | None = None, **settings: Any) -> None:
        self._settings, self._bar = {"desc": name, "unit": f" {unit}", "total": total} | settings, None

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


def threads(requested: int | None) -> int:
    """The value of ``--threads``, or all available ones; raises UsageError below 1."""
    from qbe.util.work import thread_count

    return thread_count(requested)
