"""``qbe watch``: keep searches, and report the papers that are new for them."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import qbe
from qbe.cli import common
from qbe.cli.common import refuse
from qbe.cli.parser import parse
from qbe.cli.search import filter_of, given_paper
from qbe.util.files import check_output, write_text
from qbe.util.text import plain

if TYPE_CHECKING:
    from qbe.feeds.watches import Watch

FORM_OF_NAME = {".json": "json", ".jsonl": "json", ".md": "markdown", ".xml": "atom", ".atom": "atom"}


def main(arguments: list[str]) -> None:
    options = parse("watch", arguments)
    if options.command == "remove":
        from qbe.feeds.watches import changing

        with changing(options.watches) as watches:
            del watches.watches[watches.named(options.name).name]
    else:
        {"add": _add, "list": _list, "run": _run}[options.command](options)


def _add(options: argparse.Namespace) -> None:
    watch = _watch(options)

    from qbe.feeds.watches import changing, keep, watch_session

    with (
        qbe.open_index(options.index, threads=options.threads) as index,
        watch_session(index) as session,
        changing(options.watches) as watches,
    ):
        keep(watches, watch, session)
    print(f"{options.watches}: {watch.name}: new papers of grade {watch.grade:g} or more will be reported")


def _watch(options: argparse.Namespace) -> "Watch":
    from qbe.feeds.watches import watch_of
    from qbe.search.request import SearchForm

    papers, text, title = filter_of(options), options.text, options.title
    refuse(papers and papers.before is not None, "expected `years` such as 2015-, found query; give a year")
    refuse(title is not None and text is None, "--title goes with --text; a paper file holds its own title")
    year_from, year_to = (papers.years if papers else None) or (None, None)
    shape = options.like[0] if options.like and options.like[0] in qbe.SHAPES and not options.unlike else None
    if options.paper_file:
        paper = given_paper(options)
        text, title = paper.abstract, paper.title
    cited = options.cited
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
    from qbe.search.present import search_in_words

    watches = read_watches(options.watches).watches.values()
    for watch in watches:
        asked = {"cited": watch.cited, **watch.search} if watch.cited else watch.search
        new = sum(not each.reported for each in watch.found)
        found = f"{len(watch.found):,} found, {new:,} not yet reported"
        print(f"{plain(watch.name)}: {search_in_words(asked)}; grade {watch.grade:g} or more; {found}")
    if not watches:
        print(f"{options.watches}: no search is kept; qbe watch add keeps one")


def _run(options: argparse.Namespace) -> None:
    from qbe.feeds import check_day
    from qbe.feeds.watches import changing, find, items_of, report, watch_session, write_watches

    lower = (options.output or "").lower()
    form = options.format or next((FORM_OF_NAME[end] for end in FORM_OF_NAME if lower.endswith(end)), "table")
    check_day("since", options.since)
    if options.output:
        check_output(options.output, options.overwrite)
    with (
        qbe.open_index(options.index, threads=options.threads) as index,
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
        for _, found, _ in items:
            found.reported = True
    if problems:
        name, error = next(iter(problems.items()))
        more = f" (and {len(problems) - 1} more searches)" if len(problems) > 1 else ""
        raise qbe.QbeError(f"{name}: {error}{more}; its new papers wait for the next run")
