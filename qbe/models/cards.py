"""Cards of models, folders that appear whole or not at all, and small networks stored with their card."""

import contextlib
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, OutputError
from qbe.models import HEADERS, reading
from qbe.models.formats import DEFAULT_FORMAT, EncoderFormat
from qbe.models.session import HALF
from qbe.types import Facet
from qbe.util.files import atomic_file, publish_directory, sha256, write_text

PACKAGE = Path(__file__).parent
DEFAULT_ENCODER, DEFAULT_TAGGER, DEFAULT_RERANKER = "facet-encoder", "facet-tagger", "joint-grades"
LARGE_ENCODER = "facet-encoder-large"
JOINT_GRADES = PACKAGE / DEFAULT_RERANKER

TOKENIZER, HEAD = "tokenizer.json", "head.int8.onnx"
DIFFERENCE = "difference.safetensors"  # what ships of the large encoder (`qbe.models.folders`)
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
    """An exported encoder; ``adapter`` and ``files`` are SHA-256.

    ``parity`` has by precision ``max_abs_difference`` of states, and ``min_cosine`` of pooled vectors.
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

    ``parity`` has ``max_abs_difference`` of scores from PyTorch's by precision, and ``share_of_spread``, the
    same in their standard deviations; ``*_tokens`` are the most it read in training, of ``texts`` as in
    `qbe.search.rerankers.TEXTS`; ``facet`` is what it learned. One of 3 ``labels`` scores by each facet.
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
    """A facet tagger on ``layers`` (0: the embeddings) of its encoder, ``trunk``, or of others.

    ``begin``, ``end`` (labels) and ``transitions`` (labels, labels; row to column) score label sequences.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JointCard:
    """Joint grades; ``chances``, by facet: intercept and slope of the log odds of a grade of 1.5 or more."""

    format: int = 1
    files: Mapping[str, str]
    chances: Sequence[Sequence[float]]
    parity: Mapping[str, float]
    training: Mapping[str, Any]


Card = TypeVar("Card", EncoderMetadata, CrossEncoderMetadata, TaggerMetadata, JointCard)


@dataclass(frozen=True, slots=True)
class ModelKind(Generic[Card]):
    """A kind of model: its card and format (0: none), default, and how `qbe export` makes it."""

    noun: str
    metadata_file: str
    card: type[Card]
    default: str
    remedy: str
    format: int = 0
    command: str = ""
    required: tuple[tuple[str, ...], ...] = ()  # files, each by its possible names


ENCODER = ModelKind(
    "encoder",
    "encoder.json",
    EncoderMetadata,
    DEFAULT_ENCODER,
    "delete the folder {folder}, and export the encoder again with qbe export encoder",
    format=4,  # 1: last_hidden_state only; 2: all layers; 3: with the encoder format; 4: no padding mask
    command="encoder",
    required=(("config.json",), ("model.safetensors", "pytorch_model.bin"), (TOKENIZER, "vocab.txt")),
)
CROSS_ENCODER = ModelKind(
    "reranker",
    "reranker.json",
    CrossEncoderMetadata,
    DEFAULT_RERANKER,
    "delete the folder {folder}, and export or train the reranker again",
    format=1,
    command="cross-encoder",
    required=(("config.json",), ("model.safetensors",), (TOKENIZER,)),
)
TAGGER = ModelKind("tagger", "tagger.json", TaggerMetadata, DEFAULT_TAGGER, "train the tagger again")
_JOINT_REMEDY = "train the model again with qbe train joint-grades"
JOINT_GRADER = ModelKind("joint-grades", "joint-grades.json", JointCard, DEFAULT_RERANKER, _JOINT_REMEDY, 1)
_KINDS: Mapping[type, ModelKind[Any]] = {
    kind.card: kind for kind in (ENCODER, CROSS_ENCODER, TAGGER, JOINT_GRADER)
}


def read_card(folder: Path, kind: ModelKind[Card]) -> Card:
    """Read a model's card; raises ModelError where it is damaged, or of another kind or format."""
    path, remedy = folder / kind.metadata_file, _remedy(folder, kind)
    with reading(path, f"{kind.noun} metadata", remedy):
        record = json.loads(path.read_text(encoding="utf-8"))
        if kind.format and record.get("format") != kind.format:
            expected = f"{path}: expected {kind.noun} metadata of format {kind.format}"
            raise ModelError(f"{expected}, found format {record.get('format')}; {remedy}")
        if kind.card is EncoderMetadata:
            given = record.pop(_FORMAT_KEY)
            given.pop("sentences", None)  # which follows from the others
            record["encoder_format"] = EncoderFormat(**given)
        card = kind.card(**record)
        for name, hint in get_type_hints(kind.card).items():
            of: Any = get_origin(hint) or hint
            if of in (Mapping, Sequence, str, int) and not isinstance(getattr(card, name), of):
                raise TypeError(f"{name} {getattr(card, name)!r:.60}")
        return card


def write_card(folder: Path, card: Card) -> None:
    fields = dataclasses.asdict(card)
    record = {_FORMAT_KEY if name == "encoder_format" else name: value for name, value in fields.items()}
    write_text(folder / _KINDS[type(card)].metadata_file, json.dumps(record, indent=1) + "\n")


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
        kind = _KINDS[type(self.metadata)]
        for path in (self.folder / HEAD,) if kind is TAGGER else (self.model, self.tokenizer):
            verify_digest(path, self.metadata.files.get(path.name), _remedy(self.folder, kind))


RerankerFiles = ModelFolder[CrossEncoderMetadata]
TaggerFiles = ModelFolder[TaggerMetadata]


class EncoderFiles(ModelFolder[EncoderMetadata]):
    """An exported encoder."""

    @property
    def identity(self) -> dict[str, Any]:
        """Identify vectors that can be compared, as an index records it; defaults are left out."""
        card = self.metadata
        identity: dict[str, Any] = {"name": card.name, "precision": self.precision}
        identity["weights_sha256"] = card.weights_sha256
        if card.encoder_format != DEFAULT_FORMAT:
            identity[_FORMAT_KEY] = dataclasses.asdict(card.encoder_format)
        return identity if card.adapter is None else {**identity, "adapter": card.adapter}


_NAMED = ("citation", "grades", "facet-projections", "joint-grades")  # cards and weights with their name
_CARDS = {*(kind.metadata_file for kind in _KINDS.values()), *(f"{name}.json" for name in _NAMED)}
_CARDS |= {DIFFERENCE, "words.tsv.gz"}
_BESIDE = {"config.json", "model.safetensors", TOKENIZER, RANGES, *(f"{name}.npz" for name in _NAMED)}
_BESIDE |= {"README.md", "LICENSE", "NOTICE"}


def check_model_folder(folder: Path) -> None:
    """Raise OutputError where a folder holds files that are not a model's and would be lost if replaced."""
    paths = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    names = {path.name for path in paths}
    models = {path.name for path in paths if path.suffix == ".onnx"}
    is_model = bool(names & _CARDS or models) or names >= {"config.json", "model.safetensors"}
    lost = [path for path in paths if not is_model or path.name not in _CARDS | _BESIDE | models]
    if lost:
        raise OutputError(
            f"{folder}: expected no such folder, or a model to replace, found {lost[0].relative_to(folder)} "
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


T = TypeVar("T")
Doubles = NDArray[np.float64]
Arrays = Mapping[str, Doubles]

FORMAT = 1
OUTERMOST = 5.0  # of 100 pairs of dev-2 two have a feature that is further out


class Head(NamedTuple):
    """A network of one hidden layer (``tanh``), of F features and H hidden units; all float64.

    Features are standardized by ``mean`` and ``scale`` (F,); an unknown one (NaN) counts as the mean.
    ``hidden`` (F, H), ``bias`` (H,), ``direct`` (F,) or (F, K) and ``out`` (H,) or (H, K) are the weights of
    one score or K.

    >>> unit = np.ones(1)
    >>> head = Head(0 * unit, 2 * unit, np.ones((1, 1)), 0 * unit, 3 * unit, 0 * unit)
    >>> head.scores(np.array([[4.0], [np.nan]])).tolist()
    [6.0, 0.0]
    """

    mean: Doubles
    scale: Doubles
    hidden: Doubles
    bias: Doubles
    direct: Doubles
    out: Doubles

    def scores(self, features: Doubles) -> Doubles:
        """Score candidates, (candidates,) or (candidates, K), by features (candidates, F)."""
        inputs = np.nan_to_num((features - self.mean) / self.scale, nan=0.0)
        return inputs @ self.direct + np.tanh(inputs @ self.hidden + self.bias) @ self.out


def mean_head(heads: Sequence[Head]) -> Head:
    """Combine heads over the same features to one whose scores are the means of theirs."""
    return Head(
        heads[0].mean,
        heads[0].scale,
        np.concatenate([head.hidden for head in heads], axis=1),
        np.concatenate([head.bias for head in heads]),
        np.mean([head.direct for head in heads], axis=0),
        np.concatenate([head.out for head in heads]) / len(heads),
    )


class Storage:
    """How a kind of model is stored: its name in messages, and the ``stem`` of files and of `qbe train`."""

    def __init__(self, kind: str, stem: str) -> None:
        self.kind, self.stem = kind, stem
        self.weights, self.card, self.shipped = f"{stem}.npz", f"{stem}.json", PACKAGE / stem

    def shipped_for(self, encoder: Mapping[str, Any]) -> Path | None:
        """Return the folder of the model that ships for an index's ``encoder`` (its identity), or None."""
        for card in sorted(PACKAGE.glob(f"{self.stem}*/{self.card}")):
            read = json.loads(card.read_text(encoding="utf-8"))["encoder"]
            if read["weights_sha256"] == encoder["weights_sha256"]:
                return card.parent
        return None

    def write(self, folder: Path, arrays: Mapping[str, NDArray[Any]], features: Any, model: Any) -> None:
        with atomic_file(folder / self.weights) as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]
        card: dict[str, Any] = {"format": FORMAT, "files": {self.weights: sha256(folder / self.weights)}}
        card |= {"encoder": dict(model.encoder), "features": features, "training": dict(model.training)}
        write_text(folder / self.card, json.dumps(card, indent=1) + "\n")

    def read(self, folder: Path, features: Any, model_of: Callable[..., T]) -> T:
        """Read a model; raises ModelError for one that is absent, damaged, or of other format or features."""
        train = f"qbe train {self.stem}"
        expected = f"a {self.kind} model ({self.card}, {self.weights})"
        with reading(folder, expected, f"give its folder, or train one with {train}"):
            card = json.loads((folder / self.card).read_text(encoding="utf-8"))
            if card["format"] != FORMAT or card["features"] != features:
                expected = f"expected a {self.kind} model of format {FORMAT}"
                raise ModelError(f"{folder}: {expected}, found another; train it again with {train}")
            verify_digest(folder / self.weights, card["files"][self.weights], "fetch it again")
            with HEADERS, np.load(folder / self.weights) as stored:
                arrays = {name: stored[name].astype(np.float64) for name in stored.files}
                return model_of(arrays, card["encoder"], card["training"])


def head_arrays(name: str, head: Head) -> dict[str, NDArray[np.float32]]:
    return {f"{name}.{part}": array.astype(np.float32) for part, array in head._asdict().items()}


def head_of(name: str, arrays: Arrays) -> Head:
    return Head(*(arrays[f"{name}.{part}"] for part in Head._fields))


GRADES = Storage("grade", "grades")
shipped_model = GRADES.shipped_for
OUTPUTS = 3 * len(Facet)
"""A grade model's scores: grades, and the log odds of being similar and of being another one, by facet."""


class Estimates(NamedTuple):
    """Grades (candidates, 3) by facet, 0 to 3 or a little beyond; chances of SIMILAR_FROM and OTHER_TO."""

    grades: Doubles
    similar: Doubles
    other: Doubles


@dataclass(frozen=True, slots=True)
class GradeModel:
    """A head of OUTPUTS scores that turns features of an ``encoder``'s vectors into estimates."""

    head: Head
    encoder: Mapping[str, Any]
    training: Mapping[str, Any]

    def estimates(self, features: Doubles, *, cut_off: bool = False) -> Estimates:
        """Estimate from features (candidates, F), rounded to six places: any order of summation is equal.

        ``cut_off`` brings those that lie far from all of the training to OUTERMOST deviations.
        """
        if cut_off:
            most = OUTERMOST * self.head.scale
            features = np.clip(features, self.head.mean - most, self.head.mean + most)
        grades, *log_odds = np.split(self.head.scores(features), 3, axis=1)
        similar, other = (1 / (1 + np.exp(-np.clip(part, -50, 50))) for part in log_odds)
        return Estimates(grades.round(6), similar.round(6), other.round(6))


def write_model(folder: Path, model: GradeModel, features: Sequence[str]) -> None:
    GRADES.write(folder, head_arrays("head", model.head), list(features), model)


def read_model(folder: Path, features: Sequence[str]) -> GradeModel:
    """Read a model; raises ModelError for one that is absent, damaged or of other ``features``."""
    return GRADES.read(folder, list(features), lambda arrays, *of: GradeModel(head_of("head", arrays), *of))
