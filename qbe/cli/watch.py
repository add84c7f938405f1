"""``qbe watch``: keep searches, and report the papers that are new for them."""

from __future__ import annotations

import argparse

import qbe
from qbe.cli import common
from qbe.cli.common import refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from qbe.feeds.watches import Watch

PROGRAM = "qbe watch"
ABOUT = """\
Keep searches in a file, and report the papers of an index that are new for them, each once: those that came \
into the index after the search was kept."""
FORM_OF_NAME = {".json": "json", ".jsonl": "json", ".md": "markdown", ".xml": "atom", ".atom": "atom"}
NAME = "NAME  what the search is called\n"
INDEX = "--index DIR!  built by qbe index\n"
WATCHES = "--watches FILE (watches.json)  where the searches are kept\n"
OF_ADD = f"""\
? --paper ID...!  a paper of the index, or several
? --paper-file FILE!  a paper with title and abstract, as of qbe search; it is kept
? --text TEXT!  an abstract, as it is
? --cited FILE!  papers of the index that a bibliography or a list of ids names; it is read at each run
? --bibliography FILE!  {common.HIDDEN}
--title TITLE  the title that goes with --text
--not-paper ID...  papers that what is reported should not be like
? --facet problem|method|findings|background|result  what to have in common
? --like FACET...  facets to have in common, or a named combination, as of qbe search
--unlike FACET...  with --like: facets not to have in common
--grade GRADE  report papers of at least this grade, from 0 (unrelated) to 3 (near identical): in the facet,
  or the highest of all; of an exploration what is liked less what is not (default: 1; 0.5 with --unlike)
{common.THREADS}\
# filters: papers that are reported
{common.FILTERS}"""
OF_RUN = f"""\
--since DATE  report again what was found since then, such as 2026-11-20 (default: what was never reported; in
  a feed everything that is kept)
--output FILE  write there (default: standard output)
{common.OVERWRITE}\
--format table|json|markdown|atom  default: by the name of --output (.json, .md, .xml: atom, a feed), else a
  table
{common.THREADS}"""

KEEPS = "keep a search: by papers, a text, a bibliography or an exploration"
REPORTS = "report the papers that came since the last run"
PARSER = common.commands_parser(
    PROGRAM,
    ABOUT,
    {
        "add": (KEEPS, "", NAME + INDEX + WATCHES + OF_ADD),
        "list": ("list the searches that are kept", "", WATCHES),
        "remove": ("remove one", "", NAME + WATCHES),
        "run": (REPORTS, "", INDEX + WATCHES + OF_RUN),
    },
)


def main(arguments: list[str]) -> None:
    options = PARSER.parse_args(arguments)
    carry_out = {"add": _add, "list": _list, "remove": _remove, "run": _run}[options.command]
    common.run(f"{PROGRAM} {options.command}", lambda _: carry_out(options), [])


def _add(options: argparse.Namespace) -> None:
    watch = _watch(options)
    threads = common.threads(options.threads)

    from qbe.feeds.watches import changing, keep, watch_session, write_watches

    with (
        qbe.open_index(options.index, threads=threads) as index,
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
    from qbe.feeds.watches import watch_of
    from qbe.search.request import SearchForm

    papers, text, title = filter_of(options), options.text, options.title
    refuse(papers and papers.before is not None, "expected `years` such as 2015-, found query; give a year")
    refuse(title is not None and text is None, "--title goes with --text; a paper file holds its own title")
    year_from, year_to = (papers.years if papers else None) or (None, None)
    shape = options.like[0] if options.like and options.like[0] in qbe.SHAPES and not options.unlike else None
    if options.paper_file:
        paper = given_paper(f"{PROGRAM} add", options)
        text, title = paper.abstract, paper.title
    cited = options.cited or options.bibliography
    form = common.made(
        SearchForm,
        options,
        paper_ids=options.paper or (["id"] if cited else None),
        text=text,
        title=title,
        not_paper_ids=options.not_paper,
        like=None if shape else options.like,
        explore=shape,
        year_from=year_from,
        year_to=year_to,
        categories=options.category,
        authors=options.author,
    )
    watch = watch_of(options.name, form, options.grade)
    if cited:
        watch.cited = str(Path(cited).resolve())
        watch.search = {name: value for name, value in watch.search.items() if name != "paper_ids"}
    return watch


def _list(options: argparse.Namespace) -> None:
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
    from qbe.feeds.watches import changing, write_watches

    with changing(options.watches) as watches:
        del watches.watches[watches.named(options.name).name]
        write_watches(options.watches, watches)


def _run(options: argparse.Namespace) -> None:
    from qbe.feeds import check_day
    from qbe.feeds.reports import items_of, report
    from qbe.feeds.watches import changing, find, watch_session, write_watches
    from qbe.util.files import check_output, write_text

    lower = (options.output or "").lower()
    form = options.format or next((FORM_OF_NAME[end] for end in FORM_OF_NAME if lower.endswith(end)), "table")
    threads = common.threads(options.threads)
    check_day("since", options.since)
    if options.output:
        check_output(options.output, options.overwrite)
    with (
        qbe.open_index(options.index, threads=threads) as index,
        watch_session(index) as session,
        changing(options.watches) as watches,
    ):
        none = f"expected searches in {options.watches}, found none; keep one: qbe watch add NAME --paper ID"
        refuse(not watches.watches, none)
        with common.Bar("searching", "searches", len(watches.watches)) as advance:
            problems = find(watches, session, advance)
        write_watches(options.watches, watches)
        since = "" if options.since is None and form == "atom" else options.since
        items = items_of(watches, index, since)
        text = report(items, form, watches.feed)
        if options.output is None:
            print(text, end="", flush=True)
        else:
            write_text(options.output, text)
        for item in items:
            item.found.reported = True
        write_watches(options.watches, watches)
    if problems:
        name, error = next(iter(problems.items()))
        more = f" (and {len(problems) - 1} more searches)" if len(problems) > 1 else ""
        raise qbe.QbeError(f"{name}: {error}{more}; its new papers wait for the next run")
