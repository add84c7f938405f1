"""Graded papers as queries over an index, and how well rankings of the whole index do by their grades."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from qbe import Facet, Pipeline, Query
from qbe.evaluate.csfcube import ndcg_percent
from qbe.graded_pairs import read_graded_pairs
from qbe.index.index import Index

WANTED = 2
"""The grade from which on a paper is wanted."""

Grades = Mapping[str, Mapping[str, Sequence[float]]]
"""Grades by query and candidate, one a facet."""
Queries = Mapping[tuple[str, Facet], Query]
Rankings = Mapping[tuple[str, Facet], Sequence[str]]


def read_grades(path: Path) -> Grades:
    """The grades of a file of graded pairs."""
    lists = read_graded_pairs(path)
    return {query: {pair.paper_id: pair.grades for pair in pairs} for query, pairs in lists.items()}


def facet_queries(index: Index, grades: Grades) -> Queries:
    """The graded queries that the index holds, by each facet that they have sentences of."""
    papers = {name: index.paper(name) for name in grades if name in index}
    return {
        (name, facet): Query(paper, facet)
        for name, paper in papers.items()
        for facet in Facet
        if paper.facet_positions(facet)[0]
    }


def rankings(pipeline: Pipeline, queries: Queries, count: int) -> tuple[Rankings, list[float]]:
    """The ids of the best ``count`` papers of each query, and the seconds that each took, warm."""
    ranked, seconds = {}, []
    pipeline.batch_search(list(queries.values())[:5], count)
    for name, query in queries.items():
        begin = time.perf_counter()
        hits = pipeline.search(query, count)
        seconds.append(time.perf_counter() - begin)
        ranked[name] = [hit.paper_id for hit in hits]
    return ranked, seconds


def measured(ranked: Rankings, grades: Grades, shown: int) -> dict[tuple[str, Facet], tuple[float, float]]:
    """Of each query that wants a paper the NDCG%20 of its hits, and which share of the wanted papers are
    among the first ``shown``.
    """
    figures = {}
    for (name, facet), ids in ranked.items():
        graded = {paper_id: row[list(Facet).index(facet)] for paper_id, row in grades[name].items()}
        wanted = {paper_id for paper_id, grade in graded.items() if grade >= WANTED}
        if wanted:
            gains = [graded[each] for each in ids if each in graded]
            ndcg = 100 * ndcg_percent(gains, list(graded.values()))
            figures[name, facet] = ndcg, len(wanted.intersection(ids[:shown])) / len(wanted)
    return figures
