"""Training of sentence encoders, with facet projections of their vectors, on graded pairs."""

import itertools
import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from qbe.models.cards import DEFAULT_TAGGER, DIFFERENCE, GRAPH, LARGE_ENCODER, RANGES, TOKENIZER, model_file
from qbe.models.encoder import Encoder
from qbe.models.encoding import PaperTokenizer
from qbe.models.export.encoder import export_encoder
from qbe.models.export.graph import channel_ranges, store_graph
from qbe.models.export.pytorch import write_tokenizer
from qbe.models.folders import BASE_ENCODER, MPNET, find_start, low_rank, make_weights, write_weights
from qbe.models.tagger import Tagger
from qbe.runs import GradedLists
from qbe.search.projections import ProjectionModel, write_model
from qbe.train.fit import Schedule, Task, Weights, copied, fit_seeds, matmul_dtype, with_weights
from qbe.train.losses import list_loss
from qbe.train.network import WEIGHTS, GradedEncoder, table_of, with_trained, write_base
from qbe.train.pairs import facet_correlations, in_steps, read_graded_papers, sample_unrelated
from qbe.train.projections import FIGURES, projections_card, projections_of
from qbe.train.work import APACHE, BY_FACET, GRADES_LIMITS, Card, Training
from qbe.util.files import sha256

PROJECTIONS = "projections"
PRECISION = "int8"  # of the vectors that indexes store
SAVE_EVERY = 150  # steps between checkpoints, which for the large encoder have 1.4 GB each
RANGED = 512  # papers on which ranges of activations are measured


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedRecipe:
    """How an encoder learns from graded lists."""

    steps: int = 363
    queries: int = 8  # lists a step
    unrelated: int = 4  # candidates of a list without a grade of 1 or more, at most
    max_tokens: int = 384  # of a paper
    learning_rate: float = 6e-5  # of the layers
    head_rate: float = 1e-4  # of the projections
    weight_rate: float = 2e-2  # of the weights of similarities
    weight_decay: float = 0.01  # of the layers
    clip: float = 1.0
    warm_up: float = 0.1
    crossed: float = 3.0  # see `qbe.train.losses.order_weights`
    chunks: int = 2  # of similar lengths, in which papers are encoded
    rank: int = 64  # of what training changed of a matrix of the large base, as it is published


@dataclass
class GradedTraining(Training):
    """An encoder of the kind BERT or MPNet with all layers trained on graded lists, and projections with it.

    Sources are files of graded pairs, the corpus of their papers, and papers to leave out. The mean of the
    seeds is published, the projections in a folder inside; of the large base (all-mpnet-base-v2), which is
    downloaded, the difference from it.
    """

    recipe: GradedRecipe = GradedRecipe()
    encoder: str = MPNET.name  # the name or folder of the model to start from

    def open(self) -> dict[str, Any]:
        self._large, self._dtype = self.encoder == MPNET.name, matmul_dtype(self.run.device)
        self._start, self._base = find_start(self.encoder)
        encoder, tagger = Encoder.open(BASE_ENCODER, threads=self.run.threads), Tagger.open(DEFAULT_TAGGER)
        self._readers, self._digest = (encoder, tagger), sha256(self._base / WEIGHTS)
        return {"base": self._digest, "encoder": encoder.files.identity, "tagger": tagger.identity}

    def fit(self) -> None:
        recipe = self.recipe
        self._lists, self._dev, self._papers = read_graded_papers(self.sources, *self._readers)
        write_tokenizer(self._base, self.work / TOKENIZER)
        self._tokenizer = PaperTokenizer(self.work / TOKENIZER)
        papers = list(self._papers.values())
        windows = [self._tokenizer.first_window(paper, recipe.max_tokens) for paper in papers]
        self._table = table_of(windows, papers).to(self.run.device)
        self._rows = {name: row for row, name in enumerate(self._papers)}
        self._network = GradedEncoder(self._base, self._dtype).to(self.run.device)
        untrained, schedule = copied(self._network), Schedule(1, recipe.clip, warm_up=recipe.warm_up)
        trained = fit_seeds(self._task(), schedule, self.run.seeds, self.work, SAVE_EVERY)
        self._weights: dict[str, Weights] = {self._start: untrained, **trained}

    def _task(self) -> Task[tuple[Tensor, ...]]:
        """Batches, without end, are rows of the queries (lists,) and of the candidates (n,), the list of each
        candidate, and its grades (n, facets).
        """
        recipe, lists, rows, network, table = self.recipe, self._lists, self._rows, self._network, self._table
        steps = in_steps(lists, recipe.queries)
        heads = {"weights": recipe.weight_rate, "projections": recipe.head_rate}

        def rate(name: str, part: Tensor) -> tuple[float, float]:
            decay = recipe.weight_decay if name not in heads and part.dim() > 1 else 0.0
            return heads.get(name, recipe.learning_rate), decay

        def batches(seed: int) -> Iterator[tuple[Tensor, ...]]:
            for epoch in itertools.count():
                for chosen in steps(f"{seed}-{epoch}"):
                    pairs = []
                    for owner, query in enumerate(chosen):
                        rng = random.Random(f"{seed}-{epoch}-{query}")
                        some = sample_unrelated(lists[query], recipe.unrelated, rng)
                        pairs += [(rows[pair.paper_id], owner, pair.grades) for pair in some]
                    columns = [rows[query] for query in chosen], *zip(*pairs, strict=True)
                    yield tuple(map(torch.tensor, columns))

        def losses(batch: tuple[Tensor, ...]) -> Iterator[Tensor]:
            """The loss of a step; papers that occur twice are encoded once."""
            asked, candidates, owners, grades = (part.to(self.run.device) for part in batch)
            papers, places = torch.unique(torch.cat([asked, candidates]), return_inverse=True)
            vectors, count = network.encode(table, papers, recipe.chunks), len(asked)
            scores = network.scores(vectors.rows(places[:count]), vectors.rows(places[count:]))
            yield list_loss(scores, owners, grades, recipe.crossed)

        return Task(network, recipe.steps, rate, batches, losses, betas=(0.9, 0.98))

    @torch.no_grad()
    def _correlations(self, lists: GradedLists) -> tuple[list[float], list[float]]:
        """By facet: by mean-max of the vectors as they are, and of the scores."""
        network, plain, projected = self._network, [], []
        for query, pairs in lists.items():
            some = [self._rows[paper_id] for paper_id in (query, *(pair.paper_id for pair in pairs))]
            papers = network.encode(self._table, torch.tensor(some, device=self.run.device), 4)
            one, others = papers.rows(torch.tensor([0])), papers.rows(torch.arange(1, len(some)))
            grades = [pair.grades for pair in pairs]
            by_sentences = network.terms(one, others, plain=True)[:, 0, 0].T
            plain.append((by_sentences.float().cpu().numpy(), grades))
            projected.append((network.scores(one, others)[0].float().cpu().numpy(), grades))
        return facet_correlations(plain), facet_correlations(projected)

    def publish(self, folder: Path) -> Card:
        compared, recipe, large, data = dict(self._weights), self.recipe, self._large, self.made_from["data"]
        last, trained = compared.popitem()
        weights = {part: values.cpu() for part, values in trained.items()}
        heads = {part: weights[part] for part in ("weights", "projections")}
        name = LARGE_ENCODER if large else self.name
        source = MPNET.source if large else f"{self._start}, trained by qbe"
        with tempfile.TemporaryDirectory(prefix="qbe-") as temporary:
            whole, exported = Path(temporary, "whole"), Path(temporary, "exported")
            self._write_whole(weights, whole, folder)
            metadata = export_encoder(whole, name, source, exported)
            if large:
                self._write_graph(exported / model_file("fp32"), whole, folder, metadata.max_tokens)
                last = f"{last}, rank {recipe.rank}"
                trained = copied(GradedEncoder(whole, self._dtype)) | heads
            else:
                for file in (*whole.iterdir(), *exported.iterdir()):
                    shutil.copyfile(file, folder / file.name)
        by_vectors, by_scores = dict[str, list[float]](), dict[str, list[float]]()
        for pairs, lists in self._dev.items():
            for label, each in {**compared, last: trained}.items():
                row, measure = f"{pairs} | {label}", partial(self._correlations, lists)
                by_vectors[row], by_scores[row] = with_weights(self._network, each, measure)
        count = sum(map(len, self._lists.values()))
        made = json.loads(json.dumps({part: self.made_from[part] for part in ("recipe", "data")}))
        model = ProjectionModel(
            projections_of({"matrices": heads["projections"], "weights": heads["weights"]}),
            {"name": name, "precision": PRECISION, "weights_sha256": metadata.weights_sha256},
            {**made, "seeds": list(self.run.seeds), "pairs": count},
        )
        (folder / PROJECTIONS).mkdir()
        write_model(folder / PROJECTIONS, model)
        card = projections_card(model, by_scores, "learned together with the encoder from", FIGURES)
        card.write(folder / PROJECTIONS, data, "large-encoder --output DIR --work DIR")
        difference = (
            f" The folder holds the difference from the base (weights {self._digest[:12]}), of rank "
            f"{recipe.rank}, which is added to it when it was downloaded and verified; the weights that come "
            f"out are {metadata.weights_sha256[:12]}."
        )
        return Card(
            name=name,
            purpose=f"A sentence encoder for papers ({metadata.dimension} dimensions, {metadata.layers} "
            f"layers): {self._start} with all layers trained on {len(self._lists):,} graded lists "
            f"({count:,} pairs), {recipe.steps} steps of {recipe.queries} lists a seed.{difference * large}",
            input="title and abstract in one pass; a vector is the mean of its sentence's tokens",
            caption=f"{FIGURES} By mean-max of sentences.",
            columns=("pairs", "weights", *BY_FACET),
            figures=by_vectors,
            limits=GRADES_LIMITS,
            licence=f"{APACHE}; derived from {MPNET.source if large else self._start} (same licence)",
        )

    def _write_whole(self, weights: Weights, whole: Path, folder: Path) -> None:
        """Write the trained model to ``whole``, and a difference from the large base to ``folder``."""
        original = load_file(self._base / WEIGHTS)
        changed = with_trained(original, weights)
        if not self._large:
            write_base(self._base, changed, whole)
            return
        difference = low_rank(
            {name: part.numpy() for name, part in original.items()},
            {name: part.numpy() for name, part in changed.items() if not torch.equal(part, original[name])},
            self.recipe.rank,
        )
        write_weights(folder / DIFFERENCE, difference)
        make_weights(self._base, folder / DIFFERENCE, whole)

    def _write_graph(self, fp32: Path, whole: Path, folder: Path, max_tokens: int) -> None:
        store_graph(fp32, whole / WEIGHTS, folder / GRAPH)
        some = itertools.islice(self._papers.values(), RANGED)
        windows = (self._tokenizer.first_window(paper, max_tokens) for paper in some)
        ranges = channel_ranges(fp32, ({"input_ids": np.array([each.ids])} for each in windows))
        largest = np.finfo(np.float16).max
        halved = {each: np.minimum(of, largest).astype(np.float16) for each, of in ranges.items()}
        write_weights(folder / RANGES, halved)
