"""Training of the facet rerankers, from graded pairs and seeds to the published folder."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from qbe.corpus.titles import TitleIndex
from qbe.encode.encoder import Encoder
from qbe.encode.tokenizer import PaperTokenizer
from qbe.export.facet_rerankers import example_inputs, export_facets
from qbe.export.staging import staged_folder
from qbe.files import sha256
from qbe.graded_pairs import GradedLists, read_graded_pairs
from qbe.models.kinds import TOKENIZER
from qbe.models.registry import BASE_ENCODER, DEFAULT_RERANKER, ENCODERS
from qbe.models.reranker_files import TRUNK, FacetRerankersMetadata, RerankerFiles, write_reranker_card
from qbe.models.sources import packaged_weights
from qbe.parallel import Workers
from qbe.rerank.facet_cross_encoder import FacetCrossEncoder
from qbe.tag.tagger import Tagger
from qbe.train.artifacts import Folders, RunOptions, Sources, begin, read_provenance, save_state
from qbe.train.card import APACHE, GRADES_LIMITS, Card, all_data, facet_table
from qbe.train.correlation import check_dev, mean_correlation, rank_correlations
from qbe.train.pairs import joined_lists, papers_of, without
from qbe.train.reranker.network import FACETS, Network
from qbe.train.reranker.papers import TokenizedPaper, collect_papers, tokenize
from qbe.train.reranker.task import CandidateScorer, GradedSplits, GradedTask, Recipe
from qbe.train.trainer import fit_seeds, matmul_dtype
from qbe.train.weights import PUBLISHED, Weights, best_weights, copied, with_weights
from qbe.types import Paper

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


@dataclass(frozen=True, slots=True)
class Data:
    """Graded lists and their papers, with labels and as the network reads them by a ``tokenizer``'s file."""

    splits: GradedSplits
    papers: Mapping[str, Paper]
    tokenized: Mapping[str, TokenizedPaper]
    tokenizer: Path


def train(
    sources: Sources,
    folders: Folders,
    run: RunOptions,
    *,
    start: str | Path | None = None,
    weights: Path | None = None,
    recipe: Recipe = DEFAULT_RECIPE,
) -> FacetRerankersMetadata:
    """Train facet rerankers on graded pairs, and publish them.

    ``sources`` are files of graded pairs, the corpus of their papers, and papers to leave out. ``weights`` is
    the folder of the BERT encoder that the rerankers are made of (None: the base encoder's). ``start`` is the
    work folder of a finished training with the same seeds, each of which continues from its best weights
    there. Of the seeds and their mean the best on dev is published. Raises FileFormatError for pairs and
    CorpusError for papers that cannot be read, and for pairs that are too few to train on or that no
    correlation can be computed with, ModelError where a check fails, OutputError where nothing can be
    written, UsageError for a GPU that does not exist.
    """
    readers, began = (
        Readers.open(run.threads),
        {} if start is None else {"start": read_provenance(Path(start))},
    )
    provenance = begin(sources, folders, run, recipe, **readers.identities, **began)
    data = read_data(sources, readers, readers.encoder.files.tokenizer, recipe, folders.work)
    network = Network(weights or base_weights(), recipe.joint, matmul_dtype(run.device)).to(run.device)
    scorer, untrained = CandidateScorer(network, data.tokenized), copied(network)

    def task(seed: int) -> GradedTask:
        initial = untrained if start is None else best_weights(Path(start) / f"seed-{seed}.pt")
        network.load_state_dict(initial, strict=False)
        return GradedTask(scorer, data.splits, recipe)

    trained = fit_seeds(task, recipe.schedule(), run.seeds, folders.work)
    dev = figures_on_dev(scorer, {"untrained": untrained, **trained}, data.splits.dev)
    best = max(trained, key=lambda name: sum(dev[name]))
    training = provenance | {
        "pairs": {part: sum(map(len, lists.values())) for part, lists in data.splits._asdict().items()},
        "queries": {part: len(lists) for part, lists in data.splits._asdict().items()},
        "shipped": best,
        "dev": dev,
    }
    return publish(network, trained[best], data, training, folders, run.threads)


def read_data(sources: Sources, readers: Readers, tokenizer: Path, recipe: Recipe, work: Path) -> Data:
    """Graded lists and their papers, tokenized by ``tokenizer``; predicted facets are cached in ``work``.

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
    words = PaperTokenizer(tokenizer)
    tokenized = {name: tokenize(paper, words, recipe.max_tokens) for name, paper in papers.items()}
    return Data(GradedSplits(train, dev), papers, tokenized, tokenizer)


def figures_on_dev(
    scorer: CandidateScorer, weights: Mapping[str, Weights], dev: GradedLists
) -> dict[str, list[float]]:
    """Correlations on dev by facet, of the network with each of the weights, by name."""
    figures = {}
    for name, each in weights.items():
        figures[name] = with_weights(scorer.network, each, lambda: scorer.correlations(dev))
        log.info("%s: dev Spearman %s", name, " / ".join(f"{value:.4f}" for value in figures[name]))
    return figures


def publish(
    network: Network,
    weights: Weights,
    data: Data,
    training: Mapping[str, Any],
    folders: Folders,
    threads: int,
) -> FacetRerankersMetadata:
    """Export a network with some weights, in int8 and in fp32 (into ``fp32`` inside the output), measure both
    on dev, and write the card; the weights are kept in the work folder too.

    The output appears complete or not at all.
    """
    save_state(folders.work / PUBLISHED, {"best": dict(weights)})
    network.load_state_dict(dict(weights), strict=False)
    network = network.to("cpu")
    network.dtype = torch.float32
    first, shape = data.tokenized[min(data.tokenized)], network.shape
    example = example_inputs(
        first.ids.numpy(),
        first.pooling.numpy(),
        (network.joint, shape.heads, shape.dimension // shape.heads),
    )
    names = [TOKENIZER, TRUNK, *(f"{facet}.onnx" for facet in FACETS)]
    measured: dict[str, Any] = {}
    with staged_folder(folders.output) as staged:
        for precision, folder in (("fp32", staged / "fp32"), ("int8", staged)):
            folder.mkdir(exist_ok=True)
            shutil.copyfile(data.tokenizer, folder / TOKENIZER)
            export_facets(network, folder, TRUNK, example, precision)
            metadata = FacetRerankersMetadata(
                name=DEFAULT_RERANKER,
                precision=precision,
                max_tokens=training["recipe"]["max_tokens"],
                files={name: sha256(folder / name) for name in names},
                heads={facet.value: network.weights[i].tolist() for i, facet in enumerate(FACETS)},
                training=training,
            )
            measured[precision] = _measure(RerankerFiles(folder, metadata, precision), data, threads)
            metadata = dataclasses.replace(metadata, training={**training, "exported": dict(measured)})
            write_reranker_card(folder, metadata)
        _card(metadata).write(staged)
    return metadata


def _measure(files: RerankerFiles, data: Data, threads: int) -> list[float]:
    """Mean Spearman correlation of the exported models on dev, by facet, computed as in a search."""
    with Workers(threads) as workers:
        reranker = FacetCrossEncoder(files, workers)
        correlations = rank_correlations(reranker, data.papers, data.splits.dev)
    return [mean_correlation(values.values()) for values in correlations]


def _card(metadata: FacetRerankersMetadata) -> Card:
    """It says how the weights were learned: from graded pairs, or from the scores of a teacher."""
    training = metadata.training
    teacher = training.get("teacher")
    learned = "from graded pairs"
    if teacher:
        learned = (
            f"from the scores of {teacher['encoder']['name']} (weights "
            f"{teacher['encoder']['weights_sha256'][:12]}, projections {teacher['projections'][:12]})"
        )
    share = f", {training['share']:g} of the trained weights and the start's" if "share" in training else ""
    figures = {**training["dev"], **training["exported"]}
    return Card(
        name=metadata.name,
        purpose="A cross-encoder for each facet (background, method, result) over weights that they share, "
        f"in {metadata.precision}, learned {learned}. Candidates are scored by late interaction of "
        "sentences, tokens and whole papers.",
        input=f"title and abstract with labelled sentences, {metadata.max_tokens} tokens each",
        figures="Spearman's correlation with the grades of dev, mean over "
        f"{training['queries']['dev']:,} queries. Published: {training['shipped']}{share}; fp32 and int8 are "
        "its exported models.",
        table=facet_table(["weights"], ([name, *row] for name, row in figures.items())),
        data=all_data(training),
        command="distillation --index DIR --start DIR" if teacher else "reranker",
        limits=GRADES_LIMITS,
        licence=f"{APACHE}; derived from {BASE_ENCODER} (same licence)",
    )
