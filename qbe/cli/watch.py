"""``qbe watch``: keep searches, and report the papers that are new for them."""

from __future__ import annotations

from qbe.cli import common
from qbe.cli.common import Parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from qbe.feeds.watches import Watch

PROGRAM = "qbe watch"
COMMANDS = {
    "add": "keep a search: by papers, a text, a bibliography or an exploration",
    "list": "list the searches that are kept",
    "remove": "remove one",
    "run": "report the papers that came since the last run",
}
FORM_OF_NAME = {".json": "json", ".jsonl": "json", ".md": "markdown", ".xml": "atom", ".atom": "atom"}


def parser(only_help: bool = False) -> Parser:
    """The command's options, with ``only_help`` no more than the names of its commands."""
    about = (
        "Keep searches in a file, and report the papers of an index that are new for them, each once: those "
        "that came into the index after the search was kept."
    )
    return common.commands_parser(PROGRAM, about, COMMANDS, None if only_help else command_parser)


def command_parser(name: str) -> Parser:
    """The parser of one of COMMANDS."""
    parser = Parser(f"{PROGRAM} {name}", f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}.")
    if name in ("add", "remove"):
        parser.options({"NAME": "what the search is called"})
    if name in ("add", "run"):
        parser.options({"--index DIR": "built by qbe index"}, required=True)
    parser.options({"--watches FILE (watches.json)": "where the searches are kept"})
    if name == "add":
        sources = {
            "--paper ID...": "a paper of the index, or several",
            "--paper-file FILE": "a paper with title and abstract, as of qbe search; it is kept",
            "--text TEXT": "an abstract, as it is",
            "--cited FILE": "papers of the index that a bibliography or a list of ids names; it is read at "
            "each run",
        }
        sources["--bibliography FILE"] = common.HIDDEN  # the former name
        parser.options(sources, required=True, exclusive=True)
        more = {
            "--title TITLE": "the title that goes with --text",
            "--not-paper ID...": "papers that what is reported should not be like",
        }
        parser.options(more)
        aspects = {
            "--facet background|method|result": "what to have in common",
            "--like FACET...": "facets to have in common, or a named combination, as of qbe search",
        }
        parser.options(aspects, exclusive=True)
        grades = {
            "--unlike FACET...": "with --like: facets not to have in common",
            "--grade GRADE": "report papers of at least this grade, from 0 (unrelated) to 3 (near "
            "identical): in the facet, or the highest of all; of an exploration what is liked less what is "
            "not (default: 1; 0.5 with --unlike)",
        }
        parser.options(grades)
        parser.options(common.FILTERS, "filters: papers that are reported")
    elif name == "run":
        reports = {
            "--since DATE": "report again what was found since then, such as 2026-11-20 (default: what was "
            "never reported; in a feed everything that is kept)",
            "--output FILE": "write there (default: standard output)",
            **common.OVERWRITE,
            "--format table|json|markdown|atom": "default: by the name of --output (.json, .md, .xml: atom, "
            "a feed), else a table",
        }
        parser.options(reports)
    if name in ("add", "run"):
        parser.options(common.THREADS)
    return parser


def main(arguments: list[str]) -> None:
    """Carry out one of COMMANDS."""
    name = arguments[0] if arguments else ""
    if name not in COMMANDS:
        parser(only_help=True).parse_args(arguments)
        return
    command = {"add": _add, "list": _list, "remove": _remove, "run": _run}[name]
    common.run(
        f"{PROGRAM} {name}", lambda given: command(command_parser(name).parse_args(given)), arguments[1:]
    )


def _add(options: argparse.Namespace) -> None:
    """Keep a search."""
    options.cited = options.cited or options.bibliography
    watch = _watch(options)
    threads = common.threads(options.threads)

    from qbe.feeds.watches import changing, keep, watch_session, write_watches
    from qbe.index.index import open_index

    with (
        open_index(options.index, threads=threads) as index,
        watch_session(index) as session,
        changing(options.watches) as watches,
    ):
        keep(watches, watch, session)
        write_watches(options.watches, watches)
    print(f"{options.watches}: {watch.name}: from grade {watch.grade:g} on, papers that come from now on")


def _watch(options: argparse.Namespace) -> Watch:
    """The watch that the options state; raises UsageError."""
    from pathlib import Path

    from qbe.cli.search import filter_of, given_paper
    from qbe.errors import UsageError
    from qbe.feeds.watches import watch_of
    from qbe.query import SHAPES
    from qbe.search.form import SearchForm

    paper_filter = filter_of(options)
    if paper_filter is not None and paper_filter.before is not None:
        raise UsageError("expected `years` such as 2015-, found query; give a year")
    years = (paper_filter.years if paper_filter else None) or (None, None)
    shape = options.like[0] if options.like and options.like[0] in SHAPES and not options.unlike else None
    text, title = options.text, options.title
    if title is not None and text is None:
        raise UsageError("--title goes with --text; a paper file holds its own title")
    if options.paper_file:
        paper = given_paper(f"{PROGRAM} add", options)
        text, title = paper.abstract, paper.title
    search = {
        "paper_ids": options.paper or (["id"] if options.cited else None),
        "text": text,
        "title": title,
        "not_paper_ids": options.not_paper,
        "facet": options.facet,
        "like": None if shape else options.like,
        "unlike": options.unlike,
        "explore": shape,
        "year_from": years[0],
        "year_to": years[1],
        "categories": options.category,
        "authors": options.author,
        "where": options.where,
    }
    form = SearchForm(**{name: value for name, value in search.items() if value is not None})
    watch = watch_of(options.name, form, options.grade)
    if options.cited:
        watch.cited = str(Path(options.cited).resolve())
        watch.search = {name: value for name, value in watch.search.items() if name != "paper_ids"}
    return watch


def _list(options: argparse.Namespace) -> None:
    """List the searches."""
    from qbe.feeds.watches import read_watches
    from qbe.util.text import plain

    watches = read_watches(options.watches).watches.values()
    for watch in watches:
        values = {"cited": watch.cited, **watch.search} if watch.cited else watch.search
        words = (
            f"{name} {' '.join(map(str, value if isinstance(value, list) else [value])):.60}"
            for name, value in values.items()
        )
        found = f"{len(watch.found):,} found, {sum(not each.reported for each in watch.found):,} not reported"
        print(f"{plain(watch.name)}: {plain(', '.join(words))}, grade {watch.grade:g} or more; {found}")
    if not watches:
        print(f"{options.watches}: no search is kept; qbe watch add keeps one")


def _remove(options: argparse.Namespace) -> None:
    """Remove a search."""
    from qbe.feeds.watches import changing, write_watches

    with changing(options.watches) as watches:
        watches.remove(options.name)
        write_watches(options.watches, watches)


def _run(options: argparse.Namespace) -> None:
    """Report what is new."""
    import sys

    from qbe.errors import QbeError, UsageError
    from qbe.feeds.reports import items_of, report
    from qbe.feeds.watches import changing, check_since, find, watch_session, write_watches
    from qbe.index.index import open_index
    from qbe.util.files import check_output, write_text

    lower = (options.output or "").lower()
    form = options.format or next((FORM_OF_NAME[end] for end in FORM_OF_NAME if lower.endswith(end)), "table")
    threads = common.threads(options.threads)
    check_since(options.since)
    if options.output:
        check_output(options.output, options.overwrite)
    with (
        open_index(options.index, threads=threads) as index,
        watch_session(index) as session,
        changing(options.watches) as watches,
    ):
        if not watches.watches:
            raise UsageError(
                f"expected searches in {options.watches}, found none; keep one: qbe watch add NAME --paper ID"
            )
        with common.counter("searching", "searches", len(watches.watches)) as advance:
            problems = find(watches, session, advance)
        write_watches(options.watches, watches)
        since = "" if options.since is None and form == "atom" else options.since
        items = items_of(watches, lambda name: index.paper(name) if name in index else None, since)
        text = report(items, form, watches.feed)
        if options.output is None:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            write_text(options.output, text)
        for item in items:
            item.found.reported = True
        write_watches(options.watches, watches)
    if problems:
        name, error = next(iter(problems.items()))
        more = f" (and {len(problems) - 1} more searches)" if len(problems) > 1 else ""
        raise QbeError(f"{name}: {error}{more}; its new papers wait for the next run")
