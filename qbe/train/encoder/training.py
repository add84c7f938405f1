"""Training of a sentence encoder on co-citations, from files and seeds to what an index is built with."""

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
from qbe.models.kinds import ENCODER
from qbe.models.registry import BASE_ENCODER
from qbe.models.sources import find_encoder_weights, weights_file
from qbe.train.device import fast_kind
from qbe.train.encoder.batches import Reader
from qbe.train.encoder.card import describe
from qbe.train.encoder.data import Sources, read_parts, told_pairs
from qbe.train.encoder.fit import Fit
from qbe.train.encoder.network import EncoderNetwork
from qbe.train.encoder.recipe import OBJECTIVES, Recipe
from qbe.train.weights import Weights, copied, mean, with_weights
from qbe.train.work import claim, record

log = logging.getLogger(__name__)
TOKENIZER = "tokenizer.json"


class Trained(NamedTuple):
    """What came out: the card of the exported encoder, and the losses on dev, before and after."""

    card: EncoderMetadata
    before: float
    after: float


def train_encoder(
    sources: Sources,
    output: Path,
    work: Path,
    seeds: Sequence[int],
    threads: int,
    *,
    recipe: Recipe = Recipe(),  # noqa: B008 (a tuple, which nobody can change)
    start: str = BASE_ENCODER,
    aligner: str | None = None,
    device: str = "cpu",
) -> Trained:
    """Train an encoder from files, export it, and write its card.

    ``start`` is the name or folder of the BERT-family model to start from, whatever it was trained for.
    ``aligner`` is the name or folder of the encoder that tells which sentences belong together, where the
    objective wants that; None takes what the files tell, and the default encoder where they do not.
    Finished parts are kept in ``work``, from where the same call goes on. Of the seeds and their mean (a
    "soup"; Wortsman et al., 2022) the one that loses least on dev is published in ``output``: the weights
    as Hugging Face lays them out, ONNX models, and a README. Raises CorpusError for data that cannot be
    read, ModelError where a check fails, OutputError where nothing can be written, UsageError for a GPU
    that is not there.
    """
    kind, (name, folder) = fast_kind(device), find_start(start)
    objective = OBJECTIVES[recipe.objective]
    helper = Encoder.open(aligner or BASE_ENCODER, threads=threads) if objective.aligned else None
    given = aligner is None
    parts = read_parts(sources, objective)
    facts = {
        "recipe": record(recipe),
        "start": {"name": name, "weights_sha256": sha256(weights_file(ENCODER, folder))},
        "aligner": None if helper is None else {**helper.files.identity, "given": given},
        "data": {f"{path.parent.name}/{path.name}": sha256(path) for path in sources.files},
    }
    claim(work, facts)
    write_tokenizer(folder, work / TOKENIZER)
    torch.set_num_threads(threads)
    network = EncoderNetwork(folder, kind, unit=recipe.settings.similarity == COSINE).to(device)
    layout = TITLE_ABSTRACT if objective.sentences else recipe.layout  # a sentence alone has no title
    reader = Reader(PaperTokenizer(work / TOKENIZER), network.max_tokens, layout)
    train, dev = (
        told_pairs(pairs, objective.aligned, reader, helper, work / f"aligned-{part}.npy", given=given)
        for part, pairs in parts._asdict().items()
    )
    fit = Fit(network, reader, recipe)
    untrained = copied(network)
    before = fit.loss(dev)
    log.info("untrained: loss on dev %.4f", before)
    found: dict[str, Weights] = {}
    losses: dict[str, list[float]] = {}
    for seed in seeds:
        network.load_state_dict(untrained, strict=False)
        progress = fit.run(train, dev, seed, work / f"seed-{seed}.pt")
        found[f"seed {seed}"] = copied(network)
        losses[f"seed {seed}"] = [-figure for figure in progress.dev]
    if len(seeds) > 1:
        found["mean"] = mean(list(found.values()))
        losses["mean"] = [with_weights(network, found["mean"], lambda: fit.loss(dev))]
    best = min(losses, key=lambda name: min(losses[name]))
    network.load_state_dict(dict(found[best]), strict=False)
    training = facts | {
        "pairs": {"train": len(train), "dev": len(dev)},
        "seeds": list(seeds),
        "kind": str(kind).removeprefix("torch."),
        "untrained": before,
        "dev": losses,
        "published": best,
    }
    card = publish(network, work / TOKENIZER, training, recipe, output)
    return Trained(card, before, min(losses[best]))


class Start(NamedTuple):
    """A model to start from: its name, and the folder of its weights."""

    name: str
    folder: Path


def find_start(name: str) -> Start:
    """The model of a name in the registry or on the hub, or of a folder.

    Raises ModelError where there is none, or it is no model by itself.
    """
    weights = find_encoder_weights(name)
    if weights is None or weights.adapter is not None:
        what = "none of that name" if weights is None else "one that needs an adapter"
        raise ModelError(
            f"expected the name or folder of a model to start from, found {what}: {name!r}; check --encoder"
        )
    return Start(weights.name, weights.locate())


def publish(
    network: EncoderNetwork, tokenizer: Path, training: Mapping[str, Any], recipe: Recipe, output: Path
) -> EncoderMetadata:
    """Write the weights, their export and the card; the folder appears whole or not at all."""
    with staged_folder(output) as staged:
        network.to("cpu").bert.save_pretrained(staged)
        (staged / "model.safetensors").chmod(0o644)  # it is made private
        write_tokenizer(tokenizer.parent, staged / TOKENIZER)
        exported = staged / "exported"
        source = f"{training['start']['name']}, trained by qbe with the objective {recipe.objective}"
        card = export_encoder(staged, output.resolve().name, source, exported, recipe.convention)
        for file in exported.iterdir():
            file.replace(staged / file.name)
        exported.rmdir()
        (staged / "README.md").write_text(describe(card, training, recipe))
    return card
