"""``qbe search``: find papers like a paper, for its problem, its method or its findings."""

from __future__ import annotations

import sys

from qbe.cli import common as _cli
from qbe.cli.search_options import OPTIONS, PROGRAM, parser

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from qbe.index.index import Index
    from qbe.query import Query, Wish
    from qbe.search.filtering import FilterResult
    from qbe.search.filters import PaperFilter
    from qbe.search.opening import RerankerOpener
    from qbe.search.output import RunInputs
    from qbe.search.queries import QuerySource
    from qbe.search.request import SearchRequest
    from qbe.search.session import SearchSession
    from qbe.search.stages import Stages
    from qbe.search.writers import ResultWriter
    from qbe.types import Paper

    Pools = Mapping[str, Sequence[str]]

__all__ = ["OPTIONS", "PROGRAM", "main", "parser"]


def main(arguments: list[str]) -> None:
    """Parse the options, search, and write the results."""
    for option in ("--first-stage", "--rerank"):
        after = arguments.index(option) + 1 if option in arguments else len(arguments)
        if arguments[after : after + 1] == ["help"]:
            from qbe.search.stages import FIRST_STAGES, RERANKERS, describe_stages

            print(describe_stages(RERANKERS if option == "--rerank" else FIRST_STAGES))
            return
    run(parser().parse_args(arguments))


def run(
    options: argparse.Namespace,
    open_index: Callable[..., Index] | None = None,
    open_reranker: RerankerOpener | None = None,
) -> None:
    """Search as the options say. ``open_index`` opens the index, and ``open_reranker`` a cross-encoder, in
    another place than this process; their parameters are those of `qbe.index.index.Index` and
    `qbe.search.rerank.open.open_reranker`.
    """
    from qbe.cli.search_options import check, check_labels, filter_of, form_of, stages_of, wish_of
    from qbe.search.stages import Fused, Stages, default_stages

    form, width = form_of(options)
    check(options, form)
    if not options.topics and options.facet is None and options.like is None:
        check_labels(options, has_facet=False)
    stages_of(options, Stages(Fused()))  # what is wrong with them is said before an index is opened
    paper_filter, wish = filter_of(options), wish_of(options)
    if options.output:
        from qbe.util.outputs import SEARCH, check_output, with_tag

        check_output(options.output, with_tag(SEARCH, options.run_tag))

    from pathlib import Path

    from qbe.index import jvm as _jvm
    from qbe.index import several
    from qbe.runs import read_pools
    from qbe.search.session import SearchSession

    if not options.topics:
        _jvm.expect_one_search()
    threads = _cli.threads(options.threads)
    pools = read_pools(Path(options.pool)) if options.pool else None
    opener = open_index or several.open_index
    with opener(options.index, encoder=options.encoder, threads=threads) as index:
        source = _source(options, index, wish)
        _check_source(options, source, pools)
        stages = stages_of(options, default_stages(index))
        inputs = _run_inputs(options, wish, paper_filter, stages, form, width)
        chosen = options.rerank is not None
        with SearchSession(index, stages, open_reranker=open_reranker, chosen=chosen) as session:
            _write(options, session, source, pools, inputs)


def _check_source(options: argparse.Namespace, source: QuerySource, pools: Pools | None) -> None:
    """Raise UsageError for queries that options do not fit, and say what users should know of them."""
    from qbe.cli.search_options import check_labels
    from qbe.errors import UsageError

    check_labels(options, has_facet=source.has_facet)
    for note in source.notes:
        _say(_cli.with_options(note, OPTIONS))
    absent = [query_id for query_id in source.ids if pools is not None and query_id not in pools]
    if absent:
        raise UsageError(f"expected a pool for each query, found none for {', '.join(absent)}; check --pool")


def _say(note: str | None) -> None:
    """Print what users should know on standard error."""
    if note:
        print(f"{PROGRAM}: {note}", file=sys.stderr)


def _run_inputs(
    options: argparse.Namespace,
    wish: Wish | None,
    paper_filter: PaperFilter | None,
    stages: Stages,
    form: str,
    width: int,
) -> RunInputs:
    """What a run depends on besides index and stages."""
    from pathlib import Path

    from qbe.cli.search_options import hits_of
    from qbe.query import PLAIN
    from qbe.search.output import RunInputs

    facets = options.facet
    if wish is not None:
        facets = {facet.value: weight for facet, weight in wish.weights.items()}
    return RunInputs(
        topics=Path(options.topics or "."),
        pool=Path(options.pool) if options.pool else None,
        facet=facets,
        filter=paper_filter,
        labels=options.facets,
        k=hits_of(options, form, wish),
        run_tag=options.run_tag or stages.run_tag,
        format=form,
        width=width,
        explain=options.explain,
        variety=PLAIN if wish is None else wish.variety,
    )


def _write(
    options: argparse.Namespace,
    session: SearchSession,
    source: QuerySource,
    pools: Pools | None,
    run: RunInputs,
) -> None:
    """Search, and write the results to their file, or to standard output."""
    from qbe.cli.search_options import destination_of
    from qbe.search.output import fingerprint, write_blocks
    from qbe.search.stages import LanguageModel
    from qbe.search.writers import open_writer

    index, reranker, graded_by = session.index, session.stages.reranker, ""
    if isinstance(reranker, LanguageModel) and not run.variety.bounds:  # bounds are of estimated grades
        graded_by = reranker.model or ""
    writer = open_writer(
        run.format, run.run_tag, index.paper, run.width, explain=run.explain, graded_by=graded_by
    )
    write_blocks(
        destination_of(options, run.format, options.output),
        lambda: fingerprint(index, session.stages, run),
        len(source.ids),
        _Search(session, source, pools, run, writer).texts,
    )


def _source(options: argparse.Namespace, index: Index, wish: Wish | None) -> QuerySource:
    """The queries that the options state."""
    from pathlib import Path

    from qbe.query import parse_positions
    from qbe.search.queries import find_papers, from_query, from_topics, query_by
    from qbe.types import Facet

    facet = Facet(options.facet) if options.facet else None
    weights = None if wish is None else wish.weights
    if options.topics:
        predicted = options.facets == "predicted"
        return from_topics(index, Path(options.topics), weights or facet, predicted=predicted)
    positions = parse_positions(options.sentences) if options.sentences is not None else None
    unlike = find_papers(index, options.not_paper or ())
    return from_query(query_by(_papers(options, index), unlike, weights or facet or positions))


def _papers(options: argparse.Namespace, index: Index) -> list[Paper]:
    """The papers that the options name, bring, or take from a bibliography."""
    from pathlib import Path

    from qbe.search.queries import find_papers, note_on_papers, pasted_paper

    # The readers of all formats take a twentieth of a second to load: only where a file is read.
    if options.paper is not None:
        return find_papers(index, options.paper)
    if options.cited is None:
        if options.text is None:
            from qbe.search.query_file import paper_from_file

            paper = paper_from_file(options.paper_file)
        else:
            paper = pasted_paper(options.text, options.title or "")
        _say(note_on_papers([paper]))
        return [paper]
    from qbe.search.paper_files import papers_of

    with index.reading() as reader:
        named = papers_of(reader, Path(options.cited))
    _say(named.missing_in_words(options.cited))
    return [index.paper(paper_id) for paper_id in named.paper_ids]


class _Search:
    """The queries of a command, and how they are searched."""

    def __init__(
        self,
        session: SearchSession,
        source: QuerySource,
        pools: Pools | None,
        run: RunInputs,
        writer: ResultWriter,
    ) -> None:
        self._session, self._source, self._pools = session, source, pools
        self._run, self._writer = run, writer

    def texts(self, blocks: Sequence[slice]) -> Iterator[str]:
        """The results of blocks of queries, searched as they are asked for; first what users should know is
        said on standard error.
        """
        from qbe.search.writers import Result

        places = [place for block in blocks for place in range(len(self._source.ids))[block]]
        pairs = self._rerank_pairs(places, self._selected(blocks))
        empty: list[str] = []
        bar = ("reranking", "candidates", pairs) if pairs else ("searching", "queries", len(places))
        with _cli.counter(*bar) as advance:
            for block in blocks:
                ids = self._source.ids[block]
                rankings = self._session.batch(self._requests(block), advance if pairs else None)
                results = [
                    Result(name, each.query, each.hits) for name, each in zip(ids, rankings, strict=True)
                ]
                empty += [result.query_id for result in results if not result.hits]
                yield self._writer.text(results, block.start == 0)
                if len(self._source.ids) == 1:
                    _say("; ".join(rankings[0].counts))
                if not pairs:
                    advance(len(ids))
        if empty and self._pools is not None:
            _say(f"{len(empty)} of {len(places)} pools hold no paper that may be found ({empty[0]}, ...)")

    def _requests(self, block: slice) -> list[SearchRequest]:
        from qbe.search.request import SearchRequest

        run, pools = self._run, self._pools
        return [
            SearchRequest(
                query,
                run.k,
                None if pools is None else pools[query_id],
                run.filter,
                run.labels,
                matches=self._writer.needs_matches,
                explain=run.explain,
                variety=run.variety,
            )
            for query_id, query in zip(self._source.ids[block], self._source.load(block), strict=True)
        ]

    def _query(self, place: int) -> Query:
        return self._source.load(slice(place, place + 1))[0]

    def _selected(self, blocks: Sequence[slice]) -> list[FilterResult]:
        """What passes the filter for each query, none where there is no filter; invalid filters raise before
        the search starts.
        """
        if self._run.filter is None:
            return []
        from qbe.search.filtering import describe

        queries = (query for block in blocks for query in self._source.load(block))
        selected = [self._session.selected(query, self._run.filter) for query in queries]
        _say(describe(selected, self._run.k if self._pools is None else None))
        return selected

    def _rerank_pairs(self, places: Sequence[int], selected: Sequence[FilterResult]) -> int:
        """How many pairs of a query's aspect and a candidate will be reranked, at most; queries that the
        reranker does not take are counted on standard error.
        """
        from functools import partial

        from qbe.search.session import not_reranked

        session, source, pools = self._session, self._source, self._pools
        sizes = [len(session.index if pools is None else pools[source.ids[place]]) for place in places]
        if selected:
            sizes = [min(size, each.papers) for size, each in zip(sizes, selected, strict=True)]
        if session.stages.reranker is not None:
            loads = (partial(self._query, place) for place in places)
            aspects = (source.aspects[place] for place in places)
            left = sum(map(session.leaves_out, aspects, loads))
            if left:
                _say(f"{left} of {len(places)} queries: {not_reranked(session.stages)}")
        pairs = zip(places, sizes, strict=True)
        return sum(session.rerank_pairs(source.aspects[place], size) for place, size in pairs)


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
