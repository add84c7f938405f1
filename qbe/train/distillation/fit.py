"""Fitting the facet rerankers to a teacher's scores."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from qbe.errors import CorpusError
from qbe.graded_pairs import GradedLists
from qbe.train import fitting
from qbe.train.distillation.interaction import Layout, layout_of, token_terms, vector_terms
from qbe.train.distillation.loss import relational, soft_logistic
from qbe.train.distillation.recipe import Recipe
from qbe.train.distillation.teacher import Scored, Teacher
from qbe.train.fitting import Checkpoints, DevScore, LoopSettings, Progress
from qbe.train.reranker.fit import CandidateScorer, adamw, mean_spearman, score_lists

_FEWEST = 3
"""Papers that a step needs: one, and two candidates whose order is learned."""


def fit(
    scorer: CandidateScorer,
    papers: Papers,
    dev: GradedLists,
    recipe: Recipe,
    seed: int,
    checkpoints: Checkpoints,
) -> Progress:
    """Train the scorer's network by `qbe.train.fitting.fit`; its state after the last step is kept.

    What the papers of a step are follows from the seed and the number of the step.
    """
    settings = LoopSettings(1, recipe.clip, 1, recipe.warm_up, recipe.ema_decay)
    return fitting.fit(_Learner(scorer, papers, dev, recipe, seed), settings, seed, checkpoints)


class Papers:
    """The papers to learn from: their ids by the teacher's places, and which may be drawn (`usable`)."""

    def __init__(self, ids: Sequence[str], usable: Tensor, teacher: Teacher, recipe: Recipe) -> None:
        """Find the neighbours of all papers; raises CorpusError where fewer than three may be drawn."""
        self.ids, self.teacher, self._recipe = ids, teacher, recipe
        self._usable = torch.nonzero(usable)[:, 0].tolist()
        if len(self._usable) < _FEWEST:
            raise CorpusError(
                f"expected at least {_FEWEST} papers of the index to learn from, found {len(self._usable)}; "
                "give an index of more papers"
            )
        self._neighbours = teacher.neighbours(usable, min(recipe.neighbours, len(self._usable) - 1))
        self._kept: tuple[tuple[int, int], list[int]] | None = None

    def drawn(self, step: int, seed: int) -> list[int]:
        """The places of a step's papers: anchors, each with some of its neighbours by a facet, no paper
        twice. All papers become anchors before one does again.
        """
        recipe, rng = self._recipe, random.Random(f"{seed}-{step}")
        chosen: list[int] = []
        for number in range(recipe.anchors * step, recipe.anchors * (step + 1)):
            turn, place = divmod(number, len(self._usable))
            anchor = self._order(seed, turn)[place]
            near = self._neighbours[rng.randrange(len(self._neighbours)), anchor].tolist()
            chosen += [anchor, *rng.sample(near, min(recipe.others, len(near)))]
        return list(dict.fromkeys(chosen))

    def _order(self, seed: int, turn: int) -> list[int]:
        """The order in which papers become anchors for the ``turn``-th time (from 0)."""
        if self._kept is None or self._kept[0] != (seed, turn):
            order = random.Random(f"{seed}-{turn}").sample(self._usable, len(self._usable))
            self._kept = (seed, turn), order
        return self._kept[1]


class _Learner:
    """A scorer's network that is fitted to a teacher, for `qbe.train.fitting.fit`."""

    def __init__(
        self, scorer: CandidateScorer, papers: Papers, dev: GradedLists, recipe: Recipe, seed: int
    ) -> None:
        self.network: nn.Module = scorer.network
        self.steps_per_epoch = recipe.steps
        self._scorer, self._papers, self._dev = scorer, papers, dev
        self._recipe, self._seed = recipe, seed

    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW with a learning rate for each kind of parameters."""
        return adamw(self.network, self._recipe)

    def backward(self, step: int) -> Sequence[float]:
        """Compute the gradients of a step; its loss."""
        places = self._papers.drawn(step, self._seed)
        ids = [self._papers.ids[place] for place in places]
        layout = layout_of([self._scorer.papers[paper_id] for paper_id in ids])
        with torch.no_grad():
            teacher = self._papers.teacher.scored(places, layout)
        student = scored(self._scorer, ids, layout)
        others = ~torch.eye(layout.papers, dtype=torch.bool)
        loss = soft_logistic(_among(student, others), _among(teacher, others))
        cosines = relational(student.sentences, teacher.sentences, layout.places)
        (loss + self._recipe.relational * cosines).backward()  # type: ignore[no-untyped-call]
        return [loss.item()]

    def score(self) -> DevScore:
        """Mean correlation with the grades of dev."""
        correlations = mean_spearman(score_lists(self._scorer, self._dev), self._dev)
        text = " / ".join(f"{value:.4f}" for value in correlations)
        return DevScore(float(np.mean(correlations)), f"dev Spearman {text}")


def _among(scored: Scored, others: Tensor) -> Tensor:
    """The scores of each paper's candidates, which are all others: (3, papers, papers - 1)."""
    papers = len(others)
    return scored.scores[:, others].view(len(scored.scores), papers, papers - 1)


def scored(scorer: CandidateScorer, ids: Sequence[str], layout: Layout) -> Scored:
    """The scores of some papers with each other, as the scorer's network scores the candidates of a query."""
    network, papers = scorer.network, [scorer.papers[paper_id] for paper_id in ids]
    states = network.encode_upper([scorer.frozen_states(paper_id) for paper_id in ids])
    pooled = [paper.pooling.to(part.device) @ part for paper, part in zip(papers, states, strict=True)]
    parts = [
        torch.split(each, [paper.sentences, 1, 1, 1, 1]) for paper, each in zip(papers, pooled, strict=True)
    ]
    sentences, *of_facets, whole = (torch.cat(same) for same in zip(*parts, strict=True))
    tokens = token_terms(states, papers, network.token_weights, network.dtype)
    scores, projected = [], []
    for facet, matrix in enumerate(network.projections):
        vectors = (sentences, of_facets[facet], whole)
        unit, means, unit_whole = (F.normalize(part @ matrix.T, dim=-1) for part in vectors)
        terms = vector_terms(unit, means, unit_whole, layout, facet)
        every = torch.cat([terms, tokens[facet][None]])
        scores.append(torch.einsum("t,tqc->qc", network.weights[facet], every))
        projected.append(unit)
    return Scored(torch.stack(scores), projected)
