"""Training of cross-encoders of pairs of papers by sentence-transformers: on grades, or on who cites whom.

SciFACE (2026), sections 3.9 and 3.10; Nogueira, Jiang, Cho and Lin, *Evaluating Pretrained Transformer Models
for Citation Recommendation* (BIR 2020), sections 3 and 4 (see `qbe.train.citation_pairs`).
"""

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from transformers import EarlyStoppingCallback, PrinterCallback

from qbe.errors import CorpusError, ModelError, UsageError, check_positive
from qbe.models.cards import ENCODER, TOKENIZER
from qbe.models.encoding import PaperTokenizer
from qbe.models.export.encoder import export_cross_encoder
from qbe.models.export.pytorch import positions
from qbe.models.folders import BASE_ENCODER, find_start, weights_file
from qbe.query import SIMILAR_FROM
from qbe.runs import GradedLists
from qbe.search.rerankers import OF_ABSTRACT, OF_FACET, SIDE_TOKENS, TEXTS
from qbe.train.fit import checked_checkpoint, copied, matmul_dtype, mean
from qbe.train.losses import pair_loss
from qbe.train.network import write_pretrained
from qbe.train.pair_reader import FACETS, Epoch, PairReader, by_length, by_list, in_triplets, open_pair_reader
from qbe.train.pairs import facet_correlations, read_indexed_lists
from qbe.train.work import BY_FACET, GRADES_LIMITS, Card, Training, save_state
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


class PairLoss(torch.nn.Module):
    """`qbe.train.losses.pair_loss` of a batch of pairs; labels are the pairs' lists and their truth."""

    def __init__(self, model: PairReader, loss: str, recipe: CrossEncoderRecipe) -> None:
        super().__init__()
        self.model, self._loss, self._recipe = model, loss, recipe

    def forward(self, inputs: Sequence[Sequence[int]], labels: Sequence[torch.Tensor], **_: Any) -> Any:
        scores, recipe = self.model.scores_of(list(zip(*inputs, strict=True))), self._recipe
        truth = torch.stack(list(labels)).to(scores)
        return pair_loss(self._loss, scores, truth[:, 0], truth[:, 1:], recipe.margin, recipe.crossed)


class Examples(DefaultBatchSampler):
    """Pairs of papers, with the number of their list and their truth as label, and batches, by place."""

    def __init__(self, rows: Sequence[tuple[int, int, Sequence[float]]], draw: Epoch) -> None:
        queries, candidates, labels = zip(*rows, strict=True)
        self.pairs = Dataset.from_dict({"query": queries, "candidate": candidates, "label": labels})
        self._draw, self.steps = draw, len(draw(np.random.default_rng(0)))
        super().__init__(self.pairs, batch_size=1, drop_last=False)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._draw(np.random.default_rng([self.seed, self.epoch])))


class DevEvaluator(BaseEvaluator):
    """A figure on dev that chooses, higher is better, of what `measure` gives of a model."""

    def __init__(self, name: str, measure: Callable[[PairReader], float]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.primary_metric, self._name, self._measure = name, name, measure

    def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
        figure = self._measure(model)
        log.info("%s on dev %.4f", self._name, figure)
        return {self._name: figure}


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
        self._half = matmul_dtype(self.run.device) is torch.bfloat16
        self._base, self._folder = find_start(self.encoder)
        _, self._reader = self.open_index()
        base = {"name": self._base, "weights_sha256": sha256(weights_file(ENCODER, self._folder))}
        return {"base": base, "index": self._reader.manifest.digest}

    def read(self) -> tuple[Examples, DevEvaluator]:
        """What is learned from, and what chooses."""
        lists, self._dev = read_indexed_lists(self.sources, self._reader, self.recipe.places)
        first = next(iter(self._dev.values()))
        chosen = {query: first[query] for query in spread(sorted(first), self.recipe.dev_queries)}

        def measure(model: PairReader) -> float:
            known = [each for each in self._correlations(model, chosen) if not math.isnan(each)]
            if not known:
                raise CorpusError(
                    "expected candidates of dev with different grades, found none; give more pairs"
                )
            return float(np.mean(known))

        return self._graded_examples(lists), DevEvaluator("spearman", measure)

    def _graded_examples(self, lists: GradedLists) -> Examples:
        """Graded pairs of papers of an index, as the loss reads them."""
        recipe, loss, row = self.recipe, self._loss, self._reader.papers.row
        facets, graded = recipe.places, list(lists.values())
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
        examples = Examples(rows, draw)
        if not examples.steps:
            raise CorpusError("expected candidates of different grades, found none; give more pairs")
        return examples

    def fit(self) -> None:
        recipe, work = self.recipe, self.work / "base"
        model = self._model = open_pair_reader(self._folder, work, self.run.device, self._outputs)
        model.in_bfloat16, most = self._half, positions(cast(Any, model.transformers_model).base_model)
        if recipe.query_tokens + recipe.candidate_tokens > most:
            raise UsageError(
                f"expected `query_tokens` and `candidate_tokens` of together at most {most}, which "
                f"{self._base} reads, found {recipe.query_tokens} and {recipe.candidate_tokens}"
            )
        facet = None if recipe.facet is None else Facet(recipe.facet)
        sizes = recipe.query_tokens, recipe.candidate_tokens
        model.read(PaperTokenizer(work / TOKENIZER), self._reader, self._texts, facet, *sizes)
        examples, evaluator = self.read()
        self._every = math.ceil((recipe.steps or recipe.epochs * examples.steps) / recipe.evaluations)
        fitted, curves = [], {}
        for seed in self.run.seeds:
            kept = self.work / f"seed-{seed}.pt"
            if not kept.exists():
                trained = deepcopy(model)  # the trainer leaves a model in bfloat16
                curve = self._fit_seed(trained, seed, examples, evaluator)
                save_state(kept, {"best": copied(trained), "dev": curve})
            with checked_checkpoint(kept):
                state = torch.load(kept, weights_only=True)
                fitted.append(state["best"])
                curves[f"seed {seed}"] = state["dev"]
        model.load_state_dict(mean(fitted), strict=False)
        model.eval()
        self._training: dict[str, Any] = {
            "seeds": list(self.run.seeds),
            "pairs": len(examples.pairs),
            "steps_per_measurement": self._every,
            "curves": curves,
            **self.figures(examples),
        }

    def figures(self, _: Examples) -> dict[str, Any]:
        """What the training records, beside its course: at least figures on ``dev`` of the model."""
        names, dev = [FACETS[place] for place in self.recipe.places], {}
        for label, lists in self._dev.items():
            dev[label] = dict(zip(names, self._correlations(self._model, lists), strict=True))
        return {"dev": dev}

    def _correlations(self, model: PairReader, lists: GradedLists) -> list[float]:
        """Spearman's correlations of scores and grades by output, as of `facet_correlations`."""
        row, facets = self._reader.papers.row, self.recipe.places
        return facet_correlations(
            (
                model.scores(row(query), [row(each.paper_id) for each in pairs]),
                [[each.grades[facet] for facet in facets] for each in pairs],
            )
            for query, pairs in lists.items()
        )

    def _fit_seed(
        self, model: PairReader, seed: int, examples: Examples, evaluator: DevEvaluator
    ) -> list[float]:
        """Train a model by a seed, with checkpoints in a folder that is removed; its scores on dev."""
        recipe, folder = self.recipe, self.work / f"seed-{seed}"
        on_cpu, metric = self.run.device == "cpu", f"eval_{evaluator.primary_metric}"
        arguments = CrossEncoderTrainingArguments(
            output_dir=str(folder),
            max_steps=self._every * recipe.evaluations,
            per_device_train_batch_size=recipe.batch,
            learning_rate=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            max_grad_norm=recipe.clip,
            warmup_steps=recipe.warm_up,
            eval_strategy="steps",
            eval_steps=self._every,
            save_strategy="steps",
            save_steps=self._every,
            save_total_limit=2,
            load_best_model_at_end=True,
            metric_for_best_model=metric,
            greater_is_better=True,
            seed=seed,
            bf16=self._half,
            use_cpu=on_cpu,
            dataloader_pin_memory=not on_cpu,
            disable_tqdm=True,
            report_to="none",
        )
        examples.seed, examples.epoch = seed, 0
        trainer: Any = CrossEncoderTrainer(
            model=model,
            args=arguments,
            train_dataset=examples.pairs,
            loss=PairLoss(model, self._loss, recipe),
            evaluator=evaluator,
            callbacks=[EarlyStoppingCallback(recipe.patience)],
        )
        trainer.get_batch_sampler = lambda *_, **__: examples  # which draw the batches
        trainer.remove_callback(PrinterCallback)
        # The state is written last: a checkpoint without it is one of a killed call.
        whole = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
        last = max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
        with checked_checkpoint(last or folder):
            trainer.train(resume_from_checkpoint=None if last is None else str(last))
        shutil.rmtree(folder)
        return [entry[metric] for entry in trainer.state.log_history if metric in entry]

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

        training, model = self._training, self._model.to("cpu").transformers_model
        write_pretrained(model, self.work / "base" / TOKENIZER, folder, export)
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
