"""Pairs graded by a language model, into a file that training reads."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from qbe.errors import ModelError, OutputError
from qbe.label.pairs import Merges, Pair, merged, write_pairs
from qbe.models.endpoint import Client, Endpoint
from qbe.models.language_model import Answers, Estimate, Grader, Guideline
from qbe.types import Facet, Paper
from qbe.util.files import lock


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
