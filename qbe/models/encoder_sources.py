"""Where the weights of encoders are that no package carries: folders and the hub, each with its reading."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from qbe.errors import ModelError
from qbe.models.encoder_format import DEFAULT_FORMAT, EncoderFormat
from qbe.models.exports import HUB_NAME, download
from qbe.models.registry import PUBLISHED, PublishedEncoder
from qbe.models.stated import STATED_FILES, stated_convention

_SMALL_FILES = ("config.json", "tokenizer.json", "vocab.txt", *STATED_FILES)
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = ("adapter.safetensors", "pytorch_adapter.bin")


class EncoderSource(NamedTuple):
    """An encoder as it was published: the folder of its weights, its name, where it came from, how it is
    read, and the folder of an adapter, where there is one.
    """

    folder: Path
    name: str
    source: str
    convention: EncoderFormat
    adapter: Path | None = None


def find_encoder(name: str) -> EncoderSource | None:
    """The encoder of a folder or a hub name, downloaded; None where ``name`` is neither.

    How it is read is known for the names of `qbe.models.registry.PUBLISHED`, and else what a folder states of
    itself (see `qbe.models.stated.stated_convention`), or the default: nothing is guessed from a name.
    Raises ModelError where it cannot be downloaded, or states what qbe does not do.
    """
    folder = Path(name)
    if folder.is_dir():
        convention = stated_convention(folder) or DEFAULT_FORMAT
        return EncoderSource(folder, folder.resolve().name, name, convention)
    if not HUB_NAME.fullmatch(name):
        return None
    short = name.partition("/")[2]
    if name in PUBLISHED:
        return _published(PUBLISHED[name], short, name)
    folder = _download(name)
    return EncoderSource(folder, short, name, stated_convention(folder) or DEFAULT_FORMAT)


def adapter_weights(folder: Path) -> Path:
    """The weights of an adapter's folder, as the adapters library lays it out.

    Raises ModelError where they are not there.
    """
    for file in ADAPTER_WEIGHTS:
        if (folder / file).is_file() and (folder / ADAPTER_CONFIG).is_file():
            return folder / file
    raise ModelError(
        f"{folder}: expected an adapter with {ADAPTER_CONFIG} and {' or '.join(ADAPTER_WEIGHTS)}, found "
        "none; give another --adapter"
    )


def _published(entry: PublishedEncoder, name: str, source: str) -> EncoderSource:
    folder, adapter = _download(entry.weights), None
    if entry.adapter is not None:
        adapter = download("adapter", entry.adapter, [ADAPTER_CONFIG, *ADAPTER_WEIGHTS])
    return EncoderSource(folder, name, source, entry.convention, adapter)


def _download(name: str) -> Path:
    """The folder of a hub name; its pickled weights are fetched only where it has no others."""
    folder = download("encoder", name, [*_SMALL_FILES, "model.safetensors"])
    if (folder / "model.safetensors").is_file():
        return folder
    return download("encoder", name, [*_SMALL_FILES, "pytorch_model.bin"])
