"""Training of a sentence encoder on co-citations, from files and seeds to a folder that an index can use."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from qbe.errors import CorpusError
from qbe.models.cards import ENCODER, TOKENIZER, EncoderMetadata, staged_folder
from qbe.models.export.encoder import export_encoder
from qbe.models.export.pytorch import write_tokenizer
from qbe.models.folders import BASE_ENCODER, find_start, weights_file
from qbe.models.formats import COSINE
from qbe.models.tokenizer import PaperTokenizer
from qbe.train.artifacts import Folders, RunOptions, Sources, begin
from qbe.train.card import Card, table
from qbe.train.encoder.data import Pair, read_parts
from qbe.train.encoder.fit import EncoderNetwork, EncoderTask, Recipe, WindowTokenizer
from qbe.train.encoder.loss import OBJECTIVES
from qbe.train.trainer import fit_seeds, matmul_dtype
from qbe.train.weights import copied, with_weights
from qbe.util.files import sha256

log = logging.getLogger(__name__)
DEFAULT_RECIPE = Recipe()


def train(
    sources: Sources,
    folders: Folders,
    run: RunOptions,
    *,
    recipe: Recipe = DEFAULT_RECIPE,
    encoder: str = BASE_ENCODER,
) -> EncoderMetadata:
    """Train an encoder from files, export it, and write its card.

    ``sources`` are files of co-citations to train on and of dev (none: a share of the former), and papers to
    leave out. ``encoder`` is the name or folder of the BERT-family model to start from, whatever it was
    trained for. Pairs whose aligned sentences are beyond the model's window are left out. Of the seeds and
    their mean the one with the lowest loss on dev is published: weights in the format of Hugging Face, ONNX
    models, and a README. Raises CorpusError for data that cannot be read, ModelError where a check fails,
    OutputError where nothing can be written, UsageError for a GPU that does not exist.
    """
    dtype, (name, folder) = matmul_dtype(run.device), find_start(encoder)
    objective = OBJECTIVES[recipe.objective]
    parts = read_parts(sources, objective)
    provenance = begin(
        sources,
        folders,
        run,
        recipe,
        base={"name": name, "weights_sha256": sha256(weights_file(ENCODER, folder))},
    )
    write_tokenizer(folder, folders.work / TOKENIZER)
    network = EncoderNetwork(folder, dtype, unit=recipe.similarity == COSINE).to(run.device)
    words = PaperTokenizer(folders.work / TOKENIZER)
    tokenizer = WindowTokenizer(words, network.max_tokens, recipe.format.layout)

    def fits(pair: Pair) -> bool:
        papers = zip((pair.query, pair.positive), pair.alignment, strict=True)
        return all(place < len(tokenizer.window(paper).spans) for paper, place in papers)

    pairs = parts._asdict()
    if objective.aligned:
        pairs = {part: list(filter(fits, each)) for part, each in pairs.items()}
    if not all(pairs.values()):
        raise CorpusError(
            "expected pairs whose aligned sentences the model reads, found none; give shorter ones"
        )
    task, untrained = EncoderTask(network, tokenizer, recipe, pairs["train"], pairs["dev"]), copied(network)

    def make(_: int) -> EncoderTask:
        network.load_state_dict(untrained, strict=False)
        return task

    weights = {"untrained": untrained, **fit_seeds(make, recipe.schedule(), run.seeds, folders.work)}
    losses = {name: with_weights(network, each, task.dev_loss) for name, each in weights.items()}
    best = min((name for name in losses if name != "untrained"), key=losses.__getitem__)
    network.load_state_dict(weights[best], strict=False)
    training = provenance | {
        "pairs": {part: len(each) for part, each in pairs.items()},
        "dev": losses,
        "published": best,
    }
    return _publish(network, training, recipe, folders)


def _publish(
    network: EncoderNetwork, training: Mapping[str, Any], recipe: Recipe, folders: Folders
) -> EncoderMetadata:
    """Write the weights, their export and the card; the folder appears complete or not at all."""
    with staged_folder(folders.output) as staged:
        network.to("cpu").bert.save_pretrained(staged)
        (staged / "model.safetensors").chmod(0o644)  # transformers makes it private
        write_tokenizer(folders.work, staged / TOKENIZER)
        exported = staged / "exported"
        source = f"{training['base']['name']}, trained by qbe with the objective {recipe.objective}"
        metadata = export_encoder(staged, folders.output.resolve().name, source, exported, recipe.format)
        for file in exported.iterdir():
            file.replace(staged / file.name)
        exported.rmdir()
        _card(metadata, training, recipe).write(staged)
    return metadata


def _card(metadata: EncoderMetadata, training: Mapping[str, Any], recipe: Recipe) -> Card:
    parity = ", ".join(f"{name} {row['min_cosine']:.5f}" for name, row in metadata.parity.items())
    return Card(
        name=metadata.name,
        purpose=f"A sentence encoder ({metadata.dimension} dimensions, {metadata.layers} layers), trained on "
        f"{training['pairs']['train']:,} co-cited pairs with the objective {recipe.objective} "
        f"({OBJECTIVES[recipe.objective].name}; Mysore et al., 2022) from {training['base']['name']} "
        f"(weights {training['base']['weights_sha256'][:12]}).",
        input=f"{recipe.format.layout}, {metadata.max_tokens} tokens; vectors are compared by "
        f"{recipe.format.similarity}",
        figures=f"Mean loss on {training['pairs']['dev']:,} pairs of dev, without "
        f"dropout. Published: {training['published']}. Smallest cosine of a mean with PyTorch: {parity}.",
        table=table(["weights", "loss"], training["dev"].items(), places=4),
        data=training["data"],
        command=f"encoder --objective {recipe.objective} --cocitations FILE",
        limits="Known from its training data only; not compared on other collections.",
        licence=f"that of {training['base']['name']} and of the training data",
    )
