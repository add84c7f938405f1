"""``python -m benchmarks.citation_queries``: which text of a paper finds what it should cite.

The query forms of Nogueira, Jiang, Cho and Lin (2020, Table 4) for BM25: the title, the most telling words
(key terms), title and abstract. Beside them the first stages by vectors: of whole papers, of sentences, fused
with BM25, and the projected ones of `qbe cite`. Nothing is reranked; no candidate is younger than its query.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.charts import Chart, Line, write_chart
from benchmarks.citation_common import (
    DEPTH,
    PACKAGES,
    SIGNIFICANT,
    chance,
    collection_options,
    decimals,
    index_option,
    ranked,
)
from benchmarks.common import machine, table
from qbe import _cli

if TYPE_CHECKING:
    from qbe.cite.config import CiteConfig
    from qbe.evaluate.results import CitationResult
    from qbe.index.index import Index
    from qbe.run import Run
    from qbe.search.config import SearchConfig
    from qbe.types import Paper

DEPTHS = (10, 20, 50, 100, 200, 500, 1000)
LONG, SHORT = "bm25, title+abstract", ("bm25, title", "bm25, keyterms")
"""The query form that is said to find more, and those that it is compared with."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.citation_queries", description=__doc__.split("\n\n")[0])
    index_option(parser)
    collection_options(parser)
    return parser


def configurations(papers: int) -> dict[str, CiteConfig | SearchConfig]:
    """What is compared, by name; ``papers``, how many the index holds, all of which are ranked by the vectors
    of whole papers.
    """
    from qbe.cite.config import CiteConfig
    from qbe.search.config import SearchConfig
    from qbe.search.filters import PaperFilter

    before = PaperFilter(before="query")

    def first_stage(name: str, form: str = "title+abstract") -> CiteConfig:
        return CiteConfig(first_stage=name, query_form=form, rerank="none", filter=before)

    return {
        **{f"bm25, {form}": first_stage("bm25", form) for form in ("title", "keyterms", "title+abstract")},
        "dense, whole papers": SearchConfig(
            weights={"whole": 1.0}, depth=papers, rerank="none", filter=before
        ),
        "dense, sentences": first_stage("dense"),
        "fused": first_stage("fused"),
        "citation": first_stage("citation"),
    }


def run_of(index: Index, config: CiteConfig | SearchConfig, papers: Sequence[Paper]) -> Run:
    """The rankings of papers by a first stage."""
    from qbe.cite.recommender import CiteRequest, Recommender
    from qbe.query import Query
    from qbe.search.config import SearchConfig
    from qbe.search.pipeline import Pipeline

    if isinstance(config, SearchConfig):
        with Pipeline.open(index, config) as pipeline:
            return ranked(
                lambda block: pipeline.batch_search(list(map(Query, block)), DEPTH, matches=False), papers
            )
    with Recommender.open(index, config) as recommender:
        return ranked(
            lambda block: recommender.batch_recommend(list(map(CiteRequest, block)), DEPTH, matches=False),
            papers,
        )


def row_of(name: str, figures: Mapping[str, float]) -> list[str]:
    """A row of the table."""
    return [name, *(decimals(figures[label]) for label in ("F1@20", "MRR", *(f"R@{d}" for d in DEPTHS)))]


def finding(measure: str, long: float, short: Mapping[str, tuple[float, float]]) -> str:
    """The sentence on the query forms: the figure of title and abstract, and that of each shorter form with
    the probability of a difference as large by chance.
    """
    better = [long > figure and p < SIGNIFICANT for figure, p in short.values()]
    verdict = "holds here" if all(better) else "holds here in part" if any(better) else "does not hold here"
    others = " and ".join(
        f"{decimals(figure)} with {name.removeprefix('bm25, ')} ({chance(p)})"
        for name, (figure, p) in short.items()
    )
    return (
        f"That longer queries find more {verdict}: BM25 has {measure} {decimals(long)} with title+abstract, "
        f"{others}."
    )


def compared(results: Mapping[str, CitationResult], measure: str) -> dict[str, tuple[float, float]]:
    """The figure of each shorter form, and the p-value of its difference to title and abstract."""
    from qbe.evaluate.significance import compare

    shorter = {name: results[name] for name in SHORT}
    return {
        each.system: (results[each.system].figures[measure]["all"] or 0.0, each.randomization_p_holm)
        for each in compare(shorter, {LONG: results[LONG]}, [measure])
    }


def chart(figures: Mapping[str, Mapping[str, float]]) -> Chart:
    """Recall by depth, one line a form."""
    lines = [Line(name, [each[f"R@{depth}"] for depth in DEPTHS]) for name, each in figures.items()]
    return Chart("Recall by query form", "papers ranked", "recall", list(map(str, DEPTHS)), lines)


def main(argv: list[str]) -> None:
    from qbe.evaluate.citations import citations_protocol
    from qbe.index.opening import open_index
    from qbe.plots import check_plot
    from qbe.trec import read_qrels

    options = parser().parse_args(argv)
    if options.plot:
        check_plot(options.plot)
    threads = _cli.threads(options.threads)
    qrels = read_qrels(options.collection / "dev.qrels")
    print(machine(threads, PACKAGES))
    results: dict[str, CitationResult] = {}
    with open_index(options.index, threads=threads) as index:
        papers = [index.paper(query) for query in qrels]
        print(f"{len(index):,} papers, {len(papers)} queries\n")
        for name, config in configurations(len(index)).items():
            run = run_of(index, config, papers)
            results[name] = citations_protocol(qrels, run, [f"R@{depth}" for depth in DEPTHS])
    figures = {
        name: {label: by_scope["all"] or 0.0 for label, by_scope in result.figures.items()}
        for name, result in results.items()
    }
    header = ["query", "F1@20", "MRR", *(f"R@{depth}" for depth in DEPTHS)]
    print(table(header, [row_of(name, each) for name, each in figures.items()]), end="\n\n")
    print(finding("R@1000", figures[LONG]["R@1000"], compared(results, "R@1000")))
    if options.plot:
        write_chart(Path(options.plot), chart(figures))


if __name__ == "__main__":
    _cli.run("benchmarks.citation_queries", main)
