"""Training of the facet tagger: teachers, soft labels, students.

Teachers, in which the encoder is fine-tuned too, are fitted to CSAbstruct's labels. In use they would need a
second pass over every paper; so they only predict probabilities (soft labels) for unlabelled abstracts.
Students, which are heads on the frozen encoder, are fitted to both: to the soft labels of many papers first,
then to the annotators' labels again (self-training with distillation; Hinton et al., 2015; Xie et al., 2020).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from qbe.encode.encoder import Encoder
from qbe.errors import ModelError
from qbe.files import atomic_file
from qbe.train.artifacts import checked, save_state
from qbe.train.tagger.csabstruct import LabelledAbstract
from qbe.train.tagger.fit import Example, Floats, Schedule, fit, one_hot, predict
from qbe.train.tagger.network import Head
from qbe.train.tagger.scores import Scores, score
from qbe.train.tagger.states import Tokens, record_states
from qbe.train.tagger.teacher import Teacher
from qbe.types import Paper, Sentence

log = logging.getLogger(__name__)
Model = TypeVar("Model", Head, Teacher)

TEACHER, SOFT, GOLD = Schedule(3, papers=8), Schedule(3), Schedule(3, learning_rate=3e-4)
"""The default schedules of a recipe."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the tagger is trained; the model's card says which data its choices were made on.

    The tagger reads these ``layers`` of the encoder (0: embeddings). ``teachers`` models label ``unlabelled``
    papers; a share ``untitled`` of them loses its title, as CSAbstruct has none. Schedules are those of the
    teachers, and of the students on soft labels (``soft``) and then on the annotators' (``gold``).
    ``sample_seed`` draws the unlabelled papers and those that lose their title.
    """

    layers: tuple[int, ...] = (0, 3, 6)
    teachers: int = 2
    teacher: Schedule = TEACHER
    unlabelled: int = 12_000
    untitled: float = 0.5
    soft: Schedule = SOFT
    gold: Schedule = GOLD
    sample_seed: int = 0


class Data:
    """Labelled and unlabelled papers as tokens and hidden states of the encoder."""

    def __init__(
        self,
        encoder: Encoder,
        recipe: Recipe,
        labelled: Mapping[str, Sequence[LabelledAbstract]],
        unlabelled: Sequence[Paper],
    ) -> None:
        """Encode every paper, which takes minutes."""
        self.encoder, self.labelled = encoder, labelled
        self.papers: dict[str, list[Tokens]] = {}
        for split, abstracts in labelled.items():
            papers = (Paper(split, "", tuple(map(Sentence, abstract.sentences))) for abstract in abstracts)
            self.papers[split] = record_states(encoder, recipe.layers, papers)
        rng = random.Random(recipe.sample_seed)
        titled = (
            Paper(paper.paper_id, "", paper.sentences) if rng.random() < recipe.untitled else paper
            for paper in unlabelled
        )
        self.unlabelled = record_states(encoder, recipe.layers, titled)
        log.info(
            "read %d labelled and %d unlabelled papers", sum(map(len, labelled.values())), len(unlabelled)
        )

    def examples(self, split: str) -> list[Example]:
        """A split's papers with its annotators' labels, each weighted by their confidence."""
        return [
            Example(paper, one_hot(abstract.labels), np.array(abstract.confidences, np.float32))
            for paper, abstract in zip(self.papers[split], self.labelled[split], strict=True)
        ]

    def scores(self, split: str, model: Head | Teacher) -> Scores:
        """Agreement of a model's labels with the annotators' on a split."""
        return score(self.labelled[split], list(predict(model, self.papers[split])))


def train_students(
    data: Data, weights: Path, recipe: Recipe, seeds: Sequence[int], work: Path
) -> dict[int, Head]:
    """Students by seed. Models that an interrupted call has finished are read from ``work``.

    ``weights`` is the folder of the encoder's PyTorch weights, from which teachers start. Raises ModelError
    where a part in ``work`` belongs to another recipe.
    """
    gold = data.examples("train")
    soft_labels = work / f"soft-{recipe.unlabelled}.npy"
    if not soft_labels.exists():
        teachers = [_teacher(data, weights, gold, recipe, number, work) for number in range(recipe.teachers)]
        streams = [predict(teacher, data.unlabelled) for teacher in teachers]
        means = [np.mean(rows, axis=0) for rows in zip(*streams, strict=True)]
        with atomic_file(soft_labels) as stream:
            np.save(stream, np.concatenate(means))
        log.info("the teachers have labelled %d papers", len(means))
    with checked(soft_labels, "the soft labels of this training"):
        labels: Floats = np.load(soft_labels)
    soft = _soft_examples(data.unlabelled, labels)
    return {seed: _student(data, soft, gold, recipe, seed, work) for seed in seeds}


def _student(
    data: Data, soft: Sequence[Example], gold: Sequence[Example], recipe: Recipe, seed: int, work: Path
) -> Head:
    torch.manual_seed(seed)
    student = Head(len(recipe.layers) * data.encoder.dimension)

    def train(student: Head) -> None:
        fit(student, [*soft, *gold], recipe.soft, seed, _log_epochs(f"student {seed}, soft labels"))
        fit(student, gold, recipe.gold, seed, _log_epochs(f"student {seed}, annotators' labels"))

    _train_once(work / f"student-{seed}.pt", student, train)
    log.info("student %d on dev: %s", seed, data.scores("dev", student))
    return student


def _teacher(
    data: Data, weights: Path, gold: Sequence[Example], recipe: Recipe, number: int, work: Path
) -> Teacher:
    seed = 1000 + number  # other seeds than the students'
    torch.manual_seed(seed)
    teacher = Teacher(weights, recipe.layers)

    def train(teacher: Teacher) -> None:
        fit(teacher, gold, recipe.teacher, seed, _log_epochs(f"teacher {number}"))

    _train_once(work / f"teacher-{number}.pt", teacher, train)
    log.info("teacher %d on dev: %s", number, data.scores("dev", teacher))
    return teacher


def _soft_examples(papers: Sequence[Tokens], labels: Floats) -> list[Example]:
    ends = np.cumsum([len(paper.spans) for paper in papers])
    if ends[-1] != len(labels):
        raise ModelError(
            f"expected soft labels of {ends[-1]:,} sentences, found {len(labels):,}; give another `work`"
        )
    parts = np.split(labels, ends[:-1])
    return [
        Example(paper, part, np.ones(len(part), np.float32))
        for paper, part in zip(papers, parts, strict=True)
    ]


def _train_once(path: Path, model: Model, train: Callable[[Model], None]) -> Model:
    """Load the model's weights from a file; where there is none, train it and write the file."""
    if not path.exists():
        train(model)
        save_state(path, model.state_dict())
    with checked(path, "a model of this recipe", "delete it, or give another `work`"):
        model.load_state_dict(torch.load(path, weights_only=True))
    model.eval()
    return model


def _log_epochs(name: str) -> Callable[[int, float], None]:
    return lambda epoch, loss: log.info("%s: epoch %d, loss %.3f", name, epoch, loss)
