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
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.torch import load_file, save_file

from qbe.models.encode.encoder import Encoder
from qbe.models.encode.pooling import Floats
from qbe.models.encoder_files import EncoderMetadata, write_card
from qbe.models.export.encoder import export_encoder
from qbe.models.export.staging import staged_folder
from qbe.models.kinds import TOKENIZER
from qbe.models.registry import BASE_ENCODER, DEFAULT_ENCODER
from qbe.models.sources import model_file
from qbe.query import Aspect
from qbe.runs import GradedLists, read_graded_pairs
from qbe.train.artifacts import Folders, RunOptions, Sources, read_provenance
from qbe.train.card import APACHE, Card, all_data, facet_table
from qbe.train.correlation import check_dev, facet_correlations
from qbe.train.pairs import papers_of
from qbe.train.reranker.base import interpolated_encoder
from qbe.train.reranker.papers import Readers, collect_papers
from qbe.train.reranker.training import base_weights
from qbe.train.weights import PUBLISHED, best_weights
from qbe.types import Facet, Paper

SHARE = 0.8
"""The share of the trained weights. With more the tagger reads the encoder worse (`qbe train admit`)."""
PRECISION = "int8"
"""The precision that ships, and is measured."""
SOURCE = "python -m qbe train facet-encoder"
"""The origin that ``encoder.json`` states; written out as in the encoder that ships."""
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
    papers = collect_papers(sources.corpus, papers_of(lists), readers)
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
        figures = {
            name: _measured(each, papers, lists)
            for name, each in ((BASE_ENCODER, readers.encoder), (metadata.name, encoder))
        }
        _card(metadata, figures, len(lists), data).write(staged)
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


def _measured(encoder: Encoder, papers: Mapping[str, Paper], lists: GradedLists) -> list[float]:
    encoded = zip(papers, encoder.encode(papers.values()), strict=True)
    return mean_max_correlations({name: each.sentences for name, each in encoded}, papers, lists)


def mean_max_correlations(
    vectors: Mapping[str, Floats], papers: Mapping[str, Paper], lists: GradedLists
) -> list[float]:
    """`facet_correlations` by mean-max, the matching of the dense first stage, of vectors of unit length of
    the papers' sentences (sentences, dimension), by id.
    """

    def scores(query: str, candidates: list[str]) -> Floats:
        columns = []
        for facet in Facet:
            asked = vectors[query][list(Aspect(papers[query], facet).selected_positions())]
            columns.append([(asked @ vectors[name].T).max(1).mean() for name in candidates])
        return np.array(columns).T

    return facet_correlations(
        (scores(query, [pair.paper_id for pair in pairs]), [pair.grades for pair in pairs])
        for query, pairs in lists.items()
    )


def _card(
    metadata: EncoderMetadata, figures: Mapping[str, list[float]], queries: int, data: Mapping[str, str]
) -> Card:
    return Card(
        name=metadata.name,
        purpose=f"A sentence encoder for papers ({metadata.dimension} dimensions, {metadata.layers} layers, "
        f"{PRECISION}): {SHARE:g} of the weights of the trained facet rerankers and {1 - SHARE:g} of those "
        f"of {BASE_ENCODER}.",
        input="title and abstract in one pass; a vector is the mean of its sentence's tokens",
        figures=f"Spearman's correlation with the grades of dev, mean over {queries} queries, by mean-max of "
        f"sentences; {PRECISION} (smallest cosine with PyTorch "
        f"{metadata.parity[PRECISION]['min_cosine']:.3f}).",
        table=facet_table(["weights"], ([name, *each] for name, each in figures.items())),
        data=data,
        command="facet-encoder --rerankers DIR",
        options="--output DIR",
        licence=f"{APACHE}; derived from {BASE_ENCODER} (same licence)",
    )
