"""The facet encoders: encoder layers of trained facet rerankers, averaged with the original weights.

The small one is made of the rerankers that ship: training leaves their attention to the query nearly closed,
so that their layers, which learn to place sentences of papers that are similar in a facet near each other,
are a sentence encoder. The large one is trained for it: each paper is encoded by itself. Fine-tuned weights
gain on data like those they were tuned on and may lose elsewhere; interpolated with the original weights they
keep most of the gain and lose less (Wortsman et al., *Robust fine-tuning of zero-shot models*, CVPR 2022).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from qbe.encode.encoder import Encoder
from qbe.encode.pooling import Floats
from qbe.evaluate.significance import randomization_test
from qbe.export.encoder import export_encoder
from qbe.export.graph import store_graph
from qbe.export.staging import staged_folder
from qbe.files import sha256
from qbe.graded_pairs import GradedLists, read_graded_pairs
from qbe.models.encoder_files import EncoderMetadata, write_card
from qbe.models.encoder_format import COSINE
from qbe.models.exports import model_file
from qbe.models.kinds import DIFFERENCE, GRAPH, TOKENIZER
from qbe.models.large import MPNET, make_weights, model_folder, quantized, write_weights
from qbe.models.registry import BASE_ENCODER, DEFAULT_ENCODER, LARGE_ENCODER
from qbe.rerank.matching import MATCHINGS, VectorMatching
from qbe.train.artifacts import Folders, RunOptions, Sources, begin, read_provenance
from qbe.train.card import APACHE, GRADES_LIMITS, Card, all_data, facet_table
from qbe.train.correlation import check_dev, mean_correlation, rank_correlations
from qbe.train.pairs import papers_of
from qbe.train.reranker.base import interpolated_encoder
from qbe.train.reranker.network import Network
from qbe.train.reranker.papers import collect_papers
from qbe.train.reranker.task import CandidateScorer, GradedTask, Recipe
from qbe.train.reranker.training import Readers, base_weights, read_data
from qbe.train.trainer import fit_seeds, matmul_dtype
from qbe.train.weights import PUBLISHED, best_weights, copied
from qbe.types import Paper

SHARE, LARGE_SHARE = 0.8, 0.5
"""The shares of the trained weights. With more in the small encoder, the tagger reads it worse
(`qbe train admit`); a half is what Wortsman et al. advise where there is no data to choose it on.
"""
PRECISION = "int8"
"""The precision that ships, and is measured."""
SOURCE = "python -m qbe.train facet-encoder"
"""The origin that ``encoder.json`` states; written out as in the encoder that ships."""
FIRST_STAGE = "mean-max"
"""The matching of the dense first stage."""
LARGE_RECIPE = Recipe(joint=4, sampled=450, separate=True, learning_rate=3e-5, head_rate=1e-4)
WEIGHTS = "model.safetensors"


def make(
    sources: Sources, folders: Folders, run: RunOptions, *, weights: Path | None = None
) -> EncoderMetadata:
    """Make the small encoder out of trained rerankers, measure it and write its folder.

    ``folders.work`` is the work folder of the rerankers' training, which is only read: what it published is
    taken. ``weights`` is the folder of the BERT encoder that they started from (None: the base encoder's).
    The output has an int8 ONNX model, the tokenizer and the cards. Raises FileFormatError for pairs and
    CorpusError for papers that cannot be read, and for pairs that no correlation can be computed with,
    ModelError where there are no such rerankers or a check fails, OutputError where nothing can be written.
    """
    weights = weights or base_weights()
    trained = best_weights(folders.work / PUBLISHED)
    lists = read_graded_pairs(sources.dev[0])
    check_dev(lists, sources.dev[0])
    readers = Readers.open(run.threads)
    papers = collect_papers(sources.corpus, papers_of(lists), readers.encoder, readers.tagger)
    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary, staged_folder(folders.output) as staged:
        model, exported = Path(temporary, "model"), Path(temporary, "exported")
        model.mkdir()
        for file in ("config.json", TOKENIZER):
            shutil.copyfile(weights / file, model / file)
        mixed = interpolated_encoder(load_file(weights / WEIGHTS), trained, SHARE)
        save_file(mixed, model / WEIGHTS, metadata={"format": "pt"})
        metadata = _ship(export_encoder(model, DEFAULT_ENCODER, SOURCE, exported), exported, staged)
        encoder = Encoder.open(str(staged), PRECISION, run.threads)
        card = _card(metadata, BASE_ENCODER, _compared([readers.encoder, encoder], papers, lists))
        replace(
            card,
            purpose=f"{card.purpose}, {PRECISION}): {SHARE:g} of the weights of the trained facet rerankers "
            f"and {1 - SHARE:g} of those of {BASE_ENCODER}.",
            data=sources.digests() | all_data(read_provenance(folders.work)),
            command="facet-encoder --rerankers DIR",
            options="--output DIR",
        ).write(staged)
    return metadata


def _ship(metadata: EncoderMetadata, exported: Path, staged: Path) -> EncoderMetadata:
    """Copy an export without its fp32 model, which is four times as large; returns the copy's metadata."""
    files = (TOKENIZER, model_file(PRECISION))
    for file in files:
        shutil.copyfile(exported / file, staged / file)
    digests, parity = {file: metadata.files[file] for file in files}, {PRECISION: metadata.parity[PRECISION]}
    shipped = replace(metadata, files=digests, parity=parity)
    write_card(staged, shipped)
    return shipped


def train_large(
    sources: Sources, folders: Folders, run: RunOptions, *, recipe: Recipe = LARGE_RECIPE
) -> EncoderMetadata:
    """Train the large encoder, measure it on dev, and publish its difference from the base with a card.

    ``sources`` are files of graded pairs, the corpus of their papers, and papers to leave out. The mean of
    the seeds is published; nothing is selected. Raises FileFormatError for pairs and CorpusError for papers
    that cannot be read, and for pairs that are too few to train on or that no correlation can be computed
    with, ModelError where the base cannot be downloaded or a check fails, OutputError where nothing can be
    written.
    """
    base = model_folder(MPNET)
    readers, digest = Readers.open(run.threads), sha256(base / WEIGHTS)
    provenance = begin(sources, folders, run, recipe, base=digest, **readers.identities)
    data = read_data(sources, readers, base / TOKENIZER, recipe, folders.work)
    network = Network(base, recipe.joint, matmul_dtype(run.device), separate=recipe.separate).to(run.device)
    scorer, untrained = CandidateScorer(network, data.tokenized), copied(network)

    def task(_: int) -> GradedTask:
        network.load_state_dict(untrained, strict=False)
        return GradedTask(scorer, data.splits, recipe)

    trained = list(fit_seeds(task, recipe.schedule(), run.seeds, folders.work).values())[-1]
    original = load_file(base / WEIGHTS)
    changed = interpolated_encoder(original, trained, LARGE_SHARE, "mpnet")
    difference = quantized(
        {name: part.numpy() for name, part in original.items()},
        {name: part.numpy() for name, part in changed.items() if not torch.equal(part, original[name])},
    )
    lists = data.splits.dev
    papers = {name: data.papers[name] for name in sorted(papers_of(lists))}
    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary, staged_folder(folders.output) as staged:
        write_weights(staged / DIFFERENCE, difference)
        whole = Path(temporary, "whole")
        make_weights(base, staged / DIFFERENCE, whole)
        encoders = []
        for name, model in ((MPNET.name, base), (LARGE_ENCODER, whole)):
            metadata = export_encoder(model, name, MPNET.source, Path(temporary, f"{name}-onnx"))
            encoders.append(Encoder.open(str(Path(temporary, f"{name}-onnx")), PRECISION, run.threads))
        traced = Path(temporary, f"{LARGE_ENCODER}-onnx", model_file("fp32"))  # attention is not fused in it
        store_graph(traced, whole / WEIGHTS, staged / GRAPH)
        card = _card(metadata, MPNET.name, _compared(encoders, papers, lists))
        replace(
            card,
            purpose=f"{card.purpose}): {MPNET.name} with its last {recipe.joint} layers trained on "
            f"{len(data.splits.train):,} graded lists and averaged with the original weights, share "
            f"{LARGE_SHARE:g}. The folder holds the difference from the base (weights {digest[:12]}), which "
            f"is downloaded and verified; the weights that come out are {sha256(whole / WEIGHTS)[:12]}.",
            data=provenance["data"],
            command="large-encoder",
            limits=GRADES_LIMITS,
        ).write(staged)
    return metadata


class Figures(NamedTuple):
    """Spearman's correlations with the grades of dev.

    ``means`` has the mean over queries by matching and facet; ``queries`` the mean over facets by query,
    for the matching of the dense first stage.
    """

    means: Mapping[str, Sequence[float]]
    queries: Sequence[float]


def measure(vectors: Mapping[str, Floats], papers: Mapping[str, Paper], lists: GradedLists) -> Figures:
    """Correlations of each matching of vectors of sentences (sentences, dimension), given by paper.

    Queries whose grades for a facet are all equal are left out there.
    """
    correlations = {}
    for name in MATCHINGS:
        matching = VectorMatching(name, lambda paper: vectors[paper.paper_id], similarity=COSINE)
        correlations[name] = rank_correlations(matching, papers, lists, vectors)
    means = {
        name: [mean_correlation(by_query.values()) for by_query in facets]
        for name, facets in correlations.items()
    }
    first_stage = correlations[FIRST_STAGE]
    rows = [[by_query[query] for by_query in first_stage if query in by_query] for query in lists]
    return Figures(means, [float(np.mean(row)) if row else 0.0 for row in rows])


class _Comparison(NamedTuple):
    """The figures of a base encoder and of one made of it, and the p of their difference by mean-max."""

    base: Figures
    made: Figures
    p: float


def _compared(encoders: Sequence[Encoder], papers: Mapping[str, Paper], lists: GradedLists) -> _Comparison:
    base, made = (
        measure(
            {
                paper_id: vectors.sentences
                for paper_id, vectors in zip(papers, encoder.encode(papers.values()), strict=True)
            },
            papers,
            lists,
        )
        for encoder in encoders
    )
    differences = np.subtract(made.queries, base.queries).tolist()
    return _Comparison(base, made, randomization_test(differences))


def _card(metadata: EncoderMetadata, base: str, compared: _Comparison) -> Card:
    """What both cards share; the purpose begins with a sentence that is not finished."""
    rows: list[list[str | float]] = [
        [matching, name, *figures.means[matching]]
        for matching in sorted(MATCHINGS)
        for name, figures in ((base, compared.base), (metadata.name, compared.made))
    ]
    return Card(
        name=metadata.name,
        purpose=f"A sentence encoder for papers ({metadata.dimension} dimensions, {metadata.layers} layers",
        input="title and abstract in one pass; a vector is the mean of its sentence's tokens",
        figures=f"Spearman's correlation with the grades of dev, mean over {len(compared.made.queries)} "
        f"queries, by matching of sentences; {PRECISION} (smallest cosine with PyTorch "
        f"{metadata.parity[PRECISION]['min_cosine']:.3f}). Difference to {base} by {FIRST_STAGE}: two-sided "
        f"p of the paired randomization test {compared.p:.2g}.",
        table=facet_table(["matching", "weights"], rows),
        data={},
        command="",
        licence=f"{APACHE}; derived from {base} (same licence)",
    )
