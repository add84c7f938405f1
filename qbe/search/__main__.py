"""``qbe search``: find papers like a paper, for its problem, its method or its findings."""

from __future__ import annotations

import sys

from qbe import _cli
from qbe.search.options import OPTIONS, PROGRAM, default_hits, parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from qbe.index.index import Index
    from qbe.search.output import Output
    from qbe.search.passing import Passing
    from qbe.search.pipeline import Pipeline
    from qbe.search.queries import QuerySource
    from qbe.search.writers import ResultWriter

    Pools = Mapping[str, Sequence[str]]

__all__ = ["OPTIONS", "PROGRAM", "main", "parser"]


def main(arguments: list[str]) -> None:
    """Parse the options, search, and write the results."""
    from qbe.search.options import check, check_labels, config_of, destination_of, form_of

    options = parser().parse_args(arguments)
    form, width = form_of(options)
    check(options, form)
    config = config_of(options)
    if not options.topics and options.facet is None:
        check_labels(options, has_facet=False)
        config = config.for_whole_abstracts()
    k = options.hits or default_hits(form)
    threads = _cli.threads(options.threads)

    from pathlib import Path

    from qbe.outputs import SEARCH, check_output

    if options.output:
        check_output(options.output, SEARCH)

    from qbe.index.opening import open_index
    from qbe.search.fingerprint import RunInputs, fingerprint
    from qbe.search.output import open_output
    from qbe.search.pipeline import Pipeline
    from qbe.search.writers import open_writer
    from qbe.topics import read_pools

    pools = read_pools(Path(options.pool)) if options.pool else None
    with open_index(options.index, encoder=options.encoder, tagger=options.tagger, threads=threads) as index:
        source = _source(options, index)
        if not source.has_facet:
            check_labels(options, has_facet=False)
            config = config.for_whole_abstracts()
        _check_pools(source.ids, pools)
        tag = options.run_tag or config.run_tag
        pool = Path(options.pool) if options.pool else None
        topics = Path(options.topics or ".")
        run = RunInputs(topics, pool, options.facet, k, tag, form, width, options.explain)
        highlight = options.output is None and _shows_bold()
        writer = open_writer(form, tag, index.paper, width, explain=options.explain, highlight=highlight)
        with (
            Pipeline.open(index, config) as pipeline,
            open_output(
                destination_of(options, form), lambda: fingerprint(index, config, options.tagger, run)
            ) as output,
        ):
            try:
                _search(pipeline, source, pools, k, writer, output, explain=options.explain)
            except KeyboardInterrupt:
                if output.is_resumable():
                    print("interrupted; --resume continues with what is finished", file=sys.stderr)
                raise


def _shows_bold() -> bool:
    """Whether standard output is a terminal that knows bold text, and the user has not refused it."""
    import os

    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def _source(options: argparse.Namespace, index: Index) -> QuerySource:
    """The queries that the options state."""
    from pathlib import Path

    from qbe.query import Query
    from qbe.search.parsing import parse_positions
    from qbe.search.queries import from_query, from_topics, paper_from_file, pasted_paper
    from qbe.types import Facet

    facet = Facet(options.facet) if options.facet else None
    if options.topics:
        return from_topics(index, Path(options.topics), facet)
    positions = parse_positions(options.sentences) if options.sentences is not None else None
    if options.paper is not None:
        paper = index.paper(options.paper)
    elif options.paper_file is not None:
        paper = paper_from_file(options.paper_file)
    else:
        paper = pasted_paper(options.text, options.title or "")
    return from_query(Query(paper, facet, positions))


def _check_pools(query_ids: Sequence[str], pools: Pools | None) -> None:
    from qbe.errors import UsageError

    absent = [query_id for query_id in query_ids if pools is not None and query_id not in pools]
    if absent:
        raise UsageError(f"expected a pool for each query, found none for {', '.join(absent)}; check --pool")


def _search(
    pipeline: Pipeline,
    source: QuerySource,
    pools: Pools | None,
    k: int,
    writer: ResultWriter,
    output: Output,
    *,
    explain: bool,
) -> None:
    """Search block by block, and write each block that the output does not have yet; first say on standard
    error what users should know of the filter.
    """
    from qbe.search.fingerprint import BLOCK
    from qbe.search.passing import describe
    from qbe.search.writers import Result

    firsts = range(0, len(source.ids), BLOCK)
    blocks = [slice(first, first + BLOCK) for number, first in enumerate(firsts) if not output.has(number)]
    passing = _passing(pipeline, source, blocks)
    if note := describe(passing, k if pools is None else None):
        print(f"{PROGRAM}: {note}", file=sys.stderr)
    pairs = _rerank_pairs(pipeline, source, pools, blocks, passing)
    queries = sum(len(source.ids[block]) for block in blocks)
    bar = ("reranking", "candidates", pairs) if pairs else ("searching", "queries", queries)
    with _cli.counter(*bar) as advance:
        for block in blocks:
            ids = source.ids[block]
            prepared = pipeline.prepare(source.load(block), explain=explain)
            hits = pipeline.batch_search(
                prepared,
                k,
                None if pools is None else [pools[query_id] for query_id in ids],
                matches=writer.needs_matches,
                explain=explain,
                progress=advance if pairs else None,
            )
            results = [
                Result(query_id, query.query, query_hits)
                for query_id, query, query_hits in zip(ids, prepared, hits, strict=True)
            ]
            output.add(block.start // BLOCK, writer.text(results, first=block.start == 0))
            if not pairs:
                advance(len(ids))
    output.publish(len(firsts))


def _passing(pipeline: Pipeline, source: QuerySource, blocks: Sequence[slice]) -> list[Passing]:
    """What passes the filter for each query that is to be searched, none where there is no filter; what is
    wrong with one is told before anything is searched.
    """
    if pipeline.config.filter is None:
        return []
    return [pipeline.passing(query) for block in blocks for query in source.load(block)]


def _rerank_pairs(
    pipeline: Pipeline,
    source: QuerySource,
    pools: Pools | None,
    blocks: Sequence[slice],
    passing: Sequence[Passing],
) -> int:
    """How many pairs of a query's aspect and a candidate will be reranked, at the most."""
    places = [place for block in blocks for place in range(len(source.ids))[block]]
    sizes = [len(pipeline.index if pools is None else pools[source.ids[place]]) for place in places]
    if passing:
        sizes = [min(size, each.papers) for size, each in zip(sizes, passing, strict=True)]
    return sum(
        pipeline.rerank_pairs(source.facets[place], size) for place, size in zip(places, sizes, strict=True)
    )


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
