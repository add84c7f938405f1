"""Training of the facet tagger: teachers, soft labels, students; and its admission to other encoders."""

import logging
import random
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qbe.corpus.identity import TitleIndex
from qbe.errors import ModelError
from qbe.models.cards import DEFAULT_TAGGER, HEAD, TaggerFiles, TaggerMetadata, write_card
from qbe.models.encoder import Encoder
from qbe.models.encoding import Floats
from qbe.models.export.encoder import Feed, export_head
from qbe.models.export.graph import dequantized
from qbe.models.folders import BASE_ENCODER, MINILM, packaged_weights, resolve_tagger
from qbe.models.tagger import Tagger, TaggingEncoder, span_mask
from qbe.train import fit as trainer
from qbe.train import tagger_network
from qbe.train.tagger_network import LABELS, Head, LabelledAbstract, SentenceLayers, Teacher, Tokens
from qbe.train.work import APACHE, Card, Training, load_arrays, save_arrays
from qbe.types import FacetProbabilities, Paper
from qbe.util.files import sha256
from qbe.util.work import ordered_map

log = logging.getLogger(__name__)

# arXiv's categories of abstracts that are like those of medicine; others are like CSAbstruct's.
LIFE_SCIENCES = ("q-bio", "physics.med", "stat.AP", "eess.IV")
NO_HEADING = (0.0,) * len(LABELS)
ENCODER_RATE = 0.1  # the encoder's learning rate as a share of the head's: the encoder is pretrained
MORE_THAN_ONE = 1.5  # a sum of probabilities is 1, but for rounding


def record_states(encoder: Encoder, layers: Sequence[int], papers: Iterable[Paper]) -> list[Tokens]:
    """Tokens and states of each paper, in order; ``encoder.threads`` papers are encoded at a time."""

    def record_paper(paper: Paper) -> Tokens:
        windows: list[Floats] = []

        def keep(states: Sequence[Floats], spans: Sequence[tuple[int, int]]) -> Floats:
            if not windows:  # the first alone is kept
                windows.append(np.stack(states, axis=1))
            return np.zeros((len(spans), 0), np.float32)

        encoder.encode_paper(paper, SimpleNamespace(layers=layers, compute=keep))
        states, window = windows[0], next(encoder.windows(paper))
        scales = np.maximum(np.abs(states).max(axis=2, keepdims=True) / 127, 1e-6).astype(np.float16)
        numbers = np.rint(states / scales.astype(np.float32)).clip(-127, 127).astype(np.int8)
        return Tokens(np.array(window.ids, np.int32), tuple(window.spans), numbers, scales)

    return list(ordered_map(record_paper, papers, encoder.threads))


Network = Head | Teacher | SentenceLayers


class Example(NamedTuple):
    """A paper, and what it teaches."""

    paper: Tokens
    targets: Floats  # (sentences, labels), probabilities; more than one 1 is any of these labels
    weights: Floats  # (sentences,), in the loss

    @classmethod
    def headed(cls, tokens: Tokens, paper: Paper, weights: tuple[float, float]) -> "Example":
        """Take the labels of headings: an aim below *Background* is no mistake, conclusions do not count.
        ``weights`` are those of papers in life sciences and of others.
        """
        categories = map(str, paper.metadata.get("categories") or ())
        weight = weights[not any(each.startswith(LIFE_SCIENCES) for each in categories)]
        targets = np.array([each.probabilities or NO_HEADING for each in paper.sentences], np.float32)
        targets[:, :2] = targets[:, :2].sum(1, keepdims=True)
        return cls(tokens, targets, weight * targets[:, :4].max(1))


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a head is fitted, with ``papers`` a step; the learning rate rises over a tenth of the steps; that
    of the label chain is ``chain`` times as high.
    """

    epochs: int
    learning_rate: float = 1e-3
    papers: int = 16
    weight_decay: float = 0.05
    clip: float = 1.0
    chain: float = 1.0


def batches(lengths: Sequence[int], size: int, rng: random.Random | None) -> list[list[int]]:
    """Positions of papers in groups of at most ``size`` and of similar length (in tokens); with ``rng`` in
    random order, and up to 20 is added to each length, so that groups differ from epoch to epoch.
    """
    noise = [rng.random() * 20 if rng else 0.0 for _ in lengths]
    ranked = sorted(range(len(lengths)), key=lambda i: lengths[i] + noise[i])
    groups = [ranked[first : first + size] for first in range(0, len(ranked), size)]
    if rng:
        rng.shuffle(groups)
    return groups


def loss(model: Network, scores: Tensor, present: Tensor, examples: Sequence[Example]) -> Tensor:
    """Cross-entropy of the marginals of the label chain, weighted by sentence (a scalar).

    With one-hot targets and the annotators' confidences as weights uncertain labels count less; with
    probabilities as targets this is distillation (Hinton et al., 2015, section 2, at temperature 1).
    """
    targets = torch.zeros_like(scores)
    weights = torch.zeros(scores.shape[:2])
    for i, example in enumerate(examples):
        count = len(example.paper.spans)
        targets[i, :count] = torch.from_numpy(example.targets[:count])
        weights[i, :count] = torch.from_numpy(example.weights[:count])
    marginals = model.chain.log_marginals(scores, present)
    likely = targets * marginals.detach().exp()  # as targets: the gradient is that of the labels' sum
    several = targets.sum(-1, keepdim=True) > MORE_THAN_ONE
    targets = torch.where(several, likely / likely.sum(-1, keepdim=True).clamp(min=1e-9), targets)
    return -((marginals * targets).sum(-1) * weights).sum() / weights.sum()


def autocast() -> torch.autocast:
    """Compute in bfloat16 where the processor multiplies it: elsewhere a step takes six times as long."""
    return torch.autocast("cpu", torch.bfloat16, trainer.matmul_dtype("cpu") == torch.bfloat16)


def fit(network: Network, examples: Sequence[Example], schedule: Schedule, seed: int, path: Path) -> None:
    """Fit a head or a teacher, with its checkpoints in ``path``; the last epoch is kept."""
    lengths = [len(example.paper.ids) for example in examples]

    def batched(seed: int) -> Iterator[list[Example]]:
        rng = random.Random(seed)
        for _ in range(schedule.epochs):
            for group in batches(lengths, schedule.papers, rng):
                yield [examples[i] for i in group]

    def losses(batch: list[Example]) -> Iterator[Tensor]:
        papers = network.collate([example.paper for example in batch])
        with autocast():
            scores = network(*papers)
        yield loss(network, scores.float(), papers[-1], batch)

    def rate(name: str, _: Tensor) -> tuple[float, float]:
        share = ENCODER_RATE if name.startswith("trunk.") else schedule.chain if "chain." in name else 1
        return schedule.learning_rate * share, schedule.weight_decay / max(1.0, share)

    task = trainer.Task(network, -(-len(examples) // schedule.papers), rate, batched, losses)
    trainer.fit(task, trainer.Schedule(schedule.epochs, schedule.clip, warm_up=0.1), seed, path)


def started_head(files: TaggerFiles, inputs: int) -> Head:
    """Make a head with the weights, in int8, of a tagger."""
    head, found = Head(inputs), dequantized(files.folder / HEAD)
    chain = {f"chain.{name}": getattr(files.metadata, name) for name in ("transitions", "begin", "end")}
    for name, part in head.state_dict().items():
        matrix = f"head.{name.removesuffix('weight')}bias/matrix"
        value: Any = chain[name] if name in chain else found.get(matrix, found.get(f"head.{name}"))
        if np.shape(value) != part.shape:
            expected = f"a tagger that qbe train tagger wrote for {inputs} inputs as `start`"
            raise ModelError(f"{files.folder}: expected {expected}, found another {name}; give another")
        part.copy_(torch.from_numpy(np.array(value, np.float32)))
    return head


def predict(model: Network, papers: Sequence[Tokens]) -> list[Floats]:
    """Probabilities (sentences, labels) of each paper, in order."""
    model.eval()
    probabilities: dict[int, Floats] = {}
    with torch.inference_mode():
        for group in batches([len(paper.ids) for paper in papers], 16, None):
            batch = model.collate([papers[i] for i in group])
            with autocast():
                scores = model(*batch)
            marginals = model.chain.log_marginals(scores.float(), batch[-1]).exp().numpy()
            for row, i in enumerate(group):
                probabilities[i] = marginals[row, : len(papers[i].spans)]
    return [probabilities[i] for i in range(len(papers))]


class Scores(NamedTuple):
    """Agreement over all sentences of a split, in per cent."""

    micro_f1: float  # over the five labels, equal to accuracy
    folded: float  # with objective folded into background
    confident: float  # each sentence weighted by its annotators' confidence

    @property
    def figures(self) -> dict[str, float]:
        return {name: round(value, 2) for name, value in self._asdict().items()}


def score(abstracts: Sequence[LabelledAbstract], probabilities: Sequence[NDArray[np.floating]]) -> Scores:
    """Compare probabilities (sentences, labels) of each abstract with its labels, chosen as in a search.

    Sentences without a prediction count as if they had the label predicted for the last one.
    """
    predicted: list[int] = []
    for abstract, rows in zip(abstracts, probabilities, strict=True):
        labels = [LABELS.index(FacetProbabilities(*row).label) for row in rows.tolist()]
        predicted += labels + labels[-1:] * (len(abstract.labels) - len(labels))
    true = [label for abstract in abstracts for label in abstract.labels]
    fold = np.array([0 if label == "objective" else i for i, label in enumerate(LABELS)])
    weights = [confidence for abstract in abstracts for confidence in abstract.confidences]
    right = np.array(true) == np.array(predicted)
    return Scores(
        100 * float(right.mean()),
        100 * float((fold[true] == fold[predicted]).mean()),
        100 * float(np.average(right, weights=weights)),
    )


MAX_LOSS = 0.5  # points of micro-F1 on dev that a tagger may lose on an encoder it was not trained on


def measure(encoder: Encoder, tagger: Tagger, abstracts: Sequence[LabelledAbstract]) -> Scores:
    tagging = TaggingEncoder(encoder, tagger, "predicted").encode(map(LabelledAbstract.paper, abstracts))
    rows = ([sentence.probabilities for sentence in paper.sentences] for paper, _ in tagging)
    return score(abstracts, [np.array(row, np.float32) for row in rows])


def admit(folder: Path, name: str, csabstruct: Path, threads: int) -> dict[str, dict[str, float]]:
    """Measure a tagger on another encoder, and record in the tagger's card that it can be used with it.

    This is for encoders whose weights are close to those that it was trained on. Returns scores by split.
    """
    labelled = tagger_network.read_csabstruct(csabstruct)
    metadata, encoder = resolve_tagger(str(folder)).metadata, Encoder.open(name, threads=threads)
    identity = {"name": encoder.files.metadata.name, "weights_sha256": encoder.files.metadata.weights_sha256}
    others = [other for other in metadata.also_reads if other["name"] != identity["name"]]
    wider = replace(metadata, also_reads=[*others, identity])
    original = Encoder.open(metadata.trunk["name"], threads=threads)
    tagger = Tagger(TaggerFiles(folder, wider))
    if encoder.dimension != original.dimension or not tagger.supports(encoder):
        raise ModelError(
            f"expected an encoder in the format of {metadata.trunk['name']}, of {original.dimension} "
            f"dimensions, found {name} of {encoder.dimension}; give another `encoder`"
        )
    before = measure(original, tagger, labelled["dev"]).figures["micro_f1"]
    scores = {split: measure(encoder, tagger, labelled[split]).figures for split in ("dev", "test")}
    lost = before - scores["dev"]["micro_f1"]
    if lost > MAX_LOSS:
        raise ModelError(
            f"expected a loss of at most {MAX_LOSS} points of micro-F1 on dev, found {lost:.2f} on {name}; "
            "train a tagger for it with: qbe train tagger"
        )
    write_card(folder, replace(metadata, also_reads=[*others, {**identity, "measured": scores}]))
    return scores


PARITY_PAPERS = 50  # of dev, on which the exported model is compared with PyTorch


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the tagger is trained: teachers, students on their labels and annotators', at last headings."""

    layers: tuple[int, ...] = (0, 3, 6)  # of the encoder that it reads, 0: embeddings
    teachers: int = 2
    teacher: Schedule = Schedule(3, papers=8)
    unlabelled: int = 12_000  # papers that teachers label
    untitled: float = 0.5  # the share of them that loses its title, as CSAbstruct has none
    soft: Schedule = Schedule(3)
    gold: Schedule = Schedule(3, learning_rate=3e-4)
    sample_seed: int = 0  # draws them
    headed: Schedule = Schedule(4, learning_rate=5e-4, papers=32, chain=50)
    headed_weights: tuple[float, float] = (2.0, 0.4)  # of abstracts of LIFE sciences, and of others
    kept: int = 2_000  # unlabelled papers whose labels stay


@dataclass
class TaggerTraining(Training):
    """The facet tagger; of the students, one a seed, the best on dev is published. It trains on the CPU.

    Sources are the folder of CSAbstruct's splits, corpora with structured abstracts (or none), a corpus of
    unlabelled papers, and papers to leave out. A tagger, ``start``, takes the place of what teachers and
    annotators teach.
    """

    recipe: Recipe = Recipe()
    encoder: str = BASE_ENCODER  # the name or folder of the one whose states the tagger reads
    weights: Path | None = None  # that teachers start from, in PyTorch's format; None: the base encoder's
    start: str | None = None

    def open(self) -> dict[str, Any]:
        self._start = resolve_tagger(self.start) if self.start else None
        started = {"start": sha256(self._start.folder / HEAD)} if self._start else {}
        return {"encoder": self.encoder, **started}

    def fit(self) -> None:
        recipe = self.recipe
        self._trunk = Encoder.open(self.encoder, threads=self.run.threads)
        self._labelled = tagger_network.read_csabstruct(self.sources.train[0])
        evaluated = TitleIndex.of_corpus(self.sources.leave_out)
        self._papers = {
            split: record_states(self._trunk, recipe.layers, map(LabelledAbstract.paper, abstracts))
            for split, abstracts in self._labelled.items()
        }
        one_hot = np.eye(len(LABELS), dtype=np.float32)
        gold = [
            Example(paper, one_hot[list(abstract.labels)], np.array(abstract.confidences, np.float32))
            for paper, abstract in zip(self._papers["train"], self._labelled["train"], strict=True)
        ]
        structured = tagger_network.headed_papers(self.sources.train[1:], evaluated)
        pairs = zip(record_states(self._trunk, recipe.layers, structured), structured, strict=True)
        headed = [Example.headed(*pair, recipe.headed_weights) for pair in pairs]
        count = recipe.kept if self._start else recipe.unlabelled
        papers = tagger_network.sample_papers(self.sources.corpus, evaluated, count, recipe.sample_seed)
        rng = random.Random(recipe.sample_seed)
        untitled = [replace(each, title="") if rng.random() < recipe.untitled else each for each in papers]
        unlabelled = record_states(self._trunk, recipe.layers, untitled)
        soft = [] if self._start else self._soft_examples(unlabelled, gold)
        self._structured, self._students = len(structured), dict[int, Head]()
        inputs = len(recipe.layers) * self._trunk.dimension
        for seed in self.run.seeds:
            torch.manual_seed(seed)
            student = started_head(self._start, inputs) if self._start else Head(inputs)
            self._students[seed] = student
            if not self._start:
                fit(student, [*soft, *gold], recipe.soft, seed, self.work / f"student-{seed}-soft.pt")
                fit(student, gold, recipe.gold, seed, self.work / f"student-{seed}.pt")
            if headed:
                self._learn_on(seed, headed, gold, unlabelled[: recipe.kept])

    def _learn_on(
        self, seed: int, headed: Sequence[Example], gold: Sequence[Example], others: Sequence[Tokens]
    ) -> None:
        """Let the layers over sentences learn from headings, and keep what they say of other abstracts."""
        layers = SentenceLayers(self._students[seed])
        pooled = zip(headed, layers.pool(each.paper for each in headed), strict=True)
        examples = [each._replace(paper=paper) for each, paper in pooled]
        papers = layers.pool([*(each.paper for each in gold), *others])
        for paper, own, given in zip_longest(papers, predict(layers, papers), gold):
            targets = np.float32(0.5) * (own + given.targets[: len(own)]) if given else own
            weights = given.weights if given else np.ones(len(own), np.float32)
            examples.append(Example(paper, targets, weights))
        fit(layers, examples, self.recipe.headed, seed, self.work / f"student-{seed}-headed.pt")

    def _soft_examples(self, papers: Sequence[Tokens], gold: Sequence[Example]) -> list[Example]:
        recipe = self.recipe
        kept = self.work / f"soft-{recipe.unlabelled}.npz"
        if not kept.exists():
            weights = self.weights or packaged_weights(MINILM)
            streams = []
            for number in range(recipe.teachers):
                seed = 1000 + number  # other seeds than the students'
                torch.manual_seed(seed)
                teacher = Teacher(weights, recipe.layers)
                fit(teacher, gold, recipe.teacher, seed, self.work / f"teacher-{number}.pt")
                streams.append(predict(teacher, papers))
            means = [np.mean(rows, axis=0) for rows in zip(*streams, strict=True)]
            save_arrays(kept, {"probabilities": np.concatenate(means)})
            log.info("the teachers have labelled %d papers", len(means))
        labels = load_arrays(kept, "the soft labels", "probabilities")["probabilities"]
        ends = np.cumsum([len(paper.spans) for paper in papers])
        return [
            Example(paper, part, np.ones(len(part), np.float32))
            for paper, part in zip(papers, np.split(labels, ends[:-1]), strict=True)
        ]

    def publish(self, folder: Path) -> Card:
        recipe, trunk = self.recipe, self._trunk.files.metadata
        seeds: dict[int, dict[str, Scores]] = {seed: {} for seed in self._students}
        for seed, head in self._students.items():
            for split in ("dev", "test"):
                seeds[seed][split] = score(self._labelled[split], predict(head, self._papers[split]))
        best = max(seeds, key=lambda seed: seeds[seed]["dev"].confident)
        last = f" Its layers over sentences then learned from headings of {self._structured:,} abstracts."
        feeds = list[Feed]()
        for paper in self._papers["dev"][:PARITY_PAPERS]:
            states = np.ascontiguousarray(paper.states.swapaxes(0, 1))
            feeds.append({"states": states, "spans": span_mask(paper.spans, len(paper.ids))})
        parity = export_head(self._students[best], feeds, folder / HEAD)
        chain = self._students[best].chain
        spread = {
            figure: statistics.pstdev(getattr(splits["test"], figure) for splits in seeds.values())
            for figure in ("micro_f1", "folded")
        }
        training: dict[str, Any] = {
            "recipe": self.made_from["recipe"],
            "seed": best,
            "structured": self._structured,
            **({"start": self.made_from["start"]} if self._start else {}),
            "data": self.made_from["data"],
            "parity": parity,
            "seeds": {
                seed: {split: scores.figures for split, scores in each.items()}
                for seed, each in seeds.items()
            },
            "spread": spread,
        }
        metadata = TaggerMetadata(
            name=DEFAULT_TAGGER,
            labels=LABELS,
            trunk={"name": trunk.name, "weights_sha256": trunk.weights_sha256},
            layers=recipe.layers,
            begin=chain.begin.tolist(),
            end=chain.end.tolist(),
            transitions=chain.transitions.tolist(),
            files={HEAD: sha256(folder / HEAD)},
            training=training,
        )
        test = measure(self._trunk, Tagger(TaggerFiles(folder, metadata)), self._labelled["test"])
        training["test"] = test.figures
        write_card(folder, metadata)
        return Card(
            name=metadata.name,
            purpose=f"Labels each sentence of an abstract {', '.join(LABELS[:-1])} or {LABELS[-1]}. "
            f"{recipe.teachers} teachers, in which the encoder is trained too, label {recipe.unlabelled:,} "
            f"abstracts, from which the head on the frozen encoder learns.{last * bool(self._structured)}",
            input=f"token states of `{trunk.name}` (weights {trunk.weights_sha256[:12]}), layers "
            f"{', '.join(map(str, recipe.layers))}, in the pass that encodes a paper",
            caption=f"CSAbstruct's test split, int8: micro-F1 {test.micro_f1:.2f} over five labels, "
            f"{test.folded:.2f} with objective folded into background (Cohan et al., 2019, with SciBERT: "
            f"83.1 over five). Seed {best} is the best of {len(seeds)} on dev by the annotators' confidence; "
            f"standard deviation of the seeds {spread['micro_f1']:.2f} and {spread['folded']:.2f}. int8 "
            f"gives {parity['int8_same_label']:.1%} of the sentences PyTorch's label.",
            columns=("seed", "split", "micro-F1", "folded", "by confidence"),
            figures={
                f"{seed} | {split}": scores for seed, each in seeds.items() for split, scores in each.items()
            },
            places=2,
            limits="Trained on English abstracts, most of them of computer science.",
            licence=f"{APACHE}; derived from {trunk.name} (same licence)",
        )
