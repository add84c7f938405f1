"""Training of the facet rerankers, which the facet encoder is made of, from graded pairs and seeds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.corpus.titles import TitleIndex
from qbe.encode.encoder import Encoder
from qbe.encode.tokenizer import PaperTokenizer
from qbe.graded_pairs import GradedLists, read_graded_pairs
from qbe.models.registry import BASE_ENCODER, ENCODERS
from qbe.models.sources import packaged_weights
from qbe.tag.tagger import Tagger
from qbe.train.artifacts import RunOptions, Sources, begin, read_provenance, save_state
from qbe.train.correlation import check_dev
from qbe.train.pairs import joined_lists, papers_of, without
from qbe.train.reranker.network import Network
from qbe.train.reranker.papers import TokenizedPaper, collect_papers, tokenize
from qbe.train.reranker.task import CandidateScorer, GradedSplits, GradedTask, Recipe
from qbe.train.trainer import fit_seeds, matmul_dtype
from qbe.train.weights import PUBLISHED, Weights, best_weights, copied, with_weights

log = logging.getLogger(__name__)
DEFAULT_RECIPE = Recipe()


def base_weights() -> Path:
    """The folder of the encoder that the facet rerankers and the facet encoder are made of."""
    return packaged_weights(ENCODERS[BASE_ENCODER])


@dataclass(frozen=True, slots=True)
class Readers:
    """The encoder and the tagger by which the facets of papers are predicted: the base encoder's."""

    encoder: Encoder
    tagger: Tagger

    @classmethod
    def open(cls, threads: int) -> Readers:
        """Open both."""
        return cls(Encoder.open(BASE_ENCODER, threads=threads), Tagger.open())

    @property
    def identities(self) -> dict[str, Any]:
        """What they are, for the note in the work folder."""
        return {"encoder": self.encoder.files.identity, "tagger": self.tagger.identity}


def train(
    sources: Sources,
    work: Path,
    run: RunOptions,
    *,
    start: str | Path | None = None,
    weights: Path | None = None,
    recipe: Recipe = DEFAULT_RECIPE,
) -> dict[str, Any]:
    """Train facet rerankers on graded pairs; returns recipe, data and figures.

    ``sources`` are files of graded pairs, the corpus of their papers, and papers to leave out. ``weights`` is
    the folder of the BERT encoder that the rerankers are made of (None: the base encoder's). ``start`` is the
    work folder of a finished training with the same seeds, each of which continues from its best weights
    there. Of the seeds and their mean the best on dev is kept in the folder ``work`` (PUBLISHED). Raises
    FileFormatError for pairs and CorpusError for papers that cannot be read, and for pairs that are too few
    to train on or that no correlation can be computed with, ModelError where a check fails, OutputError where
    nothing can be written, UsageError for a GPU that does not exist.
    """
    readers, began = (
        Readers.open(run.threads),
        {} if start is None else {"start": read_provenance(Path(start))},
    )
    provenance = begin(sources, work, run, recipe, **readers.identities, **began)
    splits, tokenized = read_data(sources, readers, recipe, work)
    network = Network(weights or base_weights(), recipe.joint, matmul_dtype(run.device)).to(run.device)
    scorer, untrained = CandidateScorer(network, tokenized), copied(network)

    def task(seed: int) -> GradedTask:
        initial = untrained if start is None else best_weights(Path(start) / f"seed-{seed}.pt")
        network.load_state_dict(initial, strict=False)
        return GradedTask(scorer, splits, recipe)

    trained = fit_seeds(task, recipe.schedule(), run.seeds, work)
    dev = figures_on_dev(scorer, {"untrained": untrained, **trained}, splits.dev)
    best = max(trained, key=lambda name: sum(dev[name]))
    save_state(work / PUBLISHED, {"best": dict(trained[best])})
    return provenance | {
        "pairs": {part: sum(map(len, lists.values())) for part, lists in splits._asdict().items()},
        "queries": {part: len(lists) for part, lists in splits._asdict().items()},
        "best": best,
        "dev": dev,
    }


def read_data(
    sources: Sources, readers: Readers, recipe: Recipe, work: Path
) -> tuple[GradedSplits, dict[str, TokenizedPaper]]:
    """Graded lists, and their papers as the network reads them; predicted facets are cached in ``work``.

    Raises FileFormatError for pairs and CorpusError for papers that cannot be read, and for pairs of dev that
    no correlation can be computed with.
    """
    dev = read_graded_pairs(sources.dev[0])
    check_dev(dev, sources.dev[0])
    train = without(joined_lists(sources.train), frozenset(dev))
    evaluated = TitleIndex.of_corpus(sources.leave_out)
    ids = papers_of(train, dev)
    papers = collect_papers(sources.corpus, ids, readers.encoder, readers.tagger, work / "facets.npz")
    excluded = frozenset(paper_id for paper_id, paper in papers.items() if evaluated.holds(paper.title))
    train = without(train, excluded)
    log.info("%d queries in training, %d in dev; %d papers left out", len(train), len(dev), len(excluded))
    words = PaperTokenizer(readers.encoder.files.tokenizer)
    tokenized = {name: tokenize(paper, words, recipe.max_tokens) for name, paper in papers.items()}
    return GradedSplits(train, dev), tokenized


def figures_on_dev(
    scorer: CandidateScorer, weights: Mapping[str, Weights], dev: GradedLists
) -> dict[str, list[float]]:
    """Correlations on dev by facet, of the network with each of the weights, by name."""
    figures = {}
    for name, each in weights.items():
        figures[name] = with_weights(scorer.network, each, lambda: scorer.correlations(dev))
        log.info("%s: dev Spearman %s", name, " / ".join(f"{value:.4f}" for value in figures[name]))
    return figures
