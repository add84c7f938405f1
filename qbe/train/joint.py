"""Training of joint grades: a cross-encoder that grades pairs of papers, and a larger one that teaches it."""

import itertools
import json
import logging
import math
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from qbe.errors import ModelError
from qbe.models import reading
from qbe.models.cards import DEFAULT_RERANKER, JOINT_MODEL, TOKENIZER, JointCard, write_card
from qbe.models.encoding import PaperTokenizer, pair_input
from qbe.models.export.encoder import export_joint
from qbe.models.export.graph import dequantized
from qbe.models.folders import MINILM, joint_folder, packaged_weights, weights_folder
from qbe.query import SHAPES, SIMILAR_FROM, Query
from qbe.runs import GradedLists, GradedPair, read_graded_pairs
from qbe.search.grading import Grader, open_grader
from qbe.search.pipeline import Pipeline
from qbe.search.rerankers import JointGrader, paper_ids
from qbe.search.stages import Fused
from qbe.train.fit import Schedule, Task, copied, fit_seeds, matmul_dtype
from qbe.train.grades import Doubles, platt, query_of, rms_errors
from qbe.train.losses import FACETS, grades_of, pair_loss
from qbe.train.network import LENGTH_MULTIPLE, WEIGHTS, TrainedEncoder, with_trained, write_base
from qbe.train.pairs import in_steps, papers_of, read_indexed_lists, sample_unrelated, without_evaluated
from qbe.train.work import APACHE, BY_FACET, GRADES_LIMITS, Card, Training, load_arrays, save_arrays
from qbe.types import Facet, Paper
from qbe.util.files import sha256, write_text
from qbe.util.work import Workers

log = logging.getLogger(__name__)

PRODUCT = 4.0  # times the product of the papers' vectors, to make it about as large as their difference
HEAD = ("hidden_weight", "hidden_bias", "out_weight", "out_bias")
HEAD_WEIGHTS = "head.safetensors"  # beside those of an encoder to start from
TOKENS = 24576  # of a chunk of pairs, padding included


class Texts:
    """Papers as token ids, and pairs of them as batches."""

    def __init__(self, papers: Mapping[str, Paper], tokenizer: PaperTokenizer) -> None:
        self._special = tokenizer.special
        self._ids: dict[str, NDArray[np.uint16]] = {
            name: np.array(paper_ids(tokenizer, paper), np.uint16) for name, paper in papers.items()
        }

    def chunks(self, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[list[int], tuple[Tensor, ...]]]:
        """Places of pairs of similar length, at most about TOKENS with padding, and what the network reads of
        them: token ids and sides (pairs, tokens) int64 (`qbe.models.cards.JOINT_INPUTS`), and lengths
        (pairs,).
        """
        lengths = [len(self._ids[first]) + len(self._ids[second]) + 3 for first, second in pairs]
        chunks: list[list[int]] = []
        for place in sorted(range(len(lengths)), key=lengths.__getitem__):
            if chunks and lengths[place] * (len(chunks[-1]) + 1) <= TOKENS:
                chunks[-1].append(place)
            else:
                chunks.append([place])
        cls, sep = self._special.cls, self._special.sep
        for chunk in chunks:
            rows = [
                pair_input(self._ids[first].tolist(), self._ids[second].tolist(), cls, sep)
                for first, second in (pairs[place] for place in chunk)
            ]
            padded = (
                pad_sequence([torch.from_numpy(row[0]) for row in column], batch_first=True)
                for column in zip(*rows, strict=True)
            )
            ids, sides = (F.pad(each, (0, -each.shape[1] % LENGTH_MULTIPLE)) for each in padded)
            yield chunk, (ids, sides, torch.tensor([row.shape[1] for row, _ in rows]))


class JointNetwork(TrainedEncoder):
    """An encoder whose layers are all trained, over pairs, and a head of one hidden layer.

    The head sees the state of [CLS], the product of the two papers' vectors (mean states of unit length) and
    the size of their difference, so that it begins with what encoders of single papers know.
    """

    def __init__(self, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__(folder, dtype)
        size = self.bert.config.hidden_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # so that each network begins with the same head
            hidden, out = nn.Linear(3 * size, size), nn.Linear(size, FACETS)
        self.hidden_weight, self.hidden_bias = hidden.weight, hidden.bias
        self.out_weight, self.out_bias = out.weight, out.bias
        if (folder / HEAD_WEIGHTS).exists():
            self.load_state_dict(load_file(folder / HEAD_WEIGHTS), strict=False)

    def forward(self, ids: Tensor, sides: Tensor, lengths: Tensor) -> Tensor:
        """Scores (pairs, facets); `grades_of` makes grades of them."""
        return head_scores(self.states(ids, lengths), sides, *(getattr(self, name) for name in HEAD))


def head_scores(
    states: Tensor, sides: Tensor, hidden: Tensor, hidden_bias: Tensor, out: Tensor, out_bias: Tensor
) -> Tensor:
    """The head of `JointNetwork` over states (pairs, tokens, dimension) and ``sides`` (pairs, tokens)."""
    units = []
    for side in (1, 2):
        mean = ((sides == side).to(states.dtype)[:, None] @ states)[:, 0]
        units.append(mean / mean.norm(dim=-1, keepdim=True).clamp(min=1e-12))
    first, second = units
    root = math.sqrt(states.shape[-1])
    parts = [states[:, 0], PRODUCT * root * first * second, root * (first - second).abs()]
    return F.linear(F.gelu(F.linear(torch.cat(parts, 1), hidden, hidden_bias)), out, out_bias)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRecipe:
    """How a cross-encoder of pairs learns: by the squared error of the grades and RankNet's of a list's
    scores. Half of the pairs are read the other way round.
    """

    steps: int
    learning_rate: float
    warm_up: float
    queries: int = 8  # lists a step
    unrelated: int = 4  # candidates of a list without a grade of 1 or more, at most
    head_rate: float = 3e-4
    weight_decay: float = 0.01
    clip: float = 1.0
    crossed: float = 3.0  # see `qbe.train.losses.order_weights`


@dataclass(frozen=True, slots=True, kw_only=True)
class JointRecipe:
    """How joint grades are made: by ``student`` from graded lists and as many that the ``teacher`` graded,
    or ``again`` from others and graded lists, of each file equally often.

    The teacher grades candidates of papers that are drawn from the index, out of rankings by each facet, and
    of others out of those by the grade model, by each facet and each shape of exploration.
    """

    teacher: FitRecipe = FitRecipe(steps=2000, learning_rate=4e-5, warm_up=0.06)
    student: FitRecipe = FitRecipe(steps=9871, learning_rate=1.5e-4, warm_up=0.07)
    again: FitRecipe = FitRecipe(steps=600, learning_rate=4e-5, warm_up=0.06, head_rate=1.2e-4)
    depth: int = 300  # of the fused first stage
    found: int = 2315  # papers with candidates out of its rankings: so many of those up to each rank
    found_picks: tuple[tuple[int, int], ...] = ((6, 6), (30, 5), (150, 4), (300, 1))
    graded: int = 1766  # papers with candidates out of rankings by the grade model
    graded_picks: tuple[tuple[int, int], ...] = ((8, 8), (50, 5), (900, 2))


def joint_task(
    network: JointNetwork, texts: Texts, recipe: FitRecipe, sets: Sequence[GradedLists]
) -> Task[dict[str, list[GradedPair]]]:
    """A network fitted to graded lists, of each of the ``sets`` equally often; the last step is kept.

    Batches are pairs by query, without end.
    """
    steps = [in_steps(lists, recipe.queries) for lists in sets]

    def rate(name: str, part: Tensor) -> tuple[float, float]:
        decay = recipe.weight_decay if part.dim() > 1 else 0.0
        return recipe.head_rate if name in HEAD else recipe.learning_rate, decay

    def drawn(number: int, seed: int) -> Iterator[dict[str, list[GradedPair]]]:
        for epoch in itertools.count():
            of_epoch = f"{seed}-{number}-{epoch}"
            rng, lists = random.Random(of_epoch), sets[number]
            for chosen in steps[number](of_epoch):
                yield {query: sample_unrelated(lists[query], recipe.unrelated, rng) for query in chosen}

    def batches(seed: int) -> Iterator[dict[str, list[GradedPair]]]:
        for of_set in itertools.cycle([drawn(number, seed) for number in range(len(sets))]):
            yield next(of_set)

    def losses(batch: Mapping[str, Sequence[GradedPair]]) -> Iterator[Tensor]:
        graded = [
            (owner, query, pair) for owner, (query, pairs) in enumerate(batch.items()) for pair in pairs
        ]
        turned = random.Random("-".join(batch)).choices((False, True), k=len(graded))
        pairs = [
            (pair.paper_id, query) if turn else (query, pair.paper_id)
            for (_, query, pair), turn in zip(graded, turned, strict=True)
        ]
        scores = scored(network, texts, pairs)
        owners = torch.tensor([owner for owner, *_ in graded], device=scores.device)
        grades = torch.tensor([pair.grades for *_, pair in graded], device=scores.device)
        yield pair_loss("grades", scores, owners, grades, 0.0, recipe.crossed)

    return Task(network, recipe.steps, rate, batches, losses, betas=(0.9, 0.98))


def scored(network: JointNetwork, texts: Texts, pairs: Sequence[tuple[str, str]]) -> Tensor:
    """Scores (pairs, facets) float32, in the order of the pairs."""
    device, places, scores = network.out_weight.device, list[int](), []
    for chunk, batch in texts.chunks(pairs):
        places += chunk
        scores.append(network(*(each.to(device) for each in batch)))
    return torch.cat(scores).float()[torch.argsort(torch.tensor(places, device=device))]


@torch.no_grad()
def graded(network: JointNetwork, texts: Texts, lists: Mapping[str, Sequence[str]]) -> dict[str, Doubles]:
    """Grades (candidates, 3) of candidates, ids of papers by query."""
    found = {}
    for query, candidates in lists.items():
        scores = scored(network, texts, [(query, candidate) for candidate in candidates])
        found[query] = grades_of(scores).cpu().numpy().astype(np.float64)
    return found


def start_folder(model: Path, base: Path, folder: Path) -> Path:
    """Write the weights of joint grades in int8 by the names of those of ``base``, to start from."""
    found, weights = dequantized(model), load_file(base / WEIGHTS)
    for name in weights:
        matrix = f"model.{name.removesuffix('weight')}bias/matrix"
        value = found.get(matrix, found.get(f"model.{name}"))
        if value is not None:
            weights[name] = torch.from_numpy(np.array(value))
    parts = ("module.parts.1/matrix", "module.parts.1", "module.parts.3/matrix", "module.parts.3")
    head = {name: torch.from_numpy(np.array(found[part])) for name, part in zip(HEAD, parts, strict=True)}
    write_base(base, weights, folder)
    save_file(head, folder / HEAD_WEIGHTS)
    return folder


@dataclass
class JointTraining(Training):
    """Joint grades, made by a student of graded pairs and of pairs that a teacher graded.

    Sources are files of graded pairs, an index of their papers, and papers to leave out; the last file of dev
    calibrates chances. ``bases`` of teacher and student are by default the large encoder and the base
    encoder. Those of ``start``, a folder or a name, learn on from graded pairs alone, for ``steps``.
    """

    recipe: JointRecipe = JointRecipe()
    bases: tuple[Path, Path] | None = None
    start: str | None = None
    steps: int | None = None

    def open(self) -> dict[str, Any]:
        self._dtype = matmul_dtype(self.run.device)
        self._teacher, self._student = self.bases or (weights_folder(), packaged_weights(MINILM))
        self._index, self._reader = self.open_index()
        self._reader.require_vectors()
        digests = {"student_base": sha256(self._student / WEIGHTS)}
        self._start = self.start and joint_folder(self.start)
        if self.start and not self._start:
            raise ModelError(f"{self.start}: expected a folder of joint grades as `start`, found none")
        if not self._start:
            digests = {"teacher_base": sha256(self._teacher / WEIGHTS), **digests}
        else:
            digests["start"] = sha256(Path(self._start, JOINT_MODEL))
            again = replace(self.recipe.again, steps=self.steps or self.recipe.again.steps)
            self.recipe = replace(self.recipe, again=again)
        return {"index": self._reader.manifest.digest, **digests}

    def fit(self) -> None:
        reader, recipe = self._reader, self.recipe
        lists, self._dev = read_indexed_lists(self.sources, reader)
        if self._start:
            papers = {name: reader.paper(name) for name in sorted(papers_of(lists, *self._dev.values()))}
            base = start_folder(Path(self._start, JOINT_MODEL), self._student, self.work / "start")
            files = [read_graded_pairs(file).keys() & lists.keys() for file in self.sources.train]
            sets = [{query: lists[query] for query in sorted(each)} for each in files if each]
            self._network, _ = self._fitted(base, recipe.again, papers, self.work / "student", *sets)
            self._counts = {"pairs": sum(map(len, lists.values())), "taught": 0}
            return
        drawn = self._drawn({*lists, *(query for of_dev in self._dev.values() for query in of_dev)})
        read = papers_of(lists, *self._dev.values()).union(drawn, *drawn.values())
        papers = {name: reader.paper(name) for name in sorted(read)}
        kept = self.work / "teacher-grades.npz"
        if not kept.exists():
            network, texts = self._fitted(self._teacher, recipe.teacher, papers, self.work / "teacher", lists)
            save_arrays(kept, {"grades": np.concatenate([*graded(network, texts, drawn).values()])})
        rows = iter(load_arrays(kept, "the teacher's grades", "grades")["grades"].round(4).tolist())
        taught = {
            query: [GradedPair(candidate, tuple(next(rows))) for candidate in candidates]
            for query, candidates in drawn.items()
        }
        log.info("training on %d graded lists and %d of the teacher's", len(lists), len(taught))
        work = self.work / "student"
        self._network, _ = self._fitted(self._student, recipe.student, papers, work, lists, taught)
        self._counts = {"pairs": sum(map(len, lists.values())), "taught": sum(map(len, taught.values()))}

    def _fitted(
        self, base: Path, recipe: FitRecipe, papers: Mapping[str, Paper], work: Path, *sets: GradedLists
    ) -> tuple[JointNetwork, Texts]:
        network = JointNetwork(base, self._dtype).to(self.run.device)
        texts = Texts(papers, PaperTokenizer(base / TOKENIZER))
        schedule = Schedule(1, recipe.clip, warm_up=recipe.warm_up)
        fitted = fit_seeds(joint_task(network, texts, recipe, sets), schedule, self.run.seeds, work)
        network.load_state_dict(list(fitted.values())[-1], strict=False)
        return network, texts

    def _drawn(self, known: set[str]) -> dict[str, list[str]]:
        """Candidates by query, drawn out of its rankings; of queries that are not ``known``."""
        kept, reader, recipe = self.work / "drawn.json", self._reader, self.recipe
        if not kept.exists():
            rng, lists = random.Random(0), dict[str, list[str]]()
            grader, facets = open_grader(self._index, reader), tuple(Facet)
            names = [name for name in reader.papers.ids if name not in known]
            names = rng.sample(names, min(recipe.found + recipe.graded, len(names)))
            with Pipeline(self._index, Fused()) as pipeline:
                for place, name in enumerate(names):
                    paper, picks = reader.paper(name), recipe.found_picks
                    asked = [Query(paper, facet) for facet in facets if paper.facet_positions(facet)[0]]
                    hits = [pipeline.search(query, recipe.depth) for query in asked]
                    rankings = [[hit.paper_id for hit in each] for each in hits]
                    if place >= recipe.found:
                        picks = recipe.graded_picks
                        rankings = self._graded_rankings(grader, name, rankings)
                    found = dict[str, None]()
                    for ranking in rankings:
                        for begin, (end, count) in zip((0, *(end for end, _ in picks)), picks, strict=False):
                            among = [each for each in ranking[begin:end] if each not in known]
                            found |= dict.fromkeys(rng.sample(among, min(count, len(among))))
                    lists[name] = list(found)
            zeros = {name: [GradedPair(each, (0, 0, 0)) for each in found] for name, found in lists.items()}
            clean = without_evaluated(zeros, reader, self.sources.leave_out)
            drawn = {name: [pair.paper_id for pair in pairs] for name, pairs in clean.items()}
            write_text(kept, json.dumps({name: each for name, each in drawn.items() if len(each) > 1}))
        with reading(kept, "the drawn pairs of this training", "delete it"):
            read: dict[str, list[str]] = json.loads(kept.read_text(encoding="utf-8"))
        return read

    def publish(self, folder: Path) -> Card:
        parity = self._export(folder)
        files = {JOINT_MODEL: folder / JOINT_MODEL, TOKENIZER: self._student / TOKENIZER}
        digests = {file: sha256(path) for file, path in files.items()}
        unfinished = JointCard(files=digests, chances=[[0.0, 1.0]] * FACETS, parity=parity, training={})
        write_card(folder, unfinished)
        figures: dict[str, list[float]] = {}
        with Workers(self.run.threads) as workers:
            stored, joint = open_grader(self._index, self._reader), JointGrader(folder, workers)
            for label, lists in self._dev.items():
                truth, by_stored, by_joint = self._compared(stored, joint, lists)
                mean = (by_stored + by_joint) / 2  # as a search ranks
                compared = {"grades": by_stored, DEFAULT_RERANKER: by_joint, "their mean": mean}
                figures |= {f"{label} | {by}": rms_errors(each, truth) for by, each in compared.items()}
        are_similar = (truth >= SIMILAR_FROM).astype(np.float64)
        lines = [platt(*each) for each in zip(mean.T, are_similar.T, strict=True)]
        made = {**json.loads(json.dumps(self.made_from)), "seeds": list(self.run.seeds)}
        training = {**made, **self._counts, "calibrated": label}
        write_card(folder, replace(unfinished, chances=lines, training=training))
        layers = self._network.bert.config.num_hidden_layers
        taught = f" and {training['taught']:,} that a larger one of 12 layers graded"
        if self._start:
            taught = f", from joint grades (weights {made['start'][:12]}) in {self.recipe.again.steps} steps"
        return Card(
            name=DEFAULT_RERANKER,
            purpose="Says how similar two papers are in background, method and result, from 0 (unrelated) to "
            "3 (near identical), by reading both as one text: a cross-encoder of "
            f"{layers} layers, learned from {training['pairs']:,} graded pairs{taught}.",
            input="`[CLS] title abstract [SEP] title abstract [SEP]`, 208 tokens of each paper",
            caption="Root mean squared errors, in grades: of the grade model, which compares stored vectors, "
            f"of joint grades, and of the mean, which ranks. Chances are calibrated on {label}.",
            columns=("pairs", "grades by", *BY_FACET),
            figures=figures,
            places=2,
            limits=GRADES_LIMITS,
            licence=f"{APACHE}; derived from all-MiniLM-L6-v2 (same licence)",
        )

    def _export(self, folder: Path) -> dict[str, float]:
        weights = {name: part.detach().cpu() for name, part in copied(self._network).items()}

        class Head(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.parts = nn.ParameterList(weights[name].float() for name in HEAD)

            def forward(self, states: Tensor, sides: Tensor) -> Tensor:
                return grades_of(head_scores(states, sides, *self.parts))

        with tempfile.TemporaryDirectory(prefix="qbe-") as temporary:
            whole = Path(temporary)
            write_base(self._student, with_trained(load_file(self._student / WEIGHTS), weights), whole)
            return export_joint(whole, Head(), folder)

    def _graded_rankings(self, grader: Grader, name: str, rankings: list[list[str]]) -> list[list[str]]:
        names = [each for each in dict.fromkeys(itertools.chain.from_iterable(rankings)) if each != name]
        if not names:
            return []
        reader = self._reader
        graded = grader.grade(query_of(reader, name), [reader.paper(each) for each in names])[0]
        places, chances = list(Facet), []
        for shape in SHAPES.values():
            wanted = (
                (graded.similar if weight > 0 else graded.other, facet) for facet, weight in shape.items()
            )
            chances.append(np.prod([known[:, places.index(facet)] for known, facet in wanted], axis=0))
        orders = [np.argsort(-scores, kind="stable") for scores in (*graded.grades.T, *chances)]
        return [[names[place] for place in order] for order in orders]

    def _compared(self, grader: Grader, joint: JointGrader, lists: GradedLists) -> Iterator[Doubles]:
        """Grades (pairs, 3) of pairs as they are given, by stored vectors, and jointly."""
        reader, rows = self._reader, []
        for query, pairs in lists.items():
            candidates: list[Paper] = [reader.paper(pair.paper_id) for pair in pairs]
            stored = grader.grade(query_of(reader, query), candidates)[0].grades
            truth = np.array([pair.grades for pair in pairs], np.float64)
            rows.append((truth, stored, joint.grade(reader.paper(query), candidates)))
        return map(np.concatenate, zip(*rows, strict=True))
