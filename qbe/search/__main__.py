"""``qbe search``: find papers like a paper, for its problem, its method or its findings."""

from __future__ import annotations

import sys

from qbe import _cli
from qbe.search.options import OPTIONS, PROGRAM, parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from qbe.index.index import Index
    from qbe.search.filtering import FilterResult
    from qbe.search.filters import PaperFilter
    from qbe.search.fingerprint import RunInputs
    from qbe.search.opening import RerankerOpener
    from qbe.search.output import Output
    from qbe.search.queries import QuerySource
    from qbe.search.session import SearchSession
    from qbe.search.stages import Stages
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
    open_reranker: RerankerOpener | None = None,
) -> None:
    """Search as the options say. ``open_index`` opens the index, and ``open_reranker`` a cross-encoder, in
    another place than this process; their parameters are those of `qbe.index.opening.open_index` and
    `qbe.rerank.open.open_reranker`.
    """
    from qbe.search.options import check, check_labels, default_hits, filter_of, form_of, stages_of

    if "help" in (options.first_stage, options.rerank):
        _print_stages(options)
        return
    form, width = form_of(options)
    check(options, form)
    from qbe.search.stages import Fused, Stages, default_stages

    if not options.topics and options.facet is None and options.like is None:
        check_labels(options, has_facet=False)
    stages_of(options, Stages(Fused()))  # what is wrong with them is said before an index is opened
    paper_filter = filter_of(options)
    _check_files(options)

    from pathlib import Path

    from qbe.index.index import Index
    from qbe.search.session import SearchSession
    from qbe.topics import read_pools

    threads = _cli.threads(options.threads)
    pools = read_pools(Path(options.pool)) if options.pool else None
    opener = open_index or Index
    with opener(options.index, encoder=options.encoder, tagger=options.tagger, threads=threads) as index:
        source = _source(options, index)
        _check_source(options, source, pools)
        stages = stages_of(options, default_stages(index))
        inputs = _run_inputs(options, paper_filter, stages, options.hits or default_hits(form), form, width)
        with SearchSession(index, stages, open_reranker=open_reranker) as session:
            _write(options, session, source, pools, inputs)


def _print_stages(options: argparse.Namespace) -> None:
    from qbe.search.stages import FIRST_STAGES, RERANKERS, describe_stages

    print(describe_stages(FIRST_STAGES if options.first_stage == "help" else RERANKERS))


def _check_files(options: argparse.Namespace) -> None:
    """Raise OutputError for files that are not to be replaced, and for plots that cannot be drawn."""
    from qbe.outputs import PLOT, SEARCH, check_output

    if options.output:
        check_output(options.output, SEARCH)
    if options.plot:
        from qbe.plots import check_plot

        check_plot(options.plot)
        check_output(options.plot, PLOT, "plot")


def _check_source(options: argparse.Namespace, source: QuerySource, pools: Pools | None) -> None:
    """Raise UsageError for queries that options do not fit, and say what users should know of them."""
    from qbe.errors import UsageError
    from qbe.search.options import check_labels

    check_labels(options, has_facet=source.has_facet)
    for note in source.notes:
        print(f"{PROGRAM}: {_cli.with_options(note, OPTIONS)}", file=sys.stderr)
    absent = [query_id for query_id in source.ids if pools is not None and query_id not in pools]
    if absent:
        raise UsageError(f"expected a pool for each query, found none for {', '.join(absent)}; check --pool")


def _run_inputs(
    options: argparse.Namespace,
    paper_filter: PaperFilter | None,
    stages: Stages,
    k: int,
    form: str,
    width: int,
) -> RunInputs:
    """What a run depends on besides index and stages."""
    from pathlib import Path

    from qbe.search.fingerprint import RunInputs
    from qbe.search.options import facet_weights_of

    weights, facets = facet_weights_of(options), options.facet
    if weights is not None:
        facets = {facet.value: weight for facet, weight in weights.items()}
    return RunInputs(
        topics=Path(options.topics or "."),
        pool=Path(options.pool) if options.pool else None,
        facet=facets,
        filter=paper_filter,
        labels=options.facets,
        k=k,
        run_tag=options.run_tag or stages.run_tag,
        format=form,
        width=width,
        explain=options.explain,
    )


def _write(
    options: argparse.Namespace,
    session: SearchSession,
    source: QuerySource,
    pools: Pools | None,
    run: RunInputs,
) -> None:
    """Search, and write the results to their file, or to standard output."""
    from qbe.search.fingerprint import fingerprint
    from qbe.search.options import destination_of
    from qbe.search.output import open_output
    from qbe.search.writers import open_writer

    index, path = session.index, options.output
    highlight = path is None and _shows_bold()
    writer = open_writer(
        run.format, run.run_tag, index.paper, run.width, explain=run.explain, highlight=highlight
    )
    destination = destination_of(options, run.format, path)
    with open_output(destination, lambda: fingerprint(index, session.stages, options.tagger, run)) as output:
        if options.plot is not None:
            session.require_grades()
        _search(session, source, pools, run, writer, output, plot=options.plot)


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


def _search(
    session: SearchSession,
    source: QuerySource,
    pools: Pools | None,
    run: RunInputs,
    writer: ResultWriter,
    output: Output,
    *,
    plot: str | None,
) -> None:
    """Search block by block, and write each block that the output does not have yet; first say on standard
    error what users should know. ``plot`` names the file for a plot of one query's hits.
    """
    from qbe.search.output import BLOCK, missing_blocks
    from qbe.search.request import SearchRequest
    from qbe.search.writers import Result

    blocks = missing_blocks(output, len(source.ids))
    places = [place for block in blocks for place in range(len(source.ids))[block]]
    pairs = _rerank_pairs(session, source, pools, places, _selected(session, source, blocks, run, pools))
    bar = ("reranking", "candidates", pairs) if pairs else ("searching", "queries", len(places))
    with _cli.counter(*bar) as advance:
        for block in blocks:
            ids = source.ids[block]
            requests = [
                SearchRequest(
                    query,
                    run.k,
                    None if pools is None else pools[query_id],
                    run.filter,
                    run.labels,
                    matches=writer.needs_matches,
                    explain=run.explain,
                )
                for query_id, query in zip(ids, source.load(block), strict=True)
            ]
            rankings = session.batch(requests, advance if pairs else None)
            results = [
                Result(query_id, ranking.query, ranking.hits)
                for query_id, ranking in zip(ids, rankings, strict=True)
            ]
            if plot is not None:
                _plot(session, plot, results)
            output.add(block.start // BLOCK, writer.text(results, first=block.start == 0))
            if not pairs:
                advance(len(ids))
    output.publish(-(-len(source.ids) // BLOCK))


def _plot(session: SearchSession, path: str, results: Sequence[Result]) -> None:
    """Draw the hits of one query by their grades."""
    from qbe.search.plot import MOST, write_plot

    ((_, query, hits),) = results
    drawn = list(hits[:MOST])
    if any(hit.grades is None for hit in drawn):
        drawn = session.grade(query, drawn)
    write_plot(path, session.index.paper, query, drawn)


def _selected(
    session: SearchSession,
    source: QuerySource,
    blocks: Sequence[slice],
    run: RunInputs,
    pools: Pools | None,
) -> list[FilterResult]:
    """What passes the filter for each query that is to be searched, none where there is no filter; invalid
    filters raise before the search starts.
    """
    if run.filter is None:
        return []
    from qbe.search.filtering import describe

    selected = [session.selected(query, run.filter) for block in blocks for query in source.load(block)]
    if note := describe(selected, run.k if pools is None else None):
        print(f"{PROGRAM}: {note}", file=sys.stderr)
    return selected


def _rerank_pairs(
    session: SearchSession,
    source: QuerySource,
    pools: Pools | None,
    places: Sequence[int],
    selected: Sequence[FilterResult],
) -> int:
    """How many pairs of a query's aspect and a candidate will be reranked, at most; queries that the reranker
    does not take are counted on standard error.
    """
    from qbe.search.session import not_reranked

    sizes = [len(session.index if pools is None else pools[source.ids[place]]) for place in places]
    if selected:
        sizes = [min(size, each.papers) for size, each in zip(sizes, selected, strict=True)]
    if session.stages.reranker is not None:
        left = sum(not session.takes(source.aspects[place]) for place in places)
        if left:
            print(
                f"{PROGRAM}: {left} of {len(places)} queries: {not_reranked(session.stages)}", file=sys.stderr
            )
    return sum(
        session.rerank_pairs(source.aspects[place], size) for place, size in zip(places, sizes, strict=True)
    )


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
