"""Training of the facet tagger: teachers, soft labels, students, and the published folder."""

from __future__ import annotations

import logging
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from qbe.corpus.titles import TitleIndex
from qbe.errors import ModelError
from qbe.models.cards import DEFAULT_TAGGER, HEAD, TaggerFiles, TaggerMetadata, staged_folder, write_card
from qbe.models.encoder import Encoder
from qbe.models.export.encoder import HeadInputs, export_head
from qbe.models.folders import BASE_ENCODER, ENCODERS, packaged_weights
from qbe.models.tagger import Tagger, span_mask
from qbe.train.artifacts import Folders, RunOptions, Sources, begin, load_arrays, save_arrays
from qbe.train.card import APACHE, Card, table
from qbe.train.tagger.data import (
    LABELS,
    LabelledAbstract,
    Tokens,
    read_csabstruct,
    record_states,
    sample_papers,
)
from qbe.train.tagger.fit import Example, Floats, Schedule, fit, one_hot, predict
from qbe.train.tagger.measure import Scores, measure, score
from qbe.train.tagger.network import Head, Teacher
from qbe.types import Paper, Sentence
from qbe.util.files import sha256

log = logging.getLogger(__name__)

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


DEFAULT_RECIPE = Recipe()


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

    def scores(self, split: str, model: Head) -> Scores:
        """Agreement of a model's labels with the annotators' on a split."""
        return score(self.labelled[split], list(predict(model, self.papers[split])))


def _train_students(
    data: Data, weights: Path, recipe: Recipe, seeds: Sequence[int], work: Path
) -> dict[int, Head]:
    """Students by seed; teachers start from the encoder's PyTorch weights in the folder ``weights``."""
    gold = data.examples("train")
    soft_labels = work / f"soft-{recipe.unlabelled}.npz"
    if not soft_labels.exists():
        teachers = [_teacher(weights, gold, recipe, number, work) for number in range(recipe.teachers)]
        streams = [predict(teacher, data.unlabelled) for teacher in teachers]
        means = [np.mean(rows, axis=0) for rows in zip(*streams, strict=True)]
        save_arrays(soft_labels, {"probabilities": np.concatenate(means)})
        log.info("the teachers have labelled %d papers", len(means))
    labels = load_arrays(soft_labels, "the soft labels", "probabilities")["probabilities"]
    soft = _soft_examples(data.unlabelled, labels)
    return {seed: _student(data, soft, gold, recipe, seed, work) for seed in seeds}


def _student(
    data: Data, soft: Sequence[Example], gold: Sequence[Example], recipe: Recipe, seed: int, work: Path
) -> Head:
    torch.manual_seed(seed)
    student = Head(len(recipe.layers) * data.encoder.dimension)
    fit(student, [*soft, *gold], recipe.soft, seed, work / f"student-{seed}-soft.pt")
    fit(student, gold, recipe.gold, seed, work / f"student-{seed}.pt")
    return student


def _teacher(weights: Path, gold: Sequence[Example], recipe: Recipe, number: int, work: Path) -> Teacher:
    seed = 1000 + number  # other seeds than the students'
    torch.manual_seed(seed)
    teacher = Teacher(weights, recipe.layers)
    fit(teacher, gold, recipe.teacher, seed, work / f"teacher-{number}.pt")
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


PARITY_PAPERS = 50
"""Papers of dev on which the exported model is compared with PyTorch."""


def train(
    sources: Sources,
    folders: Folders,
    run: RunOptions,
    *,
    recipe: Recipe = DEFAULT_RECIPE,
    encoder: str = BASE_ENCODER,
    weights: Path | None = None,
) -> TaggerMetadata:
    """Train the facet tagger from files, and publish it.

    ``sources`` are the folder of CSAbstruct's splits, a corpus of unlabelled papers, and papers to leave out.
    ``encoder`` is the name or folder of the encoder whose states the tagger reads, ``weights`` the folder of
    its PyTorch weights (None: the base encoder's). Training runs on the CPU. Raises CorpusError for data that
    cannot be read, ModelError where a check fails, OutputError where nothing can be written.
    """
    labelled = read_csabstruct(sources.train[0])
    evaluated = TitleIndex.of_corpus(sources.leave_out)
    papers = sample_papers(sources.corpus, evaluated, recipe.unlabelled, recipe.sample_seed)
    provenance = begin(sources, folders, run, recipe, encoder=encoder)
    data = Data(Encoder.open(encoder, threads=run.threads), recipe, labelled, papers)
    weights = weights or packaged_weights(ENCODERS[BASE_ENCODER])
    students = _train_students(data, weights, recipe, run.seeds, folders.work)
    return _publish(data, students, provenance, folders.output)


def _publish(
    data: Data, students: Mapping[int, Head], provenance: Mapping[str, Any], output: Path
) -> TaggerMetadata:
    """Export the student that is best on dev, evaluate the exported model on test, and write its folder.

    The folder (ONNX head, card, README.md) appears complete or not at all. Raises ModelError where the
    exported head does not agree with the original.
    """
    seeds = {
        seed: {split: data.scores(split, head) for split in ("dev", "test")}
        for seed, head in students.items()
    }
    best = max(seeds, key=lambda seed: seeds[seed]["dev"].confident)
    recipe = provenance["recipe"]
    with staged_folder(output) as staged:
        parity = export_head(students[best], _parity_inputs(data.papers["dev"]), staged / HEAD)
        chain = students[best].chain
        training: dict[str, Any] = {
            "recipe": recipe,
            "seed": best,
            "data": provenance["data"],
            "parity": parity,
            **_figures(seeds),
        }
        metadata = TaggerMetadata(
            name=DEFAULT_TAGGER,
            labels=LABELS,
            trunk={
                "name": data.encoder.files.metadata.name,
                "weights_sha256": data.encoder.files.metadata.weights_sha256,
            },
            layers=recipe["layers"],
            begin=chain.begin.tolist(),
            end=chain.end.tolist(),
            transitions=chain.transitions.tolist(),
            files={HEAD: sha256(staged / HEAD)},
            training=training,
        )
        scores = measure(data.encoder, Tagger(TaggerFiles(staged, metadata)), data.labelled["test"])
        training["test"] = scores.figures
        write_card(staged, metadata)
        _card(metadata, scores).write(staged)
    return metadata


def _card(metadata: TaggerMetadata, scores: Scores) -> Card:
    """The card; ``scores`` are the exported model's on CSAbstruct's test split."""
    training, trunk = metadata.training, metadata.trunk
    recipe, spread = training["recipe"], training["spread"]
    return Card(
        name=metadata.name,
        purpose=f"Labels each sentence of an abstract {', '.join(LABELS[:-1])} or {LABELS[-1]}. "
        f"{recipe['teachers']} teachers, in which the encoder is trained too, label "
        f"{recipe['unlabelled']:,} abstracts, from which the head on the frozen encoder learns.",
        input=f"token states of `{trunk['name']}` (weights {trunk['weights_sha256'][:12]}), layers "
        f"{', '.join(map(str, metadata.layers))}, in the pass that encodes a paper",
        figures=f"CSAbstruct's test split, int8: micro-F1 {scores.micro_f1:.2f} over five labels, "
        f"{scores.folded:.2f} with objective folded into background (Cohan et al., 2019, with SciBERT: 83.1 "
        f"over five). Seed {training['seed']} is the best of {len(training['seeds'])} on dev by the "
        f"annotators' confidence; standard deviation of the seeds {spread['micro_f1']:.2f} and "
        f"{spread['folded']:.2f}. int8 gives {training['parity']['int8_same_label']:.1%} of the sentences "
        "PyTorch's label.",
        table=table(
            ["seed", "split", "micro-F1", "folded", "by confidence"],
            (
                [str(seed), split, *figures.values()]
                for seed, splits in training["seeds"].items()
                for split, figures in splits.items()
            ),
            places=2,
        ),
        data=training["data"],
        command="tagger",
        licence=f"{APACHE}; derived from {trunk['name']} (same licence)",
    )


def _figures(seeds: Mapping[int, Mapping[str, Scores]]) -> dict[str, Any]:
    """The scores of each seed, and their standard deviation on test."""
    return {
        "seeds": {
            seed: {split: scores.figures for split, scores in splits.items()}
            for seed, splits in seeds.items()
        },
        "spread": {
            name: statistics.pstdev(getattr(splits["test"], name) for splits in seeds.values())
            for name in ("micro_f1", "folded")
        },
    }


def _parity_inputs(papers: Sequence[Tokens]) -> list[HeadInputs]:
    return [
        HeadInputs(
            np.ascontiguousarray(paper.states.swapaxes(0, 1)),
            span_mask(paper.spans, len(paper.ids)),
        )
        for paper in papers[:PARITY_PAPERS]
    ]
