"""``qbe search``: find papers like a paper, for its problem, its method or its findings."""

from __future__ import annotations

import sys

from qbe import _cli
from qbe.search.options import FACET_ALONE, OPTIONS, PROGRAM, default_hits, parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from qbe.index.index import Index
    from qbe.rerank.reranker import Reranker
    from qbe.search.fingerprint import RunInputs
    from qbe.search.output import Output
    from qbe.search.passing import Passing
    from qbe.search.pipeline import Pipeline
    from qbe.search.queries import QuerySource
    from qbe.search.writers import Result, ResultWriter
    from qbe.types import Paper

    Pools = Mapping[str, Sequence[str]]

__all__ = ["OPTIONS", "PROGRAM", "main", "parser"]


def main(arguments: list[str]) -> None:
    """Parse the options, search, and write the results."""
    run(parser().parse_args(arguments))


def run(
    options: argparse.Namespace,
    open_index: Callable[..., Index] | None = None,
    open_reranker: Callable[..., Reranker] | None = None,
) -> None:
    """Search as the options say. ``open_index`` opens the index, and ``open_reranker`` a cross-encoder, in
    another place than this process; their parameters are those of `qbe.index.opening.open_index` and
    `qbe.rerank.open.open_reranker`.
    """
    from qbe.search.options import (
        check,
        check_labels,
        config_of,
        facet_weights_of,
        form_of,
        outputs_of,
    )

    form, width = form_of(options)
    check(options, form)
    outputs = outputs_of(options)
    if options.resume:
        outputs = _remaining(outputs)
    configs = [config_of(options, stage) for stage in outputs]
    if not options.topics and options.facet is None and facet_weights_of(options) is None:
        check_labels(options, has_facet=False)
        configs = [config.for_whole_abstracts() for config in configs]
    k = options.hits or default_hits(form)
    threads = _cli.threads(options.threads)

    from pathlib import Path

    from qbe.outputs import PLOT, SEARCH, check_output

    for file in filter(None, outputs.values()):
        check_output(file, SEARCH)
    if options.plot:
        from qbe.plots import check_plot

        check_plot(options.plot)
        check_output(options.plot, PLOT, "plot")

    from qbe.index.opening import open_index as open_here
    from qbe.parallel import Workers
    from qbe.search.pipeline import Pipeline
    from qbe.search.stages import shared_reranker
    from qbe.topics import read_pools

    pools = read_pools(Path(options.pool)) if options.pool else None
    models = {"encoder": options.encoder, "tagger": options.tagger}
    with (open_index or open_here)(options.index, **models, threads=threads) as index:
        source = _source(options, index)
        if not source.has_facet:
            check_labels(options, has_facet=False)
            configs = [config.for_whole_abstracts() for config in configs]
        plain = sum(all(aspect.facet is None for aspect in aspects) for aspects in source.aspects)
        if options.rerank in FACET_ALONE and plain:
            print(
                f"{PROGRAM}: {plain} of {len(source.ids)} queries have no facet: not reranked",
                file=sys.stderr,
            )
        for note in source.notes:
            print(f"{PROGRAM}: {_cli.with_options(note, OPTIONS)}", file=sys.stderr)
        _check_pools(source.ids, pools)
        with Workers(threads) as workers:
            reranker = shared_reranker(configs, workers, open_reranker)
            for config, path in zip(configs, outputs.values(), strict=True):
                tag = options.run_tag or config.run_tag
                run = _run_inputs(options, k, tag, form, width)
                with Pipeline.open(index, config, reranker) as pipeline:
                    _write(options, pipeline, source, pools, run, path)


def _remaining(outputs: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """The outputs of an interrupted command that are left: from the unfinished one on, all where there is
    none.
    """
    from pathlib import Path

    from qbe.search.unfinished import is_unfinished

    stages = list(outputs)
    for place, path in enumerate(outputs.values()):
        if path is not None and is_unfinished(Path(path)):
            return {stage: outputs[stage] for stage in stages[place:]}
    return outputs


def _run_inputs(options: argparse.Namespace, k: int, tag: str, form: str, width: int) -> RunInputs:
    """What a run depends on beside index and configuration."""
    from pathlib import Path

    from qbe.search.fingerprint import RunInputs
    from qbe.search.options import facet_weights_of

    weights, facets = facet_weights_of(options), options.facet
    if weights is not None:
        facets = {facet.value: weight for facet, weight in weights.items()}
    pool = Path(options.pool) if options.pool else None
    return RunInputs(Path(options.topics or "."), pool, facets, k, tag, form, width, options.explain)


def _write(
    options: argparse.Namespace,
    pipeline: Pipeline,
    source: QuerySource,
    pools: Pools | None,
    run: RunInputs,
    path: str | None,
) -> None:
    """Search by one configuration, and write the results to the file at ``path``, or to standard output."""
    from qbe.search.fingerprint import fingerprint
    from qbe.search.options import destination_of
    from qbe.search.output import open_output
    from qbe.search.writers import open_writer

    highlight = path is None and _shows_bold()
    index = pipeline.index
    writer = open_writer(
        run.format, run.run_tag, index.paper, run.width, explain=run.explain, highlight=highlight
    )
    destination = destination_of(options, run.format, path)
    with open_output(destination, lambda: fingerprint(index, pipeline.config, options.tagger, run)) as output:
        if options.plot is not None:
            pipeline.require_grades()
        try:
            _search(pipeline, source, pools, run, writer, output, plot=options.plot)
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

    from qbe.search.options import facet_weights_of
    from qbe.search.parsing import parse_positions
    from qbe.search.queries import from_query, from_topics, papers_by_id, query_by
    from qbe.types import Facet

    facet = Facet(options.facet) if options.facet else None
    weights = facet_weights_of(options)
    if options.topics:
        predicted = options.facets == "predicted"
        return from_topics(index, Path(options.topics), weights or facet, predicted=predicted)
    positions = parse_positions(options.sentences) if options.sentences is not None else None
    unlike = papers_by_id(index, options.not_paper or ())
    return from_query(query_by(_papers(options, index), unlike, weights or facet or positions))


def _papers(options: argparse.Namespace, index: Index) -> list[Paper]:
    """The papers that the options name, bring, or take from a bibliography."""
    from pathlib import Path

    from qbe.search.queries import note_on_length, papers_by_id, pasted_paper

    # The readers of all formats take a twentieth of a second to load: only where a file is read.
    if options.paper is not None:
        return papers_by_id(index, options.paper)
    if options.cited is None:
        if options.text is None:
            from qbe.search.paper_file import paper_from_file

            paper = paper_from_file(options.paper_file)
        else:
            paper = pasted_paper(options.text, options.title or "")
        if on_length := note_on_length([paper]):
            print(f"{PROGRAM}: {on_length}", file=sys.stderr)
        return [paper]
    from qbe.search.cited import papers_of

    with index.reading() as reader:
        named = papers_of(reader, Path(options.cited))
    if note := named.missing_in_words(options.cited):
        print(f"{PROGRAM}: {note}", file=sys.stderr)
    return [index.paper(paper_id) for paper_id in named.paper_ids]


def _check_pools(query_ids: Sequence[str], pools: Pools | None) -> None:
    from qbe.errors import UsageError

    absent = [query_id for query_id in query_ids if pools is not None and query_id not in pools]
    if absent:
        raise UsageError(f"expected a pool for each query, found none for {', '.join(absent)}; check --pool")


def _search(
    pipeline: Pipeline,
    source: QuerySource,
    pools: Pools | None,
    run: RunInputs,
    writer: ResultWriter,
    output: Output,
    *,
    plot: str | None,
) -> None:
    """Search block by block, and write each block that the output does not have yet; first say on standard
    error what users should know of the filter. ``plot`` names the file for a plot of one query's hits.
    """
    from qbe.search.fingerprint import BLOCK
    from qbe.search.passing import describe
    from qbe.search.writers import Result

    firsts = range(0, len(source.ids), BLOCK)
    blocks = [slice(first, first + BLOCK) for number, first in enumerate(firsts) if not output.has(number)]
    passing = _passing(pipeline, source, blocks)
    if note := describe(passing, run.k if pools is None else None):
        print(f"{PROGRAM}: {note}", file=sys.stderr)
    pairs = _rerank_pairs(pipeline, source, pools, blocks, passing)
    queries = sum(len(source.ids[block]) for block in blocks)
    bar = ("reranking", "candidates", pairs) if pairs else ("searching", "queries", queries)
    with _cli.counter(*bar) as advance:
        for block in blocks:
            ids = source.ids[block]
            prepared = pipeline.prepare(source.load(block), explain=run.explain)
            hits = pipeline.batch_search(
                prepared,
                run.k,
                None if pools is None else [pools[query_id] for query_id in ids],
                matches=writer.needs_matches,
                explain=run.explain,
                progress=advance if pairs else None,
            )
            results = [
                Result(query_id, query.query, query_hits)
                for query_id, query, query_hits in zip(ids, prepared, hits, strict=True)
            ]
            if plot is not None:
                _plot(pipeline, plot, results)
            output.add(block.start // BLOCK, writer.text(results, first=block.start == 0))
            if not pairs:
                advance(len(ids))
    output.publish(len(firsts))


def _plot(pipeline: Pipeline, path: str, results: Sequence[Result]) -> None:
    """Draw the hits of one query by their grades."""
    from qbe.search.plot import MOST, write_plot

    ((_, query, hits),) = results
    drawn = list(hits[:MOST])
    if any(hit.grades is None for hit in drawn):
        drawn = pipeline.grade(query, drawn)
    write_plot(path, pipeline.index.paper, query, drawn)


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
        pipeline.rerank_pairs(source.aspects[place], size) for place, size in zip(places, sizes, strict=True)
    )


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
