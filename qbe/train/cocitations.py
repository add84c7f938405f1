"""Training of sentence encoders on co-citations, with the objectives of ASPIRE (Mysore et al., 2022)."""

import itertools
import logging
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from qbe.corpus.identity import TitleIndex
from qbe.corpus.json_stream import decode_record, decode_text
from qbe.corpus.records import parse_paper
from qbe.corpus.streams import display_name, numbered_lines, open_source
from qbe.errors import CorpusError, UsageError, check_count, check_positive
from qbe.index.vectors import similarities
from qbe.models.cards import ENCODER, TOKENIZER
from qbe.models.encoder import Encoder
from qbe.models.encoding import PaperTokenizer
from qbe.models.export.encoder import export_encoder
from qbe.models.export.pytorch import write_tokenizer
from qbe.models.folders import BASE_ENCODER, find_start, weights_file
from qbe.models.formats import COSINE, L2, MEAN, SENTENCES, TITLE_SEP_ABSTRACT, EncoderFormat
from qbe.train.fit import Schedule, Task, copied, fit_seeds, matmul_dtype, with_weights
from qbe.train.losses import CITING, CONTEXTS, OBJECTIVES, Objective, Settings, Triplets, triplet_losses
from qbe.train.network import CocitationEncoder, table_of, write_pretrained
from qbe.train.work import Card, Sources, Training, load_arrays, save_arrays
from qbe.types import Paper, Sentence
from qbe.util.files import sha256

log = logging.getLogger(__name__)
HELD_OUT, MOST_HELD_OUT = 0.05, 2000  # the share of sets that become dev, and the most, without a dev file
KEPT = 0.1  # the share of sentences that stay in their abstract in the inverse cloze task


class Pair(NamedTuple):
    """Two co-cited papers, of the set ``cited``, two aligned sentences, and the sentences that cite both."""

    cited: frozenset[str]
    query: Paper
    positive: Paper
    alignment: tuple[int, int] = (0, 0)
    contexts: tuple[str, ...] = ()


def read_parts(sources: Sources, objective: Objective, *, align: bool) -> tuple[list[Pair], list[Pair]]:
    """Read pairs to train on and pairs of dev; no set of cited papers is in both. ``align``: see below."""
    evaluated = TitleIndex.of_corpus(sources.leave_out)
    train, dev = (
        [pair for path in paths for pair in read_pairs(path, evaluated, objective, align=align)]
        for paths in (sources.train, sources.dev)
    )
    of_dev = {pair.cited for pair in dev}
    if not sources.dev:  # a random sample of at least 2 sets, which depends on nothing else
        sets = sorted({pair.cited for pair in train}, key=sorted)
        count = min(max(2, round(HELD_OUT * len(sets))), MOST_HELD_OUT, len(sets))
        of_dev = set(random.Random("held out").sample(sets, count))
        dev = [pair for pair in train if pair.cited in of_dev]
    parts = [pair for pair in train if pair.cited not in of_dev], dev
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


def read_pairs(
    source: Path, evaluated: TitleIndex, objective: Objective, *, align: bool = False
) -> Iterator[Pair]:
    """Stream the pairs that an objective learns from: papers that were cited together, each two sentences
    that cite the same set, or each sentence of a paper and the others, its own 10 % of the time (Lee et al.,
    *Latent Retrieval*, ACL 2019, section 4).
    """
    read, seen = read_cocitations(source, evaluated, objective, align=align), set[object]()
    if not objective.reads:
        yield from read
    elif objective.reads == CITING:
        for pair in read:
            if pair.cited not in seen:
                seen.add(pair.cited)
                for two in itertools.combinations(map(_single, pair.contexts), 2):
                    yield Pair(pair.cited, *two)
    else:
        for paper in itertools.chain.from_iterable(pair[1:3] for pair in read):
            key = paper.title, paper.sentences
            if key not in seen and len(paper.sentences) > 1:
                seen.add(key)
                cited = frozenset([paper.title, paper.abstract])
                for place, sentence in enumerate(paper.sentences):
                    rest = list(paper.sentences)
                    if random.Random(f"{paper.title} {place}").random() >= KEPT:
                        del rest[place]
                    yield Pair(cited, _single(sentence.text), Paper("", "", tuple(rest)))


def _single(text: str) -> Paper:
    return Paper("", "", (Sentence(text),))


def read_cocitations(
    source: Path, evaluated: TitleIndex, objective: Objective = OBJECTIVES["ot"], *, align: bool = False
) -> Iterator[Pair]:
    """Stream pairs of papers that were cited together, without those of papers in ``evaluated``.

    Lines are JSON as ``pre_proc_cocits.py`` of ASPIRE's code writes it: ``cited_pids``, the ids of all papers
    that were cited together; ``query`` and ``pos_context``, two of these, each ``TITLE`` and ``ABSTRACT``
    (sentences); and where the objective needs them, in ``pos_context`` the positions of two sentences, found
    by those that cite both (``cc_align``) or directly (``abs_align``), or (``align``) ``citing_contexts``,
    what cites both. Equal papers are one object. Raises CorpusError with file and line.
    """
    papers: dict[tuple[str, tuple[Sentence, ...]], Paper] = {}
    name, is_evaluated = display_name(source), cache(evaluated.holds)
    key = "" if align else objective.aligned
    cites = objective.reads == CITING or (align and objective.aligned == CONTEXTS)
    with open_source(source) as stream:
        for number, line in numbered_lines(stream, name):
            where = f"{name}, line {number}"
            if not (text := decode_text(line, where).removeprefix("\ufeff").strip()):
                continue
            pair = _pair(decode_record(text, where, "one JSON object a line"), where, key, cites=cites)
            query, positive = (
                papers.setdefault((paper.title, paper.sentences), paper) for paper in pair[1:3]
            )
            if not is_evaluated(query.title) and not is_evaluated(positive.title):
                yield pair._replace(query=query, positive=positive)


def _pair(record: Mapping[str, Any], where: str, key: str, *, cites: bool) -> Pair:
    """Make a pair of a record; ``key`` is that of the positions of sentences, if they are read."""

    def require(is_right: bool, expected: str, value: Any, remedy: str, place: str = "") -> None:
        if not is_right:
            found = "none" if value is None else ascii(value)
            found = found if len(found) <= 62 else found[:59] + "..."
            raise CorpusError(f"{where}{place}: expected {expected}, found {found}; {remedy}")

    papers = []
    for name in ("query", "pos_context"):
        value: Any = record.get(name)
        is_object = isinstance(value, Mapping)
        require(is_object, "an object with TITLE and ABSTRACT", value, "give both papers", f", {name}")
        texts = value.get("ABSTRACT")
        remedy = "split it into sentences"
        require(isinstance(texts, list), "a list of sentences as ABSTRACT", texts, remedy, f", {name}")
        fields = {"title": value.get("TITLE"), "abstract": texts}
        papers.append(parse_paper(fields, f"{where}, {name}", default_id=""))
    ids: Any = record.get("cited_pids")
    is_set = isinstance(ids, list) and all(isinstance(each, (str, int)) and each != "" for each in ids)
    expected, remedy = "the ids of two papers or more as cited_pids", "say which papers were cited together"
    require(is_set and len(set(map(str, ids))) > 1, expected, ids, remedy)
    alignment, contexts = (0, 0), tuple[str, ...]()
    if key:
        places: Any = record["pos_context"].get(key)
        abstracts = [record[part]["ABSTRACT"] for part in ("query", "pos_context")]
        are_places = isinstance(places, list) and len(places) == 2 and {*map(type, places)} == {int}
        pairs = list(zip(places, abstracts, strict=True)) if are_places else []
        sizes = " and ".join(str(len(each)) for each in abstracts)
        expected = f"the positions of two sentences, below {sizes}"
        remedy = "add it, give an `aligner`, or an `objective` that aligns no sentences, such as ot"
        inside = all(0 <= place < len(texts) and texts[place].strip() for place, texts in pairs)
        require(are_places and inside, expected, places, remedy, f", {key}")
        # Empty sentences, which papers lack, are not counted.
        one, two = (sum(bool(text.strip()) for text in texts[:place]) for place, texts in pairs)
        alignment = one, two
    if cites:
        value = record.get("citing_contexts", record["pos_context"].get("citing_contexts"))
        are_texts = isinstance(value, list) and all(isinstance(text, str) for text in value)
        expected = "the sentences that cite both papers as citing_contexts"
        remedy = "add them, or take an objective that needs none, such as ot, as `objective`"
        require(are_texts and bool("".join(value).strip()), expected, value, remedy)
        contexts = tuple(" ".join(text.split()) for text in value if text.strip())
    query, positive = papers
    return Pair(frozenset(map(str, ids)), query, positive, alignment, contexts)


ALIGNED_TOGETHER = 2048  # pairs whose sentences are encoded together, each sentence once


def align(pairs: Sequence[Pair], by: str, aligner: Encoder, file: Path) -> list[Pair]:
    """Pairs with the positions of two sentences, of which the file keeps a copy: by contexts in each paper
    the sentence nearest to any that cites both, by abstracts the two sentences nearest to each other.

    Each sentence is encoded alone, and compared as the encoder compares vectors.
    """
    found: list[tuple[int, ...]] = []
    for begin in range(0, 0 if file.exists() else len(pairs), ALIGNED_TOGETHER):
        texts_of = [
            (*([each.text for each in paper.sentences] for paper in pair[1:3]), pair.contexts)
            for pair in pairs[begin : begin + ALIGNED_TOGETHER]
        ]
        texts = dict.fromkeys(text for parts in texts_of for part in parts for text in part)
        encoded = (vectors.whole.astype(np.float32) for vectors in aligner.encode(map(_single, texts)))
        vectors = dict(zip(texts, encoded, strict=True))
        nearest = partial(similarities, similarity=aligner.files.metadata.encoder_format.similarity)
        for parts in texts_of:
            query, positive, contexts = (np.array([vectors[text] for text in part]) for part in parts)
            if by == CONTEXTS:
                found.append(tuple(nearest(each, contexts).max(1).argmax() for each in (query, positive)))
            else:
                found.append(divmod(int(nearest(query, positive).argmax()), len(positive)))
    if not file.exists():
        save_arrays(file, {"positions": np.array(found).reshape(-1, 2)})
    kept = load_arrays(file, "the alignment of sentences", "positions")["positions"].tolist()
    return [pair._replace(alignment=(one, two)) for pair, (one, two) in zip(pairs, kept, strict=True)]


@dataclass(frozen=True, slots=True)
class CocitationRecipe:
    """How an encoder learns from co-citations; negatives are drawn within a batch.

    Rates and temperatures are those of appendices E and F of the paper for computer science, where it warms
    up for 2,000 steps. (Its code has a temperature of 5000, with which sentences weigh nearly the same, and
    rates of 3e-5 for ot, abs and max and 2e-5 for ts+ot.)
    """

    objective: str = "ot"  # one of `qbe.train.losses.OBJECTIVES`
    similarity: str = L2  # of vectors as they are, or "cosine": scaled to unit length
    epochs: int = 1
    learning_rate: float | None = None  # None: the objective's
    batch: int = 10  # pairs
    accumulate: int = 3  # batches a step
    warm_up: float = 0.05  # a share of the steps, or from 1 on their number
    weight_decay: float = 0.01  # not of biases and normalizations
    clip: float = 1.0
    patience: int = 2
    margin: float = 1.0
    temperature: float | None = None  # None: the objective's
    regularization: float = 20.0
    steps: int | None = None  # of an epoch, at most; None: all pairs

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "accumulate", *(["steps"] if self.steps is not None else [])):
            check_count(name, getattr(self, name))
        check_positive("learning_rate", self.rate)
        for name in ("warm_up", "margin", "regularization"):
            check_positive(name, getattr(self, name))
        check_positive("temperature", self.settings.temperature)

    @property
    def rate(self) -> float:
        return OBJECTIVES[self.objective].rate if self.learning_rate is None else self.learning_rate

    @property
    def format(self) -> EncoderFormat:
        layout = SENTENCES if OBJECTIVES[self.objective].reads else TITLE_SEP_ABSTRACT
        return EncoderFormat(layout, MEAN, self.similarity)

    @property
    def settings(self) -> Settings:
        tau = OBJECTIVES[self.objective].temperature if self.temperature is None else self.temperature
        return Settings(self.margin, tau, self.regularization)


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
    steps = min(len(pairs) // size, recipe.steps or len(pairs))

    def by_batch(pairs: Sequence[Pair], rng: random.Random) -> Iterator[Tensor]:
        """The losses of the pairs that have a negative, by batches that are encoded in one pass."""
        for begin in range(0, len(pairs), recipe.batch):
            some = pairs[begin : begin + recipe.batch]
            drawn = draw_negatives(some, rng)
            if not drawn:
                continue
            windows = [
                tokenizer.first_window(paper, network.max_tokens, recipe.format.layout)
                for paper in (*(pair.query for pair in some), *(pair.positive for pair in some))
            ]
            vectors = network(table_of(windows))
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

    return Task(
        network,
        steps,
        rate=lambda _, part: (recipe.rate, recipe.weight_decay if part.dim() > 1 else 0.0),
        batches=batches,
        losses=losses,
        score=score,
    )


@dataclass
class CocitationTraining(Training):
    """An encoder of the BERT family that learns from co-citations, whatever it was trained for.

    Sources are files of co-citations to train on and of dev (none: a share of the former), and papers to
    leave out. Pairs whose aligned sentences are beyond the model's window are left out. Of the seeds and
    their mean the one with the lowest loss on dev is published. An ``aligner``, the name or folder of an
    encoder, aligns sentences in place of the files.
    """

    recipe: CocitationRecipe = CocitationRecipe()
    encoder: str = BASE_ENCODER
    aligner: str | None = None

    def open(self) -> dict[str, Any]:
        self._dtype, (self._name, self._folder) = matmul_dtype(self.run.device), find_start(self.encoder)
        self._objective = OBJECTIVES[self.recipe.objective]
        self._pairs = read_parts(self.sources, self._objective, align=self.aligner is not None)
        self._base = sha256(weights_file(ENCODER, self._folder))
        base = {"name": self._name, "weights_sha256": self._base}
        if self.aligner is None:
            return {"base": base}
        if not self._objective.aligned:
            aligned = ", ".join(name for name, each in OBJECTIVES.items() if each.aligned)
            raise UsageError(
                f"`aligner` is of the objectives {aligned}, found {self.recipe.objective}; drop it"
            )
        self._aligner = Encoder.open(self.aligner, threads=self.run.threads)
        return {"base": base, "aligner": self._aligner.files.identity}

    def fit(self) -> None:
        recipe = self.recipe
        write_tokenizer(self._folder, self.work / TOKENIZER)
        unit, tokenizer = recipe.similarity == COSINE, PaperTokenizer(self.work / TOKENIZER)
        network = self._network = CocitationEncoder(self._folder, self._dtype, unit=unit).to(self.run.device)

        def fits(pair: Pair) -> bool:
            windows = (
                tokenizer.first_window(paper, network.max_tokens, recipe.format.layout)
                for paper in (pair.query, pair.positive)
            )
            return all(place < len(each.spans) for each, place in zip(windows, pair.alignment, strict=True))

        train, dev = self._pairs
        by = self._objective.aligned
        if self.aligner is not None:
            train = align(train, by, self._aligner, self.work / "aligned-train.npz")
            dev = align(dev, by, self._aligner, self.work / "aligned-dev.npz")
        train, dev = (list(filter(fits, each)) if by else each for each in (train, dev))
        if not train or not dev:
            raise CorpusError(
                "expected pairs whose aligned sentences the model reads, found none; give shorter ones"
            )
        task = cocitation_task(network, tokenizer, recipe, train, dev)
        schedule = Schedule(recipe.epochs, recipe.clip, recipe.patience, recipe.warm_up)
        weights = {"untrained": copied(network), **fit_seeds(task, schedule, self.run.seeds, self.work)}
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
            limits="Known from its training data only; not compared on other collections.",
            licence=f"that of {base} and of the training data",
        )
