"""Training of sentence encoders: on graded pairs, with facet projections, or on co-citations as ASPIRE."""

from __future__ import annotations

import itertools
import json
import math
import random
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from qbe.errors import CorpusError, UsageError, check_positive
from qbe.models.cards import DIFFERENCE, ENCODER, GRAPH, LARGE_ENCODER, RANGES, TOKENIZER, model_file
from qbe.models.export.encoder import export_encoder
from qbe.models.export.graph import store_graph
from qbe.models.export.pytorch import write_tokenizer
from qbe.models.export.quantize import channel_ranges
from qbe.models.folders import BASE_ENCODER, find_start, weights_file
from qbe.models.formats import COSINE, L2, MEAN, TITLE_SEP_ABSTRACT, EncoderFormat
from qbe.models.large import MPNET, low_rank, make_weights, model_folder, write_weights
from qbe.models.tokenizer import PaperTokenizer, Window, passes
from qbe.runs import GradedLists
from qbe.search.projections import ProjectionModel, write_model
from qbe.train.card import APACHE, BY_FACET, GRADES_LIMITS, Card
from qbe.train.cocitations import Pair, read_parts
from qbe.train.fit import Schedule, Task, Weights, copied, fit_seeds, matmul_dtype, with_weights
from qbe.train.losses import OBJECTIVES, Settings, Triplets, list_loss, triplet_losses
from qbe.train.network import WEIGHTS, CocitationEncoder, GradedEncoder, PaperTable, table_of
from qbe.train.pairs import (
    facet_correlations,
    facet_readers,
    in_steps,
    queries_of,
    read_graded_papers,
    sample_unrelated,
)
from qbe.train.projections import FIGURES, by_file, projections_card, projections_of
from qbe.train.work import Training
from qbe.types import Paper
from qbe.util.files import sha256

PROJECTIONS = "projections"
PRECISION = "int8"
"""The precision of the vectors that indexes store."""
SAVE_EVERY = 150
"""Steps between checkpoints, which for the large encoder have 1.4 GB each."""
RANGED = 512
"""Papers on which ranges of activations are measured."""

# On graded pairs.


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedRecipe:
    """How an encoder learns from graded lists.

    A step has ``queries`` lists; of a list's candidates without a grade of 1 or more, at most ``unrelated``
    are used, and of a paper the first ``max_tokens``. AdamW: the layers learn at ``learning_rate`` with
    ``weight_decay``, the projections at ``head_rate``, the weights of similarities at ``weight_rate``. For
    ``crossed`` see `qbe.train.losses.order_weights`. Papers are encoded in ``chunks`` of similar lengths.
    What training changed of a matrix of the large base is published at a ``rank``.
    """

    steps: int = 363
    queries: int = 8
    unrelated: int = 4
    max_tokens: int = 384
    learning_rate: float = 6e-5
    head_rate: float = 1e-4
    weight_rate: float = 2e-2
    weight_decay: float = 0.01
    clip: float = 1.0
    warm_up: float = 0.1
    crossed: float = 3.0
    chunks: int = 2
    rank: int = 64


class GradedStep(NamedTuple):
    """A step's lists: ``queries`` (lists,) and ``candidates`` (candidates,) as rows of the table, the list
    that each candidate belongs to, ``owners`` (candidates,), and its ``grades`` (candidates, facets).
    """

    queries: Tensor
    candidates: Tensor
    owners: Tensor
    grades: Tensor


class GradedTask(Task[GradedStep]):
    """A network that is fitted to graded lists, whose papers have ``rows`` of the table; one epoch."""

    network: GradedEncoder
    betas = (0.9, 0.98)

    def __init__(
        self,
        network: GradedEncoder,
        table: PaperTable,
        rows: Mapping[str, int],
        lists: GradedLists,
        recipe: GradedRecipe,
    ) -> None:
        self.network = network
        self._table, self._rows, self._lists, self._recipe = table, rows, lists, recipe
        self.steps_per_epoch = recipe.steps

    def rate(self, name: str, part: Tensor) -> tuple[float, float]:
        recipe = self._recipe
        heads = {"weights": recipe.weight_rate, "projections": recipe.head_rate}
        decay = recipe.weight_decay if name not in heads and part.dim() > 1 else 0.0
        return heads.get(name, recipe.learning_rate), decay

    def batches(self, seed: int) -> Iterator[GradedStep]:
        """Steps without end; raises CorpusError where there are fewer lists than a step has."""
        recipe, lists = self._recipe, self._lists
        queries = queries_of(lists, recipe.queries)
        for epoch in itertools.count():
            for chosen in in_steps(queries, recipe.queries, f"{seed}-{epoch}"):
                pairs = [
                    (owner, pair)
                    for owner, query in enumerate(chosen)
                    for pair in sample_unrelated(
                        lists[query], recipe.unrelated, random.Random(f"{seed}-{epoch}-{query}")
                    )
                ]
                yield GradedStep(
                    torch.tensor([self._rows[query] for query in chosen]),
                    torch.tensor([self._rows[pair.paper_id] for _, pair in pairs]),
                    torch.tensor([owner for owner, _ in pairs]),
                    torch.tensor([pair.grades for _, pair in pairs]),
                )

    def losses(self, batch: GradedStep) -> Iterable[Tensor]:
        """The loss of a step; papers that occur twice are encoded once."""
        device = self._table.ids.device
        step = GradedStep(*(part.to(device, non_blocking=True) for part in batch))
        rows, places = torch.unique(torch.cat([step.queries, step.candidates]), return_inverse=True)
        vectors = self.network.encode(self._table, rows, self._recipe.chunks)
        count = len(step.queries)
        scores = self.network.scores(vectors.rows(places[:count]), vectors.rows(places[count:]))
        yield list_loss(scores, step.owners, step.grades, self._recipe.crossed)

    @torch.no_grad()
    def correlations(self, dev: GradedLists) -> tuple[list[float], list[float]]:
        """Spearman's correlations by facet: by mean-max of the vectors as they are, and of the scores."""
        network, table, plain, projected = self.network, self._table, [], []
        for query, pairs in dev.items():
            some = [self._rows[paper_id] for paper_id in (query, *(pair.paper_id for pair in pairs))]
            papers = network.encode(table, torch.tensor(some, device=table.ids.device), 4)
            one, others = papers.rows(torch.tensor([0])), papers.rows(torch.arange(1, len(some)))
            grades = [pair.grades for pair in pairs]
            by_sentences = network.terms(one, others, plain=True)[:, 0, 0].T
            plain.append((by_sentences.float().cpu().numpy(), grades))
            projected.append((network.scores(one, others)[0].float().cpu().numpy(), grades))
        return facet_correlations(plain), facet_correlations(projected)


@dataclass
class GradedTraining(Training):
    """An encoder of the kind BERT or MPNet with all layers trained on graded lists, and projections with it.

    Sources are files of graded pairs, the corpus of their papers, and papers to leave out; queries of dev are
    not trained on. ``encoder`` is the name or folder of the model to start from. The mean of the seeds is
    published, the projections in the folder ``projections`` inside; of the large base (all-mpnet-base-v2),
    which is downloaded, the difference from it.
    """

    recipe: GradedRecipe = field(default_factory=GradedRecipe)
    encoder: str = MPNET.name

    def open(self) -> dict[str, Any]:
        self._large, self._dtype = self.encoder == MPNET.name, matmul_dtype(self.run.device)
        self._start, self._base = (
            (MPNET.name, model_folder(MPNET)) if self._large else find_start(self.encoder)
        )
        self._readers, self._digest = facet_readers(self.run.threads), sha256(self._base / WEIGHTS)
        encoder, tagger = self._readers
        return {"base": self._digest, "encoder": encoder.files.identity, "tagger": tagger.identity}

    def fit(self) -> None:
        recipe = self.recipe
        self._lists, self._dev, self._papers = read_graded_papers(self.sources, *self._readers)
        write_tokenizer(self._base, self.work / TOKENIZER)
        self._tokenizer = PaperTokenizer(self.work / TOKENIZER)
        papers = list(self._papers.values())
        windows = [self._tokenizer.first_window(paper, recipe.max_tokens) for paper in papers]
        table = table_of([window.ids for window in windows], [window.spans for window in windows], papers)
        network = GradedEncoder(self._base, self._dtype).to(self.run.device)
        rows = {name: row for row, name in enumerate(self._papers)}
        self._task = GradedTask(network, table.to(self.run.device), rows, self._lists, recipe)
        untrained, schedule = copied(network), Schedule(1, recipe.clip, warm_up=recipe.warm_up)
        trained = fit_seeds(self._task, schedule, self.run.seeds, self.work, SAVE_EVERY)
        self._weights: dict[str, Weights] = {self._start: untrained, **trained}

    def publish(self, folder: Path) -> Card:
        compared, network, recipe, large = self._weights, self._task.network, self.recipe, self._large
        published = list(compared)[-1]
        name, source = (
            (LARGE_ENCODER, MPNET.source) if large else (self.name, f"{self._start}, trained by qbe")
        )
        weights = {part: values.cpu() for part, values in compared[published].items()}
        heads = {part: weights[part] for part in ("weights", "projections")}
        with tempfile.TemporaryDirectory(prefix="qbe-") as temporary:
            whole, exported = Path(temporary, "whole"), Path(temporary, "exported")
            self._write_whole(weights, whole, folder)
            metadata = export_encoder(whole, name, source, exported)
            if large:
                fp32 = exported / model_file("fp32")
                store_graph(fp32, whole / WEIGHTS, folder / GRAPH)
                some = itertools.islice(self._papers.values(), RANGED)
                windows = (self._tokenizer.first_window(paper, metadata.max_tokens) for paper in some)
                ranges = channel_ranges(fp32, ({"input_ids": np.array([each.ids])} for each in windows))
                largest = np.finfo(np.float16).max
                halved = {each: np.minimum(of, largest).astype(np.float16) for each, of in ranges.items()}
                write_weights(folder / RANGES, halved)
                shipped = copied(GradedEncoder(whole, self._dtype)) | heads
                compared = {**compared, f"{published}, rank {recipe.rank}": shipped}
                del compared[published]
            else:
                for file in (*whole.iterdir(), *exported.iterdir()):
                    shutil.copyfile(file, folder / file.name)
        figures = {
            label: {
                file: with_weights(network, each, partial(self._task.correlations, lists))
                for file, lists in self._dev.items()
            }
            for label, each in compared.items()
        }
        training = {
            **json.loads(json.dumps({part: self.made_from[part] for part in ("recipe", "data")})),
            "seeds": list(self.run.seeds),
            "pairs": sum(map(len, self._lists.values())),
        }
        model = ProjectionModel(
            projections_of({"matrices": heads["projections"], "weights": heads["weights"]}),
            {"name": name, "precision": PRECISION, "weights_sha256": metadata.weights_sha256},
            training,
        )
        (folder / PROJECTIONS).mkdir()
        write_model(folder / PROJECTIONS, model)
        by_vectors, by_scores = (
            {label: {file: row[place] for file, row in each.items()} for label, each in figures.items()}
            for place in (0, 1)
        )
        projections_card(
            model, by_scores, "learned together with the encoder from", FIGURES, "large-encoder"
        ).write(folder / PROJECTIONS, self.made_from["data"])
        difference = (
            f" The folder holds the difference from the base (weights {self._digest[:12]}), of rank "
            f"{recipe.rank}, which is added to it when it was downloaded and verified; the weights that come "
            f"out are {metadata.weights_sha256[:12]}."
        )
        return Card(
            name=name,
            purpose=f"A sentence encoder for papers ({metadata.dimension} dimensions, {metadata.layers} "
            f"layers): {self._start} with all layers trained on {len(self._lists):,} graded lists "
            f"({training['pairs']:,} pairs), {recipe.steps} steps of {recipe.queries} lists a seed."
            + difference
            * large,
            input="title and abstract in one pass; a vector is the mean of its sentence's tokens",
            caption=f"{FIGURES} By mean-max of sentences.",
            columns=("pairs", "weights", *BY_FACET),
            figures=by_file(by_vectors),
            command="large-encoder" + f" --encoder {self._start}" * (not large),
            limits=GRADES_LIMITS,
            licence=f"{APACHE}; derived from {MPNET.source if large else self._start} (same licence)",
        )

    def _write_whole(self, weights: Weights, whole: Path, folder: Path) -> None:
        """Write the trained model to ``whole``, and a difference from the large base to ``folder``."""
        original = load_file(self._base / WEIGHTS)
        changed = self._task.network.merged(original, weights)
        if not self._large:
            whole.mkdir()
            shutil.copyfile(self._base / "config.json", whole / "config.json")
            write_tokenizer(self._base, whole / TOKENIZER)
            save_file(changed, whole / WEIGHTS, metadata={"format": "pt"})
            return
        difference = low_rank(
            {name: part.numpy() for name, part in original.items()},
            {name: part.numpy() for name, part in changed.items() if not torch.equal(part, original[name])},
            self.recipe.rank,
        )
        write_weights(folder / DIFFERENCE, difference)
        make_weights(self._base, folder / DIFFERENCE, whole)


# On co-citations.


@dataclass(frozen=True, slots=True)
class CocitationRecipe:
    """How an encoder learns from co-citations, by one of `qbe.train.losses.OBJECTIVES`.

    Distances are those of vectors as they are (``similarity`` "l2"), or scaled to unit length ("cosine").
    AdamW at ``learning_rate`` (None: the objective's). A step sees ``accumulate`` batches of ``batch`` pairs;
    negatives are drawn within a batch. ``weight_decay`` is not applied to biases and normalizations.
    Raises UsageError for numbers out of range.
    """

    objective: str = "ot"
    similarity: str = L2
    epochs: int = 1
    learning_rate: float | None = None
    batch: int = 10
    accumulate: int = 3
    warm_up: float = 0.05
    weight_decay: float = 0.01
    clip: float = 1.0
    patience: int = 2
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise UsageError(f"expected `epochs` of at least 1, found {self.epochs}")
        check_positive("learning_rate", self.rate)

    @property
    def rate(self) -> float:
        """The full learning rate."""
        return OBJECTIVES[self.objective].rate if self.learning_rate is None else self.learning_rate

    @property
    def format(self) -> EncoderFormat:
        """How the trained encoder is to be read: as it was in training."""
        return EncoderFormat.pooled(TITLE_SEP_ABSTRACT, MEAN, self.similarity)

    def schedule(self) -> Schedule:
        return Schedule(self.epochs, self.clip, self.patience, self.warm_up)


def draw_negatives(pairs: Sequence[Pair], rng: random.Random) -> list[tuple[int, int]]:
    """For each pair (by its number) another one without a common paper, whose positive is its negative.

    A pair that shares papers with all others is left out. (The code of Mysore et al., 2022, takes a random
    permutation of the positives, which may assign a paper to its own query.)
    """
    drawn = []
    for number, pair in enumerate(pairs):
        others = [place for place, other in enumerate(pairs) if pair.cited.isdisjoint(other.cited)]
        if others:
            drawn.append((number, rng.choice(others)))
    return drawn


class CocitationStep(NamedTuple):
    """The pairs of a step, and the generator of its dropout and negatives."""

    pairs: Sequence[Pair]
    rng: random.Random


class CocitationTask(Task[CocitationStep]):
    """An encoder that learns from pairs; its scores are losses on dev, negated."""

    network: CocitationEncoder

    def __init__(
        self,
        network: CocitationEncoder,
        tokenizer: PaperTokenizer,
        recipe: CocitationRecipe,
        pairs: Sequence[Pair],
        dev: Sequence[Pair],
    ) -> None:
        self.network = network
        self._tokenizer, self._recipe, self._pairs, self._dev = tokenizer, recipe, pairs, dev
        self._pairs_per_step = min(recipe.batch * recipe.accumulate, len(pairs))
        self.steps_per_epoch = len(pairs) // self._pairs_per_step

    def rate(self, _: str, part: Tensor) -> tuple[float, float]:
        return self._recipe.rate, self._recipe.weight_decay if part.dim() > 1 else 0.0

    def batches(self, seed: int) -> Iterator[CocitationStep]:
        count, size = len(self._pairs), self._pairs_per_step
        for epoch in range(self._recipe.epochs):
            order = random.Random(f"{seed}-{epoch}").sample(range(count), count)
            for place in range(self.steps_per_epoch):
                pairs = [self._pairs[number] for number in order[place * size : (place + 1) * size]]
                yield CocitationStep(pairs, random.Random(f"{seed}-{epoch * self.steps_per_epoch + place}"))

    def losses(self, batch: CocitationStep) -> Iterator[Tensor]:
        torch.manual_seed(batch.rng.getrandbits(63))  # for dropout
        for part in self._losses(batch.pairs, batch.rng):
            yield part.sum() / len(batch.pairs)

    def score(self) -> float:
        return -self.dev_loss()

    @torch.no_grad()
    def dev_loss(self) -> float:
        """The mean loss on dev, without dropout, against negatives that are the same in every call."""
        self.network.eval()
        rng = random.Random("dev")
        order = rng.sample(list(self._dev), len(self._dev))
        each = [loss for part in self._losses(order, rng) for loss in part.tolist()]
        return float(np.mean(each)) if each else math.nan

    def _losses(self, pairs: Sequence[Pair], rng: random.Random) -> Iterator[Tensor]:
        """The losses of the pairs that have a negative, by batches that are encoded in one pass."""
        recipe = self._recipe
        for begin in range(0, len(pairs), recipe.batch):
            some = pairs[begin : begin + recipe.batch]
            drawn = draw_negatives(some, rng)
            if not drawn:
                continue
            windows = [
                first_window(self._tokenizer, paper, self.network.max_tokens, recipe.format.layout)
                for paper in (*(pair.query for pair in some), *(pair.positive for pair in some))
            ]
            table = table_of([window.ids for window in windows], [window.spans for window in windows])
            vectors = self.network(table)
            device = vectors.whole.device
            numbers, others = (torch.tensor(column, device=device) for column in zip(*drawn, strict=True))
            alignments = torch.tensor([pair.alignment for pair in some], device=device)
            triplets = Triplets(
                vectors.rows(numbers),
                vectors.rows(len(some) + numbers),
                vectors.rows(len(some) + others),
                alignments[numbers],
                alignments[others, 1],
            )
            yield triplet_losses(OBJECTIVES[recipe.objective], triplets, recipe.settings)


def first_window(tokenizer: PaperTokenizer, paper: Paper, max_tokens: int, layout: str) -> Window:
    """A paper's first window in a layout; the rest of a longer paper is not trained on."""
    sentences = [tokenizer.ids(sentence.text) for sentence in paper.sentences]
    return next(passes(tokenizer.ids(paper.title), sentences, tokenizer.special, max_tokens, layout))


@dataclass
class CocitationTraining(Training):
    """An encoder of the BERT family that learns from co-citations.

    Sources are files of co-citations to train on and of dev (none: a share of the former), and papers to
    leave out. ``encoder`` is the name or folder of the model to start from, whatever it was trained for.
    Pairs whose aligned sentences are beyond the model's window are left out. Of the seeds and their mean the
    one with the lowest loss on dev is published: weights in the format of Hugging Face, and ONNX models.
    """

    recipe: CocitationRecipe = field(default_factory=CocitationRecipe)
    encoder: str = BASE_ENCODER

    def open(self) -> dict[str, Any]:
        self._dtype, (self._name, self._folder) = matmul_dtype(self.run.device), find_start(self.encoder)
        self._objective = OBJECTIVES[self.recipe.objective]
        self._parts = read_parts(self.sources, aligned=self._objective.aligned)
        self._base = sha256(weights_file(ENCODER, self._folder))
        return {"base": {"name": self._name, "weights_sha256": self._base}}

    def fit(self) -> None:
        recipe, self._tokens = self.recipe, self.work / TOKENIZER
        write_tokenizer(self._folder, self._tokens)
        unit = recipe.similarity == COSINE
        self._network = CocitationEncoder(self._folder, self._dtype, unit=unit).to(self.run.device)
        tokenizer = PaperTokenizer(self._tokens)

        def fits(pair: Pair) -> bool:
            windows = (
                first_window(tokenizer, paper, self._network.max_tokens, recipe.format.layout)
                for paper in (pair.query, pair.positive)
            )
            return all(
                place < len(window.spans) for window, place in zip(windows, pair.alignment, strict=True)
            )

        pairs = self._parts._asdict()
        if self._objective.aligned:
            pairs = {part: list(filter(fits, each)) for part, each in pairs.items()}
        if not all(pairs.values()):
            raise CorpusError(
                "expected pairs whose aligned sentences the model reads, found none; give shorter ones"
            )
        task = CocitationTask(self._network, tokenizer, recipe, pairs["train"], pairs["dev"])
        weights = {"untrained": copied(self._network)}
        weights |= fit_seeds(task, recipe.schedule(), self.run.seeds, self.work)
        self._counts = {part: len(each) for part, each in pairs.items()}
        self._losses = {
            name: with_weights(self._network, each, task.dev_loss) for name, each in weights.items()
        }
        self._best = min((name for name in weights if name != "untrained"), key=self._losses.__getitem__)
        self._network.load_state_dict(weights[self._best], strict=False)

    def publish(self, folder: Path) -> Card:
        recipe, base = self.recipe, self._name
        self._network.to("cpu").bert.save_pretrained(folder)
        (folder / WEIGHTS).chmod(0o644)  # transformers makes it private
        shutil.copyfile(self._tokens, folder / TOKENIZER)
        exported = folder / "exported"
        source = f"{base}, trained by qbe with the objective {recipe.objective}"
        metadata = export_encoder(folder, self.name, source, exported, recipe.format)
        for file in exported.iterdir():
            file.replace(folder / file.name)
        exported.rmdir()
        parity = ", ".join(f"{name} {row['min_cosine']:.5f}" for name, row in metadata.parity.items())
        return Card(
            name=metadata.name,
            purpose=f"A sentence encoder ({metadata.dimension} dimensions, {metadata.layers} layers), "
            f"trained on {self._counts['train']:,} co-cited pairs with the objective {recipe.objective} "
            f"({self._objective.name}; Mysore et al., 2022) from {base} (weights {self._base[:12]}).",
            input=f"{recipe.format.layout}, {metadata.max_tokens} tokens; vectors are compared by "
            f"{recipe.format.similarity}",
            caption=f"Mean loss on {self._counts['dev']:,} pairs of dev, without dropout. Published: "
            f"{self._best}. Smallest cosine of a mean with PyTorch: {parity}.",
            columns=("weights", "loss"),
            figures={name: [loss] for name, loss in self._losses.items()},
            places=4,
            command=f"encoder --objective {recipe.objective} --cocitations FILE",
            limits="Known from its training data only; not compared on other collections.",
            licence=f"that of {base} and of the training data",
        )
