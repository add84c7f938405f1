"""Where the files of a model are: the package, a folder, an installed package, the Hugging Face hub, or the
cache, where weights are exported to once.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from qbe.errors import ModelError, did_you_mean, requirement
from qbe.models.encoder_format import DECLARING_FILES, DEFAULT_FORMAT, EncoderFormat, declared_format
from qbe.models.kinds import CROSS_ENCODER, ENCODER, GRAPH, TAGGER, ModelKind, verify_digest
from qbe.models.large import LARGE, weights_folder
from qbe.models.registry import (
    DEFAULT_ENCODER,
    DEFAULT_RERANKER,
    DEFAULT_TAGGER,
    ENCODERS,
    LARGE_ENCODER,
    PUBLISHED,
    EncoderEntry,
)
from qbe.util import processes
from qbe.util.files import cache_folder, make_once, sha256

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = ("adapter.safetensors", "pytorch_adapter.bin")

_PACKAGE = Path(__file__).parent


log = logging.getLogger(__name__)


class Weights(NamedTuple):
    """PyTorch weights, which have to be exported before they are used.

    ``origin`` says where they came from, ``sha256`` is the digest of the weights. ``locate`` gives their
    folder; it is called only where they are not exported yet, and raises ModelError where files of an
    installed package are missing or are not the expected ones. ``encoder_format`` and ``adapter`` (the folder
    of a bottleneck adapter) are those of encoders; None for other models. With ``graph``, the traced model
    without its weights, the export needs no PyTorch; ranges of activations stand beside it.
    """

    name: str
    origin: str
    sha256: str
    locate: Callable[[], Path]
    encoder_format: EncoderFormat | None = None
    adapter: Path | None = None
    graph: Path | None = None


def find_encoder(name: str) -> Path | Weights:
    """The encoder of a folder, a name in `qbe.models.registry`, or a hub name (then downloaded): the folder
    of finished files, or weights.

    A folder goes before a registered name. Raises ModelError where nothing has that name, files are missing
    or cannot be downloaded, or a folder declares something that qbe does not support.

    >>> find_encoder("facet-encoder").name
    'facet-encoder'
    """
    folder = Path(name)
    if (folder / ENCODER.metadata_file).is_file():
        return folder
    if name == DEFAULT_ENCODER and not folder.is_dir():
        return _PACKAGE / name
    weights = find_encoder_weights(name)
    if weights is None:
        raise _unknown(ENCODER, name, (DEFAULT_ENCODER, LARGE_ENCODER, *ENCODERS, *PUBLISHED))
    return weights


def find_encoder_weights(name: str) -> Weights | None:
    """The PyTorch weights of an encoder, by the names of `find_encoder`; None where there are none.

    The encoder format is known for registered names. Otherwise it is what a folder declares of itself (see
    `qbe.models.encoder_format`), or the default: nothing is guessed from a name.
    Errors are those of `find_encoder`.

    >>> find_encoder_weights("all-MiniLM-L6-v2").origin
    'sentence-transformers/all-MiniLM-L6-v2'
    """
    folder = Path(name)
    if folder.is_dir():
        return _encoder_in(folder, folder.resolve().name, name)
    if name in ENCODERS:
        entry = ENCODERS[name]
        digest = entry.digests["model.safetensors"]
        return Weights(name, entry.source, digest, partial(packaged_weights, entry), entry.encoder_format)
    if name == LARGE_ENCODER:
        locate = partial(weights_folder, LARGE)
        graph = _PACKAGE / LARGE.folder / GRAPH
        return Weights(name, LARGE.base.source, LARGE.sha256, locate, DEFAULT_FORMAT, graph=graph)
    if name in PUBLISHED:
        published = PUBLISHED[name]
        folder, adapter = _download_encoder(published.weights), None
        if published.adapter is not None:
            adapter = download("adapter", published.adapter, [ADAPTER_CONFIG, *ADAPTER_WEIGHTS])
        return _weights_in(ENCODER, folder, _short(name), name, published.encoder_format, adapter)
    if HUB_NAME.fullmatch(name):
        return _encoder_in(_download_encoder(name), _short(name), name)
    return None


def find_start(name: str) -> tuple[str, Path]:
    """The name and the folder of the PyTorch model to train from: one in the registry or on the hub, or in a
    folder. Raises ModelError where there is none.
    """
    weights = find_encoder_weights(name)
    if weights is None or weights.adapter is not None:
        what = "none of that name" if weights is None else "one that needs an adapter"
        raise ModelError(
            f"expected the name or folder of a model to start from, found {what}: {name!r}; check `encoder`"
        )
    return weights.name, weights.locate()


def find_reranker(name: str) -> Path | Weights:
    """The pair cross-encoder in a folder or of a hub name (then downloaded): its finished files, or weights.

    Raises ModelError where nothing has that name, or files are missing or cannot be downloaded.
    """
    folder = Path(name)
    if (folder / CROSS_ENCODER.metadata_file).is_file():
        return folder
    if folder.is_dir():
        return _weights_in(CROSS_ENCODER, folder, folder.resolve().name, name)
    if HUB_NAME.fullmatch(name):
        files = [preferred for preferred, *_ in CROSS_ENCODER.required]
        return _weights_in(CROSS_ENCODER, download(CROSS_ENCODER.noun, name, files), _short(name), name)
    raise _unknown(CROSS_ENCODER, name, (DEFAULT_RERANKER,))


def find_tagger(name: str) -> Path:
    """The tagger of a name in `qbe.models.registry`, or a folder; raises ModelError where there is none.

    >>> find_tagger("facet-tagger").name
    'facet-tagger'
    """
    if name == DEFAULT_TAGGER:
        return _PACKAGE / name
    if (Path(name) / TAGGER.metadata_file).is_file():
        return Path(name)
    raise _unknown(TAGGER, name, (DEFAULT_TAGGER,))


def _unknown(kind: ModelKind, name: str, known: Sequence[str]) -> ModelError:
    others = f" or a folder with a {kind.metadata_file}"
    if kind.required:
        others = ", a folder, or a hub name such as owner/model"
    article, remedy = "an" if kind is ENCODER else "a", did_you_mean(name, known, f"check `{kind.noun}`")
    return ModelError(
        f"expected {article} {kind.noun} known by name ({', '.join(known)}){others}, found {name!r}; {remedy}"
    )


def packaged_weights(entry: EncoderEntry) -> Path:
    """The folder of an entry's PyTorch weights inside its installed package, verified.

    Raises ModelError when the package is not installed or a file is not the expected one.
    """
    specification = importlib.util.find_spec(entry.package)
    package = entry.package.replace("_", "-")
    if specification is None or specification.origin is None:
        raise ModelError(
            f"the encoder {entry.name} needs the package {package}; "
            f"run: pip install {requirement(entry.package)}"
        )
    folder = Path(specification.origin).parent / entry.folder
    remedy = (
        f"the file of {entry.source} is another, and it is not used: reinstall the package {package}, or "
        "give another `encoder`"
    )
    for file, digest in entry.digests.items():
        verify_digest(folder / file, digest, remedy)
    return folder


def check_required(kind: ModelKind, folder: Path) -> None:
    """Raise ModelError when a folder lacks one of the files that an export needs."""
    present = {
        " or ".join(names): any((folder / name).is_file() for name in names) for names in kind.required
    }
    missing = [names for names, is_present in present.items() if not is_present]
    if missing:
        raise ModelError(
            f"{folder}: expected an exported {kind.noun} ({kind.metadata_file}) or a model with "
            f"{', '.join(present)}, found no {', '.join(missing)}; give another folder"
        )


def weights_file(kind: ModelKind, folder: Path) -> Path:
    """The weights in a folder that passed `check_required`.

    >>> _ = Path("pytorch_model.bin").write_bytes(b"")
    >>> weights_file(ENCODER, Path()).name
    'pytorch_model.bin'
    """
    return next(path for path in (folder / name for name in kind.required[1]) if path.is_file())


def adapter_weights(folder: Path) -> Path:
    """The weights of an adapter's folder, as the adapters library lays it out.

    Raises ModelError where they are missing.
    """
    for file in ADAPTER_WEIGHTS:
        if (folder / file).is_file() and (folder / ADAPTER_CONFIG).is_file():
            return folder / file
    raise ModelError(
        f"{folder}: expected an adapter with {ADAPTER_CONFIG} and {' or '.join(ADAPTER_WEIGHTS)}, found "
        "none; give another `adapter`"
    )


def download(noun: str, name: str, files: Sequence[str]) -> Path:
    """The local folder of a hub name, with those of the ``files`` that exist there.

    Raises ModelError where it cannot be downloaded.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(files)))
    except Exception as error:
        raise ModelError(
            f"cannot load the {noun} {name} from the hub: {str(error).splitlines()[0]}; "
            "check the name and the network, or give a folder"
        ) from error


def _encoder_in(folder: Path, name: str, origin: str) -> Weights:
    return _weights_in(ENCODER, folder, name, origin, declared_format(folder) or DEFAULT_FORMAT)


def _weights_in(
    kind: ModelKind,
    folder: Path,
    name: str,
    origin: str,
    encoder_format: EncoderFormat | None = None,
    adapter: Path | None = None,
) -> Weights:
    check_required(kind, folder)
    digest = sha256(weights_file(kind, folder))
    return Weights(name, origin, digest, lambda: folder, encoder_format, adapter)


def _download_encoder(name: str) -> Path:
    """The folder of a hub name; its pickled weights are downloaded only where it has no others."""
    config, weights, tokenizer = ENCODER.required
    small = [*config, *tokenizer, *DECLARING_FILES]
    for file in weights:
        folder = download(ENCODER.noun, name, [*small, file])
        if (folder / file).is_file():
            break
    return folder


def _short(name: str) -> str:
    """A hub name without its owner."""
    return name.partition("/")[2]


def exported(kind: ModelKind, source: Path | Weights) -> Path:
    """The folder of a model's finished files; weights that were never exported are exported now.

    That happens once, in a process of its own (it may need torch, this one does not), into
    ``qbe.util.files.cache_folder()``. While another process makes the same export, this one waits.
    Raises ModelError where weights cannot be verified or exported.
    """
    if isinstance(source, Path):
        return source
    destination = cached_export(kind, source.name, source.sha256, _variant(source))
    command, what = _command(kind, source, destination), f"the {kind.noun} {source.name}"

    def export() -> None:
        log.info("exporting %s to ONNX, once, into %s ...", what, destination)
        process = processes.run(command)
        if process.returncode != 0:
            reason = process.stderr.strip().splitlines() or ["no message"]
            raise ModelError(f"exporting {what} failed: {reason[-1]}")

    make_once(
        destination,
        (destination / kind.metadata_file).is_file,
        export,
        lambda: log.info("another process is exporting %s: waiting for it ...", what),
    )
    return destination


def cached_export(kind: ModelKind, name: str, weights_sha256: str, variant: str = "") -> Path:
    """Where in the cache the export of these weights is, or will be; ``variant`` distinguishes exports of
    the same weights.

    >>> from qbe.models.kinds import ENCODER
    >>> cached_export(ENCODER, "my-encoder", "0123456789abcdef").name
    'my-encoder-0123456789ab-4'
    """
    return cache_folder() / kind.cache / f"{name}-{weights_sha256[:12]}-{kind.format}{variant}"


def model_file(precision: str) -> str:
    """Name of the ONNX file of a precision inside an export.

    >>> model_file("int8")
    'model.int8.onnx'
    """
    return f"model.{precision}.onnx"


def _variant(source: Weights) -> str:
    """A suffix that distinguishes exports of the same weights in other formats or with other adapters."""
    encoder_format, adapter = source.encoder_format or DEFAULT_FORMAT, source.adapter
    if encoder_format == DEFAULT_FORMAT and adapter is None:
        return ""
    digest = "" if adapter is None else sha256(adapter_weights(adapter))
    text = " ".join([*encoder_format.options(), digest])
    return f"-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _command(kind: ModelKind, source: Weights, destination: Path) -> list[str]:
    command = [sys.executable, "-m", "qbe", "export", kind.command, "--model", str(source.locate())]
    command += ["--name", source.name, "--source", source.origin, "--output", str(destination)]
    if source.encoder_format is not None:
        command += source.encoder_format.options()
    if source.graph is not None:
        command += ["--graph", str(source.graph)]
    if source.adapter is not None:
        command += ["--adapter", str(source.adapter)]
    return command
