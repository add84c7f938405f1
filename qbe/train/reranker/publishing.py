"""Publishing facet rerankers: measured on dev as trained and as exported, with a card."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from qbe.export.facet_rerankers import example_inputs, export_facets
from qbe.export.staging import staged_folder
from qbe.files import sha256
from qbe.graded_pairs import GradedLists
from qbe.models.kinds import TOKENIZER
from qbe.models.registry import BASE_ENCODER, DEFAULT_RERANKER
from qbe.models.reranker_files import TRUNK, FacetRerankersMetadata, RerankerFiles, write_reranker_card
from qbe.parallel import Workers
from qbe.rerank.facet_cross_encoder import FacetCrossEncoder
from qbe.train.card import APACHE, GRADES_LIMITS, Card, all_data, facet_table
from qbe.train.correlation import mean_correlation, rank_correlations
from qbe.train.reranker.network import FACETS, Network
from qbe.train.reranker.papers import TokenizedPaper
from qbe.train.reranker.task import CandidateScorer, GradedSplits, mean_spearman
from qbe.train.weights import Weights, with_weights
from qbe.types import Paper

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Data:
    """Graded lists and their papers, with labels and as the network reads them."""

    splits: GradedSplits
    papers: Mapping[str, Paper]
    tokenized: Mapping[str, TokenizedPaper]


def figures_on_dev(
    scorer: CandidateScorer, weights: Mapping[str, Weights], dev: GradedLists
) -> dict[str, list[float]]:
    """Correlations on dev by facet, of the network with each of the weights, by name."""
    figures = {}
    for name, each in weights.items():
        figures[name] = with_weights(scorer.network, each, lambda: mean_spearman(scorer, dev))
        log.info("%s: dev Spearman %s", name, " / ".join(f"{value:.4f}" for value in figures[name]))
    return figures


def publish(
    network: Network,
    data: Data,
    training: Mapping[str, Any],
    tokenizer: Path,
    output: Path,
    threads: int,
) -> FacetRerankersMetadata:
    """Export in int8 and in fp32 (into ``fp32`` inside the output), measure both on dev, write the card.

    The folder appears complete or not at all.
    """
    max_tokens = training["recipe"]["max_tokens"]
    network = network.to("cpu")
    network.dtype = torch.float32
    first, shape = data.tokenized[min(data.tokenized)], network.shape
    example = example_inputs(
        first.ids.numpy(),
        first.pooling.numpy(),
        (network.joint, shape.heads, shape.dimension // shape.heads),
    )
    names = [TOKENIZER, TRUNK, *(f"{facet}.onnx" for facet in FACETS)]
    heads = {facet.value: network.weights[i].tolist() for i, facet in enumerate(FACETS)}
    measured: dict[str, Any] = {}
    with staged_folder(output) as staged:
        for precision, folder in (("fp32", staged / "fp32"), ("int8", staged)):
            folder.mkdir(exist_ok=True)
            shutil.copyfile(tokenizer, folder / TOKENIZER)
            export_facets(network, folder, TRUNK, example, precision)
            metadata = FacetRerankersMetadata(
                name=DEFAULT_RERANKER,
                precision=precision,
                max_tokens=max_tokens,
                files={name: sha256(folder / name) for name in names},
                heads=heads,
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
    """The card.

    It says how the weights were learned: from graded pairs, or from the scores of a teacher.
    """
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
        command="distillation --index DIR" if teacher else "reranker",
        limits=GRADES_LIMITS,
        licence=f"{APACHE}; derived from {BASE_ENCODER} (same licence)",
    )
