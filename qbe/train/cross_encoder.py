"""Training of cross-encoders of pairs of papers: on grades, or on who cites whom.

SciFACE (2026), sections 3.9 and 3.10; Nogueira, Jiang, Cho and Lin, *Evaluating Pretrained Transformer Models
for Citation Recommendation* (BIR 2020), sections 3 to 5.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from qbe.cite.scoring import Evidence, Ints
from qbe.errors import CorpusError, ModelError, UsageError, check_positive
from qbe.index.reader import IndexReader
from qbe.models.cards import ENCODER, TOKENIZER
from qbe.models.encoding import PaperTokenizer
from qbe.models.export.encoder import export_cross_encoder
from qbe.models.export.pytorch import positions, write_tokenizer
from qbe.models.folders import BASE_ENCODER, find_start, weights_file
from qbe.query import SIMILAR_FROM
from qbe.runs import GradedLists
from qbe.search.filters import FilterCache
from qbe.search.first_stages import BM25Stage
from qbe.search.rerankers import OF_ABSTRACT, OF_FACET, SIDE_TOKENS, TEXTS
from qbe.train.citation import CitationFigures, citation_figures, query_at, read_split
from qbe.train.fit import Schedule, Task, fit_seeds, matmul_dtype
from qbe.train.losses import pair_loss
from qbe.train.network import write_pretrained
from qbe.train.pair_reader import FACETS, Epoch, PairReader, by_length, by_list, in_triplets, pair_classifier
from qbe.train.pairs import facet_correlations, read_indexed_lists
from qbe.train.work import BY_FACET, GRADES_LIMITS, Card, Training
from qbe.types import Facet
from qbe.util.files import sha256
from qbe.util.work import Workers

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
    rows: Sequence[tuple[int, int, Sequence[float]]]  # of pairs in the index; the number of a list, the truth
    draw: Epoch


def spread(items: Sequence[T], count: int) -> list[T]:
    """At most so many of the items, evenly spread."""
    count = min(count, len(items))
    return [items[place * len(items) // count] for place in range(count)]


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
        recipe, loss, row, facets = self.recipe, self._loss, self._reader.papers.row, self.recipe.places
        lists, self._dev = read_indexed_lists(self.sources, self._reader, facets)
        first = next(iter(self._dev.values()))
        chosen = {query: first[query] for query in spread(sorted(first), recipe.dev_queries)}

        def score() -> float:
            known = [each for each in self._correlations(chosen) if not math.isnan(each)]
            if not known:
                raise CorpusError(
                    "expected candidates of dev with different grades, found none; give more pairs"
                )
            return float(np.mean(known))

        graded = list(lists.values())
        if loss == MARGIN:
            draw = partial(in_triplets, graded, facets, recipe.batch, recipe.triplets)
        elif loss == GRADES:
            draw = partial(by_list, graded, recipe.batch, recipe.unrelated)
        rows = []
        for number, (query, pairs) in enumerate(lists.items()):
            for each in pairs:
                truth = [each.grades[place] for place in facets]
                if loss == BCE:
                    truth = [float(grade >= SIMILAR_FROM) for grade in truth]
                rows.append((row(query), row(each.paper_id), [number, *truth]))
        if loss == BCE:
            draw = partial(by_length, [self._model.length(each[:2]) for each in rows], recipe.batch)
        return Examples(rows, draw), score

    def fit(self) -> None:
        recipe, tokenizer = self.recipe, self.work / TOKENIZER
        classifier = pair_classifier(self._folder, self._outputs)
        most = positions(classifier.base_model)
        if recipe.query_tokens + recipe.candidate_tokens > most:
            raise UsageError(
                f"expected `query_tokens` and `candidate_tokens` of together at most {most}, which "
                f"{self._base} reads, found {recipe.query_tokens} and {recipe.candidate_tokens}"
            )
        facet = None if recipe.facet is None else Facet(recipe.facet)
        write_tokenizer(self._folder, tokenizer)
        read = PaperTokenizer(tokenizer), self._reader, self._texts, facet
        sizes = recipe.query_tokens, recipe.candidate_tokens
        self._model = PairReader(classifier, *read, *sizes, self._dtype).to(self.run.device)
        examples, score = self.read()
        steps = len(examples.draw(np.random.default_rng(0)))
        if not steps:
            raise CorpusError("expected candidates of different grades, found none; give more pairs")
        every = math.ceil((recipe.steps or recipe.epochs * steps) / recipe.evaluations)
        schedule = Schedule(recipe.evaluations, recipe.clip, recipe.patience, recipe.warm_up)
        _, curves = fit_seeds(self._task(examples, every, score), schedule, self.run.seeds, self.work, every)
        self._training: dict[str, Any] = {
            "seeds": list(self.run.seeds),
            "pairs": len(examples.rows),
            "steps_per_measurement": every,
            "curves": curves,
            **self.figures(examples),
        }

    def _task(self, examples: Examples, steps: int, score: Callable[[], float]) -> Task[list[int]]:
        recipe = self.recipe

        def batches(seed: int) -> Iterator[list[int]]:
            for epoch in itertools.count():
                yield from examples.draw(np.random.default_rng([seed, epoch]))

        def losses(batch: list[int]) -> Iterator[torch.Tensor]:
            *pairs, labels = zip(*(examples.rows[place] for place in batch), strict=True)
            scores = self._model(list(zip(*pairs, strict=True)))
            truth = torch.tensor(labels, device=scores.device)
            yield pair_loss(self._loss, scores, truth[:, 0], truth[:, 1:], recipe.margin, recipe.crossed)

        def rate(_: str, part: torch.Tensor) -> tuple[float, float]:
            return recipe.learning_rate, recipe.weight_decay if part.dim() > 1 else 0.0

        return Task(self._model, steps, rate, batches, losses, score)

    def figures(self, _: Examples) -> dict[str, Any]:
        """What the training records, beside its course: at least figures on ``dev`` of the model."""
        names, dev = [FACETS[place] for place in self.recipe.places], {}
        for label, lists in self._dev.items():
            dev[label] = dict(zip(names, self._correlations(lists), strict=True))
        return {"dev": dev}

    def _correlations(self, lists: GradedLists) -> list[float]:
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
        steps = self._training["steps_per_measurement"] * recipe.evaluations
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


# Citations: whether a paper cites a candidate of BM25.


class Candidates(NamedTuple):
    """A query, by its row in the index, its candidates, best first (n,), and what it cites (m,)."""

    query: int
    rows: Ints
    cited: Ints

    @property
    def labels(self) -> NDArray[np.bool_]:
        return np.isin(self.rows, self.cited)


def bm25_candidates(
    reader: IndexReader, workers: Workers, cited: Mapping[int, Ints], depth: int
) -> list[Candidates]:
    """For each query its best candidates by BM25, title and abstract as the query, none younger than it."""
    stage, evidence, filters = BM25Stage(reader, workers, "abstract"), Evidence(reader), FilterCache(reader)
    found = []
    for row in sorted(cited):
        query, selection = query_at(reader, evidence, filters, row)
        (hits,) = stage.batch_search([query.encoded], depth + 1, [None], selection)
        rows = [reader.papers.row(hit.paper_id) for hit in hits]
        best = [each for each in rows if each != row][:depth]
        found.append(Candidates(row, np.array(best, np.int64), cited[row]))
    return found


def chosen_candidates(candidates: Sequence[Candidates], classes: str, papers: int) -> list[Candidates]:
    """The candidates to learn from, as ``classes`` says (see CLASSES), out of an index of so many papers."""
    if classes == "natural":
        return list(candidates)
    rng, chosen = np.random.default_rng(0), []
    for each in candidates:
        labels, rows = each.labels, each.rows
        if classes == "balanced":
            rows = np.concatenate([rows[labels], rng.permutation(rows[~labels])[: labels.sum()]])
        else:
            rows = np.union1d(rows, each.cited)
        if classes == "random":
            unknown = np.setdiff1d(np.arange(papers), [each.query, *rows])
            rows = np.concatenate([rows, rng.permutation(unknown)[: len(each.rows)]])
        chosen.append(each._replace(rows=rows))
    return chosen


def citation_examples(candidates: Sequence[Candidates], model: PairReader, size: int) -> Examples:
    """Pairs to learn from; raises CorpusError where no candidate is cited, or where all are."""
    rows = [
        (each.query, row, [number, float(label)])
        for number, each in enumerate(candidates)
        for row, label in zip(each.rows.tolist(), each.labels.tolist(), strict=True)
    ]
    if len({label for *_, (_, label) in rows}) < 2:
        raise CorpusError(
            "expected candidates of BM25 that are cited and others that are not, found one kind alone; "
            "give a larger collection"
        )
    return Examples(rows, partial(by_length, [model.length(each[:2]) for each in rows], size))


def reranked_figures(dev: Sequence[Candidates], model: PairReader | None) -> CitationFigures:
    """The figures of what a model reranks, or (None) of BM25's order."""
    lists = []
    for each in dev:
        labels = each.labels
        if model is not None:
            scores = model.scores(each.query, each.rows.tolist())[:, 0]
            labels = labels[np.argsort(-scores, kind="stable")]
        lists.append((labels, len(each.cited)))
    return citation_figures(lists)


@dataclass
class CitationPairTraining(CrossEncoderTraining):
    """A cross-encoder for citations, which reads abstracts; of several seeds the mean is published.

    Sources are an index with postings, and qrels of who cites whom, to train on and of dev.
    """

    learns_from: ClassVar[str] = "citations"

    def settled(self) -> tuple[int, str, str]:
        if self.recipe.facet or self.recipe.loss not in (None, BCE):
            raise UsageError(f"citations have no `facet`, and the `loss` {BCE}; drop what is given")
        return 1, self.recipe.texts or OF_FACET, BCE

    def read(self) -> tuple[Examples, Callable[[], float]]:
        recipe, reader = self.recipe, self._reader
        workers = self.opened.enter_context(Workers(self.run.threads))
        train, dev = (read_split(reader, files[0]) for files in (self.sources.train, self.sources.dev))
        best = bm25_candidates(reader, workers, train, recipe.candidates)
        queries = {row: dev[row] for row in spread(sorted(dev), recipe.dev_queries)}
        self._measured = bm25_candidates(reader, workers, queries, recipe.dev_depth)
        chosen = chosen_candidates(best, recipe.classes, len(reader.papers))
        examples = citation_examples(chosen, self._model, recipe.batch)
        return examples, lambda: reranked_figures(self._measured, self._model).f1

    def figures(self, examples: Examples) -> dict[str, Any]:
        orders = {"BM25": None, "reranked": self._model}
        found = {name: reranked_figures(self._measured, model)._asdict() for name, model in orders.items()}
        return {"cited": int(sum(label for *_, (_, label) in examples.rows)), "dev": found}

    def card(self, weights: str, measured: str, figures: Mapping[str, Sequence[float]]) -> Card:
        recipe, training = self.recipe, self._training
        return Card(
            name=self.name,
            purpose="Reranks candidates for the bibliography of a paper: the log-odds that it cites a "
            f"candidate, read together (Nogueira et al., BIR 2020), trained from {weights} on "
            f"{training['pairs']:,} pairs, BM25's {recipe.candidates} best of each query (classes "
            f"{recipe.classes}), of which {training['cited'] / training['pairs']:.1%} are cited.",
            input="title and abstract of query and candidate, of which it reads "
            f"{recipe.query_tokens} and {recipe.candidate_tokens} tokens",
            caption=f"Means over {recipe.dev_queries} queries of dev whose {recipe.dev_depth} best "
            f"candidates by BM25 are reranked. F1@20 {measured}",
            columns=("order", "F1@20", "MRR", "recall"),
            figures=figures,
            limits="Trained on papers of one collection; dev chose when training ended.",
            licence=f"that of {self._base} and of the training data",
        )
