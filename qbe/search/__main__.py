"""``python -m qbe.search``: find papers like a paper, for its problem, its method or its findings."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from qbe import _cli
from qbe.errors import UsageError
from qbe.types import Facet, Hit, Query, Run

if TYPE_CHECKING:
    from qbe.index.index import Index
    from qbe.search.searcher import Searcher

TABLE_HITS = 10
RUN_HITS = 1000


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(
        prog="python -m qbe.search",
        description="Find papers like a paper, for its problem (background), its method or its findings "
        "(result), or by sentences picked by hand, or by its whole abstract.",
    )
    parser.add_argument("--index", type=Path, required=True, metavar="DIR", help="built by qbe.index")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--topics", type=Path, metavar="FILE", help="tab-separated: query_id, paper_id, facet"
    )
    source.add_argument("--paper", metavar="ID", help="a paper of the index")
    source.add_argument(
        "--paper-file", metavar="FILE", help="JSON with title and abstract; - is standard input"
    )
    source.add_argument("--text", help="an abstract, as it is")
    parser.add_argument("--title", help="the title that goes with --text")
    aspect = parser.add_mutually_exclusive_group()
    aspect.add_argument(
        "--facet",
        choices=[facet.value for facet in Facet],
        help="the aspect to match (default: the topic's own facet, else the whole abstract)",
    )
    aspect.add_argument("--sentences", metavar="0,3", help="positions of the sentences to match, from 0")
    parser.add_argument(
        "--facets",
        choices=("given", "predicted"),
        default="given",
        help="of the query's sentences: those its paper brings, predicted where it brings none, or always "
        "predicted (default: %(default)s)",
    )
    parser.add_argument(
        "--first-stage", choices=("bm25", "dense", "fused"), default="fused", help="default: %(default)s"
    )
    parser.add_argument("--hits", type=int, help=f"a query (default: {RUN_HITS}; {TABLE_HITS} in a table)")
    parser.add_argument(
        "--pool", type=Path, metavar="FILE", help="rank these papers only: query_id, paper_id"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write there (default: standard output)")
    parser.add_argument(
        "--format",
        choices=("trec", "json", "table"),
        help="default: a table on a terminal, else a TREC run",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="show each sentence of the query, with facet and probability, and all matches (table or json)",
    )
    parser.add_argument("--run-tag", help="last column of the TREC run (default: qbe-<first stage>)")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    tuning = parser.add_argument_group("first stages in detail")
    tuning.add_argument(
        "--bm25-query",
        choices=("title+facet", "facet", "abstract"),
        default="title+facet",
        help="the words of the BM25 query (default: %(default)s)",
    )
    tuning.add_argument(
        "--match",
        choices=("mean-max", "max"),
        default="mean-max",
        help="dense: mean of each query sentence's best match, or the best pair alone (default: %(default)s)",
    )
    tuning.add_argument(
        "--fusion",
        choices=("weighted", "rrf"),
        default="weighted",
        help="fused: weighted sum of z-normalized scores, or reciprocal ranks (default: %(default)s)",
    )
    tuning.add_argument(
        "--weights", metavar="bm25=1,...", help="of bm25, sentences, facet, whole (default: all 1)"
    )
    tuning.add_argument(
        "--depth",
        type=int,
        default=1000,
        help="fused: papers each side brings to the fusion (default: %(default)s)",
    )
    tuning.add_argument(
        "--encoder", help="for queries from outside (default: the one the index was built with)"
    )
    tuning.add_argument(
        "--tagger", help="name or folder; for facets of queries (default: the one the index was built with)"
    )
    return parser


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    form = options.format or ("table" if sys.stdout.isatty() and options.output is None else "trec")
    _check(options, form)
    threads = _cli.threads(options.threads)
    hits = options.hits or (TABLE_HITS if form == "table" else RUN_HITS)

    from qbe.index.index import Index
    from qbe.search.fusion import EQUAL_WEIGHTS
    from qbe.search.queries import parse_weights
    from qbe.search.searcher import Searcher
    from qbe.trec import read_pools

    names = list(EQUAL_WEIGHTS)
    weights = parse_weights(options.weights, names) if options.weights is not None else EQUAL_WEIGHTS
    pools = read_pools(options.pool) if options.pool else None
    with Index(options.index, options.encoder, threads, tagger=options.tagger) as index:
        queries = list(_queries(options, index))
        searcher = Searcher(
            index,
            options.first_stage,
            bm25_query=options.bm25_query,
            match=options.match,
            fusion=options.fusion,
            weights=weights,
            depth=options.depth,
        )
        results = _search(searcher, queries, hits, pools, matches=form != "trec")
        tag = options.run_tag or f"qbe-{options.first_stage}"
        text = _format(form, index, tag, results, explain=options.explain)
    _write(options.output, text)


def _check(options: argparse.Namespace, form: str) -> None:
    if options.hits is not None and options.hits < 1:
        raise UsageError(f"expected --hits of at least 1, found {options.hits}")
    if options.depth < 1:
        raise UsageError(f"expected --depth of at least 1, found {options.depth}")
    if options.title is not None and options.text is None:
        raise UsageError("--title goes with --text; a paper file holds its own title")
    if options.sentences is not None and options.topics:
        raise UsageError("--sentences picks from one paper; give --paper, --paper-file or --text with it")
    if options.run_tag is not None and len(options.run_tag.split()) != 1:
        raise UsageError(f"expected a --run-tag of one word, found {options.run_tag!r}")
    if options.explain and form == "trec":
        if options.format:
            raise UsageError("--explain goes with --format table or json, found trec")
        raise UsageError(
            "--explain has no place in a TREC run, the form without a terminal; add --format table"
        )
    tagging = options.tagger is not None or options.facets == "predicted"
    if tagging and not (options.facet or options.topics or options.explain):
        raise UsageError(
            "--tagger and --facets predicted are of use only with a facet; add --facet, or drop them"
        )


def _queries(options: argparse.Namespace, index: Index) -> Iterator[tuple[str, Query]]:
    from qbe.search.queries import paper_from_file, paper_from_text, parse_positions, queries_from_topics

    facet = Facet(options.facet) if options.facet else None
    if options.topics:
        yield from queries_from_topics(index, options.topics, facet, options.facets)
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


def _search(
    searcher: Searcher,
    queries: list[tuple[str, Query]],
    hits: int,
    pools: dict[str, list[str]] | None,
    *,
    matches: bool,
) -> list[tuple[str, Query, tuple[Hit, ...]]]:
    if pools is not None:
        absent = [query_id for query_id, _ in queries if query_id not in pools]
        if absent:
            raise UsageError(
                f"expected a pool for each query, found none for {', '.join(absent)}; check --pool"
            )
    results = []
    for query_id, query in _cli.progress(queries, "searching", "queries", len(queries)):
        pool = pools[query_id] if pools is not None else None
        results.append((query_id, query, tuple(searcher.search(query, hits, pool, matches=matches))))
    return results


def _format(
    form: str, index: Index, tag: str, results: list[tuple[str, Query, tuple[Hit, ...]]], *, explain: bool
) -> str:
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
