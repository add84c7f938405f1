"""Distillation of the facet rerankers, which the facet encoder is made of, from an index of a larger encoder.

All papers of a batch are compared with each other: each is a query, the others are candidates. The teacher's
scores are computed from stored vectors, those of the rerankers from their states.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from qbe.corpus.titles import TitleIndex
from qbe.errors import CorpusError
from qbe.index.opening import open_index
from qbe.index.views import rows_of
from qbe.models.encode.tokenizer import PaperTokenizer
from qbe.models.kinds import TOKENIZER
from qbe.runs import read_graded_pairs
from qbe.search.projections import WEIGHTS, FacetProjection, find_model, read_model
from qbe.train.artifacts import RunOptions, Sources, begin, read_provenance, save_state
from qbe.train.correlation import check_dev
from qbe.train.late_interaction import ProjectedPapers, StoredVectors, vector_terms
from qbe.train.pairs import encoder_of, within
from qbe.train.reranker.network import FACETS, Network
from qbe.train.reranker.papers import Layout, layout_of, tokenize
from qbe.train.reranker.task import CandidateScorer, NetworkRecipe, adamw
from qbe.train.reranker.training import Kept, base_weights, figures_on_dev
from qbe.train.trainer import Schedule, fit_seeds, matmul_dtype
from qbe.train.weights import PUBLISHED, Weights, best_weights, interpolated
from qbe.types import Facet, Paper
from qbe.util.files import sha256

log = logging.getLogger(__name__)

_BLOCK = 1024
"""How many papers are compared with all at once when neighbours are looked for."""


class Scored(NamedTuple):
    """``scores`` (3, papers, papers) of each paper, in rows, with each, by facet, and for each facet the
    projected ``sentences`` (sentences, dimension), of unit length.
    """

    scores: Tensor
    sentences: Sequence[Tensor]


class Teacher:
    """Scores papers with each other by projections of their vectors (`qbe.search.projections`)."""

    def __init__(self, vectors: StoredVectors, projections: Mapping[Facet, FacetProjection]) -> None:
        """``projections`` by facet: matrices (dimension, dimension) and weights (4,)."""
        self._vectors = vectors
        ordered = [projections[facet] for facet in FACETS]
        self._matrices = torch.tensor(np.stack([each.matrix for each in ordered]), dtype=torch.float32)
        self._weights = torch.tensor(np.stack([each.weights for each in ordered]), dtype=torch.float32)

    def neighbours(self, usable: Tensor, count: int) -> Tensor:
        """For each facet and each paper the ``count`` most similar ones, by the projections of whole papers:
        (3, papers, count) int64.

        Only papers that are ``usable`` (papers,) bool are neighbours, and none is its own.
        """
        nearest = []
        for matrix in self._matrices:
            whole = F.normalize(self._vectors.whole @ matrix.T, dim=-1)
            blocks = []
            for first in range(0, len(whole), _BLOCK):
                cosines = whole[first : first + _BLOCK] @ whole.T
                cosines[:, ~usable] = -torch.inf
                rows = torch.arange(len(cosines))
                cosines[rows, rows + first] = -torch.inf
                blocks.append(cosines.topk(count, dim=1).indices)
            nearest.append(torch.cat(blocks))
        return torch.stack(nearest)

    def scored(self, papers: Sequence[int], layout: Layout) -> Scored:
        """The scores of some papers, given by their places; of each the first sentences, as many as the
        ``layout`` has, are compared.
        """
        places = torch.tensor(papers)
        projected = [
            ProjectedPapers.of(self._vectors, places, layout.counts, marked, matrix)
            for marked, matrix in zip(layout.marked, self._matrices, strict=True)
        ]
        scores = [
            torch.einsum("t,tqc->qc", weights, vector_terms(each, each))
            for weights, each in zip(self._weights, projected, strict=True)
        ]
        return Scored(torch.stack(scores), [each.sentences for each in projected])


def scored(scorer: CandidateScorer, ids: Sequence[str]) -> Scored:
    """The scores of some papers with each other by the scorer's network, where none attends to another."""
    frozen_states = [scorer.frozen_states(paper_id) for paper_id in ids]
    states = scorer.network.encode_upper(frozen_states, separate=True)
    papers = scorer.network.encoded([scorer.papers[paper_id] for paper_id in ids], states)
    return Scored(
        scorer.network.compared(papers, papers), [projected.sentences for projected in papers.facets]
    )


SHARE = 0.5
"""The share of the trained weights in those that are kept: the middle, as Wortsman et al. advise."""
INTERPOLATED = "interpolated"
"""The name of weights between those at the start and the mean of the seeds."""
_FEWEST = 3
"""Papers that a step needs: one, and two candidates whose order is learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(NetworkRecipe):
    """How the facet rerankers are distilled.

    Each of the ``steps`` has ``anchors`` papers and with each of them ``others`` papers, drawn from the
    ``neighbours`` that are most similar to it by one facet of the teacher. All papers of a step are scored
    for all others. ``relational`` is the weight of the loss of cosines (`relational`).
    """

    steps: int = 650
    anchors: int = 2
    others: int = 11
    neighbours: int = 64
    learning_rate: float = 8e-5
    head_rate: float = 1e-4
    weight_rate: float = 1e-2
    warm_up: float = 0.05
    ema_decay: float = 0.99
    relational: float = 5.0

    def schedule(self) -> Schedule:
        """The trainer's part of the recipe: all steps are one epoch."""
        return Schedule(1, self.clip, warm_up=self.warm_up, ema_decay=self.ema_decay)


DEFAULT_RECIPE = Recipe()


def train(
    sources: Sources,
    work: Path,
    run: RunOptions,
    *,
    start: str | Path,
    projections: str | Path | None = None,
    weights: Path | None = None,
    recipe: Recipe = DEFAULT_RECIPE,
) -> Kept:
    """Train facet rerankers on the scores of a teacher.

    ``sources.index`` holds the papers and the vectors of a larger encoder, ``projections`` is the folder of
    the facet projections that score these (None: those that ship for that encoder). ``start`` is the work
    folder of the training of the rerankers that learn, ``weights`` that of the BERT encoder that they were
    made of (None: the base encoder's). The queries of dev and papers with a title like that of one in
    ``leave_out`` are not learned from; of dev only what the index holds of the first file is measured.
    The folder ``work`` keeps (PUBLISHED) weights between those at the start and the mean of the seeds
    (SHARE): what was learned of graded pairs before is kept in part (Wortsman et al., *Robust fine-tuning of
    zero-shot models*, CVPR 2022). Raises CorpusError where the index holds nothing of dev that a correlation
    can be computed with, and where it has too few papers to learn from, IndexFormatError for an index without
    vectors, ModelError where ``start`` is no such folder or a check fails, OutputError where nothing can be
    written, UsageError for vectors that the projections do not read. It runs on the CPU.
    """
    weights = weights or base_weights()
    initial = best_weights(Path(start) / PUBLISHED)
    papers, teacher, identity = _read_index(sources.index, projections, run.threads)
    lists = [read_graded_pairs(file) for file in sources.dev]
    dev = within(lists[0], papers)
    check_dev(dev, sources.dev[0])
    begin(sources, work, run, recipe, teacher=identity, start=read_provenance(Path(start)))
    tokenizer = PaperTokenizer(weights / TOKENIZER)
    tokenized = {name: tokenize(paper, tokenizer, recipe.max_tokens) for name, paper in papers.items()}
    queries, evaluated = {query for each in lists for query in each}, TitleIndex.of_corpus(sources.leave_out)
    usable = torch.tensor(
        [name not in queries and not evaluated.holds(paper.title) for name, paper in papers.items()]
    )
    log.info("learning from %d of %d papers", int(usable.sum()), len(papers))
    network = Network(weights, recipe.joint, matmul_dtype("cpu"))
    scorer, drawn = CandidateScorer(network, tokenized), Papers(list(papers), usable, teacher, recipe)

    def task(_: int) -> DistillationTask:
        network.load_state_dict(dict(initial), strict=False)
        return DistillationTask(scorer, drawn, recipe)

    trained: dict[str, Weights] = {**fit_seeds(task, recipe.schedule(), run.seeds, work)}
    trained[INTERPOLATED] = interpolated(initial, list(trained.values())[-1], SHARE)
    save_state(work / PUBLISHED, {"best": trained[INTERPOLATED]})
    return Kept(INTERPOLATED, figures_on_dev(scorer, {"start": initial, **trained}, dev))


def _read_index(
    folder: Path, projections: str | Path | None, threads: int
) -> tuple[dict[str, Paper], Teacher, dict[str, Any]]:
    """The papers by id, the teacher that scores them, and its identity, for the note in the work folder."""
    with open_index(folder, threads=threads) as index, index.reading() as reader:
        encoder = encoder_of(reader)
        model = find_model(encoder, None if projections is None else Path(projections))
        identity = {
            "encoder": encoder,
            "projections": sha256(model / WEIGHTS),
            "index": reader.manifest.digest,
        }
        papers = {paper.paper_id: paper for paper in reader}
        rows = rows_of(reader.papers, list(papers))
        block, whole = reader.vector_store.gather(rows), reader.vector_store.whole(rows)
    return papers, Teacher(StoredVectors.of_block(block, whole), read_model(model).projections), identity


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


class DistillationTask:
    """A scorer's network that is fitted to a teacher, for `qbe.train.trainer.fit`."""

    def __init__(self, scorer: CandidateScorer, papers: Papers, recipe: Recipe) -> None:
        self.network: nn.Module = scorer.network
        self.steps_per_epoch = recipe.steps
        self._scorer, self._papers, self._recipe = scorer, papers, recipe

    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW with a learning rate for each kind of parameters."""
        return adamw(self.network, self._recipe)

    def batches(self, seed: int) -> Iterator[list[int]]:
        """The places of each step's papers."""
        return (self._papers.drawn(step, seed) for step in range(self.steps_per_epoch))

    def losses(self, batch: Sequence[int]) -> Iterable[Tensor]:
        """The divergence from the teacher's scores, and that from its cosines."""
        ids = [self._papers.ids[place] for place in batch]
        layout = layout_of([self._scorer.papers[paper_id] for paper_id in ids])
        with torch.no_grad():
            teacher = self._papers.teacher.scored(batch, layout)
        student = scored(self._scorer, ids)
        loss = soft_logistic(_of_others(student.scores), _of_others(teacher.scores))
        yield loss + self._recipe.relational * relational(student.sentences, teacher.sentences, layout.places)

    def score(self) -> None:
        """The weights of the last step are kept."""


def _of_others(scores: Tensor) -> Tensor:
    """Of scores (3, papers, papers) those of each paper's candidates, all others: (3, papers, papers - 1)."""
    papers = scores.shape[1]
    return scores[:, ~torch.eye(papers, dtype=torch.bool)].view(len(scores), papers, papers - 1)


def soft_logistic(scores: Tensor, teacher: Tensor) -> Tensor:
    """RankNet with the teacher's probabilities as targets: the mean over all pairs of candidates.

    ``scores`` and ``teacher`` (..., candidates). A candidate is better than another with the probability of
    the sigmoid of their difference (Burges et al., 2005, eq. 3). The loss is the Kullback-Leibler divergence
    of the student's probabilities from the teacher's: 0 where all differences are the same.

    >>> soft_logistic(torch.tensor([1.0, 0.0]), torch.tensor([3.0, 2.0]))
    tensor(0.)
    >>> from math import log
    >>> apart = torch.tensor([log(3.0), 0.0])  # 3/4 log(3/2) + 1/4 log(1/2), in 2 of 4 ordered pairs
    >>> soft_logistic(torch.zeros(2), apart)
    tensor(0.0654)
    """
    differences = scores[..., :, None] - scores[..., None, :]
    target = teacher[..., :, None] - teacher[..., None, :]
    probabilities = torch.sigmoid(target)

    def cross_entropy(logits: Tensor) -> Tensor:
        return F.softplus(logits) - probabilities * logits

    return (cross_entropy(differences) - cross_entropy(target)).mean()


def relational(student: Sequence[Tensor], teacher: Sequence[Tensor], places: Tensor) -> Tensor:
    """The mean squared difference of the cosines of sentences of different papers (Park et al., 2019,
    *Relational knowledge distillation*, with cosines as the relation).

    For each facet ``student`` and ``teacher`` have vectors of unit length (sentences, dimension), whose
    dimensions may differ; ``places`` (sentences,) int64 is the paper of each sentence.

    >>> axes = torch.eye(2)
    >>> relational([axes], [axes[[0, 0]]], torch.tensor([0, 1]))  # (0 - 1) ** 2
    tensor(1.)
    """
    different = places[:, None] != places[None, :]
    errors = [
        ((left @ left.T - right @ right.T)[different] ** 2).mean()
        for left, right in zip(student, teacher, strict=True)
    ]
    return torch.stack(errors).mean()
