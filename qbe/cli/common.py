"""What every command line shares: its parser, errors to exit codes, progress, threads.

Nothing heavy is imported here: help and usage errors cost little more than a bare interpreter.
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import contextlib
    import logging
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any, NoReturn, TypeVar

    from qbe.errors import QbeError

    T = TypeVar("T")

_PARAMETER = r"`([a-z][a-z0-9_]*)`"
_WIDEST = 100
_SHOW_EVERY = 500
"""After how many items a bar by share is moved."""
HIDDEN = argparse.SUPPRESS
"""The help of an option that help does not show."""
_HELP = frozenset(("-h", "--help", "--help-all"))
_parsed: set[str] = set()
"""The options of the parsers that the command used."""


class _HelpFormatter(argparse.HelpFormatter):
    """Help as wide as the terminal; argparse's own way to learn the width imports compression libraries.

    A text with line breaks, such as an epilog with examples, keeps its lines.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(_columns(), _WIDEST))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" not in text:
            return super()._fill_text(text, width, indent)
        return "".join(f"{indent}{line}" for line in text.splitlines(keepends=True))


@functools.cache
def _columns() -> int:
    """The terminal's width; argparse makes a formatter for each option, and asking takes a system call."""
    try:
        return int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
    except (OSError, ValueError):
        return 80


class _Store(argparse._StoreAction):
    """Stores the value of an option that is given once, and all values of one that takes several."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Raises ArgumentError for a second value, which would take the place of the first."""
        assert isinstance(parser, _Parser)
        if option_string is not None and self.dest in parser.given:
            before = getattr(namespace, self.dest)
            if self.nargs is None:
                raise argparse.ArgumentError(self, f"expected once, found {before} and {values}; give one")
            values = [*before, *values]
        parser.given.add(self.dest)
        setattr(namespace, self.dest, values)


class _HelpAll(argparse.Action):
    """Prints the help of all options, and ends the process."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser._print_message(argparse.ArgumentParser.format_help(parser), sys.stdout)
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviated options, and no option twice; unknown names get a suggestion.

    Its subcommands have such parsers as well.
    """

    def __init__(
        self,
        *,
        aliases: Mapping[str, str] | None = None,
        common: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        settings.setdefault("formatter_class", _HelpFormatter)
        settings.setdefault("allow_abbrev", False)
        super().__init__(**settings)
        self.register("action", None, _Store)
        self.register("action", "store", _Store)
        self.aliases, self.common = aliases or {}, frozenset(common)
        self.given: set[str] = set()
        if common:
            self.add_argument(
                "--help-all", action=_HelpAll, nargs=0, dest=argparse.SUPPRESS, help="show all options"
            )

    def format_help(self) -> str:
        """Help with the common options alone, where there are such; `--help-all` shows the rest."""
        if not self.common:
            return super().format_help()
        formatter = self._get_formatter()
        formatter.add_usage("%(prog)s OPTION ...", self._actions, ())
        formatter.add_text(self.description)
        for group in self._action_groups:
            actions = [each for each in group._group_actions if self.common & set(each.option_strings)]
            formatter.start_section(group.title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        shown = self.common | _HELP
        others = sum(shown.isdisjoint(each.option_strings) and each.help != HIDDEN for each in self._actions)
        formatter.add_text(f"{self.prog} --help-all shows {others} more options.")
        return formatter.format_help()

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse does, which would say nothing of help that standard output does not take."""
        if file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, which would report options that are required before one that is misspelt."""
        self.given = set()
        _parsed.update(self._option_string_actions)
        words = sys.argv[1:] if args is None else list(args)
        for name in self._unknown(words):
            self.error(f"unrecognized argument: {name}{self._hint(name)}")
        return super().parse_known_args(words, namespace)

    def _unknown(self, words: Sequence[str]) -> Iterator[str]:
        """The options among the words that are none of this parser, unless help is asked for."""
        known = self._option_string_actions
        if _HELP.intersection(words):
            return
        for word in words:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                return
            name = word.partition("=")[0]
            long = word.startswith("--") or (word.startswith("-") and f"-{name}" in known)
            if long and name not in known and " " not in word:
                yield name

    def error(self, message: str) -> NoReturn:
        """End the process with 2 and one line; the usage of commands with many options would hide it."""
        self.exit(
            2, f"{self.prog}: error: {_one_line(message)} ({self.prog} {self._help} lists the options)\n"
        )

    @property
    def _help(self) -> str:
        return "--help-all" if self.common else "--help"

    def _hint(self, name: str) -> str:
        from qbe.errors import did_you_mean

        alias = self.aliases.get(f"--{name.lstrip('-')}")
        hint = f"did you mean {alias}?" if alias else did_you_mean(name, self._option_string_actions)
        return hint and f"; {hint}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Add the nearest choice to the error for a value that is none."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            from qbe.errors import did_you_mean

            if hint := did_you_mean(str(value), map(str, action.choices or ())):
                error.message += f"; {hint}"
            raise


def parser(
    program: str,
    description: str,
    aliases: Mapping[str, str] | None = None,
    common: Sequence[str] = (),
) -> argparse.ArgumentParser:
    """A parser that takes no abbreviated options, and no option twice.

    ``aliases`` has names that people try, each with the option that does what they mean: where nothing is
    named like that, an error suggests it. ``common`` names the options that ``--help`` shows, where
    ``--help-all`` shows all.

    >>> command = parser("qbe demo", "Show options.")
    >>> _ = command.add_argument("--hits", type=int)
    >>> command.parse_args(["--hits", "5"])
    Namespace(hits=5)
    """
    return _Parser(prog=program, description=description, aliases=aliases, common=common)


def add_rerank(parser: argparse.ArgumentParser) -> None:
    """Add what a service reranks by: ``--rerank``."""
    parser.add_argument(
        "--rerank",
        metavar="NAME[:PARAMETER=VALUE,...]",
        help="how hits are reranked, as of qbe search: none, projections (milliseconds), cross-encoder "
        "(seconds), matching, llm:model=NAME, or the folder of a model (default: grades or projections where "
        "the index's encoder has some, else cross-encoder)",
    )


def add_filters(group: argparse._ActionsContainer) -> None:
    """Add conditions on papers, which must all hold; None means that one was not given."""
    group.add_argument(
        "--year",
        metavar="YEARS",
        help="such as 2015-2019, 2015-, -2019 or 2018; query: not later than the query's own paper",
    )
    group.add_argument(
        "--category",
        nargs="+",
        metavar="NAME",
        help="papers that have one of these categories, such as cs.CL, 'cs.*', or cs for all of cs",
    )
    group.add_argument(
        "--author",
        nargs="+",
        metavar="NAME",
        help="papers by one of these; all words of a name must occur, upper case and accents apart",
    )
    group.add_argument(
        "--where",
        nargs="+",
        metavar="KEY=VALUE",
        help="papers whose metadata has all these values (of a list, as one of its elements), such as "
        "tags=nlp or collections=thesis; technique=NAME: papers that name the technique in their title or "
        "where they say how, such as 'technique=conditional random field'",
    )


def add_paper_formats(parser: argparse.ArgumentParser) -> None:
    """Add the ``--format`` of papers that are no results of a search."""
    parser.add_argument(
        "--format",
        choices=("table", "json", "bibtex", "ris"),
        default="table",
        help="json: one object a line (default: %(default)s)",
    )


def commands_parser(
    program: str,
    description: str,
    commands: Mapping[str, str],
    command_parser: Callable[[str], argparse.ArgumentParser] | None = None,
) -> argparse.ArgumentParser:
    """A parser with commands, each with a line on what it does.

    ``command_parser`` gives the parser of a command by its name. Without it the parser serves for the help
    only, which needs no more than the names.
    """
    whole = parser(program, description)
    whole.epilog = f"{program} COMMAND --help shows the options of a command."

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


def run(
    program: str,
    main: Callable[[list[str]], None],
    options: Mapping[str, str] | None = None,
    arguments: Sequence[str] | None = None,
) -> None:
    """Run a command's ``main`` and end the process with the right exit code.

    0 when it returns, 2 for usage errors, 1 for all other expected failures, each with one line on
    standard error; 130 when interrupted. A package that is not installed is an expected failure. An
    unexpected exception keeps its traceback: it is a bug.

    Library errors name parameters in backquotes; here they become options (see `with_options`), by
    ``options`` where a parameter is not named as its option is. ``arguments`` are those of the process by
    default.
    """
    if sys.getfilesystemencoding() == "ascii":  # locale C: arguments and output are UTF-8 all the same
        # The same program again, with its own arguments: nothing else is started.
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606
    _leave_working_directory_out()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started the process: no file takes its number
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Products of a few query vectors are over before a pool of threads has woken up, and the pool then
    # spins against FAISS's. Read by numpy when it is loaded; results do not depend on it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    only_help = bool(_HELP.intersection(given))
    if only_help:
        gc.disable()  # collections, the interpreter's last one too, would be a sixth of the time it takes
    else:
        _log_to_standard_error()
    _parsed.clear()
    code: int | str | None = 0
    try:
        try:
            main(given)
        except SystemExit as end:  # of argparse: after help, or a usage error that it has printed
            code = end.code
        sys.stdout.flush()
    except _qbe_error() as error:
        print(f"{program}: {with_options(_one_line(error), options or {}, _parsed)}", file=sys.stderr)
        code = error.exit_code
    except ModuleNotFoundError as error:
        from qbe.errors import package_error

        if not error.name or error.name.partition(".")[0] == "qbe":
            raise
        print(f"{program}: {_one_line(package_error(error, error.name))}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt as error:
        print(f"{program}: interrupted{error}", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        code = 1  # the reader went away (``| head``): quietly
    except OSError as error:
        # Functions that write files raise OutputError, so that this is mostly a file that cannot be read.
        from qbe.errors import file_error, is_full, output_error

        lost = _lost_output()
        if error.filename is None and lost is None and not is_full(error):
            raise
        told = file_error(error) if error.filename else output_error("standard output", error)
        print(f"{program}: {_one_line(told)}", file=sys.stderr)
        code = 1
    finally:
        _lost_output()
        if only_help:
            gc.freeze()
            gc.enable()
    sys.exit(code)


def _lost_output() -> OSError | None:
    """The error for text that standard output does not take; the text is dropped, so that there is no second
    error at shutdown.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


def _leave_working_directory_out() -> None:
    """Import nothing further from the working directory, which ``python -m`` puts before all other places.

    What is imported by then stays, qbe itself among it, which may lie there.
    """
    is_module = "-m" in sys.orig_argv and not sys.flags.safe_path
    if is_module and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109  (pathlib is not imported for help)
        del sys.path[0]


def _one_line(value: object) -> str:
    """See `qbe.util.text.one_line`, which help needs not."""
    from qbe.util.text import one_line

    return one_line(value)


def _qbe_error() -> type[QbeError]:
    """The base of all expected errors, imported when there is an error; most help needs none."""
    from qbe.errors import QbeError

    return QbeError


def with_options(message: str, options: Mapping[str, str], known: Collection[str] = ()) -> str:
    """A library's message in the words of the command line: each parameter that it names in backquotes
    becomes an option, that of ``options``, or else ``--`` and its name. Where options are ``known``, a
    parameter that is none of them, but one of a stage, keeps its name.

    >>> with_options("expected `rerank_depth` of at least 1, found 0; check `k`", {"k": "--hits"})
    'expected --rerank-depth of at least 1, found 0; check --hits'
    >>> with_options("expected `depth` of at least 1, found 0; check `rerank`", {}, ["--rerank"])
    'expected depth of at least 1, found 0; check --rerank'
    """

    def option(match: re.Match[str]) -> str:
        name = match.group(1)
        usual = f"--{name.replace('_', '-')}"
        return options.get(name, name if known and usual not in known else usual)

    return re.sub(_PARAMETER, option, message)


def _log_to_standard_error() -> None:
    import logging

    logger = logging.getLogger("qbe")
    logger.handlers = [log_handler()]
    logger.setLevel(logging.INFO)


def log_handler(form: str = "%(message)s") -> logging.Handler:
    """What writes log messages to standard error, each as one harmless line of a form of `logging`."""
    import logging

    from qbe.util.text import plain

    class Plain(logging.Formatter):
        def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
            return plain(super().formatMessage(record))

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Plain(form))
    return handler


def progress(items: Iterable[T], description: str, unit: str, total: int | None = None) -> Iterator[T]:
    """Pass items through, with a progress bar when standard error is a terminal.

    >>> [paper_id.upper() for paper_id in progress(["a", "b"], "reading", "papers", total=2)]
    ['A', 'B']
    """
    if not sys.stderr.isatty():
        yield from items
        return
    from tqdm import tqdm

    yield from tqdm(items, desc=description, unit=f" {unit}", total=total, dynamic_ncols=True)


def progress_by_share(
    items: Iterable[T], description: str, unit: str, share: Callable[[], float | None]
) -> Iterator[T]:
    """Pass items through, with a bar when standard error is a terminal; their number is not known, but the
    ``share`` of what they are made of that has been read is, or may be.

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
            if count % _SHOW_EVERY == 0:
                bar.set_postfix_str(f"{count:,} {unit}", refresh=False)
                bar.update((share() or 0.0) - bar.n)
            yield item
        bar.update(1.0 - bar.n)


def counter(
    description: str, unit: str, total: int | None
) -> contextlib.AbstractContextManager[Callable[[int], object]]:
    """A context that gives a function to call with the number of items just finished; it moves a progress
    bar, on a terminal only.

    >>> with counter("reranking", "pairs", total=2) as finished:
    ...     for _ in ("first pair", "second pair"):
    ...         _ = finished(1)
    """
    return _bar(lambda bar: bar.update, desc=description, unit=f" {unit}", total=total)


def megabytes(description: str) -> contextlib.AbstractContextManager[Callable[[int, int], object]]:
    """A context that gives a function to call with the number of bytes that are done and that of all; it
    moves a progress bar, on a terminal only.

    >>> with megabytes("pulling") as progress:
    ...     progress(1_000_000, 2_000_000)
    """

    def mover(bar: Any) -> Callable[[int, int], object]:
        def move(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        return move

    return _bar(mover, desc=description, unit="B", unit_scale=True)


def _bar(
    mover: Callable[[Any], Callable[..., object]], **settings: Any
) -> contextlib.AbstractContextManager[Callable[..., object]]:
    """A context that gives the function which moves a bar; without a terminal it does nothing."""
    from contextlib import contextmanager, nullcontext

    if not sys.stderr.isatty():
        return nullcontext(lambda *_: None)
    from tqdm import tqdm

    @contextmanager
    def bar() -> Iterator[Callable[..., object]]:
        with tqdm(**settings, dynamic_ncols=True) as moving:
            yield mover(moving)

    return bar()


def threads(requested: int | None) -> int:
    """The value of ``--threads``, or all available ones; raises UsageError below 1.

    >>> threads(4)
    4
    """
    from qbe.util.parallel import thread_count  # only now: help needs no threads

    return thread_count(requested)
