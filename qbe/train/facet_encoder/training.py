"""The facet encoder: what the training of the facet rerankers made of the sentence encoder, brought half-way
back to what it was.

The rerankers' joint attention stays shut, so that their trunk, which is trained to put sentences of papers
alike in a facet side by side, reads each paper by itself: it is a sentence encoder. Fine-tuned weights gain
on data like those they were tuned on and may lose elsewhere; their mean over seeds, interpolated with the
weights that they began as, keeps most of the one and gives up less of the other (Wortsman et al., *Model
soups*, ICML 2022; *Robust fine-tuning of zero-shot models*, CVPR 2022).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import load_file, save_file

from qbe.encode.encoder import Encoder
from qbe.export.encoder import export_encoder
from qbe.export.staging import staged_folder
from qbe.files import sha256
from qbe.models.encoder_files import CARD, EncoderMetadata, read_card, write_card
from qbe.models.exports import model_file
from qbe.models.registry import BASE_ENCODER, DEFAULT_ENCODER
from qbe.tag.tagger import Tagger
from qbe.train.checkpoint import best_weights
from qbe.train.facet_encoder.card import describe
from qbe.train.facet_encoder.matching_figures import FIRST_STAGE, measure, read_vectors, significance
from qbe.train.facet_encoder.trunk import encoder_weights
from qbe.train.graded_pairs import papers_of, read_graded_pairs
from qbe.train.reranker.reading import collect_papers
from qbe.train.weights import Weights, mean
from qbe.train.work import made_from

SHARE = 0.5
"""The learned weights' part of the mixture: what Wortsman et al. advise where there is nothing to choose it
on, as here, where it is another collection that the encoder is meant for."""

PRECISION = "int8"
"""What ships."""


class Made(NamedTuple):
    """What was made: the encoder's card, and its Spearman correlation on dev by mean-max for each facet."""

    card: EncoderMetadata
    dev: Sequence[float]


class Sources(NamedTuple):
    """Where the data lie: graded pairs to measure on, and the corpus that holds their papers."""

    dev: Path
    corpus: Path


def make_facet_encoder(
    sources: Sources,
    weights: Path,
    work: Path,
    output: Path,
    seeds: Sequence[int],
    threads: int,
    *,
    share: float = SHARE,
) -> Made:
    """Make the encoder out of the rerankers trained in ``work``, measure it and write it to ``output``.

    ``weights`` is the folder of the BERT encoder that they began as. The folder holds an int8 ONNX model, the
    tokenizer and the cards; it appears whole or not at all. Nothing is chosen: the mean of the seeds is
    published, and each seed measured beside it. Raises CorpusError for data that cannot be read, ModelError
    where the rerankers are not there or a check fails, OutputError where nothing can be written.
    """
    base = load_file(weights / "model.safetensors")
    learned: dict[str, Weights] = {f"seed {seed}": best_weights(work / f"seed-{seed}.pt") for seed in seeds}
    learned["mean"] = mean(list(learned.values()))
    lists = read_graded_pairs(sources.dev)
    beginning = Encoder.open(BASE_ENCODER, threads=threads)
    papers = collect_papers(sources.corpus, papers_of(lists), beginning, Tagger.open())
    found = {BASE_ENCODER: measure(read_vectors(beginning, papers), papers, lists)}
    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary, staged_folder(output) as staged:
        for name, each in learned.items():
            _export(weights, encoder_weights(base, each, share), Path(temporary, name))
            encoder = Encoder.open(str(Path(temporary, name)), PRECISION, threads)
            found[name] = measure(read_vectors(encoder, papers), papers, lists)
        card = _ship(Path(temporary, "mean"), staged)
        training = {
            "share": share,
            "seeds": list(seeds),
            "made_from": made_from(work),
            "dev": {name: figures.means for name, figures in found.items()},
            "queries": len(found["mean"].queries),
            "p": {name: significance(found[name], found[BASE_ENCODER]) for name in learned},
            "data": {f"{path.parent.name}/{path.name}": sha256(path) for path in sources},
        }
        (staged / "README.md").write_text(describe(card, training, _size(staged)))
    return Made(card, found["mean"].means[FIRST_STAGE])


def _export(source: Path, weights: Weights, folder: Path) -> None:
    """Export weights in the surroundings (configuration, tokenizer) of those in ``source``."""
    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary:
        laid_out = Path(temporary)
        for file in ("config.json", "tokenizer.json"):
            shutil.copyfile(source / file, laid_out / file)
        save_file(dict(weights), laid_out / "model.safetensors", metadata={"format": "pt"})
        export_encoder(laid_out, DEFAULT_ENCODER, "python -m qbe.train facet-encoder", folder)


def _ship(exported: Path, staged: Path) -> EncoderMetadata:
    """Copy an export without its fp32 model, which is four times as large; returns the copy's card."""
    card = read_card(exported)
    files = ("tokenizer.json", model_file(PRECISION))
    for file in files:
        shutil.copyfile(exported / file, staged / file)
    digests, parity = {file: card.files[file] for file in files}, {PRECISION: card.parity[PRECISION]}
    shipped = replace(card, files=digests, parity=parity)
    write_card(staged, shipped)
    return shipped


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.name != CARD)
