"""Training of the facet rerankers, which the facet encoder is made of, from graded pairs and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from qbe.models.encode.tokenizer import PaperTokenizer
from qbe.models.registry import BASE_ENCODER, ENCODERS
from qbe.models.sources import packaged_weights
from qbe.runs import GradedLists
from qbe.train.artifacts import RunOptions, Sources, begin, read_provenance, save_state
from qbe.train.reranker.network import Network
from qbe.train.reranker.papers import Readers, read_graded_papers, tokenize
from qbe.train.reranker.task import CandidateScorer, GradedTask, Recipe
from qbe.train.trainer import fit_seeds, matmul_dtype
from qbe.train.weights import PUBLISHED, Weights, best_weights, copied, with_weights

DEFAULT_RECIPE = Recipe()


def base_weights() -> Path:
    """The folder of the encoder that the facet rerankers and the facet encoder are made of."""
    return packaged_weights(ENCODERS[BASE_ENCODER])


class Kept(NamedTuple):
    """Which weights a training of rerankers keeps, ``name``, and Spearman's correlations with the grades of
    dev, by facet, of these and of others, by name.
    """

    name: str
    dev: Mapping[str, Sequence[float]]


def train(
    sources: Sources,
    work: Path,
    run: RunOptions,
    *,
    start: str | Path | None = None,
    weights: Path | None = None,
    recipe: Recipe = DEFAULT_RECIPE,
) -> Kept:
    """Train facet rerankers on graded pairs.

    ``sources`` are files of graded pairs, the corpus of their papers, and papers to leave out. ``weights`` is
    the folder of the BERT encoder that the rerankers are made of (None: the base encoder's). ``start`` is the
    work folder of a finished training with the same seeds, each of which continues from its weights there. Of
    the seeds and their mean the best on dev is kept in the folder ``work`` (PUBLISHED). Raises
    FileFormatError for pairs and CorpusError for papers that cannot be read, and for pairs that are too few
    to train on or that no correlation can be computed with, ModelError where a check fails, OutputError where
    nothing can be written, UsageError for a GPU that does not exist.
    """
    readers, began = Readers.open(run.threads), {}
    if start is not None:
        began["start"] = read_provenance(Path(start))
    begin(sources, work, run, recipe, **readers.identities, **began)
    lists, dev, papers = read_graded_papers(sources, readers)
    words = PaperTokenizer(readers.encoder.files.tokenizer)
    tokenized = {name: tokenize(paper, words, recipe.max_tokens) for name, paper in papers.items()}
    network = Network(weights or base_weights(), recipe.joint, matmul_dtype(run.device)).to(run.device)
    scorer, untrained = CandidateScorer(network, tokenized), copied(network)

    def task(seed: int) -> GradedTask:
        initial = untrained if start is None else best_weights(Path(start) / f"seed-{seed}.pt")
        network.load_state_dict(initial, strict=False)
        return GradedTask(scorer, lists, recipe)

    trained = fit_seeds(task, recipe.schedule(), run.seeds, work)
    figures = figures_on_dev(scorer, {"untrained": untrained, **trained}, next(iter(dev.values())))
    best = max(trained, key=lambda name: sum(figures[name]))
    save_state(work / PUBLISHED, {"best": dict(trained[best])})
    return Kept(best, figures)


def figures_on_dev(
    scorer: CandidateScorer, weights: Mapping[str, Weights], dev: GradedLists
) -> dict[str, list[float]]:
    """Correlations on dev by facet, of the network with each of the weights, by name."""
    return {
        name: with_weights(scorer.network, each, lambda: scorer.correlations(dev))
        for name, each in weights.items()
    }
