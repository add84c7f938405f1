"""Pairs graded by a language model, into a file that training reads."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from qbe.errors import ModelError, OutputError
from qbe.label.pairs import Merges, Pair, merged, write_pairs
from qbe.models.language_model import Answers, Budget, Client, Endpoint, Estimate, Grader, Outcome, PaperPair
from qbe.types import Facet, Paper
from qbe.util.files import lock


class LabelConfig(NamedTuple):
    """How pairs are graded: by which model, after which ``guideline`` (None: qbe's own), within what budget
    (None: any); ``answers`` is the file that keeps what was answered, ``parallel`` the number of requests
    under way at a time, ``seed`` that of their order. ``merges`` are applied to the grades that are written,
    not to the answers kept.
    """

    endpoint: Endpoint
    answers: Path
    guideline: str | None = None
    budget_requests: int | None = None
    budget_tokens: int | None = None
    parallel: int = 4
    merges: Merges = MappingProxyType({})
    seed: int = 0


class Labelled(NamedTuple):
    """What came of it: how many pairs have grades now, those asked for in vain and why, ``stopped``, why the
    others were not asked for (empty: all were), requests and tokens spent in all, and how often each grade
    was given.
    """

    graded: int
    problems: Mapping[Pair, str]
    stopped: str
    requests: int
    tokens: int
    counts: Mapping[Facet, Counter[float]]


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

    The model sees the texts of ``papers`` alone, pair by pair, in an order that is shuffled by the seed. What
    is in the file of answers already is not asked for again. Where ``approve`` refuses the estimate, nothing
    is asked, and None is returned. Raises ModelError where the endpoint answers no more, or grades no pair,
    and OutputError where answers cannot be kept or another process writes them; what was answered by then is
    kept.
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
        budget = Budget(config.budget_requests, config.budget_tokens)
        budget.add(answers.requests, answers.tokens)
        client = Client(config.endpoint, budget)
        grader = Grader(client, answers, config.guideline, parallel=config.parallel)
        asked = [PaperPair(papers[pair.query_id], papers[pair.paper_id]) for pair in order]
        if not approve(grader.estimate(asked)):
            return None
        outcome = grader.grade(asked, progress)
    found = {
        pair: [merged(grade, config.merges) for grade in answer.grades]
        for pair, answer in zip(order, outcome.answers, strict=True)
        if answer is not None
    }
    if not found:
        reason = outcome.stopped or next(iter(outcome.problems.values()))
        raise ModelError(f"expected grades of some pair by {config.endpoint.model}, found none: {reason}")
    graded = [pair for pair in pairs if pair in found]
    write_pairs(output, graded, [found[pair] for pair in graded])
    return _labelled(order, outcome, budget, found)


def _labelled(
    order: Sequence[Pair], outcome: Outcome, budget: Budget, found: Mapping[Pair, Sequence[float]]
) -> Labelled:
    counts = {facet: Counter(grades[n] for grades in found.values()) for n, facet in enumerate(Facet)}
    problems = {order[place]: problem for place, problem in sorted(outcome.problems.items())}
    return Labelled(len(found), problems, outcome.stopped, budget.requests_spent, budget.tokens_spent, counts)
