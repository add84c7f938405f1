"""``qbe watch``: keep searches, and report the papers that are new for them."""

from __future__ import annotations

from qbe.cli import common as _cli
from qbe.feeds import REPORTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from qbe.errors import QbeError
    from qbe.feeds.watches import Watch, Watches
    from qbe.index.index import Index
    from qbe.types import Paper

PROGRAM = "qbe watch"
OPTIONS = {
    "path": "--watches",
    "folder": "--index",
    "paper_ids": "--paper",
    "not_paper_ids": "--not-paper",
    "years": "--year",
    "categories": "--category",
    "authors": "--author",
    "before": "--year",
}

COMMANDS = {
    "add": "keep a search: by papers, a text, a bibliography or an exploration",
    "list": "list the searches that are kept",
    "remove": "remove one",
    "run": "report the papers that came since the last run",
}
FILE = "watches.json"
FORM_OF_NAME = {".json": "json", ".jsonl": "json", ".md": "markdown", ".xml": "atom", ".atom": "atom"}


def parser(only_help: bool = False) -> argparse.ArgumentParser:
    """The command's options, with ``only_help`` no more than the names of its commands."""
    about = (
        "Keep searches in a file, and report the papers of an index that are new for them, each once: those "
        "that came into the index after the search was kept."
    )
    return _cli.commands_parser(PROGRAM, about, COMMANDS, None if only_help else command_parser)


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one of COMMANDS."""
    parser = _cli.parser(f"{PROGRAM} {name}", f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}.")
    if name in ("add", "remove"):
        parser.add_argument("name", metavar="NAME", help="what the search is called")
    if name in ("add", "run"):
        parser.add_argument("--index", required=True, metavar="DIR", help="built by qbe index")
    parser.add_argument(
        "--watches", default=FILE, metavar="FILE", help="where the searches are kept (default: %(default)s)"
    )
    if name == "add":
        _search(parser)
        _cli.add_filters(parser.add_argument_group("filters: papers that are reported"))
    elif name == "run":
        parser.add_argument(
            "--since",
            metavar="DATE",
            help="report again what was found since then, such as 2026-11-20 (default: what was never "
            "reported; in a feed everything that is kept)",
        )
        parser.add_argument("--output", metavar="FILE", help="write there (default: standard output)")
        parser.add_argument(
            "--format",
            choices=REPORTS,
            help="default: by the name of --output (.json, .md, .xml: atom, a feed), else a table",
        )
    if name in ("add", "run"):
        parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser


def _search(parser: argparse.ArgumentParser) -> None:
    """Options of the search that is kept, named as those of qbe search."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--paper", nargs="+", metavar="ID", help="a paper of the index, or several")
    source.add_argument(
        "--paper-file", metavar="FILE", help="a paper with title and abstract, as of qbe search; it is kept"
    )
    source.add_argument("--text", help="an abstract, as it is")
    source.add_argument(
        "--cited",
        metavar="FILE",
        help="papers of the index that a bibliography or a list of ids names; it is read at each run",
    )
    source.add_argument("--bibliography", dest="cited", help=_cli.HIDDEN)
    parser.add_argument("--title", help="the title that goes with --text")
    parser.add_argument(
        "--not-paper", nargs="+", metavar="ID", help="papers that what is reported should not be like"
    )
    aspect = parser.add_mutually_exclusive_group()
    aspect.add_argument("--facet", choices=("background", "method", "result"), help="what to have in common")
    aspect.add_argument(
        "--like",
        nargs="+",
        metavar="FACET",
        help="facets to have in common, or a named combination, as of qbe search",
    )
    parser.add_argument(
        "--unlike", nargs="+", metavar="FACET", help="with --like: facets not to have in common"
    )
    parser.add_argument(
        "--grade",
        type=float,
        help="report papers of at least this grade, from 0 (unrelated) to 3 (near identical): in the facet, "
        "or the highest of all; of an exploration what is liked less what is not (default: 1; 0.5 with "
        "--unlike)",
    )


def main(arguments: list[str]) -> None:
    """Carry out one of COMMANDS."""
    name = arguments[0] if arguments else ""
    if name not in COMMANDS:
        parser(only_help=True).parse_args(arguments)
        return
    command = {"add": _add, "list": _list, "remove": _remove, "run": _run}[name]
    _cli.run(f"{PROGRAM} {name}", command, OPTIONS, arguments[1:])


def _add(arguments: list[str]) -> None:
    """Keep a search."""
    options = command_parser("add").parse_args(arguments)
    watch = _watch(options)
    threads = _cli.threads(options.threads)

    from qbe.feeds.watches import changing, keep, watch_session, write_watches
    from qbe.index.opening import open_index

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

    from qbe.cli.search_options import filter_of
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
        import sys

        from qbe.search.queries import note_on_papers
        from qbe.search.query_file import paper_from_file

        paper = paper_from_file(options.paper_file)
        if note := note_on_papers([paper]):
            print(f"{PROGRAM} add: {note}", file=sys.stderr)
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


def _list(arguments: list[str]) -> None:
    """List the searches."""
    options = command_parser("list").parse_args(arguments)

    from qbe.feeds.watches import read_watches
    from qbe.util.text import plain

    watches = read_watches(options.watches).watches.values()
    for watch in watches:
        found = f"{len(watch.found):,} found, {sum(not each.reported for each in watch.found):,} not reported"
        print(f"{plain(watch.name)}: {plain(_in_words(watch))}, grade {watch.grade:g} or more; {found}")
    if not watches:
        print(f"{options.watches}: no search is kept; qbe watch add keeps one")


def _in_words(watch: Watch) -> str:
    """What a search asks for."""
    values = {"cited": watch.cited, **watch.search} if watch.cited else watch.search
    words = (value if isinstance(value, list) else [value] for value in values.values())
    texts = (f"{name} {' '.join(map(str, each)):.60}" for name, each in zip(values, words, strict=True))
    return ", ".join(texts)


def _remove(arguments: list[str]) -> None:
    """Remove a search."""
    options = command_parser("remove").parse_args(arguments)

    from qbe.feeds.watches import changing, write_watches

    with changing(options.watches) as watches:
        watches.remove(options.name)
        write_watches(options.watches, watches)


def _run(arguments: list[str]) -> None:
    """Report what is new."""
    options = command_parser("run").parse_args(arguments)
    form = options.format or _form_of(options.output)
    threads = _cli.threads(options.threads)

    from qbe.feeds.reports import items_of, report
    from qbe.feeds.watches import changing, check_since, find, watch_session, write_watches
    from qbe.index.opening import open_index
    from qbe.util.outputs import WATCHED, check_output

    check_since(options.since)
    if options.output:
        check_output(options.output, WATCHED)
    with (
        open_index(options.index, threads=threads) as index,
        watch_session(index) as session,
        changing(options.watches) as watches,
    ):
        _check_some(watches, options.watches)
        with _cli.counter("searching", "searches", len(watches.watches)) as advance:
            problems = find(watches, session, advance)
        write_watches(options.watches, watches)
        since = "" if options.since is None and form == "atom" else options.since
        items = items_of(watches, lambda paper_id: _paper(index, paper_id), since)
        _write(report(items, form, watches.feed), options.output)
        for item in items:
            item.found.reported = True
        write_watches(options.watches, watches)
    _say(problems)


def _form_of(output: str | None) -> str:
    endings = (form for ending, form in FORM_OF_NAME.items() if output and output.lower().endswith(ending))
    return next(endings, "table")


def _check_some(watches: Watches, path: str) -> None:
    if not watches.watches:
        from qbe.errors import UsageError

        raise UsageError(f"expected searches in {path}, found none; keep one: qbe watch add NAME --paper ID")


def _paper(index: Index, paper_id: str) -> Paper | None:
    return index.paper(paper_id) if paper_id in index else None


def _write(text: str, output: str | None) -> None:
    """Write a report to its file, which it replaces in one step, or to standard output."""
    import sys

    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    from qbe.util.files import write_text

    write_text(output, text)


def _say(problems: dict[str, QbeError]) -> None:
    """Raise an error for searches that failed, the others being reported."""
    if problems:
        from qbe.errors import QbeError

        name, error = next(iter(problems.items()))
        more = f" (and {len(problems) - 1} more searches)" if len(problems) > 1 else ""
        raise QbeError(f"{name}: {error}{more}; its new papers wait for the next run")


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
