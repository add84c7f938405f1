"""Do two files of graded pairs agree? Kappa, alpha, rank correlation and confusion, facet by facet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import FileFormatError
from qbe.label.pairs import Merges, read_grades
from qbe.query import SIMILAR_FROM
from qbe.types import Facet
from qbe.util.files import StrPath

Floats = NDArray[np.float64]


class FacetAgreement(NamedTuple):
    """Hold the agreement of two assessors in a facet; a figure is None where one gave one grade only."""

    facet: Facet
    pairs: int  # that both graded in this facet
    grades: tuple[float, float]  # the mean of each
    kappa: float | None  # with quadratic weights
    plain_kappa: float | None
    alpha: float | None  # Krippendorff's, of ordinal values
    spearman: float | None  # over all pairs
    median_spearman: float | None  # over queries
    equal: float  # the share of pairs with equal grades
    same_side: float  # the share of pairs on the same side of SIMILAR_FROM
    confusion: Mapping[tuple[float, float], int]  # counts of grades (of the first, of the second)


class Agreement(NamedTuple):
    """Hold the agreement on the ``pairs`` of two files; ``only`` counts the pairs that one file alone has."""

    pairs: int
    queries: int
    only: tuple[int, int]
    facets: Sequence[FacetAgreement]


def agreement(first: StrPath, second: StrPath, merges: Merges = {}) -> Agreement:  # noqa: B006
    """Compare two files of graded pairs after merging grades; FileFormatError where they share no pair."""
    graded = [read_grades(path, merges) for path in (first, second)]
    shared = [key for key in graded[0] if key in graded[1]]
    if not shared:
        raise FileFormatError(
            f"expected pairs that {first} and {second} share, found none; give grades of the same pairs"
        )
    columns = [np.array([grades[key] for key in shared], float) for grades in graded]
    queries = np.array([query for query, _ in shared])
    only = (len(graded[0]) - len(shared), len(graded[1]) - len(shared))
    found = [_of_facet(facet, queries, *(each[:, n] for each in columns)) for n, facet in enumerate(Facet)]
    return Agreement(len(shared), len(set(queries.tolist())), only, [each for each in found if each])


def _of_facet(facet: Facet, queries: NDArray[Any], first: Floats, second: Floats) -> FacetAgreement | None:
    graded = ~np.isnan(first) & ~np.isnan(second)
    if not graded.any():
        return None
    queries, first, second = queries[graded], first[graded], second[graded]
    by_query = [spearman(first[queries == query], second[queries == query]) for query in np.unique(queries)]
    known = [value for value in by_query if value is not None]
    return FacetAgreement(
        facet,
        len(first),
        (float(first.mean()), float(second.mean())),
        weighted_kappa(first, second),
        plain_kappa(first, second),
        ordinal_alpha(first, second),
        spearman(first, second),
        float(np.median(known)) if known else None,
        float((first == second).mean()),
        float(((first >= SIMILAR_FROM) == (second >= SIMILAR_FROM)).mean()),
        Counter(zip(first.tolist(), second.tolist(), strict=True)),
    )


def weighted_kappa(first: Floats, second: Floats) -> float | None:
    """Return quadratic kappa (Cohen, 1968) of grades (n,): 1 - squared differences over those by chance."""
    expected = float(first.var() + second.var() + (first.mean() - second.mean()) ** 2)
    return round(1 - float(((first - second) ** 2).mean()) / expected, 12) if expected else None


def plain_kappa(first: Floats, second: Floats) -> float | None:
    """Return kappa (Cohen, 1960): equal grades beyond those of independent assessors."""
    grades = np.unique([first, second])
    expected = sum(float((first == grade).mean() * (second == grade).mean()) for grade in grades)
    return round((float((first == second).mean()) - expected) / (1 - expected), 12) if expected < 1 else None


def ordinal_alpha(first: Floats, second: Floats) -> float | None:
    """Return Krippendorff's alpha of ordinal values: 1 - squared rank differences over those by chance."""
    ranks = _ranks(np.concatenate([first, second]))
    expected = 2 * float(ranks.var(ddof=1))
    observed = float(((ranks[: len(first)] - ranks[len(first) :]) ** 2).mean())
    return round(1 - observed / expected, 12) if expected else None


def _ranks(values: Floats) -> Floats:
    """Return ranks from 1, ties at their mean."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return ranks


def spearman(first: Floats, second: Floats) -> float | None:
    """Return Spearman's rank correlation of values (n,), ties at their mean rank; None for constant ones."""
    ranks = [_ranks(values) - (len(values) + 1) / 2 for values in (first, second)]
    spread = float(np.sqrt((ranks[0] @ ranks[0]) * (ranks[1] @ ranks[1])))
    return round(float(ranks[0] @ ranks[1]) / spread, 12) if spread else None


def as_record(found: Agreement) -> dict[str, Any]:
    facets = {}
    for each in found.facets:
        confusion = [[*grades, count] for grades, count in sorted(each.confusion.items())]
        record = {**each._asdict(), "confusion": confusion}
        facets[str(record.pop("facet"))] = record
    return {**found._asdict(), "facets": facets}


def as_table(found: Agreement, names: Sequence[str]) -> str:
    lines = [
        f"{found.pairs:,} pairs of {found.queries:,} queries in both; {found.only[0]:,} only in {names[0]}, "
        f"{found.only[1]:,} only in {names[1]}",
        "",
        f"{'facet':12}{'kappa':>8}{'plain':>8}{'alpha':>8}{'Spearman':>10}{'by query':>10}{'equal':>8}"
        f"{'same side':>11}  mean grades",
    ]
    for each in found.facets:
        figures = ("-" if value is None else format(value, ".2f") for value in each[3:10])
        cells = (text.rjust(width) for text, width in zip(figures, (8, 8, 8, 10, 10, 8, 11), strict=True))
        lines.append(f"{each.facet!s:12}{''.join(cells)}  {each.grades[0]:.2f} {each.grades[1]:.2f}")
    for each in found.facets:
        rows, columns = (sorted({grades[side] for grades in each.confusion}) for side in (0, 1))
        lines += ["", f"{each.facet}: grades of {names[0]} (rows) and {names[1]} (columns)"]
        lines.append(" " * 5 + "".join(f"{grade:>7g}" for grade in columns))
        for row in rows:
            counts = (each.confusion.get((row, column), 0) for column in columns)
            lines.append(f"{row:>5g}" + "".join(f"{count:>7,}" for count in counts))
    return "\n".join(lines)
