"""Training of a sentence encoder on co-citations, from files and seeds to a folder that an index can use."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from qbe.encode.encoder import Encoder
from qbe.encode.tokenizer import PaperTokenizer
from qbe.errors import ModelError
from qbe.export.encoder import export_encoder
from qbe.export.loading import write_tokenizer
from qbe.export.staging import staged_folder
from qbe.files import sha256
from qbe.models.encoder_files import EncoderMetadata
from qbe.models.encoder_format import COSINE, TITLE_ABSTRACT
from qbe.models.kinds import ENCODER, TOKENIZER
from qbe.models.registry import BASE_ENCODER
from qbe.models.sources import find_encoder_weights, weights_file
from qbe.train.artifacts import Folders, RunOptions, as_record, check_provenance, file_digests
from qbe.train.encoder.batches import Pair, WindowTokenizer
from qbe.train.encoder.card import describe
from qbe.train.encoder.data import Sources, aligned_pairs, read_parts
from qbe.train.encoder.fit import Fit
from qbe.train.encoder.network import EncoderNetwork
from qbe.train.encoder.recipe import OBJECTIVES, Recipe
from qbe.train.fitting import Checkpoints, matmul_dtype
from qbe.train.weights import Weights, copied, mean, with_weights

log = logging.getLogger(__name__)
DEFAULT_RECIPE = Recipe()


class TrainedEncoder(NamedTuple):
    """The metadata of the exported encoder, and the losses on dev, untrained and of what is published."""

    metadata: EncoderMetadata
    before: float
    after: float


def train_encoder(
    sources: Sources,
    folders: Folders,
    run: RunOptions,
    *,
    recipe: Recipe = DEFAULT_RECIPE,
    encoder: str = BASE_ENCODER,
    aligner: str | None = None,
) -> TrainedEncoder:
    """Train an encoder from files, export it, and write its card.

    ``encoder`` is the name or folder of the BERT-family model to start from, whatever it was trained for.
    ``aligner`` is the name or folder of the encoder that aligns sentences, where the objective needs that;
    None uses the alignments in the files, and the default encoder where there are none. Finished parts are
    kept in the work folder, from which the same call continues. Of the seeds and their mean (a "soup";
    Wortsman et al., 2022) the one with the lowest loss on dev is published: weights in the format of Hugging
    Face, ONNX models, and a README. Raises CorpusError for data that cannot be read, ModelError where a check
    fails, OutputError where nothing can be written, UsageError for a GPU that does not exist.
    """
    work = folders.work
    dtype, (name, folder) = matmul_dtype(run.device), find_start(encoder)
    objective = OBJECTIVES[recipe.objective]
    aligning = Encoder.open(aligner or BASE_ENCODER, threads=run.threads) if objective.alignment else None
    use_given = aligner is None
    parts = read_parts(sources, objective)
    provenance = {
        "recipe": as_record(recipe),
        "start": {"name": name, "weights_sha256": sha256(weights_file(ENCODER, folder))},
        "aligner": None if aligning is None else {**aligning.files.identity, "given": use_given},
        "data": file_digests(*sources.files),
    }
    check_provenance(work, provenance)
    write_tokenizer(folder, work / TOKENIZER)
    torch.set_num_threads(run.threads)
    network = EncoderNetwork(folder, dtype, unit=recipe.settings.similarity == COSINE).to(run.device)
    layout = TITLE_ABSTRACT if objective.sentences else recipe.layout  # single sentences have no title
    tokenizer = WindowTokenizer(PaperTokenizer(work / TOKENIZER), network.max_tokens, layout)
    train, dev = (
        aligned_pairs(
            pairs, objective.alignment, tokenizer, aligning, work / f"aligned-{part}.npy", use_given=use_given
        )
        for part, pairs in parts._asdict().items()
    )
    fit = Fit(network, tokenizer, recipe)
    before = fit.loss(dev)
    log.info("untrained: loss on dev %.4f", before)
    losses, best = _train_seeds(fit, train, dev, work, run.seeds)
    training = provenance | {
        "pairs": {"train": len(train), "dev": len(dev)},
        "seeds": list(run.seeds),
        "kind": str(dtype).removeprefix("torch."),
        "untrained": before,
        "dev": losses,
        "published": best,
    }
    metadata = publish(network, work / TOKENIZER, training, recipe, folders.output)
    return TrainedEncoder(metadata, before, min(losses[best]))


def _train_seeds(
    fit: Fit, train: Sequence[Pair], dev: Sequence[Pair], work: Path, seeds: Sequence[int]
) -> tuple[dict[str, list[float]], str]:
    """Train with each seed from the same weights, and leave the best in the network, which may be their mean.

    Returns the losses on dev after each epoch, and the name of the best.
    """
    network = fit.network
    untrained = copied(network)
    weights: dict[str, Weights] = {}
    losses: dict[str, list[float]] = {}
    for seed in seeds:
        network.load_state_dict(untrained, strict=False)
        progress = fit.run(train, dev, seed, Checkpoints(work / f"seed-{seed}.pt"))
        weights[f"seed {seed}"] = copied(network)
        losses[f"seed {seed}"] = [-score for score in progress.dev]
    if len(seeds) > 1:
        weights["mean"] = mean(list(weights.values()))
        losses["mean"] = [with_weights(network, weights["mean"], lambda: fit.loss(dev))]
    best = min(losses, key=lambda name: min(losses[name]))
    network.load_state_dict(dict(weights[best]), strict=False)
    return losses, best


class Start(NamedTuple):
    """A model to start from: its name, and the folder of its weights."""

    name: str
    folder: Path


def find_start(name: str) -> Start:
    """The model with a name in the registry or on the hub, or in a folder.

    Raises ModelError where there is none, or where it needs an adapter.
    """
    weights = find_encoder_weights(name)
    if weights is None or weights.adapter is not None:
        what = "none of that name" if weights is None else "one that needs an adapter"
        raise ModelError(
            f"expected the name or folder of a model to start from, found {what}: {name!r}; check `encoder`"
        )
    return Start(weights.name, weights.locate())


def publish(
    network: EncoderNetwork, tokenizer: Path, training: Mapping[str, Any], recipe: Recipe, output: Path
) -> EncoderMetadata:
    """Write the weights, their export and the card; the folder appears complete or not at all."""
    with staged_folder(output) as staged:
        network.to("cpu").bert.save_pretrained(staged)
        (staged / "model.safetensors").chmod(0o644)  # transformers makes it private
        write_tokenizer(tokenizer.parent, staged / TOKENIZER)
        exported = staged / "exported"
        source = f"{training['start']['name']}, trained by qbe with the objective {recipe.objective}"
        metadata = export_encoder(staged, output.resolve().name, source, exported, recipe.format)
        for file in exported.iterdir():
            file.replace(staged / file.name)
        exported.rmdir()
        (staged / "README.md").write_text(describe(metadata, training, recipe))
    return metadata
