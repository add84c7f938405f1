"""The measures of the CSFCube protocol, as functions of one query's grades.

They follow the scorer that CSFCube's release ships (Mysore et al., 2021; ``eval_scripts``), the one
behind the published figures. It differs from trec_eval: see each function. All take the grades of
the retrieved documents in rank order and the grades of the whole pool in any order. A pool document
that a run lacks counts as not retrieved, as in trec_eval: it adds nothing at the top and stays in
every denominator.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from qbe.evaluate.results import split_query_id

RELEVANT = 2
"""The lowest grade that counts as relevant for the binary measures."""

CUTOFF = 20

Grades = Sequence[int]


def discount(rank: int) -> float:
    """What a gain at a rank from 1 is divided by: 1, 1, log2(3), log2(4), ...

    This is the original form of Järvelin and Kekäläinen (2002) with base 2, in which the first two
    ranks count alike.
    """
    return max(1.0, math.log2(rank))


def _dcg(grades: Grades) -> float:
    """Discounted cumulated gain with linear gains; negative grades gain nothing."""
    return sum(max(grade, 0) / discount(rank) for rank, grade in enumerate(grades, start=1))


def ndcg_cutoff(pool_size: int) -> int:
    """How many ranks NDCG%20 looks at: a fifth of the pool, rounded down."""
    return int(0.20 * pool_size)


def ndcg_percent(ranked: Grades, pool: Collection[int]) -> float:
    """NDCG%20: NDCG at a fifth of the pool (rounded down), in [0, 1]; 0 when nothing there can gain."""
    cutoff = ndcg_cutoff(len(pool))
    ideal = _dcg(sorted(pool, reverse=True)[:cutoff])
    return _dcg(ranked[:cutoff]) / ideal if ideal else 0.0


def average_precision(ranked: Grades, pool: Collection[int]) -> float:
    """Average precision over the pool's relevant documents, in [0, 1]; 0 when there are none."""
    found, total = 0, 0.0
    for rank, grade in enumerate(ranked, start=1):
        if grade >= RELEVANT:
            found += 1
            total += found / rank
    relevant = _relevant(pool)
    return total / relevant if relevant else 0.0


def precision_at_last(ranked: Grades, pool: Collection[int]) -> float:
    """What the release calls R-Precision: precision at the rank of the last relevant document, in [0, 1].

    Stock R-precision cuts at R, the number of relevant documents, instead. A run that does not
    retrieve all of them never reaches the last one and gets 0.
    """
    last = max((rank for rank, grade in enumerate(ranked, start=1) if grade >= RELEVANT), default=0)
    relevant = _relevant(pool)
    return relevant / last if last and _relevant(ranked) == relevant else 0.0


def precision(ranked: Grades, _pool: Collection[int]) -> float:
    """Precision at rank 20, in [0, 1]; divided by 20 even when fewer documents are ranked."""
    return _relevant(ranked[:CUTOFF]) / CUTOFF


def recall(ranked: Grades, pool: Collection[int]) -> float:
    """Recall at rank 20, in [0, 1]; 0 when the pool has nothing relevant."""
    relevant = _relevant(pool)
    return _relevant(ranked[:CUTOFF]) / relevant if relevant else 0.0


def _relevant(grades: Collection[int]) -> int:
    return sum(grade >= RELEVANT for grade in grades)


class ProtocolMeasure(NamedTuple):
    """A measure of the protocol: its name in the papers, its name in ir-measures, what it is."""

    label: str
    name: str
    definition: str
    function: Callable[[Grades, Collection[int]], float]


_BINARY = f"a grade of {RELEVANT} or 3 is relevant"

MEASURES: Mapping[str, ProtocolMeasure] = {
    measure.label: measure
    for measure in (
        ProtocolMeasure(
            "NDCG%20",
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
"""By label, in the order of a report."""


def judged_ranking(
    query_id: str, grades: Mapping[str, int], scores: Mapping[str, float]
) -> tuple[list[int], list[int]]:
    """One query's grades in rank order and those of its whole pool, as the measures take them.

    The pool is what was judged for the query, without the query paper: CSFCube judged 8781666 for
    itself, and the release's own rankings leave it out. Documents outside the pool are passed over.
    """
    pool = pool_of(query_id, grades)
    return [pool[paper_id] for paper_id in trec_order(scores) if paper_id in pool], list(pool.values())


def pool_of(query_id: str, grades: Mapping[str, int]) -> dict[str, int]:
    """The judged documents of a query and their grades, without the query paper itself."""
    query_paper, _ = split_query_id(query_id)
    return {paper_id: grade for paper_id, grade in grades.items() if paper_id != query_paper}


def trec_order(scores: Mapping[str, float]) -> list[str]:
    """Document ids in trec_eval's order: by score in single precision, ties by id, both descending.

    The rank column of a run counts for nothing there, nor here, so that all measures see one ranking.
    """
    single = array("f", scores.values())
    return [paper_id for _, paper_id in sorted(zip(single, scores, strict=True), reverse=True)]
