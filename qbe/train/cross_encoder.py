"""Training of cross-encoders of pairs of papers: on grades, or on who cites whom.

SciFACE (2026), sections 3.9 and 3.10; Nogueira, Jiang, Cho and Lin, *Evaluating Pretrained Transformer Models
for Citation Recommendation* (BIR 2020), sections 3 and 4 (see `qbe.train.citation_pairs`).
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch

from qbe.errors import CorpusError, ModelError, UsageError, check_positive
from qbe.models.cards import ENCODER, TOKENIZER
from qbe.models.encoding import PaperTokenizer
from qbe.models.export.encoder import export_cross_encoder
from qbe.models.export.pytorch import positions, write_tokenizer
from qbe.models.folders import BASE_ENCODER, find_start, weights_file
from qbe.query import SIMILAR_FROM
from qbe.runs import GradedLists
from qbe.search.rerankers import OF_ABSTRACT, OF_FACET, SIDE_TOKENS, TEXTS
from qbe.train.fit import Schedule, Task, fit_seeds, matmul_dtype
from qbe.train.losses import pair_loss
from qbe.train.network import write_pretrained
from qbe.train.pair_reader import FACETS, Epoch, PairReader, by_length, by_list, in_triplets, open_pair_reader
from qbe.train.pairs import facet_correlations, read_indexed_lists
from qbe.train.work import BY_FACET, GRADES_LIMITS, Card, Training
from qbe.types import Facet
from qbe.util.files import sha256

log = getLogger(__name__)
T = TypeVar("T")

GRADES, MARGIN, BCE = "grades", "margin", "bce"
LOSSES = (GRADES, MARGIN, BCE)
# What is learned from: BM25's best as they are, as many that are not cited as are, also all that is cited, or
# these and as many papers at random.
CLASSES = ("natural", "balanced", "all-cited", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEncoderRecipe:
    """How a cross-encoder learns; Spearman's correlation or, of citations, F1@20 on dev chooses."""

    facet: str | None = None  # of the one output; None: there are three
    loss: str | None = None  # one of LOSSES; None: GRADES, of citations BCE
    texts: str | None = None  # one of `qbe.search.rerankers.TEXTS`; None: those of the facet, or abstracts
    query_tokens: int = SIDE_TOKENS  # that are read, special tokens included
    candidate_tokens: int = SIDE_TOKENS
    classes: str = "natural"  # of citations, one of CLASSES
    candidates: int = 10  # of citations, the best of BM25, by title and abstract
    margin: float = 0.5
    triplets: int = 10  # of a query and epoch
    unrelated: int = 4  # graded candidates of a query and epoch without a grade of 1 or more, at most
    crossed: float = 3.0  # see `qbe.train.losses.order_weights`
    epochs: float = 1.0
    steps: int | None = None  # in place of epochs
    batch: int = 16  # pairs a step
    learning_rate: float = 5e-5
    weight_decay: float = 0.01
    clip: float = 1.0
    warm_up: float = 0.1  # a share of the steps, or from 1 on their number
    evaluations: int = 8
    patience: int = 3  # evaluations that are no better, after which training ends
    dev_queries: int = 60
    dev_depth: int = 40  # of citations, candidates of BM25 that are reranked

    def __post_init__(self) -> None:
        optional = {"facet": FACETS, "loss": LOSSES, "texts": TEXTS, "classes": CLASSES}
        for name, known in optional.items():
            value = getattr(self, name)
            if value is not None and value not in known:
                raise UsageError(f"expected `{name}` of {', '.join(known)}, found {value!r}")
        if self.texts == OF_FACET and self.facet is None:
            raise UsageError(f"`texts` {OF_FACET} are of one `facet`, found none; give it, or other texts")
        least = {"query_tokens": 8, "candidate_tokens": 8, "batch": 2}
        counts = ("candidates", "triplets", "evaluations", "dev_queries", "steps")
        for name, smallest in {**least, **dict.fromkeys(counts, 1)}.items():
            if getattr(self, name) is not None and getattr(self, name) < smallest:
                raise UsageError(f"expected `{name}` of at least {smallest}, found {getattr(self, name)}")
        for name in ("epochs", "learning_rate", "margin", "warm_up"):
            check_positive(name, getattr(self, name))

    @property
    def places(self) -> Sequence[int]:
        """The facets of the outputs, by their places."""
        return range(len(FACETS)) if self.facet is None else [FACETS.index(self.facet)]


class Examples(NamedTuple):
    """Pairs of papers by their rows in the index, with the number of their list and their truth, and what
    draws the batches of an epoch.
    """

    rows: Sequence[tuple[int, int, Sequence[float]]]
    draw: Epoch


def spread(items: Sequence[T], count: int) -> list[T]:
    """At most so many of the items, evenly spread."""
    count = min(count, len(items))
    return [items[place * len(items) // count] for place in range(count)]


def pair_task(
    model: PairReader,
    examples: Examples,
    loss: str,
    recipe: CrossEncoderRecipe,
    steps: int,
    score: Callable[[], float],
) -> Task[list[int]]:
    """A cross-encoder that learns from pairs by `qbe.train.losses.pair_loss`, and is measured after so many
    steps.
    """

    def batches(seed: int) -> Iterator[list[int]]:
        for epoch in itertools.count():
            yield from examples.draw(np.random.default_rng([seed, epoch]))

    def losses(batch: list[int]) -> Iterator[torch.Tensor]:
        *pairs, labels = zip(*(examples.rows[place] for place in batch), strict=True)
        scores = model(list(zip(*pairs, strict=True)))
        truth = torch.tensor(labels, device=scores.device)
        yield pair_loss(loss, scores, truth[:, 0], truth[:, 1:], recipe.margin, recipe.crossed)

    def rate(_: str, part: torch.Tensor) -> tuple[float, float]:
        return recipe.learning_rate, recipe.weight_decay if part.dim() > 1 else 0.0

    return Task(model, steps, rate, batches, losses, score)


@dataclass
class CrossEncoderTraining(Training):
    """A cross-encoder of a facet, or of all; of several seeds the mean is published.

    Sources are files of graded pairs, to train on and of dev, an index of their papers, and papers to leave
    out.
    """

    learns_from: ClassVar[str] = "graded pairs"
    recipe: CrossEncoderRecipe = CrossEncoderRecipe()
    encoder: str = BASE_ENCODER

    def settled(self) -> tuple[int, str, str]:
        """The number of outputs, the texts that are read, and the loss."""
        recipe = self.recipe
        texts = recipe.texts or (OF_FACET if recipe.facet else OF_ABSTRACT)
        return len(recipe.places), texts, recipe.loss or GRADES

    def open(self) -> dict[str, Any]:
        self._outputs, self._texts, self._loss = self.settled()
        self._dtype = matmul_dtype(self.run.device)
        self._base, self._folder = find_start(self.encoder)
        _, self._reader = self.open_index()
        base = {"name": self._base, "weights_sha256": sha256(weights_file(ENCODER, self._folder))}
        return {"base": base, "index": self._reader.manifest.digest}

    def read(self) -> tuple[Examples, Callable[[], float]]:
        """What is learned from, and the figure on dev that chooses, higher is better."""
        lists, self._dev = read_indexed_lists(self.sources, self._reader, self.recipe.places)
        first = next(iter(self._dev.values()))
        chosen = {query: first[query] for query in spread(sorted(first), self.recipe.dev_queries)}

        def score() -> float:
            known = [each for each in self._correlations(chosen) if not math.isnan(each)]
            if not known:
                raise CorpusError(
                    "expected candidates of dev with different grades, found none; give more pairs"
                )
            return float(np.mean(known))

        return self._graded_examples(lists), score

    def _graded_examples(self, lists: GradedLists) -> Examples:
        """Graded pairs of papers of an index, as the loss reads them."""
        recipe, loss, row = self.recipe, self._loss, self._reader.papers.row
        facets, graded = recipe.places, list(lists.values())
        if loss == MARGIN:
            epoch = in_triplets(graded, facets, recipe.batch, recipe.triplets)
        elif loss == GRADES:
            epoch = by_list(graded, recipe.batch, recipe.unrelated)
        rows = []
        for number, (query, pairs) in enumerate(lists.items()):
            for each in pairs:
                truth = [each.grades[place] for place in facets]
                if loss == BCE:
                    truth = [float(grade >= SIMILAR_FROM) for grade in truth]
                rows.append((row(query), row(each.paper_id), [number, *truth]))
        if loss == BCE:
            epoch = by_length([self._model.length(each[:2]) for each in rows], recipe.batch)
        return Examples(rows, epoch)

    def fit(self) -> None:
        recipe, tokenizer = self.recipe, self.work / TOKENIZER
        model = self._model = open_pair_reader(self._folder, self._outputs, self._dtype).to(self.run.device)
        most = positions(model.model.base_model)
        if recipe.query_tokens + recipe.candidate_tokens > most:
            raise UsageError(
                f"expected `query_tokens` and `candidate_tokens` of together at most {most}, which "
                f"{self._base} reads, found {recipe.query_tokens} and {recipe.candidate_tokens}"
            )
        facet = None if recipe.facet is None else Facet(recipe.facet)
        sizes = recipe.query_tokens, recipe.candidate_tokens
        write_tokenizer(self._folder, tokenizer)
        model.read(PaperTokenizer(tokenizer), self._reader, self._texts, facet, *sizes)
        examples, score = self.read()
        steps = len(examples.draw(np.random.default_rng(0)))
        if not steps:
            raise CorpusError("expected candidates of different grades, found none; give more pairs")
        every = self._every = math.ceil((recipe.steps or recipe.epochs * steps) / recipe.evaluations)
        task = pair_task(model, examples, self._loss, recipe, every, score)
        schedule = Schedule(recipe.evaluations, recipe.clip, recipe.patience, recipe.warm_up)
        _, curves = fit_seeds(task, schedule, self.run.seeds, self.work, every)
        self._training: dict[str, Any] = {
            "seeds": list(self.run.seeds),
            "pairs": len(examples.rows),
            "steps_per_measurement": every,
            "curves": curves,
        }
        self._training |= self.figures(examples)

    def figures(self, _: Examples) -> dict[str, Any]:
        """What the training records, beside its course: at least figures on ``dev`` of the model."""
        names, dev = [FACETS[place] for place in self.recipe.places], {}
        for label, lists in self._dev.items():
            dev[label] = dict(zip(names, self._correlations(lists), strict=True))
        return {"dev": dev}

    def _correlations(self, lists: GradedLists) -> list[float]:
        """Spearman's correlations of scores and grades by output, as of `facet_correlations`."""
        row, facets = self._reader.papers.row, self.recipe.places
        return facet_correlations(
            (
                self._model.scores(row(query), [row(each.paper_id) for each in pairs]),
                [[each.grades[facet] for facet in facets] for each in pairs],
            )
            for query, pairs in lists.items()
        )

    def publish(self, folder: Path) -> Card:
        """Write the weights and, where they agree with PyTorch's, the ONNX models; a warning where not."""
        recipe, base = self.recipe, self.made_from["base"]
        source = f"{base['name']}, trained by qbe on {self.learns_from}"
        trained: dict[str, Any] = {
            **{name: getattr(recipe, name) for name in ("query_tokens", "candidate_tokens", "facet")},
            "texts": self._texts,
            "training": {**self.made_from, **self._training},
        }

        def export(exported: Path) -> None:
            try:
                export_cross_encoder(folder, self.name, source, exported, **trained)
            except ModelError as error:
                exported.mkdir(exist_ok=True)
                log.warning("%s: the weights are kept, without ONNX models: %s", self.name, error)

        training, model = self._training, self._model.to("cpu").model
        write_pretrained(model, self.work / TOKENIZER, folder, export)
        curves = "; ".join(
            f"{name}: {', '.join(f'{score:.3f}' for score in curve)}"
            for name, curve in training["curves"].items()
        )
        weights = f"{base['name']} (weights {base['weights_sha256'][:12]})"
        measured = (
            f"after each {training['steps_per_measurement']:,} steps of {recipe.batch} pairs, the best of "
            f"which is kept: {curves}."
        )
        dev = {name: list(each.values()) for name, each in training["dev"].items()}
        return self.card(weights, measured, dev)

    def card(self, weights: str, measured: str, figures: Mapping[str, Sequence[float]]) -> Card:
        recipe = self.recipe
        by = recipe.facet or "background, method and result"
        steps = self._every * recipe.evaluations
        return Card(
            name=self.name,
            purpose=f"Reranks papers by how similar they are to a query in {by}: a cross-encoder, which "
            f"reads both together, trained from {weights} on {self._training['pairs']:,} graded pairs, in at "
            f"most {steps:,} steps of {recipe.batch} pairs (loss {self._loss}).",
            input=f"{TEXTS[self._texts]}; {recipe.query_tokens} tokens of the query and "
            f"{recipe.candidate_tokens} of a candidate",
            caption="Spearman's correlation of scores and grades, the mean over the queries of dev. Their "
            f"mean {measured}",
            columns=("pairs", *([recipe.facet] if recipe.facet else BY_FACET)),
            figures=figures,
            limits=GRADES_LIMITS,
            licence=f"that of {self._base} and of the training data",
        )
