"""Training of joint grades, from graded pairs and an index of their papers to the published folder."""

from __future__ import annotations

import itertools
import json
import logging
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from qbe.index.index import Index
from qbe.index.opening import open_index
from qbe.index.reader import IndexReader
from qbe.models.encode.tokenizer import PaperTokenizer
from qbe.models.export.joint import export_joint
from qbe.models.export.staging import staged_folder
from qbe.models.grade.model import on_scale
from qbe.models.kinds import TOKENIZER
from qbe.models.large import LARGE, weights_folder
from qbe.models.reranker_files import JOINT, JOINT_MODEL, JointCard, write_joint_card
from qbe.query import SHAPES, SIMILAR_FROM, Query
from qbe.runs import GradedLists, GradedPair, read_graded_pairs
from qbe.search.grading import GradedQuery, Grader, open_grader
from qbe.search.rerankers import JointGrader
from qbe.search.session import Pipeline
from qbe.search.stages import Fused
from qbe.train.artifacts import Folders, RunOptions, Sources, begin, checked, load_arrays, save_arrays
from qbe.train.card import APACHE, GRADES_LIMITS, Card, facet_table
from qbe.train.heads import platt
from qbe.train.joint.network import HEAD, JointNetwork, Texts, grades_of, head_scores
from qbe.train.joint.task import FitRecipe, JointRecipe, JointTask, graded
from qbe.train.pairs import held_by, joined_lists, papers_of, within, without, without_evaluated
from qbe.train.reranker.base import interpolated_encoder
from qbe.train.reranker.training import base_weights
from qbe.train.trainer import fit_seeds, matmul_dtype
from qbe.train.weights import Weights, copied
from qbe.types import Facet, Paper
from qbe.util.files import sha256, write_text
from qbe.util.parallel import Workers

log = logging.getLogger(__name__)
DEFAULT_RECIPE = JointRecipe()
WEIGHTS = "model.safetensors"

Doubles = NDArray[np.float64]


def train(
    sources: Sources,
    folders: Folders,
    run: RunOptions,
    *,
    recipe: JointRecipe = DEFAULT_RECIPE,
    bases: tuple[Path, Path] | None = None,
) -> Mapping[str, Sequence[float]]:
    """Train joint grades, calibrate their chances on the last file of dev, measure on each, and publish them.

    ``sources`` are files of graded pairs, an index of their papers, and papers to leave out; queries of dev
    are not trained on. A teacher is made of the first of the ``bases`` (None: the large encoder) and of the
    graded pairs; it grades pairs of papers of the index; of both the student is made, of the second (None:
    the base encoder). Of several seeds the mean is published. Returns the root mean squared errors of grades
    by facet, by file and what graded. Raises FileFormatError for pairs that cannot be read, IndexFormatError
    for an index without vectors, CorpusError where pairs are too few, ModelError where a check fails,
    OutputError where nothing can be written.
    """
    dtype = matmul_dtype(run.device)
    teacher, student = bases or (weights_folder(LARGE), base_weights())
    with open_index(sources.index, threads=run.threads) as index, index.reading() as reader:
        reader.require_vectors()
        digests = {"teacher_base": sha256(teacher / WEIGHTS), "student_base": sha256(student / WEIGHTS)}
        provenance = begin(sources, folders, run, recipe, index=reader.manifest.digest, **digests)
        dev = {
            f"{file.parent.name}/{file.name}": within(lists, held_by(reader, papers_of(lists)))
            for file in sources.dev
            for lists in [read_graded_pairs(file)]
        }
        evaluated = frozenset(query for lists in dev.values() for query in lists)
        lists = without(joined_lists(sources.train), evaluated)
        lists = without_evaluated(within(lists, held_by(reader, papers_of(lists))), reader, sources.leave_out)
        drawn = _drawn(index, reader, recipe, {*lists, *evaluated}, sources.leave_out, folders.work)
        read = {*papers_of(lists, *dev.values()), *drawn, *itertools.chain.from_iterable(drawn.values())}
        papers = {name: reader.paper(name) for name in sorted(read)}

        def fitted(base: Path, part: FitRecipe, name: str, *sets: GradedLists) -> tuple[JointNetwork, Texts]:
            network = JointNetwork(base, dtype).to(run.device)
            texts, start = Texts(papers, PaperTokenizer(base / TOKENIZER)), copied(network)

            def task(_: int) -> JointTask:
                network.load_state_dict(start, strict=False)
                return JointTask(network, texts, part, sets)

            *_, weights = fit_seeds(task, part.schedule(), run.seeds, folders.work / name).values()
            network.load_state_dict(dict(weights), strict=False)
            return network, texts

        kept = folders.work / "teacher-grades.npz"
        if not kept.exists():
            network, texts = fitted(teacher, recipe.teacher, "teacher", lists)
            save_arrays(kept, {"grades": np.concatenate([*graded(network, texts, drawn).values()])})
        taught = _taught(drawn, load_arrays(kept, "the teacher's grades", "grades")["grades"])
        log.info("training on %d graded lists and %d of the teacher's", len(lists), len(taught))
        network, _ = fitted(student, recipe.student, "student", lists, taught)
        with staged_folder(folders.output) as staged:
            parity = _exported(student, copied(network), staged)
            unfinished = JointCard(
                files={
                    JOINT_MODEL: sha256(staged / JOINT_MODEL),
                    TOKENIZER: sha256(student / TOKENIZER),
                },
                chances=[[0.0, 1.0]] * len(Facet),
                parity=parity,
                training={},
            )
            write_joint_card(staged, unfinished)
            with Workers(run.threads) as workers:
                stored, joint = open_grader(index, reader), JointGrader(staged, workers)
                compared = {name: _compared(reader, stored, joint, some) for name, some in dev.items()}
            calibrating, last = list(compared.items())[-1]
            training = {
                **json.loads(json.dumps(provenance)),
                "seeds": list(run.seeds),
                "pairs": sum(map(len, lists.values())),
                "taught": sum(map(len, taught.values())),
                "calibrated": calibrating,
            }
            lines = [
                platt(last.mean[:, place], (last.grades[:, place] >= SIMILAR_FROM).astype(np.float64))
                for place in range(len(Facet))
            ]
            card = replace(unfinished, chances=lines, training=training)
            write_joint_card(staged, card)
            figures = {f"{name} | {by}": each for name, of in compared.items() for by, each in of.errors()}
            _card(card, figures).write(staged)
    return figures


def _drawn(
    index: Index, reader: IndexReader, recipe: JointRecipe, known: set[str], leave_out: Path, work: Path
) -> dict[str, list[str]]:
    """Candidates by query, drawn out of its rankings; of queries that are not ``known``."""
    kept = work / "drawn.json"
    if not kept.exists():
        rng, lists = random.Random(0), dict[str, list[str]]()
        names = [name for name in reader.papers.ids if name not in known]
        grader = open_grader(index, reader)
        with Pipeline(index, Fused()) as pipeline:
            for place, name in enumerate(rng.sample(names, min(recipe.found + recipe.graded, len(names)))):
                rankings, picks = _rankings(pipeline, reader.paper(name), recipe.depth), recipe.found_picks
                if place >= recipe.found:
                    rankings, picks = _graded_rankings(reader, grader, name, rankings), recipe.graded_picks
                found = dict[str, None]()
                for ranking in rankings:
                    begin = 0
                    for end, count in picks:
                        among = [each for each in ranking[begin:end] if each not in known]
                        found |= dict.fromkeys(rng.sample(among, min(count, len(among))))
                        begin = end
                lists[name] = list(found)
        as_pairs = {
            name: [GradedPair(each, (0.0, 0.0, 0.0)) for each in found] for name, found in lists.items()
        }
        clean = without_evaluated(as_pairs, reader, leave_out)
        lists = {name: [pair.paper_id for pair in pairs] for name, pairs in clean.items() if len(pairs) > 1}
        write_text(kept, json.dumps(lists))
    with checked(kept, "the drawn pairs of this training"):
        read: dict[str, list[str]] = json.loads(kept.read_text(encoding="utf-8"))
    return read


def _rankings(pipeline: Pipeline, paper: Paper, depth: int) -> list[list[str]]:
    """Papers by each facet that the paper has sentences of, as the first stage ranks them."""
    facets = [facet for facet in Facet if paper.facet_positions(facet)[0]]
    return [[hit.paper_id for hit in pipeline.search(Query(paper, facet), depth)] for facet in facets]


def _graded_rankings(
    reader: IndexReader, grader: Grader, name: str, rankings: Sequence[Sequence[str]]
) -> list[list[str]]:
    """The papers of ``rankings`` by their grades in each facet, and by the chance of each shape."""
    names = [each for each in dict.fromkeys(itertools.chain.from_iterable(rankings)) if each != name]
    if not names:
        return []
    paper = reader.paper(name)
    vectors = reader.stored_vectors(paper)
    assert vectors is not None
    graded = grader.grade(GradedQuery(paper, vectors), [reader.paper(each) for each in names])[0]
    chances = [
        np.prod(
            [
                (graded.similar if weight > 0 else graded.other)[:, list(Facet).index(facet)]
                for facet, weight in shape.items()
            ],
            axis=0,
        )
        for shape in SHAPES.values()
    ]
    orders = [np.argsort(-scores, kind="stable") for scores in (*graded.grades.T, *chances)]
    return [[names[place] for place in order] for order in orders]


def _taught(drawn: Mapping[str, Sequence[str]], grades: Doubles) -> dict[str, list[GradedPair]]:
    """The drawn pairs with the teacher's grades (pairs, 3)."""
    rows = iter(grades.round(4).tolist())
    return {
        query: [GradedPair(candidate, tuple(next(rows))) for candidate in candidates]
        for query, candidates in drawn.items()
    }


def _exported(base: Path, weights: Weights, folder: Path) -> dict[str, float]:
    head = [weights[name].detach().cpu().float() for name in HEAD]

    class Head(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ParameterList(head)

        def forward(self, states: torch.Tensor, sides: torch.Tensor) -> torch.Tensor:
            return grades_of(head_scores(states, sides, *self.parts))

    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary:
        whole = Path(temporary)
        for file in ("config.json", TOKENIZER):
            shutil.copyfile(base / file, whole / file)
        layers = {name: part.cpu() for name, part in weights.items() if name.startswith("upper.")}
        mixed = interpolated_encoder(load_file(base / WEIGHTS), layers, 1.0)
        save_file(mixed, whole / WEIGHTS, metadata={"format": "pt"})
        return export_joint(whole, Head(), folder)


class _Compared(NamedTuple):
    """Pairs graded by people or a language model (pairs, 3), by stored vectors, and jointly."""

    grades: Doubles
    stored: Doubles
    joint: Doubles

    @property
    def mean(self) -> Doubles:
        """Of both estimates, as a search ranks by it."""
        mean: Doubles = (self.stored + self.joint) / 2
        return mean

    def errors(self) -> Iterator[tuple[str, list[float]]]:
        """Root mean squared errors by facet, by what graded."""
        for name, estimated in (("grades", self.stored), (JOINT, self.joint), ("their mean", self.mean)):
            yield name, np.sqrt(((on_scale(estimated) - self.grades) ** 2).mean(axis=0)).tolist()


def _compared(reader: IndexReader, grader: Grader, joint: JointGrader, lists: GradedLists) -> _Compared:
    rows = []
    for query, pairs in lists.items():
        paper = reader.paper(query)
        vectors = reader.stored_vectors(paper)
        assert vectors is not None
        candidates: list[Paper] = [reader.paper(pair.paper_id) for pair in pairs]
        stored = grader.grade(GradedQuery(paper, vectors), candidates)[0].grades
        truth = np.array([pair.grades for pair in pairs], np.float64)
        rows.append(_Compared(truth, stored, joint.grade(paper, candidates)))
    return _Compared(*(np.concatenate(parts) for parts in zip(*rows, strict=True)))


def _card(card: JointCard, figures: Mapping[str, Sequence[float]]) -> Card:
    rows: list[list[Any]] = [[*name.split(" | "), *each] for name, each in figures.items()]
    return Card(
        name=JOINT,
        purpose="Says how similar two papers are in background, method and result, from 0 (unrelated) to 3 "
        "(near identical), by reading both as one text: a cross-encoder of 6 layers, learned from "
        f"{card.training['pairs']:,} graded pairs and {card.training['taught']:,} that a larger one of 12 "
        "layers graded.",
        input="`[CLS] title abstract [SEP] title abstract [SEP]`, 208 tokens of each paper",
        figures="Root mean squared errors, in grades: of the grade model, which compares stored vectors, of "
        "joint grades, and of the mean, which ranks. Chances are calibrated on "
        f"{card.training['calibrated']}.",
        table=facet_table(["pairs", "grades by"], rows, places=2),
        data=card.training["data"],
        command=f"{JOINT} --index DIR --dev FILE...",
        limits=GRADES_LIMITS,
        licence=f"{APACHE}; derived from all-MiniLM-L6-v2 (same licence)",
    )
