"""The facet encoder: the encoder layers of the facet rerankers, averaged with the base encoder's weights.

Training leaves the rerankers' attention to the query nearly closed, so that their layers, which learn to
place sentences of papers that are similar in a facet near each other, are a sentence encoder. Fine-tuned
weights gain on data like those they were tuned on and may lose elsewhere. Their mean over seeds, interpolated
with the original weights, keeps most of the gain and loses less (Wortsman et al., *Model soups*, ICML 2022;
*Robust fine-tuning of zero-shot models*, CVPR 2022).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file, save_file

from qbe.encode.encoder import Encoder
from qbe.export.encoder import export_encoder
from qbe.export.staging import staged_folder
from qbe.graded_pairs import read_graded_pairs
from qbe.models.encoder_files import EncoderMetadata, read_card, write_card
from qbe.models.exports import model_file
from qbe.models.kinds import TOKENIZER
from qbe.models.registry import BASE_ENCODER, DEFAULT_ENCODER
from qbe.tag.tagger import Tagger
from qbe.train.artifacts import Folders, RunOptions, file_digests, read_provenance
from qbe.train.card import APACHE, Card, all_data, facet_table
from qbe.train.correlation import FIRST_STAGE, check_dev, encode_sentences, measure, significance
from qbe.train.pairs import papers_of
from qbe.train.reranker.base import interpolated_encoder
from qbe.train.reranker.papers import collect_papers
from qbe.train.weights import INTERPOLATED, Weights, best_weights, mean

SHARE = 0.8
"""The share of the rerankers' weights: with more, the tagger reads the encoder worse (`qbe train admit`)."""

PRECISION = "int8"
"""The precision that ships."""

SOURCE = "python -m qbe.train facet-encoder"
"""The origin that ``encoder.json`` states; written out as in the encoder that ships."""


class FacetEncoder(NamedTuple):
    """The encoder's metadata, and its Spearman correlation on dev by mean-max for each facet."""

    metadata: EncoderMetadata
    dev: Sequence[float]


@dataclass(frozen=True, slots=True)
class Sources:
    """Files of graded pairs to measure on, and of the corpus that holds their papers."""

    dev: Path
    corpus: Path


def make_facet_encoder(sources: Sources, weights: Path, folders: Folders, run: RunOptions) -> FacetEncoder:
    """Make the encoder out of trained rerankers, measure it and write its folder.

    ``weights`` is the folder of the BERT encoder that the rerankers started from; ``folders.work`` is the
    work folder of their training, which is only read. The output has an int8 ONNX model, the tokenizer and
    the cards; it appears complete or not at all. Nothing is selected: what the rerankers' training published
    is (the mean of the seeds, or weights between it and those at the start), and each seed is measured too.
    Raises FileFormatError for pairs and CorpusError for papers that cannot be read, and for pairs that no
    correlation can be computed with, ModelError where there are no such rerankers or a check fails,
    OutputError where nothing can be written.
    """
    base = load_file(weights / "model.safetensors")
    rerankers: dict[str, Weights] = {
        f"seed {seed}": best_weights(folders.work / f"seed-{seed}.pt") for seed in run.seeds
    }
    rerankers["mean"] = mean(list(rerankers.values()))
    shipped = "mean"
    if (folders.work / f"{INTERPOLATED}.pt").exists():
        shipped = INTERPOLATED
        rerankers[shipped] = best_weights(folders.work / f"{shipped}.pt")
    lists = read_graded_pairs(sources.dev)
    check_dev(lists, sources.dev)
    base_encoder = Encoder.open(BASE_ENCODER, threads=run.threads)
    papers = collect_papers(sources.corpus, papers_of(lists), base_encoder, Tagger.open())
    figures = {BASE_ENCODER: measure(encode_sentences(base_encoder, papers), papers, lists)}
    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary, staged_folder(folders.output) as staged:
        for name, trained in rerankers.items():
            _export(weights, interpolated_encoder(base, trained, SHARE), Path(temporary, name))
            encoder = Encoder.open(str(Path(temporary, name)), PRECISION, run.threads)
            figures[name] = measure(encode_sentences(encoder, papers), papers, lists)
        metadata = _ship(Path(temporary, shipped), staged)
        training = {
            "share": SHARE,
            "shipped": shipped,
            "seeds": list(run.seeds),
            "made_from": read_provenance(folders.work),
            "dev": {name: each.means for name, each in figures.items()},
            "queries": len(figures[shipped].queries),
            "p": {name: significance(figures[name], figures[BASE_ENCODER]) for name in rerankers},
            "data": file_digests(sources.dev, sources.corpus),
        }
        _card(metadata, training).write(staged)
    return FacetEncoder(metadata, figures[shipped].means[FIRST_STAGE])


def _export(source: Path, weights: Weights, folder: Path) -> None:
    """Export weights with the configuration and tokenizer in the folder ``source``."""
    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary:
        model = Path(temporary)
        for file in ("config.json", TOKENIZER):
            shutil.copyfile(source / file, model / file)
        save_file(dict(weights), model / "model.safetensors", metadata={"format": "pt"})
        export_encoder(model, DEFAULT_ENCODER, SOURCE, folder)


def _ship(exported: Path, staged: Path) -> EncoderMetadata:
    """Copy an export without its fp32 model, which is four times as large; returns the copy's metadata."""
    metadata = read_card(exported)
    files = (TOKENIZER, model_file(PRECISION))
    for file in files:
        shutil.copyfile(exported / file, staged / file)
    digests, parity = {file: metadata.files[file] for file in files}, {PRECISION: metadata.parity[PRECISION]}
    shipped = replace(metadata, files=digests, parity=parity)
    write_card(staged, shipped)
    return shipped


def _card(metadata: EncoderMetadata, training: Mapping[str, Any]) -> Card:
    """The card; ``training`` is collected by `make_facet_encoder`."""
    share, shipped = training["share"], training["shipped"]
    return Card(
        name=metadata.name,
        purpose=f"A sentence encoder for papers ({metadata.dimension} dimensions, {metadata.layers} layers, "
        f"int8): {share:g} of the weights of the trained facet rerankers and {1 - share:g} of those of "
        f"{BASE_ENCODER}.",
        input="title and abstract in one pass; a vector is the mean of its sentence's tokens",
        figures=f"Spearman's correlation with the grades of dev, mean over {training['queries']} queries, by "
        f"matching of sentences; int8. Published: {shipped}. Difference to {BASE_ENCODER} by mean-max, "
        f"two-sided p of the paired randomization test: {training['p'][shipped]:.2g}. Smallest cosine with "
        f"PyTorch {metadata.parity['int8']['min_cosine']:.3f}.",
        table=matching_table(training["dev"], (BASE_ENCODER, shipped)),
        data={**training["data"], **all_data(training["made_from"])},
        command="facet-encoder --rerankers DIR",
        options="--output DIR",
        licence=f"{APACHE}; derived from {BASE_ENCODER} (same licence)",
    )


def matching_table(dev: Mapping[str, Mapping[str, Any]], compared: Collection[str]) -> str:
    """A table of correlations by matching, weights and facet.

    It has the ``compared`` weights by each matching, and the others by that of the dense first stage.
    """
    rows = (
        [matching, name, *figures]
        for name, by_matching in dev.items()
        for matching, figures in by_matching.items()
        if name in compared or matching == FIRST_STAGE
    )
    return facet_table(["matching", "weights"], sorted(rows, key=lambda row: row[0]))
