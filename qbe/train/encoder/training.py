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
from qbe.train.card import Card, table
from qbe.train.encoder.cocitations import Cocitation
from qbe.train.encoder.data import Pair, Sources, align, read_parts
from qbe.train.encoder.fit import EncoderTask, Step, WindowTokenizer
from qbe.train.encoder.network import EncoderNetwork
from qbe.train.encoder.recipe import OBJECTIVES, Recipe
from qbe.train.trainer import Schedule, Task, fit_seeds, matmul_dtype
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
) -> TrainedEncoder:
    """Train an encoder from files, export it, and write its card.

    ``encoder`` is the name or folder of the BERT-family model to start from, whatever it was trained for.
    Where the objective aligns sentences, the alignments in the files are used, and the base encoder where
    there are none. Finished parts are kept in the work folder, from which the same call continues. Of the
    seeds and their mean (a "soup"; Wortsman et al., 2022) the one with the lowest loss on dev is published:
    weights in the format of Hugging Face, ONNX models, and a README. Raises CorpusError for data that cannot
    be read, ModelError where a check fails, OutputError where nothing can be written, UsageError for a GPU
    that does not exist.
    """
    dtype, (name, folder) = matmul_dtype(run.device), find_start(encoder)
    objective = OBJECTIVES[recipe.objective]
    aligner = Encoder.open(BASE_ENCODER, threads=run.threads) if objective.alignment else None
    parts = read_parts(sources, objective)
    provenance = {
        "recipe": as_record(recipe),
        "start": {"name": name, "weights_sha256": sha256(weights_file(ENCODER, folder))},
        "aligner": None if aligner is None else aligner.files.identity,
        "data": file_digests(*sources.files),
    }
    check_provenance(folders.work, provenance)
    write_tokenizer(folder, folders.work / TOKENIZER)
    torch.set_num_threads(run.threads)
    network = EncoderNetwork(folder, dtype, unit=recipe.similarity == COSINE).to(run.device)
    layout = TITLE_ABSTRACT if objective.sentences else recipe.format.layout  # single sentences: no title
    tokenizer = WindowTokenizer(PaperTokenizer(folders.work / TOKENIZER), network.max_tokens, layout)

    def aligned(part: str, pairs: Sequence[Cocitation]) -> list[Pair]:
        if aligner is None or objective.alignment is None:
            return [Pair(*pair[:3]) for pair in pairs]
        cache = folders.work / f"aligned-{part}.npz"
        return align(pairs, objective.alignment, aligner, lambda p: len(tokenizer.window(p).spans), cache)

    train, dev = (aligned(part, pairs) for part, pairs in parts._asdict().items())
    task = EncoderTask(network, tokenizer, recipe, train, dev)
    before = task.dev_loss()
    log.info("untrained: loss on dev %.4f", before)
    losses, best = _train_seeds(task, recipe, folders.work, run.seeds)
    training = provenance | {
        "pairs": {"train": len(train), "dev": len(dev)},
        "seeds": list(run.seeds),
        "kind": str(dtype).removeprefix("torch."),
        "untrained": before,
        "dev": losses,
        "published": best,
    }
    metadata = publish(network, folders.work / TOKENIZER, training, recipe, folders.output)
    return TrainedEncoder(metadata, before, losses[best])


def _train_seeds(
    task: EncoderTask, recipe: Recipe, work: Path, seeds: Sequence[int]
) -> tuple[dict[str, float], str]:
    """Train with each seed from the same weights, and leave the best in the network, which may be their mean.

    Returns the losses on dev, and the name of the best.
    """
    network, untrained = task.network, copied(task.network)
    schedule = Schedule(recipe.epochs, recipe.clip, recipe.patience, recipe.warm_up)

    def make(_: int) -> Task[Step]:
        network.load_state_dict(untrained, strict=False)
        return task

    weights: dict[str, Weights] = {**fit_seeds(make, schedule, seeds, work)}
    if len(seeds) > 1:
        weights["mean"] = mean(list(weights.values()))
    losses = {name: with_weights(network, each, task.dev_loss) for name, each in weights.items()}
    best = min(losses, key=losses.__getitem__)
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
        _card(metadata, training, recipe).write(staged)
    return metadata


def _card(metadata: EncoderMetadata, training: Mapping[str, Any], recipe: Recipe) -> Card:
    losses = {"untrained": training["untrained"], **training["dev"]}
    parity = ", ".join(f"{name} {row['min_cosine']:.5f}" for name, row in metadata.parity.items())
    return Card(
        name=metadata.name,
        purpose=f"A sentence encoder ({metadata.dimension} dimensions, {metadata.layers} layers), trained on "
        f"{training['pairs']['train']:,} co-cited pairs with the objective {recipe.objective} "
        f"({OBJECTIVES[recipe.objective].name}; Mysore et al., 2022) from {training['start']['name']} "
        f"(weights {training['start']['weights_sha256'][:12]}).",
        input=f"{recipe.format.layout}, {metadata.max_tokens} tokens; vectors are compared by "
        f"{recipe.format.similarity}",
        figures=f"Mean loss on {training['pairs']['dev']:,} pairs of dev, without "
        f"dropout. Published: {training['published']}. Smallest cosine of a mean with PyTorch: {parity}.",
        table=table(["weights", "loss"], losses.items(), places=4),
        data=training["data"],
        command=f"encoder --objective {recipe.objective} --cocitations FILE",
        limits="Known from its training data only; not compared on other collections.",
        licence=f"that of {training['start']['name']} and of the training data",
    )
