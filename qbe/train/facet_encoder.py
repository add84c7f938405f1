"""The facet encoder: encoder layers of trained facet rerankers, averaged with the original weights.

It is made of the rerankers of `qbe.train.distillation`: training leaves their attention to the query nearly
closed, so that their layers, which learn to place sentences of papers that are similar in a facet near each
other, are a sentence encoder. Fine-tuned weights gain on data like those they were tuned on and may lose
elsewhere; interpolated with the original weights they keep most of the gain and lose less (Wortsman et al.,
*Robust fine-tuning of zero-shot models*, CVPR 2022).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.torch import load_file, save_file

from qbe.encode.encoder import Encoder
from qbe.encode.pooling import Floats
from qbe.evaluate.significance import randomization_test
from qbe.export.encoder import export_encoder
from qbe.export.staging import staged_folder
from qbe.graded_pairs import GradedLists, read_graded_pairs
from qbe.models.encoder_files import EncoderMetadata, write_card
from qbe.models.encoder_format import COSINE
from qbe.models.kinds import TOKENIZER
from qbe.models.registry import BASE_ENCODER, DEFAULT_ENCODER
from qbe.models.sources import model_file
from qbe.rerank.matching import MATCHINGS, VectorMatching
from qbe.train.artifacts import Folders, RunOptions, Sources, read_provenance
from qbe.train.card import APACHE, Card, all_data, facet_table
from qbe.train.correlation import check_dev, mean_correlation, rank_correlations
from qbe.train.pairs import papers_of
from qbe.train.reranker.base import interpolated_encoder
from qbe.train.reranker.papers import collect_papers
from qbe.train.reranker.training import Readers, base_weights
from qbe.train.weights import PUBLISHED, best_weights
from qbe.types import Paper

SHARE = 0.8
"""The share of the trained weights. With more the tagger reads the encoder worse (`qbe train admit`)."""
PRECISION = "int8"
"""The precision that ships, and is measured."""
SOURCE = "python -m qbe.train facet-encoder"
"""The origin that ``encoder.json`` states; written out as in the encoder that ships."""
FIRST_STAGE = "mean-max"
"""The matching of the dense first stage."""
WEIGHTS = "model.safetensors"


def make(
    sources: Sources, folders: Folders, run: RunOptions, *, weights: Path | None = None
) -> EncoderMetadata:
    """Make the encoder out of trained rerankers, measure it and write its folder.

    ``folders.work`` is the work folder of the rerankers' training, which is only read: what it chose is
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
        data = sources.digests() | all_data(read_provenance(folders.work))
        _card(metadata, _compared([readers.encoder, encoder], papers, lists), data).write(staged)
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


def _card(metadata: EncoderMetadata, compared: _Comparison, data: Mapping[str, str]) -> Card:
    rows: list[list[str | float]] = [
        [matching, name, *figures.means[matching]]
        for matching in sorted(MATCHINGS)
        for name, figures in ((BASE_ENCODER, compared.base), (metadata.name, compared.made))
    ]
    return Card(
        name=metadata.name,
        purpose=f"A sentence encoder for papers ({metadata.dimension} dimensions, {metadata.layers} layers, "
        f"{PRECISION}): {SHARE:g} of the weights of the trained facet rerankers and {1 - SHARE:g} of those "
        f"of {BASE_ENCODER}.",
        input="title and abstract in one pass; a vector is the mean of its sentence's tokens",
        figures=f"Spearman's correlation with the grades of dev, mean over {len(compared.made.queries)} "
        f"queries, by matching of sentences; {PRECISION} (smallest cosine with PyTorch "
        f"{metadata.parity[PRECISION]['min_cosine']:.3f}). Difference to {BASE_ENCODER} by {FIRST_STAGE}: "
        f"two-sided p of the paired randomization test {compared.p:.2g}.",
        table=facet_table(["matching", "weights"], rows),
        data=data,
        command="facet-encoder --rerankers DIR",
        options="--output DIR",
        licence=f"{APACHE}; derived from {BASE_ENCODER} (same licence)",
    )
