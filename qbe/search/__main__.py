"""``python -m qbe.search``: find papers like a paper, for its problem, its method or its findings."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from qbe import _cli
from qbe.errors import UsageError
from qbe.query import Query, Topic
from qbe.search.batch import Form, blocks, describe_run, search_block, to_text
from qbe.search.checks import check, rerank_weight, settle_topics
from qbe.search.opening import open_searcher, open_second_stage
from qbe.search.options import RUN_HITS, TABLE_HITS, parser
from qbe.search.output import open_output
from qbe.search.reranking import RERANK_DEPTH, RerankingSearcher
from qbe.types import Facet

if TYPE_CHECKING:
    from qbe.index.index import Index
    from qbe.rerank.reranker import Reranker
    from qbe.search.contracts import AnySearcher

Pools = Mapping[str, Sequence[str]]


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    form = _form(options)
    check(options, form.name)
    threads = _cli.threads(options.threads)
    options.hits = options.hits or (TABLE_HITS if form.name == "table" else RUN_HITS)

    from qbe.index.index import Index
    from qbe.trec import read_pools

    pools = read_pools(options.pool) if options.pool else None
    opened = Index(options.index, encoder=options.encoder, tagger=options.tagger, threads=threads)
    with opened as index:
        asked = _asked(options, index)
        settle_topics(options, asked)
        _check_pools(asked, pools)
        # Before the first stage, so that a reranker that cannot be had is refused before Java starts.
        reranker = open_second_stage(options, index, threads)
        with open_output(options, lambda: describe_run(options, index, form)) as output:
            left = {number: block for number, block in enumerate(blocks(asked)) if not output.has(number)}
            queries = [one for block in left.values() for one in block]
            with _search(options, index, reranker, queries, pools) as (searcher, advance):
                for number, block in left.items():
                    results = search_block(options, index, searcher, block, pools, form)
                    output.add(number, to_text(options, index, results, form, first=number == 0))
                    advance(len(block))
            output.publish(len(blocks(asked)))


def _form(options: argparse.Namespace) -> Form:
    name = options.format or ("table" if sys.stdout.isatty() and options.output is None else "trec")
    return Form(name, min(shutil.get_terminal_size((100, 24)).columns, 120))


def _asked(options: argparse.Namespace, index: Index) -> Sequence[Topic | Query]:
    from qbe.search.queries import paper_from_file, paper_from_text, parse_positions, topics_of

    facet = Facet(options.facet) if options.facet else None
    if options.topics:
        return topics_of(index, options.topics, facet)
    positions = parse_positions(options.sentences) if options.sentences is not None else None
    if options.paper is not None:
        paper = index.paper(options.paper)
    elif options.paper_file is not None:
        paper = paper_from_file(options.paper_file)
    else:
        paper = paper_from_text(options.text, options.title or "")
    if facet or options.explain:
        paper = index.label_facets(paper, options.facets)
    return [Query(paper, facet, positions)]


def _check_pools(asked: Sequence[Topic | Query], pools: Pools | None) -> None:
    absent = [one.query_id for one in asked if pools is not None and one.query_id not in pools]
    if absent:
        raise UsageError(f"expected a pool for each query, found none for {', '.join(absent)}; check --pool")


@contextlib.contextmanager
def _search(
    options: argparse.Namespace,
    index: Index,
    reranker: Reranker | None,
    asked: Sequence[Topic | Query],
    pools: Pools | None,
) -> Iterator[tuple[AnySearcher, Callable[[int], object]]]:
    """The searcher, and what is to be told how many more queries are done, with a bar for them."""
    first = open_searcher(options, index)
    if reranker is None:
        with _cli.counter("searching", "queries", len(asked)) as advance:
            yield first, advance
        return
    depth = RERANK_DEPTH if options.rerank_depth is None else options.rerank_depth
    sizes = (len(index) if pools is None else len(pools[one.query_id]) for one in asked)
    with _cli.counter("reranking", "candidates", sum(min(depth, size) for size in sizes)) as bar:

        def advance_candidates(count: int) -> None:
            bar(count)

        weight = rerank_weight(options)
        yield RerankingSearcher(first, index, reranker, depth, weight, advance_candidates), lambda _: None


if __name__ == "__main__":
    _cli.run("qbe.search", main)
