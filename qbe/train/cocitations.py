"""Training of sentence encoders on co-citations, with the objectives of ASPIRE (Mysore et al., 2022)."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from qbe.corpus import parse_paper
from qbe.corpus.identity import TitleIndex
from qbe.corpus.json_stream import decode_record, decode_text
from qbe.corpus.streams import display_name, numbered_lines, open_source
from qbe.errors import CorpusError, check_count, check_positive
from qbe.models.cards import ENCODER, TOKENIZER
from qbe.models.export.encoder import export_encoder
from qbe.models.export.pytorch import write_tokenizer
from qbe.models.folders import BASE_ENCODER, find_start, weights_file
from qbe.models.formats import COSINE, L2, MEAN, TITLE_SEP_ABSTRACT, EncoderFormat
from qbe.models.tokenizer import PaperTokenizer, Window, passes
from qbe.train.card import Card
from qbe.train.fit import Schedule, Task, copied, fit_seeds, matmul_dtype, with_weights
from qbe.train.losses import OBJECTIVES, Settings, Triplets, triplet_losses
from qbe.train.network import CocitationEncoder, table_of, write_pretrained
from qbe.train.work import Sources, Training
from qbe.types import Paper, Sentence
from qbe.util.files import sha256

log = logging.getLogger(__name__)
HELD_OUT, MOST_HELD_OUT = 0.05, 2000  # the share of sets that become dev, and the most, without a dev file

# Files of pairs.


class Pair(NamedTuple):
    """Two co-cited papers, the ids of the set that was cited, and the positions of two aligned sentences."""

    cited: frozenset[str]
    query: Paper
    positive: Paper
    alignment: tuple[int, int] = (0, 0)


def read_parts(sources: Sources, *, aligned: bool) -> tuple[list[Pair], list[Pair]]:
    """Read pairs to train on and pairs of dev; no set of cited papers is in both."""
    evaluated = TitleIndex.of_corpus(sources.leave_out)
    train, dev = (
        [pair for path in paths for pair in read_cocitations(path, evaluated, aligned=aligned)]
        for paths in (sources.train, sources.dev)
    )
    sets = {pair.cited for pair in dev}
    parts = ([pair for pair in train if pair.cited not in sets], dev) if sources.dev else hold_out(train)
    for pairs, paths in zip(parts, (sources.train, sources.dev or sources.train), strict=True):
        if not any(pair.cited.isdisjoint(pairs[0].cited) for pair in pairs):
            shared = frozenset[str]().union(*(pair.cited for pair in pairs))
            raise CorpusError(
                f"{', '.join(map(str, paths))}: expected co-citations of papers that are not all related, to "
                f"train on and as dev, found {len(pairs):,} pairs of {len(shared):,} papers; give more of "
                "them"
            )
    log.info("%d pairs to train on, %d of dev", *map(len, parts))
    return parts


def hold_out(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Split pairs by their sets; dev is a random sample of at least 2 sets that depends on nothing else."""
    sets = sorted({pair.cited for pair in pairs}, key=sorted)
    count = min(max(2, round(HELD_OUT * len(sets))), MOST_HELD_OUT, len(sets))
    dev = set(random.Random("held out").sample(sets, count))
    return [pair for pair in pairs if pair.cited not in dev], [pair for pair in pairs if pair.cited in dev]


def read_cocitations(source: Path, evaluated: TitleIndex, *, aligned: bool = False) -> Iterator[Pair]:
    """Stream pairs of papers that were cited together, without those of papers in ``evaluated``.

    Lines are JSON as ``pre_proc_cocits.py`` of ASPIRE's code writes it: ``cited_pids``, the ids of all papers
    that were cited together; ``query`` and ``pos_context``, two of these, each ``TITLE`` and ``ABSTRACT``
    (sentences); and in ``pos_context``, where ``aligned``, ``cc_align``, the positions of two sentences,
    found through those that cite both. Equal papers are one object. Raises CorpusError with file and line.
    """
    papers: dict[tuple[str, tuple[Sentence, ...]], Paper] = {}
    kept: dict[str, bool] = {}
    name = display_name(source)
    with open_source(source) as stream:
        for number, line in numbered_lines(stream, name):
            where = f"{name}, line {number}"
            if not (text := decode_text(line, where).removeprefix("\ufeff").strip()):
                continue
            record = decode_record(text, where, "one JSON object a line")
            pair = [
                papers.setdefault((paper.title, paper.sentences), paper) for paper in _papers(record, where)
            ]
            cited = _cited(record, where)
            alignment = _alignment(record, f"{where}, cc_align") if aligned else (0, 0)
            for paper in pair:
                if paper.title not in kept:
                    kept[paper.title] = not evaluated.holds(paper.title)
            if all(kept[paper.title] for paper in pair):
                yield Pair(cited, pair[0], pair[1], alignment)


def _papers(record: Mapping[str, Any], where: str) -> list[Paper]:
    papers = []
    for name in ("query", "pos_context"):
        value, place = record.get(name), f"{where}, {name}"
        if not isinstance(value, Mapping):
            raise _unusable(place, "an object with TITLE and ABSTRACT", value, "give both papers")
        sentences = value.get("ABSTRACT")
        if not isinstance(sentences, list):
            raise _unusable(place, "a list of sentences as ABSTRACT", sentences, "split it into sentences")
        papers.append(parse_paper({"title": value.get("TITLE"), "abstract": sentences}, place, default_id=""))
    return papers


def _cited(record: Mapping[str, Any], where: str) -> frozenset[str]:
    ids = record.get("cited_pids")
    if isinstance(ids, list) and all(isinstance(each, (str, int)) and each != "" for each in ids):
        cited = frozenset(map(str, ids))
        if len(cited) > 1:
            return cited
    remedy = "say which papers were cited together"
    raise _unusable(where, "the ids of two papers or more as cited_pids", ids, remedy)


def _alignment(record: Mapping[str, Any], where: str) -> tuple[int, int]:
    """The positions of two sentences; empty sentences, which papers lack, are not counted."""
    value = record["pos_context"].get("cc_align")
    texts = [record[part]["ABSTRACT"] for part in ("query", "pos_context")]
    if isinstance(value, list) and len(value) == 2 and all(type(place) is int for place in value):
        places = list(zip(value, texts, strict=True))
        if all(0 <= place < len(part) and part[place].strip() for place, part in places):
            first, second = (sum(bool(text.strip()) for text in part[:place]) for place, part in places)
            return first, second
    sizes = " and ".join(str(len(part)) for part in texts)
    remedy = "add it, or take an objective that aligns no sentences, such as ot, as `objective`"
    raise _unusable(where, f"the positions of two sentences, below {sizes}", value, remedy)


def _unusable(where: str, expected: str, value: Any, remedy: str) -> CorpusError:
    text = "none" if value is None else ascii(value[:60] if isinstance(value, (str, list)) else value)
    found = text if len(text) <= 62 else text[:59] + "..."
    return CorpusError(f"{where}: expected {expected}, found {found}; {remedy}")


# The training.


@dataclass(frozen=True, slots=True)
class CocitationRecipe:
    """How an encoder learns from co-citations; negatives are drawn within a batch."""

    objective: str = "ot"  # one of `qbe.train.losses.OBJECTIVES`
    similarity: str = L2  # of vectors as they are, or "cosine": scaled to unit length
    epochs: int = 1
    learning_rate: float | None = None  # None: the objective's
    batch: int = 10  # pairs
    accumulate: int = 3  # batches a step
    warm_up: float = 0.05
    weight_decay: float = 0.01  # not of biases and normalizations
    clip: float = 1.0
    patience: int = 2
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs)
        check_positive("learning_rate", self.rate)

    @property
    def rate(self) -> float:
        return OBJECTIVES[self.objective].rate if self.learning_rate is None else self.learning_rate

    @property
    def format(self) -> EncoderFormat:
        return EncoderFormat.pooled(TITLE_SEP_ABSTRACT, MEAN, self.similarity)

    def schedule(self) -> Schedule:
        return Schedule(self.epochs, self.clip, self.patience, self.warm_up)


def draw_negatives(pairs: Sequence[Pair], rng: random.Random) -> list[tuple[int, int]]:
    """For each pair (by its number) another one without a common paper, if any, whose positive is its
    negative.

    (The code of Mysore et al., 2022, permutes positives, which may give a paper to its own query.)
    """
    drawn = []
    for number, pair in enumerate(pairs):
        others = [place for place, other in enumerate(pairs) if pair.cited.isdisjoint(other.cited)]
        if others:
            drawn.append((number, rng.choice(others)))
    return drawn


def cocitation_task(
    network: CocitationEncoder,
    tokenizer: PaperTokenizer,
    recipe: CocitationRecipe,
    pairs: Sequence[Pair],
    dev: Sequence[Pair],
) -> Task[tuple[Sequence[Pair], random.Random]]:
    """An encoder that learns from pairs; its scores are mean losses on dev, negated."""
    size = min(recipe.batch * recipe.accumulate, len(pairs))
    steps = len(pairs) // size

    def by_batch(pairs: Sequence[Pair], rng: random.Random) -> Iterator[Tensor]:
        """The losses of the pairs that have a negative, by batches that are encoded in one pass."""
        for begin in range(0, len(pairs), recipe.batch):
            some = pairs[begin : begin + recipe.batch]
            drawn = draw_negatives(some, rng)
            if not drawn:
                continue
            windows = [
                first_window(tokenizer, paper, network.max_tokens, recipe.format.layout)
                for paper in (*(pair.query for pair in some), *(pair.positive for pair in some))
            ]
            vectors = network(table_of([each.ids for each in windows], [each.spans for each in windows]))
            device = vectors.whole.device
            numbers, others = (torch.tensor(column, device=device) for column in zip(*drawn, strict=True))
            alignments = torch.tensor([pair.alignment for pair in some], device=device)
            query, positive, negative = (
                vectors.rows(rows) for rows in (numbers, len(some) + numbers, len(some) + others)
            )
            triplets = Triplets(query, positive, negative, alignments[numbers], alignments[others, 1])
            yield triplet_losses(OBJECTIVES[recipe.objective], triplets, recipe.settings)

    def batches(seed: int) -> Iterator[tuple[Sequence[Pair], random.Random]]:
        for epoch in range(recipe.epochs):
            order = random.Random(f"{seed}-{epoch}").sample(range(len(pairs)), len(pairs))
            for step in range(steps):
                some = [pairs[number] for number in order[step * size : (step + 1) * size]]
                yield some, random.Random(f"{seed}-{epoch * steps + step}")

    def losses(batch: tuple[Sequence[Pair], random.Random]) -> Iterator[Tensor]:
        some, rng = batch
        torch.manual_seed(rng.getrandbits(63))  # for dropout
        for part in by_batch(some, rng):
            yield part.sum() / len(some)

    @torch.no_grad()
    def score() -> float:
        """Without dropout, against negatives that are the same in every call."""
        network.eval()
        rng = random.Random("dev")
        each = [loss for part in by_batch(rng.sample(list(dev), len(dev)), rng) for loss in part.tolist()]
        return -float(np.mean(each)) if each else math.nan

    def rate(_: str, part: Tensor) -> tuple[float, float]:
        return recipe.rate, recipe.weight_decay if part.dim() > 1 else 0.0

    return Task(network, steps, rate, batches, losses, score)


def first_window(tokenizer: PaperTokenizer, paper: Paper, max_tokens: int, layout: str) -> Window:
    """A paper's first window in a layout; the rest of a longer paper is not trained on."""
    sentences = [tokenizer.ids(sentence.text) for sentence in paper.sentences]
    return next(passes(tokenizer.ids(paper.title), sentences, tokenizer.special, max_tokens, layout))


@dataclass
class CocitationTraining(Training):
    """An encoder of the BERT family that learns from co-citations, whatever it was trained for.

    Sources are files of co-citations to train on and of dev (none: a share of the former), and papers to
    leave out. Pairs whose aligned sentences are beyond the model's window are left out. Of the seeds and
    their mean the one with the lowest loss on dev is published.
    """

    recipe: CocitationRecipe = CocitationRecipe()
    encoder: str = BASE_ENCODER

    def open(self) -> dict[str, Any]:
        self._dtype, (self._name, self._folder) = matmul_dtype(self.run.device), find_start(self.encoder)
        self._objective = OBJECTIVES[self.recipe.objective]
        self._pairs = read_parts(self.sources, aligned=self._objective.aligned)
        self._base = sha256(weights_file(ENCODER, self._folder))
        return {"base": {"name": self._name, "weights_sha256": self._base}}

    def fit(self) -> None:
        recipe = self.recipe
        write_tokenizer(self._folder, self.work / TOKENIZER)
        unit, tokenizer = recipe.similarity == COSINE, PaperTokenizer(self.work / TOKENIZER)
        network = self._network = CocitationEncoder(self._folder, self._dtype, unit=unit).to(self.run.device)

        def fits(pair: Pair) -> bool:
            windows = (
                first_window(tokenizer, paper, network.max_tokens, recipe.format.layout)
                for paper in (pair.query, pair.positive)
            )
            return all(place < len(each.spans) for each, place in zip(windows, pair.alignment, strict=True))

        train, dev = (list(filter(fits, each)) if self._objective.aligned else each for each in self._pairs)
        if not train or not dev:
            raise CorpusError(
                "expected pairs whose aligned sentences the model reads, found none; give shorter ones"
            )
        task = cocitation_task(network, tokenizer, recipe, train, dev)
        weights = {"untrained": copied(network)}
        weights |= fit_seeds(task, recipe.schedule(), self.run.seeds, self.work)
        self._counts = len(train), len(dev)
        self._losses = {
            name: -cast(float, with_weights(network, each, task.score)) for name, each in weights.items()
        }
        self._best = min((name for name in weights if name != "untrained"), key=self._losses.__getitem__)
        network.load_state_dict(weights[self._best], strict=False)

    def publish(self, folder: Path) -> Card:
        recipe, base, (train, dev) = self.recipe, self._name, self._counts
        source = f"{base}, trained by qbe with the objective {recipe.objective}"
        metadata = write_pretrained(
            self._network.to("cpu").bert,
            self.work / TOKENIZER,
            folder,
            lambda exported: export_encoder(folder, self.name, source, exported, recipe.format),
        )
        parity = ", ".join(f"{name} {row['min_cosine']:.5f}" for name, row in metadata.parity.items())
        return Card(
            name=metadata.name,
            purpose=f"A sentence encoder ({metadata.dimension} dimensions, {metadata.layers} layers), "
            f"trained on {train:,} co-cited pairs with the objective {recipe.objective} "
            f"({self._objective.name}; Mysore et al., 2022) from {base} (weights {self._base[:12]}).",
            input=f"{recipe.format.layout}, {metadata.max_tokens} tokens; vectors are compared by "
            f"{recipe.format.similarity}",
            caption=f"Mean loss on {dev:,} pairs of dev, without dropout. Published: {self._best}. Smallest "
            f"cosine of a mean with PyTorch: {parity}.",
            columns=("weights", "loss"),
            figures={name: [loss] for name, loss in self._losses.items()},
            places=4,
            command=f"encoder --objective {recipe.objective} --cocitations FILE",
            limits="Known from its training data only; not compared on other collections.",
            licence=f"that of {base} and of the training data",
        )
