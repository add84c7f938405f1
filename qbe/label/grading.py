"""Pairs graded by a language model or by hand, and the agreement of two files of grades, facet by facet."""

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import FileFormatError, ModelError, OutputError, UsageError
from qbe.label.pairs import ASSESSOR, Grades, Merges, Pair, merged, read_grades, read_pairs, write_pairs
from qbe.models.endpoint import Client, Endpoint
from qbe.models.language_model import Answers, Estimate, Grader, Guideline
from qbe.query import SIMILAR_FROM
from qbe.types import Facet, Paper
from qbe.util.files import StrPath, change_lock, lock
from qbe.util.text import read_fields


class LabelConfig(NamedTuple):
    """Configure grading by a model; budgets None are unlimited."""

    endpoint: Endpoint
    answers: Path  # keeps what was answered
    guideline: Guideline | None = None  # None: qbe's own
    budget_requests: int | None = None
    budget_tokens: int | None = None
    parallel: int = 4
    merges: Merges = MappingProxyType({})  # of the grades written, not of the answers
    seed: int = 0  # shuffles the requests


class Labelled(NamedTuple):
    """Report a run."""

    graded: int
    problems: Mapping[Pair, str]  # why pairs failed
    stopped: str  # why the rest was not asked for, else empty
    requests: int  # spent in all
    tokens: int
    counts: Mapping[Facet, Counter[float]]  # of grades


def label(
    pairs: Sequence[Pair],
    papers: Mapping[str, Paper],
    output: Path,
    config: LabelConfig,
    *,
    approve: Callable[[Estimate], bool] = lambda _: True,
    progress: Callable[[int], object] = lambda _: None,
) -> Labelled | None:
    """Grade pairs by a model, and write those that have grades to ``output``.

    Answers in the file are not asked for again. Returns None, and asks nothing, where ``approve`` refuses the
    estimate. Raises ModelError where the endpoint stops answering or grades no pair; answers are kept.
    """
    order = list(pairs)
    random.Random(config.seed).shuffle(order)
    with (
        lock(config.answers.with_name(f".{config.answers.name}.lock")) as is_mine,
        Answers(config.answers) as answers,
    ):
        if not is_mine:
            raise OutputError(
                f"cannot write {config.answers}: another qbe label does; wait for it, or give other `answers`"
            )
        client = Client(config.endpoint, config.budget_requests, config.budget_tokens)
        client.requests_spent, client.tokens_spent = answers.spent()
        grader = Grader(client, answers, config.guideline, parallel=config.parallel)
        asked = [(papers[pair.query_id], papers[pair.paper_id]) for pair in order]
        if not approve(grader.estimate(asked)):
            return None
        outcome = grader.grade(asked, progress)
    found = {
        pair: merged(answer.grades, config.merges)
        for pair, answer in zip(order, outcome.answers, strict=True)
        if answer is not None
    }
    if not found:
        reason = outcome.stopped or next(iter(outcome.problems.values()))
        raise ModelError(f"expected grades of some pair by {config.endpoint.model}, found none: {reason}")
    graded = [pair for pair in pairs if pair in found]
    write_pairs(output, graded, [found[pair] for pair in graded])
    return Labelled(
        len(found),
        {order[place]: problem for place, problem in sorted(outcome.problems.items())},
        outcome.stopped,
        client.requests_spent,
        client.tokens_spent,
        {
            facet: Counter(grades[n] for grades in found.values() if not math.isnan(grades[n]))
            for n, facet in enumerate(Facet)
        },
    )


MOST_ASSESSORS = 100  # files in a folder: clients cannot make more

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


class Turn(NamedTuple):
    """Hold the next pair for an assessor (None at the end), and how many of ``total`` pairs have grades."""

    pair: Pair | None
    graded: int
    total: int


class HandGrades:
    """Hand out pairs to assessors, each in an order of their own, and keep grades in ``folder/NAME.tsv``.

    Threads may share it, and other processes may keep grades of the same pairs in the folder.
    """

    def __init__(self, pairs: Sequence[Pair], folder: Path) -> None:
        self._pairs = {(pair.query_id, pair.paper_id): pair for pair in pairs}
        self._folder = folder

    def turn(self, assessor: str, index: Container[str] | None = None) -> Turn:
        """Return what is next of pairs that an ``index`` has; raises UsageError for an invalid name."""
        given, order = self._grades_of(assessor), list(self._pairs)
        random.Random(assessor).shuffle(order)
        if index is not None:
            order = [key for key in order if key in given or (key[0] in index and key[1] in index)]
        left = [key for key in order if key not in given]
        return Turn(self._pairs[left[0]] if left else None, len(order) - len(left), len(order))

    def grade(
        self, assessor: str, query_id: str, paper_id: str, grades: Grades, index: Container[str] | None = None
    ) -> Turn:
        """Keep the grades of a pair in place of the assessor's earlier ones, and return what is next.

        Grades of pairs that are no longer handed out stay in the file. Raises UsageError for an unknown pair.
        """
        if (query_id, paper_id) not in self._pairs:
            raise UsageError(f"expected one of the pairs to be graded, found {query_id} and {paper_id}")
        self._grades_of(assessor)  # where there can be none, nothing is written
        with change_lock(self._folder / "grades"):
            given = {**self._grades_of(assessor), (query_id, paper_id): grades}
            path = self._folder / f"{assessor}.tsv"
            earlier = {pair[:2]: pair for pair in read_pairs(path)} if path.exists() else {}
            kept = {key: pair for key, pair in {**self._pairs, **earlier}.items() if key in given}
            write_pairs(path, list(kept.values()), [given[key] for key in kept], assessor)
            return self.turn(assessor, index)

    def _grades_of(self, assessor: str) -> dict[tuple[str, str], Grades]:
        if not _NAME.fullmatch(assessor):
            expected = "a name of at most 40 small letters, digits and hyphens"
            raise UsageError(f"expected {expected}, found {assessor[:60]!r}")
        path = self._folder / f"{assessor}.tsv"
        if path.exists():
            if next(read_fields(path, "\t"), (1, []))[1][-1:] != [ASSESSOR]:
                raise OutputError(f"{path}: expected grades by hand, found another file; choose another name")
            return read_grades(path)
        if len(list(self._folder.glob("*.tsv"))) >= MOST_ASSESSORS:
            raise UsageError(f"expected at most {MOST_ASSESSORS} assessors; use a name that is there")
        return {}


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
        advice = "give grades of the same pairs"
        raise FileFormatError(f"expected pairs that {first} and {second} share, found none; {advice}")
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
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places])


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
