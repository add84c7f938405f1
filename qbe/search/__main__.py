"""``python -m qbe.search``: find papers like a paper, for its problem, its method or its findings."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from qbe import _cli
from qbe.errors import UsageError
from qbe.search.checks import check, rerank_weight, run_tag, settle_topics
from qbe.search.opening import open_searcher, open_second_stage
from qbe.search.options import RUN_HITS, TABLE_HITS, parser
from qbe.types import Facet, Hit, Query, Run

if TYPE_CHECKING:
    from qbe.index.index import Index
    from qbe.rerank.reranker import Reranker
    from qbe.search.reranked import RerankingSearcher
    from qbe.search.searcher import Searcher

Pools = Mapping[str, Sequence[str]]


class Result(NamedTuple):
    """A query, its id in the run, and what was found."""

    query_id: str
    query: Query
    hits: tuple[Hit, ...]


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    form = options.format or ("table" if sys.stdout.isatty() and options.output is None else "trec")
    check(options, form)
    threads = _cli.threads(options.threads)
    options.hits = options.hits or (TABLE_HITS if form == "table" else RUN_HITS)

    from qbe.index.index import Index
    from qbe.trec import read_pools

    pools = read_pools(options.pool) if options.pool else None
    opened = Index(options.index, options.encoder, threads, tagger=options.tagger, nprobe=options.nprobe)
    with opened as index:
        queries = list(_queries(options, index))
        settle_topics(options, (query for _, query in queries))
        _check_pools(queries, pools)
        # Before the first stage, so that a reranker that cannot be had is refused before Java starts.
        reranker = open_second_stage(options, index, threads)
        searcher = open_searcher(options, index)
        if reranker is None:
            searched = _cli.progress(queries, "searching", "queries", len(queries))
            results = _search(options, searcher, searched, pools, form)
        else:
            results = _rerank(options, index, searcher, reranker, queries, pools, form)
        text = _format(form, index, run_tag(options), results, explain=options.explain)
    _write(options.output, text)


def _queries(options: argparse.Namespace, index: Index) -> Iterator[tuple[str, Query]]:
    from qbe.search.queries import paper_from_file, paper_from_text, parse_positions, queries_from_topics

    facet = Facet(options.facet) if options.facet else None
    if options.topics:
        yield from queries_from_topics(index, options.topics, facet, options.facets, explain=options.explain)
        return
    positions = parse_positions(options.sentences) if options.sentences is not None else None
    if options.paper is not None:
        paper = index.paper(options.paper)
    elif options.paper_file is not None:
        paper = paper_from_file(options.paper_file)
    else:
        paper = paper_from_text(options.text, options.title or "")
    if facet or options.explain:
        paper = index.read(paper, options.facets)
    query = Query(paper, facet, positions)
    yield query.query_id, query


def _check_pools(queries: Iterable[tuple[str, Query]], pools: Pools | None) -> None:
    absent = [query_id for query_id, _ in queries if pools is not None and query_id not in pools]
    if absent:
        raise UsageError(f"expected a pool for each query, found none for {', '.join(absent)}; check --pool")


def _rerank(
    options: argparse.Namespace,
    index: Index,
    searcher: Searcher,
    reranker: Reranker,
    queries: Sequence[tuple[str, Query]],
    pools: Pools | None,
    form: str,
) -> list[Result]:
    from qbe.search.reranked import RERANK_DEPTH, RerankingSearcher

    depth = RERANK_DEPTH if options.rerank_depth is None else options.rerank_depth
    sizes = (len(index) if pools is None else len(pools[query_id]) for query_id, _ in queries)
    with _cli.counter("reranking", "candidates", sum(min(depth, size) for size in sizes)) as bar:

        def advance(count: int) -> None:
            bar(count)

        reranking = RerankingSearcher(searcher, index, reranker, depth, rerank_weight(options), advance)
        return _search(options, reranking, queries, pools, form)


def _search(
    options: argparse.Namespace,
    searcher: Searcher | RerankingSearcher,
    queries: Iterable[tuple[str, Query]],
    pools: Pools | None,
    form: str,
) -> list[Result]:
    results = []
    for query_id, query in queries:
        pool = None if pools is None else pools[query_id]
        hits = searcher.search(query, options.hits, pool, matches=form != "trec", explain=options.explain)
        results.append(Result(query_id, query, tuple(hits)))
    return results


def _format(form: str, index: Index, tag: str, results: Sequence[Result], *, explain: bool) -> str:
    if form == "trec":
        from qbe.trec import format_run

        return format_run(Run(tag, {query_id: hits for query_id, _, hits in results}))
    from qbe.search.present import to_json, to_table

    if form == "json":
        return "".join(to_json(index, *result, explain=explain) + "\n" for result in results)
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    tables = (to_table(index, query, hits, width, explain=explain) for _, query, hits in results)
    return "\n\n".join(tables) + "\n"


def _write(output: Path | None, text: str) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    from qbe.files import write_text

    write_text(output, text)


if __name__ == "__main__":
    _cli.run("qbe.search", main)
