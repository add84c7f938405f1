"""A language model behind an endpoint as a reranker: a candidate's score is its grade."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

from qbe.errors import ModelError
from qbe.models.language_model import Answer, Grader, PaperPair
from qbe.query import Aspect
from qbe.search.rerank.reranker import Progress, RerankRequest, RerankScore
from qbe.types import Facet, Paper

log = logging.getLogger("qbe.search.rerank")


class LanguageModelReranker:
    """Scores candidates by the grades, from 0 to 3, that a language model gives them: that of an aspect's
    facet, for an abstract or picked sentences the mean of all three.

    A candidate whose grade cannot be had gets the mean of the others' scores, so that the first stage places
    it, and a warning says so.
    """

    needs_vectors = False
    takes_whole_abstracts = True

    def __init__(self, grader: Grader) -> None:
        self._grader = grader
        self.name = grader.client.endpoint.model

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.search.rerank.reranker.Reranker.batch_score`; raises ModelError where the model grades none of
        the candidates, and what `Grader.grade` does.
        """
        pairs = [
            PaperPair(query, paper)
            for aspect, papers in ((each.query.aspect, each.papers) for each in requests)
            for query in [_shown(aspect)]
            for paper in papers
        ]
        outcome = self._grader.grade(pairs, progress)
        if outcome.problems:
            place, problem = min(outcome.problems.items())
            if not any(outcome.answers):
                raise ModelError(f"{self.name} grades none of the papers: {problem}; choose another `rerank`")
            count = len({pairs[place].candidate.paper_id for place in outcome.problems})
            log.warning(
                "%s does not grade %s, such as %s (%s): the first stage places what has no grade",
                *(self.name, "1 paper" if count == 1 else f"{count} papers"),
                *(pairs[place].candidate.paper_id, problem),
            )
        answers = iter(outcome.answers)
        return [
            _scores(request.query.aspect.facet, [next(answers) for _ in request.papers])
            for request in requests
        ]


def _shown(aspect: Aspect) -> Paper:
    """The paper of an aspect as the model sees it: of picked sentences, with these alone."""
    if aspect.positions is None:
        return aspect.paper
    sentences = aspect.paper.sentences
    picked = tuple(sentences[position] for position in aspect.selected_positions())
    return dataclasses.replace(aspect.paper, sentences=picked, offsets=None)


def _scores(facet: Facet | None, answers: Sequence[Answer | None]) -> list[RerankScore]:
    def score(answer: Answer) -> float:
        grades = answer.grades if facet is None else [answer.grades[list(Facet).index(facet)]]
        return sum(grades) / len(grades)

    known = [score(answer) for answer in answers if answer is not None]
    middle = sum(known) / len(known) if known else 0.0
    return [
        RerankScore(middle)
        if answer is None
        else RerankScore(score(answer), grades=dict(zip(map(str, Facet), answer.grades, strict=True)))
        for answer in answers
    ]
