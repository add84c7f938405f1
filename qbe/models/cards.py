"""Cards of models, the files beside them, and folders that appear whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from qbe.errors import ModelError, OutputError, UsageError
from qbe.models.formats import DEFAULT_FORMAT, EncoderFormat
from qbe.models.session import HALF
from qbe.util.files import publish_directory, sha256

PACKAGE = Path(__file__).parent
DEFAULT_ENCODER, DEFAULT_TAGGER, DEFAULT_RERANKER = "facet-encoder", "facet-tagger", "joint-grades"
LARGE_ENCODER = "facet-encoder-large"
JOINT_GRADES = PACKAGE / DEFAULT_RERANKER

TOKENIZER, HEAD = "tokenizer.json", "head.int8.onnx"
DIFFERENCE = "difference.safetensors"  # what ships of the large encoder (`qbe.models.large`)
GRAPH = "graph.onnx"  # a traced model without its weights (`qbe.models.export.graph`)
RANGES = "ranges.safetensors"  # beside a graph: the ranges of its activations, float16

PAIR_INPUTS, SCORE = ("input_ids", "attention_mask", "token_type_ids"), "score"
JOINT_MODEL, JOINT_INPUTS, JOINT_OUTPUT = "model.int8.onnx", ("input_ids", "sides"), "grades"
"""File, inputs and output of joint grades: token ids (1, tokens) int64; for each token 1 where it is one of
the first paper, 2 of the second, 0 for the special ones; the grades (1, 3) float32.
"""

_FORMAT_KEY = "convention"  # the encoder format's name in encoder.json and in an index's manifest


@dataclass(frozen=True, slots=True)
class EncoderMetadata:
    """An exported encoder.

    ``adapter`` is the SHA-256 of an adapter's weights, ``files`` has SHA-256 by file name, ``parity`` the
    difference from PyTorch by precision: ``max_abs_difference`` of states, ``min_cosine`` of pooled vectors.
    """

    format: int
    name: str
    source: str
    weights_sha256: str
    dimension: int
    layers: int
    max_tokens: int
    encoder_format: EncoderFormat
    adapter: str | None
    files: Mapping[str, str]
    parity: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEncoderMetadata:
    """An exported pair cross-encoder.

    ``parity`` has, by precision, ``max_abs_difference`` of scores from PyTorch's and ``share_of_spread``, the
    same in their standard deviations. ``query_tokens`` and ``candidate_tokens`` are the most it read in
    training, of ``texts`` as `qbe.search.rerankers.TEXTS` describes; ``facet`` is what it learned. One of 3
    ``labels`` scores by each facet.
    """

    format: int = 1
    kind: str = "pair"
    name: str
    source: str
    weights_sha256: str
    max_tokens: int
    labels: int
    token_types: bool
    files: Mapping[str, str]
    parity: Mapping[str, Mapping[str, float]]
    query_tokens: int | None = None
    candidate_tokens: int | None = None
    texts: str = "facet"
    facet: str | None = None
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaggerMetadata:
    """A facet tagger.

    ``trunk`` identifies the encoder whose token states it was trained on (``name``, ``weights_sha256``),
    ``also_reads`` others that serve as well; ``layers`` are those it takes (0: the embeddings). ``begin``,
    ``end`` (labels) and ``transitions`` (labels, labels; row to column) score label sequences.
    """

    name: str
    labels: Sequence[str]
    trunk: Mapping[str, str]
    layers: Sequence[int]
    begin: Sequence[float]
    end: Sequence[float]
    transitions: Sequence[Sequence[float]]
    files: Mapping[str, str]
    training: Mapping[str, Any]
    also_reads: Sequence[Mapping[str, Any]] = ()

    @property
    def trunks(self) -> Sequence[Mapping[str, Any]]:
        return (*self.also_reads, self.trunk)


@dataclass(frozen=True, slots=True, kw_only=True)
class JointCard:
    """Joint grades.

    ``chances`` has by facet the intercept and slope of the log odds of a grade of 1.5 or more as a function
    of the mean of both grades; ``parity`` the largest and root mean squared difference of a grade from
    PyTorch's.
    """

    format: int = 1
    files: Mapping[str, str]
    chances: Sequence[Sequence[float]]
    parity: Mapping[str, float]
    training: Mapping[str, Any]


Card = TypeVar("Card", EncoderMetadata, CrossEncoderMetadata, TaggerMetadata, JointCard)


@dataclass(frozen=True, slots=True)
class ModelKind(Generic[Card]):
    """A kind of model: its card, whose ``marks`` are fields that it must have, its default, and its export.

    The subcommand ``command`` of ``qbe export`` makes it from the ``required`` files (each by its possible
    names), into the subfolder ``cache`` of the cache.
    """

    noun: str
    metadata_file: str
    card: type[Card]
    default: str
    remedy: str
    marks: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    command: str = ""
    cache: str = ""
    required: tuple[tuple[str, ...], ...] = ()

    @property
    def format(self) -> int:
        return int(self.marks["format"])


ENCODER = ModelKind(
    noun="encoder",
    metadata_file="encoder.json",
    card=EncoderMetadata,
    default=DEFAULT_ENCODER,
    remedy="delete the folder {folder}, and export the encoder again with qbe export encoder",
    # 1: last_hidden_state only; 2: all layers; 3: with the encoder format; 4: no padding mask as an input
    marks={"format": 4},
    command="encoder",
    cache="encoders",
    required=(("config.json",), ("model.safetensors", "pytorch_model.bin"), (TOKENIZER, "vocab.txt")),
)
CROSS_ENCODER = ModelKind(
    noun="reranker",
    metadata_file="reranker.json",
    card=CrossEncoderMetadata,
    default=DEFAULT_RERANKER,
    remedy="delete the folder {folder}, and export or train the reranker again",
    marks={"format": 1, "kind": "pair"},
    command="cross-encoder",
    cache="rerankers",
    required=(("config.json",), ("model.safetensors",), (TOKENIZER,)),
)
TAGGER = ModelKind("tagger", "tagger.json", TaggerMetadata, DEFAULT_TAGGER, "train the tagger again")
JOINT_GRADER = ModelKind(
    noun="joint-grades",
    metadata_file="joint-grades.json",
    card=JointCard,
    default=DEFAULT_RERANKER,
    remedy="train the model again with qbe train joint-grades",
    marks={"format": 1},
)
_KINDS: tuple[ModelKind[Any], ...] = (ENCODER, CROSS_ENCODER, TAGGER, JOINT_GRADER)


def read_card(folder: Path, kind: ModelKind[Card]) -> Card:
    """Read a model's card; raises ModelError where it is damaged, or of another kind or format."""
    path, remedy = folder / kind.metadata_file, _remedy(folder, kind)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        marks = [kind.marks, {name: record.get(name) for name in kind.marks}]
        if marks[0] != marks[1]:
            expected, found = (", ".join(f"{name} {mark}" for name, mark in each.items()) for each in marks)
            raise ModelError(f"{path}: expected {kind.noun} metadata of {expected}, found {found}; {remedy}")
        if kind.card is EncoderMetadata:
            record["encoder_format"] = EncoderFormat(**record.pop(_FORMAT_KEY))
        return kind.card(**record)
    except (AttributeError, OSError, ValueError, TypeError, KeyError, UsageError) as error:
        raise ModelError(f"{path}: expected {kind.noun} metadata, found {error}; {remedy}") from error


def write_card(folder: Path, card: Card) -> None:
    (kind,) = (kind for kind in _KINDS if kind.card is type(card))
    fields = dataclasses.asdict(card)
    record = {_FORMAT_KEY if name == "encoder_format" else name: value for name, value in fields.items()}
    (folder / kind.metadata_file).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _remedy(folder: Path, kind: ModelKind[Any]) -> str:
    return "install qbe again" if folder.parent == PACKAGE else kind.remedy.format(folder=folder)


def verify_digest(path: Path, expected: str | None, remedy: str) -> None:
    """Raise ModelError, which ends in ``remedy``, when a file is missing or has another SHA-256."""
    digest = sha256(path) if path.is_file() else None
    if digest is None or digest != expected:
        raise ModelError(f"{path}: expected SHA-256 {expected}, found {digest or 'no file'}; {remedy}")


def model_file(precision: str) -> str:
    return f"model.{precision}.onnx"


def state_output(layer: int, last: int) -> str:
    """Name the output with the token states after a layer; 0 means the embeddings."""
    return "last_hidden_state" if layer == last else f"hidden_state_{layer}"


@dataclass(frozen=True)
class ModelFolder(Generic[Card]):
    """A model's files, to be run in one precision."""

    folder: Path
    metadata: Card
    precision: str = "int8"

    @property
    def model(self) -> Path:
        """The ONNX model; fp16 that is not there is made of fp32 where there is one, else of int8."""
        names = [model_file(self.precision)]
        if self.precision == HALF:
            names = [name for name in map(model_file, (HALF, "fp32")) if name in self.metadata.files]
        return self.folder / (names or [model_file("int8")])[0]

    @property
    def tokenizer(self) -> Path:
        return self.folder / TOKENIZER

    def verify(self) -> None:
        """Raise ModelError when a file is missing or has another digest than recorded."""
        (kind,) = (kind for kind in _KINDS if isinstance(self.metadata, kind.card))
        for path in (self.folder / HEAD,) if kind is TAGGER else (self.model, self.tokenizer):
            verify_digest(path, self.metadata.files.get(path.name), _remedy(self.folder, kind))


RerankerFiles = ModelFolder[CrossEncoderMetadata]
TaggerFiles = ModelFolder[TaggerMetadata]


class EncoderFiles(ModelFolder[EncoderMetadata]):
    """An exported encoder."""

    def on_any_machine(self) -> EncoderFiles:
        """Return the encoder in the precision that fp16 is made of, which needs no package onnx."""
        return replace(self, precision=self.model.name.split(".")[1])

    @property
    def identity(self) -> dict[str, Any]:
        """Identify vectors that can be compared, as an index records it; defaults are left out."""
        card = self.metadata
        identity: dict[str, Any] = {
            "name": card.name,
            "precision": self.precision,
            "weights_sha256": card.weights_sha256,
        }
        if card.encoder_format != DEFAULT_FORMAT:
            identity[_FORMAT_KEY] = dataclasses.asdict(card.encoder_format)
        return identity if card.adapter is None else {**identity, "adapter": card.adapter}


# Folders that are being made

_NAMED = ("citation", "grades", "facet-projections", "joint-grades")  # cards and weights with their name
_CARDS = {*(kind.metadata_file for kind in _KINDS), *(f"{name}.json" for name in _NAMED)}
_CARDS |= {DIFFERENCE, "words.tsv.gz"}
_PYTORCH = {"config.json", "model.safetensors"}
_BESIDE = {*_CARDS, *_PYTORCH, TOKENIZER, RANGES, *(f"{name}.npz" for name in _NAMED)}
_BESIDE |= {"README.md", "LICENSE", "NOTICE"}


def check_model_folder(folder: Path, output: Path | None = None) -> None:
    """Raise OutputError where a folder holds files that are not a model's and would be lost if replaced."""
    output = output or folder
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    names = {path.name for path in paths}
    is_model = bool(names & _CARDS) or names >= _PYTORCH or any(path.suffix == ".onnx" for path in paths)
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            check_model_folder(path, output)
        elif not is_model or (path.name not in _BESIDE and path.suffix != ".onnx"):
            raise OutputError(
                f"{output}: expected no such folder, or a model to replace, found {path.relative_to(output)} "
                "in it; choose another `output`, or move that away"
            )


@contextlib.contextmanager
def staged_folder(destination: Path) -> Iterator[Path]:
    """Yield a hidden folder that replaces ``destination`` when the block ends without an error."""
    check_model_folder(destination)
    destination.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
    staged.chmod(0o755)
    try:
        yield staged
        publish_directory(staged, destination)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
