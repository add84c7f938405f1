"""Training of the facet tagger, from data and seed to what is published.

Teachers, in which the encoder itself learns, are fitted to CSAbstruct's labels. They would cost a second
pass over every paper, so they do not ship: they label abstracts that nobody has labelled, and students,
which are heads on the frozen encoder, learn from both: soft labels of many papers first, then the
annotators' again (self-training with distillation; Hinton et al., 2015; Xie et al., 2020).
"""

from __future__ import annotations

import logging
import pickle
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from qbe.encode.encoder import Encoder
from qbe.errors import ModelError
from qbe.files import atomic_file
from qbe.train.tagger.csabstruct import LabelledAbstract
from qbe.train.tagger.fit import Example, Floats, Schedule, fit, one_hot, predict
from qbe.train.tagger.network import Head
from qbe.train.tagger.scores import Scores, score
from qbe.train.tagger.states import Tokens, record
from qbe.train.tagger.teacher import Teacher
from qbe.types import Paper, Sentence

log = logging.getLogger(__name__)
Model = TypeVar("Model", Head, Teacher)


class Recipe(NamedTuple):
    """How the tagger is trained; what was chosen on which data stands in the model's card.

    ``layers`` of the encoder are read (0: embeddings). ``unlabelled`` papers are labelled by
    ``teachers`` models; a part ``untitled`` of them is read without its title, as CSAbstruct has none.
    """

    layers: tuple[int, ...] = (0, 3, 6)
    teachers: int = 2
    teacher: Schedule = Schedule(epochs=3, papers=8)
    unlabelled: int = 12_000
    untitled: float = 0.5
    soft: Schedule = Schedule(epochs=3)
    gold: Schedule = Schedule(epochs=3, learning_rate=3e-4)
    sample_seed: int = 0


class Data:
    """All that is learned from and measured on, as the encoder sees it."""

    def __init__(
        self,
        encoder: Encoder,
        recipe: Recipe,
        labelled: Mapping[str, Sequence[LabelledAbstract]],
        unlabelled: Sequence[Paper],
    ) -> None:
        """Run every paper through the encoder, which takes minutes."""
        self.encoder, self.labelled = encoder, labelled
        self.papers: dict[str, list[Tokens]] = {}
        for split, abstracts in labelled.items():
            papers = (Paper(split, "", tuple(map(Sentence, abstract.sentences))) for abstract in abstracts)
            self.papers[split] = record(encoder, recipe.layers, papers)
        choice = random.Random(recipe.sample_seed)
        read = (
            Paper(paper.paper_id, "", paper.sentences) if choice.random() < recipe.untitled else paper
            for paper in unlabelled
        )
        self.unlabelled = record(encoder, recipe.layers, read)
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
        """How well a model's labels of a split's papers agree with the annotators'."""
        return score(self.labelled[split], list(predict(model, self.papers[split])))


def train_students(
    data: Data, weights: Path, recipe: Recipe, seeds: Sequence[int], work: Path
) -> dict[int, Head]:
    """Students by seed. What an interrupted call has finished is read from ``work``.

    ``weights`` is the folder of the encoder's PyTorch weights, from which teachers start. Raises ModelError
    where a part found in ``work`` belongs to another recipe.
    """
    gold = data.examples("train")
    soft_labels = work / f"soft-{recipe.unlabelled}.npy"
    if not soft_labels.exists():
        teachers = [_teacher(data, weights, gold, recipe, number, work) for number in range(recipe.teachers)]
        streams = [predict(teacher, data.unlabelled) for teacher in teachers]
        together = [np.mean(found, axis=0) for found in zip(*streams, strict=True)]
        with atomic_file(soft_labels) as stream:
            np.save(stream, np.concatenate(together))
        log.info("the teachers have labelled %d papers", len(together))
    soft = _soft_examples(data.unlabelled, np.load(soft_labels))

    return {seed: _student(data, soft, gold, recipe, seed, work) for seed in seeds}


def _student(
    data: Data, soft: Sequence[Example], gold: Sequence[Example], recipe: Recipe, seed: int, work: Path
) -> Head:
    torch.manual_seed(seed)
    student = Head(len(recipe.layers) * data.encoder.dimension)

    def study(student: Head) -> None:
        fit(student, [*soft, *gold], recipe.soft, seed, _tell(f"student {seed}, soft labels"))
        fit(student, gold, recipe.gold, seed, _tell(f"student {seed}, annotators' labels"))

    _once(work / f"student-{seed}.pt", student, study)
    log.info("student %d on dev: %s", seed, data.scores("dev", student))
    return student


def _teacher(
    data: Data, weights: Path, gold: Sequence[Example], recipe: Recipe, number: int, work: Path
) -> Teacher:
    seed = 1000 + number  # apart from the students'
    torch.manual_seed(seed)
    teacher = Teacher(weights, recipe.layers)

    def study(teacher: Teacher) -> None:
        fit(teacher, gold, recipe.teacher, seed, _tell(f"teacher {number}"))

    _once(work / f"teacher-{number}.pt", teacher, study)
    log.info("teacher %d on dev: %s", number, data.scores("dev", teacher))
    return teacher


def _soft_examples(papers: Sequence[Tokens], labels: Floats) -> list[Example]:
    ends = np.cumsum([len(paper.spans) for paper in papers])
    if ends[-1] != len(labels):
        raise ModelError(
            f"expected soft labels of {ends[-1]:,} sentences, found {len(labels):,}; give another --work"
        )
    parts = np.split(labels, ends[:-1])
    return [
        Example(paper, part, np.ones(len(part), np.float32))
        for paper, part in zip(papers, parts, strict=True)
    ]


def _once(path: Path, model: Model, study: Callable[[Model], None]) -> Model:
    """The model as it stands in a file, or after its study, which fills the file."""
    if not path.exists():
        study(model)
        torch.save(model.state_dict(), path.with_suffix(".partial"))
        path.with_suffix(".partial").replace(path)
    try:
        model.load_state_dict(torch.load(path, weights_only=True))
    except (RuntimeError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
        reason = next(iter(str(error).splitlines()), "no model")
        raise ModelError(
            f"{path}: expected a model of this recipe, found {reason}; give another --work"
        ) from error
    model.eval()
    return model


def _tell(name: str) -> Callable[[int, float], None]:
    return lambda epoch, loss: log.info("%s: epoch %d, loss %.3f", name, epoch, loss)
