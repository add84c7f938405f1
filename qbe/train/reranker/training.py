"""Training of the facet rerankers, from graded pairs and seeds to the published folder."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from qbe.corpus.titles import TitleIndex
from qbe.encode.encoder import Encoder
from qbe.encode.tokenizer import PaperTokenizer
from qbe.graded_pairs import read_graded_pairs
from qbe.models.registry import BASE_ENCODER
from qbe.models.reranker_files import FacetRerankersMetadata, resolve_reranker
from qbe.tag.tagger import Tagger
from qbe.train.artifacts import (
    Folders,
    RunOptions,
    as_record,
    check_provenance,
    file_digests,
    read_provenance,
)
from qbe.train.correlation import check_dev
from qbe.train.pairs import papers_of, without
from qbe.train.reranker.exported import exported_provenance, exported_weights, is_exported, off_grid
from qbe.train.reranker.network import Network
from qbe.train.reranker.papers import collect_papers, tokenize
from qbe.train.reranker.publishing import Data, figures_on_dev, publish
from qbe.train.reranker.task import CandidateScorer, GradedSplits, GradedTask, Recipe
from qbe.train.trainer import fit_seeds, matmul_dtype
from qbe.train.weights import Weights, best_weights, copied, mean

log = logging.getLogger(__name__)
DEFAULT_RECIPE = Recipe()
CHECKPOINT_EVERY = 100
"""After how many steps a checkpoint is written."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Files of graded pairs to train on and of dev, of the corpus that holds their papers, and of papers that
    models are evaluated on, which are excluded from training.
    """

    train: tuple[Path, ...]
    dev: Path
    corpus: Path
    leave_out: Path


@dataclass(frozen=True, slots=True)
class Readers:
    """The encoder and the tagger by which the facets of papers are predicted."""

    encoder: Encoder
    tagger: Tagger
    threads: int

    @classmethod
    def open(cls, threads: int) -> Readers:
        """Those of the base encoder."""
        return cls(Encoder.open(BASE_ENCODER, threads=threads), Tagger.open(), threads)

    def provenance(self, sources: Sources) -> dict[str, Any]:
        """What `read_data` reads, for the note in the work folder: digests of the files, and the identities
        of the models by which facets are predicted.
        """
        return {
            "data": file_digests(*sources.train, sources.dev, sources.corpus),
            "leave_out": file_digests(sources.leave_out),
            "encoder": self.encoder.files.identity,
            "tagger": self.tagger.identity,
        }


def train_rerankers(
    sources: Sources,
    weights: Path,
    folders: Folders,
    run: RunOptions,
    *,
    start: str | Path | None = None,
    recipe: Recipe = DEFAULT_RECIPE,
) -> FacetRerankersMetadata:
    """Train facet rerankers on graded pairs, and publish them.

    ``weights`` is the folder of the BERT encoder that they are made of. ``start`` is the work folder of a
    finished training with the same seeds, each of which continues from its best weights there; or the name or
    folder of trained rerankers in int8, from whose weights all seeds start. Finished parts are kept in the
    work folder, from which the same call continues. Of the seeds and their mean (a "soup"; Wortsman et al.,
    2022) the best on dev is published. Raises FileFormatError for pairs and CorpusError for papers that
    cannot be read, and for pairs that are too few to train on or that no correlation can be computed with,
    ModelError where a check fails, OutputError where nothing can be written, UsageError for a GPU that does
    not exist.
    """
    torch.set_num_threads(run.threads)
    readers = Readers.open(run.threads)
    exported = start is not None and is_exported(start)
    provenance = {"recipe": as_record(recipe), **readers.provenance(sources)}
    if start is not None:
        provenance["start"] = (
            exported_provenance(resolve_reranker(str(start), "int8"))
            if exported
            else read_provenance(Path(start))
        )
    check_provenance(folders.work, provenance)
    data = read_data(sources, readers, readers.encoder.tokenizer, recipe, folders.work)
    dtype = matmul_dtype(run.device)
    network = Network(weights, recipe.joint, dtype, separate=recipe.separate).to(run.device)
    scorer, untrained = CandidateScorer(network, data.tokenized), copied(network)
    initial = _initial(start, network) if start is not None else lambda _: untrained

    def task(seed: int) -> GradedTask:
        network.load_state_dict(dict(initial(seed)), strict=False)
        return GradedTask(scorer, data.splits, recipe)

    trained: dict[str, Weights] = {
        **fit_seeds(task, recipe.schedule(), run.seeds, folders.work, CHECKPOINT_EVERY)
    }
    if len(run.seeds) > 1:
        trained["mean"] = mean(list(trained.values()))
    if exported:
        trained = {name: off_grid(each) for name, each in trained.items()}
    dev = figures_on_dev(scorer, {"untrained": untrained, **trained}, data.splits.dev)
    best = max(trained, key=lambda name: sum(dev[name]))
    network.load_state_dict(dict(trained[best]), strict=False)
    training = provenance | {
        "pairs": {part: sum(map(len, lists.values())) for part, lists in data.splits._asdict().items()},
        "queries": {part: len(lists) for part, lists in data.splits._asdict().items()},
        "shipped": best,
        "dev": dev,
    }
    tokenizer, output = readers.encoder.files.tokenizer, folders.output
    return publish(network, data, training, tokenizer, output, run.threads)


def _initial(start: str | Path, network: Network) -> Callable[[int], Weights]:
    """The weights that each seed starts from."""
    if not is_exported(start):
        return lambda seed: best_weights(Path(start) / f"seed-{seed}.pt")
    weights = exported_weights(resolve_reranker(str(start), "int8"), network)
    return lambda _: weights


def read_data(
    sources: Sources, readers: Readers, tokenizer: PaperTokenizer, recipe: Recipe, work: Path
) -> Data:
    """Graded lists and their papers, tokenized by ``tokenizer``; predicted facets are cached in ``work``.

    Raises FileFormatError for pairs and CorpusError for papers that cannot be read, and for pairs of dev that
    no correlation can be computed with.
    """
    dev = read_graded_pairs(sources.dev)
    check_dev(dev, sources.dev)
    train: dict[str, Any] = {}
    for path in sources.train:
        train |= read_graded_pairs(path)
    train = without(train, frozenset(dev))
    if recipe.sampled is not None:
        chosen = random.Random(0).sample(sorted(train), min(recipe.sampled, len(train)))
        train = {query: train[query] for query in chosen}
    evaluated = TitleIndex.of_corpus(sources.leave_out)
    ids = papers_of(train, dev)
    papers = collect_papers(sources.corpus, ids, readers.encoder, readers.tagger, work / "facets.npz")
    excluded = frozenset(paper_id for paper_id, paper in papers.items() if evaluated.holds(paper.title))
    train = without(train, excluded)
    log.info("%d queries in training, %d in dev; %d papers left out", len(train), len(dev), len(excluded))
    tokenized = {
        paper_id: tokenize(paper, tokenizer, recipe.max_tokens) for paper_id, paper in papers.items()
    }
    return Data(GradedSplits(train, dev), papers, tokenized)
