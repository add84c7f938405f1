"""The measures of the CSFCube protocol, as functions of the grades of one query's papers.

They follow the scorer of CSFCube's release (Mysore et al., 2021; ``eval_scripts``), which computed the
published figures. It differs from trec_eval: see each function. All take ``ranked``, the grades of the
retrieved papers in rank order, and ``pool``, the grades of the whole pool in any order; grades are integers
from 0 to 3. A pool paper that is missing in a run counts as not retrieved, as in trec_eval: it adds nothing
to a numerator and is counted in every denominator.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from qbe.evaluate.results import split_query_id

CSFCUBE = "csfcube"

RELEVANT = 2
"""The lowest grade that counts as relevant for the binary measures."""

CUTOFF = 20

NDCG_PERCENT = "NDCG%20"
"""The label of the measure that publications compare first."""

Grades = Sequence[int]


def discount(rank: int) -> float:
    """Return the number by which a gain at a rank (from 1) is divided: 1, 1, log2(3), log2(4), ...

    This is the original discount of Järvelin and Kekäläinen (2002) with base 2: the first two ranks are
    not discounted.

    >>> [round(discount(rank), 3) for rank in (1, 2, 3, 4)]
    [1.0, 1.0, 1.585, 2.0]
    """
    return max(1.0, math.log2(rank))


def _dcg(grades: Sequence[float]) -> float:
    """Discounted cumulated gain with linear gains; the gain of a negative grade is 0."""
    return sum(max(grade, 0) / discount(rank) for rank, grade in enumerate(grades, start=1))


def ndcg_cutoff(pool_size: int) -> int:
    """Return the cutoff rank of NDCG%20: a fifth of the pool, rounded down.

    >>> ndcg_cutoff(24)
    4
    """
    return int(0.20 * pool_size)


def ndcg_percent(ranked: Sequence[float], pool: Collection[float]) -> float:
    """Compute NDCG%20, NDCG at a fifth of the pool (rounded down), in [0, 1]; 0 where the ideal gain is 0.

    >>> round(ndcg_percent([0, 3, 1, 0, 0], [3, 1] + 18 * [0]), 3)  # (3 + 1 / log2(3)) / (3 + 1)
    0.908
    """
    cutoff = ndcg_cutoff(len(pool))
    ideal = _dcg(sorted(pool, reverse=True)[:cutoff])
    return _dcg(ranked[:cutoff]) / ideal if ideal else 0.0


def average_precision(ranked: Grades, pool: Collection[int]) -> float:
    """Compute average precision over the pool's relevant papers, in [0, 1]; 0 where there are none.

    >>> round(average_precision([3, 0, 2], [3, 2, 0, 2]), 3)  # (1 / 1 + 2 / 3) / 3
    0.556
    """
    retrieved, total = 0, 0.0
    for rank, grade in enumerate(ranked, start=1):
        if grade >= RELEVANT:
            retrieved += 1
            total += retrieved / rank
    relevant = _relevant(pool)
    return total / relevant if relevant else 0.0


def precision_at_last(ranked: Grades, pool: Collection[int]) -> float:
    """Compute what the release calls R-Precision: precision at the last relevant paper's rank, in [0, 1].

    The usual R-precision is the precision at rank R, the number of relevant papers. A run that does not
    retrieve all relevant papers gets 0.

    >>> precision_at_last([0, 2, 0, 3], [3, 2, 0, 0])  # both relevant papers are among the first four
    0.5
    """
    last = max((rank for rank, grade in enumerate(ranked, start=1) if grade >= RELEVANT), default=0)
    relevant = _relevant(pool)
    return relevant / last if last and _relevant(ranked) == relevant else 0.0


def precision(ranked: Grades, _pool: Collection[int]) -> float:
    """Compute precision at rank 20, in [0, 1]; divided by 20 even where fewer papers are ranked.

    >>> precision([2, 0, 3], [3, 2, 0])  # 2 / 20
    0.1
    """
    return _relevant(ranked[:CUTOFF]) / CUTOFF


def recall(ranked: Grades, pool: Collection[int]) -> float:
    """Compute recall at rank 20, in [0, 1]; 0 where the pool has no relevant paper.

    >>> recall([2, 0, 1], [2, 0, 1, 3])  # one of two relevant papers
    0.5
    """
    relevant = _relevant(pool)
    return _relevant(ranked[:CUTOFF]) / relevant if relevant else 0.0


def _relevant(grades: Collection[int]) -> int:
    return sum(grade >= RELEVANT for grade in grades)


class ProtocolMeasure(NamedTuple):
    """A measure of the protocol: its name in publications, its name in ir-measures, its definition.

    >>> MEASURES["MAP"].name, MEASURES["MAP"].function([0, 2], [2, 0])
    ('CSFCube_AP', 0.5)
    """

    label: str
    name: str
    definition: str
    function: Callable[[Grades, Collection[int]], float]


_BINARY = f"a grade of {RELEVANT} or 3 is relevant"

MEASURES: Mapping[str, ProtocolMeasure] = {
    measure.label: measure
    for measure in (
        ProtocolMeasure(
            NDCG_PERCENT,
            "CSFCube_nDCG",
            "normalized discounted cumulated gain at a fifth of the pool, int(0.20 * documents): linear "
            "gains, discounts 1, 1, 1/log2(3), 1/log2(4), ...",
            ndcg_percent,
        ),
        ProtocolMeasure(
            "MAP",
            "CSFCube_AP",
            f"mean average precision over the pool; {_BINARY}",
            average_precision,
        ),
        ProtocolMeasure(
            "R-Precision",
            "CSFCube_Rprec",
            f"precision at the rank of the last relevant document (not at R); {_BINARY}",
            precision_at_last,
        ),
        ProtocolMeasure("Precision@20", "CSFCube_P20", f"precision at rank 20; {_BINARY}", precision),
        ProtocolMeasure("Recall@20", "CSFCube_R20", f"recall at rank 20; {_BINARY}", recall),
    )
}
"""The measures by label, in the order of a report."""


def judged_ranking(
    query_id: str, grades: Mapping[str, int], scores: Mapping[str, float]
) -> tuple[list[int], list[int]]:
    """Return the grades of a query's retrieved papers in rank order, and those of its whole pool.

    The pool consists of the judged papers without the query paper: CSFCube has a judgement of 8781666 for
    itself, and the release's rankings leave it out. Papers outside the pool are ignored.

    Args:
        query_id: ``{paper_id}_{facet}`` or ``{paper_id}``.
        grades: grades by paper id.
        scores: scores by paper id.

    >>> judged_ranking("7_method", {"7": 3, "a": 1, "b": 2}, {"7": 0.9, "unjudged": 0.8, "b": 0.7})
    ([2], [1, 2])
    """
    pool = pool_of(query_id, grades)
    return [pool[paper_id] for paper_id in trec_order(scores) if paper_id in pool], list(pool.values())


def pool_of(query_id: str, grades: Mapping[str, int]) -> dict[str, int]:
    """Return the grades of a query's judged papers by paper id, without the query paper.

    >>> pool_of("7_method", {"7": 3, "a": 1, "b": 2})
    {'a': 1, 'b': 2}
    """
    query_paper, _ = split_query_id(query_id)
    return {paper_id: grade for paper_id, grade in grades.items() if paper_id != query_paper}


def trec_order(scores: Mapping[str, float]) -> list[str]:
    """Return paper ids in trec_eval's order: by score in single precision, ties by id, both descending.

    trec_eval ignores the ranks of a run file; so does this function, so that all measures use one ranking.

    >>> trec_order({"a": 1.0, "b": 2.0, "c": 1.0})
    ['b', 'c', 'a']
    """
    single = array("f", scores.values())
    return [paper_id for _, paper_id in sorted(zip(single, scores, strict=True), reverse=True)]
