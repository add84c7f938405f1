"""Graded papers as queries over an index, and how well rankings of the whole index do by their grades."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.reranking_dev import Grades
from qbe import Facet, Query
from qbe.evaluate.csfcube import ndcg_percent
from qbe.index.index import Index

WANTED = 2.0
"""The grade from which on a paper is wanted."""

Queries = Mapping[tuple[str, Facet], Query]
Rankings = Mapping[tuple[str, Facet], Sequence[str]]


def facet_queries(index: Index, grades: Grades) -> Queries:
    """The graded queries that the index holds, by each facet that they have sentences of."""
    papers = {name: index.paper(name) for name in grades if name in index}
    return {
        (name, facet): Query(paper, facet)
        for name, paper in papers.items()
        for facet in Facet
        if paper.facet_positions(facet)[0]
    }


def measured(hits: Rankings, grades: Grades, shown: int) -> dict[tuple[str, Facet], tuple[float, float]]:
    """Of each query that wants a paper the NDCG%20 of its hits, and which share of the wanted papers are
    among the first ``shown``.
    """
    figures = {}
    for (name, facet), ids in hits.items():
        graded = {paper_id: row[list(Facet).index(facet)] for paper_id, row in grades[name].items()}
        wanted = {paper_id for paper_id, grade in graded.items() if grade >= WANTED}
        if wanted:
            ranked = [graded[each] for each in ids if each in graded]
            gain = 100 * ndcg_percent(ranked, list(graded.values()))
            figures[name, facet] = gain, len(wanted.intersection(ids[:shown])) / len(wanted)
    return figures
