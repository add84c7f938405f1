"""Training of cross-encoders of pairs by sentence-transformers: whether a paper cites a candidate of BM25.

Nogueira, Jiang, Cho and Lin, *Evaluating Pretrained Transformer Models for Citation Recommendation* (BIR
2020), sections 3 and 4.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from logging import getLogger
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.cross_encoder import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    losses,
)
from transformers import EarlyStoppingCallback, PrinterCallback
from transformers.utils import logging

from qbe.cite.links import Evidence, Ints
from qbe.errors import CorpusError, UsageError, check_positive
from qbe.index.index import IndexReader
from qbe.models.cards import ENCODER, TOKENIZER
from qbe.models.export.encoder import export_cross_encoder, positions
from qbe.models.export.pytorch import load_model, write_tokenizer
from qbe.models.folders import BASE_ENCODER, find_start, weights_file
from qbe.models.tokenizer import PaperTokenizer, SpecialTokens
from qbe.search.filters import FilterCache
from qbe.search.first_stages import BM25Stage
from qbe.search.rerankers import SIDE_TOKENS, Pair, candidate_side, pair, query_side
from qbe.train.card import Card
from qbe.train.citation import (
    CitationFigures,
    RankedList,
    citation_figures,
    not_younger,
    query_at,
    read_split,
)
from qbe.train.fit import best_weights, checked_checkpoint, copied, matmul_dtype, mean
from qbe.train.network import write_pretrained
from qbe.train.work import Training, save_state
from qbe.util.files import sha256
from qbe.util.work import Workers

log = getLogger(__name__)
Inputs = Sequence[tuple[list[int], list[int]]]
# What is learned from: BM25's best as they are, as many that are not cited as are, or also all that is cited.
CLASSES = ("natural", "balanced", "all-cited")
LOSSES = {1: losses.BinaryCrossEntropyLoss, 2: losses.CrossEntropyLoss}  # by the number of outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEncoderRecipe:
    """How a cross-encoder learns whom papers cite; F1@20 on dev chooses among the evaluations."""

    query_tokens: int = SIDE_TOKENS  # that are read, special tokens included
    candidate_tokens: int = SIDE_TOKENS
    classes: str = "natural"  # one of CLASSES
    candidates: int = 10  # the best of BM25, by title and abstract
    epochs: float = 1.0
    batch: int = 16  # pairs a step
    learning_rate: float = 5e-5
    weight_decay: float = 0.01
    clip: float = 1.0
    warm_up: float = 0.1
    evaluations: int = 8
    patience: int = 3  # evaluations that are no better, after which training ends
    dev_queries: int = 60
    dev_depth: int = 40  # candidates of BM25 that are reranked

    def __post_init__(self) -> None:
        if self.classes not in CLASSES:
            raise UsageError(f"expected `classes` of {', '.join(CLASSES)}, found {self.classes!r}")
        least = {"query_tokens": 8, "candidate_tokens": 8}
        least |= dict.fromkeys(("candidates", "batch", "evaluations", "dev_queries"), 1)
        for name, smallest in least.items():
            if getattr(self, name) < smallest:
                raise UsageError(f"expected `{name}` of at least {smallest}, found {getattr(self, name)}")
        for name in ("epochs", "learning_rate"):
            check_positive(name, getattr(self, name))


# What is learned from.


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
        query = query_at(reader, evidence, row)
        (hits,) = stage.batch_search([query.encoded], depth + 1, [None], not_younger(filters, query))
        rows = [reader.papers.row(hit.paper_id) for hit in hits]
        best = [each for each in rows if each != row][:depth]
        found.append(Candidates(row, np.array(best, np.int64), cited[row]))
    return found


def chosen_candidates(candidates: Sequence[Candidates], classes: str) -> list[Candidates]:
    """The candidates to learn from, as ``classes`` says (see CLASSES)."""
    if classes == "natural":
        return list(candidates)
    if classes == "all-cited":
        return [each._replace(rows=np.union1d(each.rows, each.cited)) for each in candidates]
    rng = np.random.default_rng(0)
    balanced = []
    for each in candidates:
        labels = each.labels
        others = rng.permutation(each.rows[~labels])[: labels.sum()]
        balanced.append(each._replace(rows=np.concatenate([each.rows[labels], others])))
    return balanced


class Sides:
    """Token ids of papers as queries and as candidates, cut as search does."""

    def __init__(self, reader: IndexReader, tokenizer: PaperTokenizer, recipe: CrossEncoderRecipe) -> None:
        evidence = Evidence(reader)

        @cache
        def query(row: int) -> list[int]:
            return query_side(tokenizer, query_at(reader, evidence, row).encoded, recipe.query_tokens)

        @cache
        def candidate(row: int) -> list[int]:
            return candidate_side(tokenizer, reader.papers[row], recipe.candidate_tokens)

        self.query, self.candidate = query, candidate


def pairs_of(candidates: Sequence[Candidates], sides: Sides) -> Dataset:
    """Pairs of sides to learn from; raises CorpusError where no candidate is cited, or where all are."""
    columns: dict[str, list[Any]] = {"query": [], "candidate": [], "label": []}
    for each in candidates:
        columns["query"] += [sides.query(each.query)] * len(each.rows)
        columns["candidate"] += map(sides.candidate, each.rows.tolist())
        columns["label"] += map(int, each.labels.tolist())
    if len(set(columns["label"])) < 2:
        raise CorpusError(
            "expected candidates of BM25 that are cited and others that are not, found one kind alone; "
            "give a larger collection"
        )
    return Dataset.from_dict(columns)


# The model, and what its trainer is given.


class PairReader(CrossEncoder):
    """A cross-encoder that reads token ids of two sides in place of texts, as search joins them."""

    special: SpecialTokens

    def preprocess(self, inputs: Inputs, **_: Any) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Pairs of sides as padded tensors (pairs, tokens)."""
        pairs: list[Pair] = [pair(*sides, self.special) for sides in inputs]
        longest, config = max(len(each.ids) for each in pairs), cast(Any, self.transformers_model).config
        ids = torch.full((len(pairs), longest), int(config.pad_token_id or 0))
        types, mask = torch.zeros_like(ids), torch.zeros_like(ids)
        for number, each in enumerate(pairs):
            ids[number, : len(each.ids)] = torch.tensor(each.ids)
            types[number, : len(each.ids)] = torch.tensor(each.types)
            mask[number, : len(each.ids)] = 1
        features = {"input_ids": ids, "attention_mask": mask}
        return features | ({"token_type_ids": types} if getattr(config, "type_vocab_size", 0) > 1 else {})

    @torch.no_grad()
    def relevance(self, inputs: Inputs) -> torch.Tensor:
        """The log-odds (pairs,), float32, of pairs of sides."""
        features = {name: part.to(self.device) for name, part in self.preprocess(inputs).items()}
        logits: torch.Tensor = self(features)["scores"].float()
        return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]

    def _create_model_card(self, *_: Any, **__: Any) -> None:
        """Write none beside checkpoints."""


def open_pair_reader(folder: Path, work: Path, device: str) -> PairReader:
    """The model in ``folder``, written to ``work`` first, under a classifier of pairs, which is random where
    it lacks one. Attention has no dropout, without which it is twice as fast on a CPU.
    """
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # it warns that the classifier is random
    torch.manual_seed(0)
    settings = {"attn_implementation": None, "attention_probs_dropout_prob": 0.0}
    model, _ = load_model(
        folder, "AutoModelForSequenceClassification", "a BERT-family model", "`encoder`", **settings
    )
    model.save_pretrained(work)
    write_tokenizer(folder, work / TOKENIZER)
    labels = model.config.num_labels
    reader: PairReader = PairReader(str(work), device=device, local_files_only=True, num_labels=labels)
    reader.special = PaperTokenizer(work / TOKENIZER).special
    return reader


class LengthBatches(DefaultBatchSampler):
    """Batches in random order, each of pairs of about the same length: of BUCKET batches sorted by length."""

    BUCKET = 32

    def __iter__(self) -> Iterator[list[int]]:
        dataset, size = cast(Dataset, self.sampler), self.batch_size
        rng = np.random.default_rng([self.seed, self.epoch])
        lengths = [len(a) + len(b) for a, b in zip(dataset["query"], dataset["candidate"], strict=True)]
        order = rng.permutation(len(lengths)).tolist()
        for first in range(0, len(order), size * self.BUCKET):
            bucket = sorted(order[first : first + size * self.BUCKET], key=lengths.__getitem__)
            starts = range(0, len(bucket), size)
            for place in rng.permutation(len(starts)).tolist():
                yield bucket[starts[place] : starts[place] + size]


class CitationEvaluator(BaseEvaluator):
    """F1@20 of reranked candidates on dev."""

    def __init__(self, sides: Sides, dev: Sequence[Candidates]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.primary_metric = "f1"
        self._sides, self._dev = sides, dev

    def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
        figures = self.figures(model)
        log.info("F1@20 on dev %.4f", figures.f1)
        return {"f1": figures.f1}

    def figures(self, model: PairReader | None) -> CitationFigures:
        """The figures of what a model reranks, or (None) of BM25's order."""
        lists = []
        for each in self._dev:
            labels = each.labels
            if model is not None:
                query, sides = (
                    self._sides.query(each.query),
                    list(map(self._sides.candidate, each.rows.tolist())),
                )
                order = sorted(range(len(sides)), key=[len(side) for side in sides].__getitem__)
                scores = np.zeros(len(sides), np.float32)
                for first in range(0, len(order), 16):
                    places = order[first : first + 16]
                    pairs = [(query, sides[place]) for place in places]
                    scores[places] = model.relevance(pairs).cpu().numpy()
                labels = labels[np.argsort(-scores, kind="stable")]
            lists.append(RankedList(labels, len(each.cited)))
        return citation_figures(lists)


@dataclass
class CrossEncoderTraining(Training):
    """A cross-encoder for citations; of several seeds the mean is published.

    Sources are an index with postings, and qrels of who cites whom, to train on and of dev.
    """

    recipe: CrossEncoderRecipe = CrossEncoderRecipe()
    encoder: str = BASE_ENCODER

    def open(self) -> dict[str, Any]:
        self._dtype, (self._base, self._folder) = matmul_dtype(self.run.device), find_start(self.encoder)
        self._workers = self.opened.enter_context(Workers(self.run.threads))
        _, self._reader = self.open_index()
        weights = sha256(weights_file(ENCODER, self._folder))
        base = {"name": self._base, "weights_sha256": weights}
        return {"base": base, "index": self._reader.manifest.digest}

    def fit(self) -> None:
        recipe, reader, work = self.recipe, self._reader, self.work / "base"
        model = self._model = open_pair_reader(self._folder, work, self.run.device)
        most = positions(cast(Any, model.transformers_model).base_model)
        if recipe.query_tokens + recipe.candidate_tokens > most:
            raise UsageError(
                f"expected `query_tokens` and `candidate_tokens` of together at most {most}, which "
                f"{self._base} reads, found {recipe.query_tokens} and {recipe.candidate_tokens}"
            )
        train, dev = (read_split(reader, files[0]) for files in (self.sources.train, self.sources.dev))
        best = bm25_candidates(reader, self._workers, train, recipe.candidates)
        rows, count = sorted(dev), min(recipe.dev_queries, len(dev))
        queries = {row: dev[row] for row in (rows[place * len(rows) // count] for place in range(count))}
        measured = bm25_candidates(reader, self._workers, queries, recipe.dev_depth)
        sides = Sides(reader, PaperTokenizer(work / TOKENIZER), recipe)
        pairs = pairs_of(chosen_candidates(best, recipe.classes), sides)
        self._every = math.ceil(math.ceil(recipe.epochs * len(pairs) / recipe.batch) / recipe.evaluations)
        evaluator, untrained, fitted, curves = CitationEvaluator(sides, measured), copied(model), [], {}
        for seed in self.run.seeds:
            kept = self.work / f"seed-{seed}.pt"
            if not kept.exists():
                model.load_state_dict(untrained, strict=False)
                save_state(kept, {"best": copied(model), "dev": self._fit_seed(seed, pairs, evaluator)})
            fitted.append(best_weights(kept))
            curves[f"seed {seed}"] = torch.load(kept, weights_only=True)["dev"]
        model.load_state_dict(mean(fitted), strict=False)
        model.eval()
        figures = {"BM25": evaluator.figures(None), "reranked": evaluator.figures(model)}
        self._training = {
            "seeds": list(self.run.seeds),
            "pairs": len(pairs),
            "cited": sum(pairs["label"]),
            "pairs_per_measurement": self._every * recipe.batch,
            "curves": curves,
            "dev": {order: each._asdict() for order, each in figures.items()},
        }

    def _fit_seed(self, seed: int, pairs: Dataset, evaluator: BaseEvaluator) -> list[float]:
        """Train the model by a seed, with checkpoints in a folder that is removed; its scores on dev."""
        recipe, folder, model = self.recipe, self.work / f"seed-{seed}", self._model
        on_cpu, metric = self.run.device == "cpu", f"eval_{evaluator.primary_metric}"
        arguments = CrossEncoderTrainingArguments(
            output_dir=str(folder),
            max_steps=self._every * recipe.evaluations,
            per_device_train_batch_size=recipe.batch,
            batch_sampler=LengthBatches,
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
            bf16=self._dtype is torch.bfloat16,
            use_cpu=on_cpu,
            dataloader_pin_memory=not on_cpu,
            disable_tqdm=True,
            report_to="none",
        )
        trainer = CrossEncoderTrainer(
            model=model,
            args=arguments,
            train_dataset=pairs,
            loss=LOSSES[model.num_labels](model),
            evaluator=evaluator,
            callbacks=[EarlyStoppingCallback(recipe.patience)],
        )
        trainer.remove_callback(PrinterCallback)
        # The state is written last: a checkpoint without it is one of a killed call.
        whole = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
        last = max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
        with checked_checkpoint(last or folder):
            trainer.train(resume_from_checkpoint=None if last is None else str(last))
        shutil.rmtree(folder)
        return [entry[metric] for entry in trainer.state.log_history if metric in entry]

    def publish(self, folder: Path) -> Card:
        recipe, base, training = self.recipe, self.made_from["base"], self._training
        source = f"{base['name']}, trained by qbe on citations"
        trained: dict[str, Any] = {
            "query_tokens": recipe.query_tokens,
            "candidate_tokens": recipe.candidate_tokens,
            "training": {**self.made_from, **training},
        }
        metadata = write_pretrained(
            self._model.to("cpu").transformers_model,
            self.work / "base" / TOKENIZER,
            folder,
            lambda exported: export_cross_encoder(folder, self.name, source, exported, **trained),
        )
        curves = "; ".join(
            f"{name}: {', '.join(f'{score:.3f}' for score in curve)}"
            for name, curve in training["curves"].items()
        )
        return Card(
            name=metadata.name,
            purpose="Reranks candidates for the bibliography of a paper: the log-odds that it cites a "
            f"candidate, read together (Nogueira et al., BIR 2020), trained from {base['name']} (weights "
            f"{base['weights_sha256'][:12]}) on {training['pairs']:,} pairs, BM25's {recipe.candidates} best "
            f"of each query (classes {recipe.classes}), of which {training['cited'] / training['pairs']:.1%} "
            "are cited.",
            input="title and abstract of query and candidate, of which it reads "
            f"{recipe.query_tokens} and {recipe.candidate_tokens} tokens",
            caption=f"Means over {recipe.dev_queries} queries of dev whose {recipe.dev_depth} best "
            f"candidates by BM25 are reranked. F1@20 after each {training['pairs_per_measurement']:,} pairs, "
            f"the best of which is kept: {curves}.",
            columns=("order", "F1@20", "MRR", "recall"),
            figures={order: list(figures.values()) for order, figures in training["dev"].items()},
            command=f"citation-pairs --encoder {base['name']} --classes {recipe.classes} --query-tokens "
            f"{recipe.query_tokens} --candidate-tokens {recipe.candidate_tokens} --epochs {recipe.epochs:g} "
            f"--learning-rate {recipe.learning_rate:g} --collection DIR --index DIR",
            limits="Trained on papers of one collection; dev chose when training ended.",
            licence=f"that of {base['name']} and of the training data",
        )
