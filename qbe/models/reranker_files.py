"""The files of a reranker, resolved from a name and verified."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, UsageError
from qbe.models.encoder_files import HALF
from qbe.models.kinds import CROSS_ENCODER, TOKENIZER, read_metadata, verify_digest, write_metadata
from qbe.models.registry import DEFAULT_RERANKER
from qbe.models.session import CPU, open_session
from qbe.models.sources import exported, find_reranker, model_file

RERANKER_CARD = CROSS_ENCODER.metadata_file
RERANKER_FORMAT = CROSS_ENCODER.format
RERANKER_PRECISIONS = ("int8", "fp32")
"""The precisions of an export. A pair cross-encoder has fp16, too: `qbe.models.batches` makes it of fp32."""
TRUNK = "trunk.bin"
"""The weights that the models of the facets share, as ONNX external data."""
PAIR_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""Inputs of a pair cross-encoder; some have no ``token_type_ids``."""
SCORE = "score"
"""Output of a pair cross-encoder."""
FACET_INPUTS = ("input_ids", "pooling", "past_keys", "past_values")
FACET_OUTPUTS = ("keys", "values", "vectors", "tokens", "token_logits")
"""Inputs and outputs of the model of a facet; `qbe.export.facet_rerankers` describes each."""
JOINT, JOINT_CARD, JOINT_MODEL = "joint-grades", "joint-grades.json", model_file("int8")
"""Joint grades: the name of the model, and of its files."""
JOINT_GRADES = Path(__file__).parent / JOINT
"""The folder of those that ship."""
JOINT_INPUTS, JOINT_OUTPUT = ("input_ids", "sides"), "grades"
"""Of the model: token ids (1, tokens) int64; for each token 1 where it is one of the first paper, 2 of the
second, 0 for the special ones; and the grades (1, 3) float32.
"""
JOINT_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEncoderMetadata:
    """What the export of a pair cross-encoder records.

    ``labels`` counts the logits of the original, ``token_types`` is true where the model takes
    ``token_type_ids``, ``files`` holds SHA-256 by file name. ``parity`` holds, for each precision, the
    difference from the PyTorch original that the export measured: ``max_abs_difference`` of scores, and
    ``share_of_spread``, the same divided by the standard deviation of the original's scores. ``query_tokens``
    and ``candidate_tokens`` are how much the model was trained to read of either, special tokens included
    (None: not known); ``training`` holds the recipe, data and figures of a training by qbe.
    """

    format: int = RERANKER_FORMAT
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
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetRerankersMetadata:
    """What a folder of facet rerankers records.

    It holds a model ``{facet}.onnx`` of one ``precision`` for each facet of ``heads``, which gives the
    weights of that facet's score. ``files`` holds SHA-256 by file name; ``training`` the recipe, data and
    figures.
    """

    format: int = RERANKER_FORMAT
    kind: str = "facet"
    name: str
    precision: str
    max_tokens: int
    files: Mapping[str, str]
    heads: Mapping[str, Sequence[float]]
    training: Mapping[str, Any]


RerankerMetadata = CrossEncoderMetadata | FacetRerankersMetadata
METADATA: Mapping[str, type[RerankerMetadata]] = {
    "pair": CrossEncoderMetadata,
    "facet": FacetRerankersMetadata,
}
"""Metadata by the ``kind`` that they record."""


@dataclass(frozen=True, slots=True)
class RerankerFiles:
    """A reranker on disk, in one precision.

    >>> files = resolve_reranker("facet-rerankers")
    >>> files.tokenizer.name, files.model("result").name
    ('tokenizer.json', 'result.onnx')
    """

    folder: Path
    metadata: RerankerMetadata
    precision: str

    @property
    def tokenizer(self) -> Path:
        """The tokenizer, in the format of the ``tokenizers`` package."""
        return self.folder / TOKENIZER

    def model(self, facet: str | None = None) -> Path:
        """The ONNX model that scores candidates for a facet; a pair cross-encoder has one for all queries.

        Raises UsageError where facet rerankers have none for that facet.
        """
        if isinstance(self.metadata, CrossEncoderMetadata):
            return self.folder / model_file("fp32" if self.precision == HALF else self.precision)
        if facet is None or str(facet) not in self.metadata.heads:
            raise UsageError(
                f"expected a facet that {self.metadata.name} reranks ({', '.join(self.metadata.heads)}), "
                f"found {facet or 'none'}; choose one of these, or another `reranker`"
            )
        return self.folder / f"{facet}.onnx"

    def verify(self, facet: str | None = None) -> None:
        """Raise ModelError when a file that a facet needs is missing or has another digest than recorded.

        None means what every query needs of a pair cross-encoder, and all files of facet rerankers.
        """
        if isinstance(self.metadata, CrossEncoderMetadata):
            names: Iterable[str] = (self.model().name, TOKENIZER)
            remedy = f"delete the folder {self.folder}, and export the reranker again"
        else:
            names = self.metadata.files if facet is None else (self.model(facet).name, TRUNK, TOKENIZER)
            remedy = "install qbe again, or train the rerankers again"
        for name in names:
            verify_digest(self.folder / name, self.metadata.files.get(name), remedy)


def resolve_reranker(name: str = DEFAULT_RERANKER, precision: str = "int8") -> RerankerFiles:
    """The files of a reranker: a registry name, an exported or Hugging Face folder, or a hub name.

    Weights that were never exported are exported once, see `qbe.models.sources.exported`. Raises UsageError
    for a precision that is unknown or that facet rerankers do not have, and ModelError when nothing has that
    name, or it cannot be read or exported.

    >>> resolve_reranker("facet-rerankers").model("method").name
    'method.onnx'
    """
    if precision not in (possible := (*RERANKER_PRECISIONS, HALF)):
        raise UsageError(f"expected a precision of {', '.join(possible)}, found {precision!r}")
    folder = exported(CROSS_ENCODER, find_reranker(name))
    metadata = read_reranker_card(folder)
    if isinstance(metadata, FacetRerankersMetadata) and precision != metadata.precision:
        raise UsageError(
            f"expected precision {metadata.precision}, the only one of {folder}, found {precision}; give "
            f"`precision` {metadata.precision}"
        )
    return RerankerFiles(folder, metadata, precision)


def read_reranker_card(folder: Path) -> RerankerMetadata:
    """Read the metadata of either kind of reranker.

    Raises ModelError when they are damaged, or of another kind or format.

    >>> card = read_reranker_card(resolve_reranker("facet-rerankers").folder)
    >>> card.kind, card.precision, sorted(card.heads)
    ('facet', 'int8', ['background', 'method', 'result'])
    """
    path = folder / RERANKER_CARD
    remedy = "export or train it again"

    def parse(record: Any) -> RerankerMetadata:
        kind, version = record.get("kind"), record.get("format")
        if kind not in METADATA or version != RERANKER_FORMAT:
            raise ModelError(
                f"{path}: expected a reranker of kind {' or '.join(METADATA)} in format {RERANKER_FORMAT}, "
                f"found kind {kind} in format {version}; {remedy}"
            )
        return METADATA[kind](**record)

    return read_metadata(path, parse, "the metadata of a reranker", remedy)


def write_reranker_card(folder: Path, metadata: RerankerMetadata) -> None:
    """Write the metadata of a reranker whose folder is being made.

    >>> card = read_reranker_card(resolve_reranker("facet-rerankers").folder)
    >>> write_reranker_card(Path(), card)
    >>> read_reranker_card(Path()) == card
    True
    """
    write_metadata(folder / RERANKER_CARD, dataclasses.asdict(metadata))


def open_reranker_session(
    model: Path, inputs: Sequence[str], outputs: Sequence[str], device: str = CPU
) -> Any:
    """A single-threaded session on a reranker's model, see `qbe.models.session.open_session`.

    Raises ModelError when the file is no ONNX model, or one with other inputs or without the outputs.
    """
    session = open_session(model, device=device)
    actual_inputs = [value.name for value in session.get_inputs()]
    actual_outputs = [value.name for value in session.get_outputs()]
    if set(actual_inputs) != set(inputs) or not set(outputs) <= set(actual_outputs):
        raise ModelError(
            f"{model}: expected a reranker of {', '.join(inputs)} to {', '.join(outputs)}, found a model of "
            f"{', '.join(actual_inputs)} to {', '.join(actual_outputs)}; export or train it again"
        )
    return session


@dataclass(frozen=True, slots=True, kw_only=True)
class JointCard:
    """What a folder of joint grades records.

    ``files`` holds SHA-256 by name, that of the tokenizer too, which is the default encoder's; ``chances`` by
    facet the intercept and slope of the log odds of being similar (a grade of 1.5 or more), as a function of
    the mean of both grades; ``parity`` the largest and the root mean squared difference of a grade from the
    PyTorch original; ``training`` recipe, data and figures.
    """

    format: int = JOINT_FORMAT
    files: Mapping[str, str]
    chances: Sequence[Sequence[float]]
    parity: Mapping[str, float]
    training: Mapping[str, Any]


def read_joint_card(folder: Path = JOINT_GRADES) -> JointCard:
    """The card in a folder; raises ModelError for one that is absent, damaged or of another format.

    >>> len(read_joint_card().chances)
    3
    """
    path, remedy = folder / JOINT_CARD, f"train the model again with qbe train {JOINT}"

    def parse(record: Any) -> JointCard:
        if record["format"] != JOINT_FORMAT:
            raise ModelError(f"{path}: expected format {JOINT_FORMAT}, found {record['format']}; {remedy}")
        return JointCard(**record)

    return read_metadata(path, parse, "the card of joint grades", remedy)


def write_joint_card(folder: Path, card: JointCard) -> None:
    """Write a card into a folder that is being made."""
    write_metadata(folder / JOINT_CARD, dataclasses.asdict(card))


class PairInput(NamedTuple):
    """Two papers as the model reads them: ``ids`` and ``sides`` (1, tokens) int64, see JOINT_INPUTS."""

    ids: NDArray[np.int64]
    sides: NDArray[np.int64]


def pair_input(first: Sequence[int], second: Sequence[int], cls: int, sep: int) -> PairInput:
    """``[CLS] first [SEP] second [SEP]``.

    >>> pair = pair_input([7, 8], [9], 101, 102)
    >>> pair.ids.tolist(), pair.sides.tolist()
    ([[101, 7, 8, 102, 9, 102]], [[0, 1, 1, 0, 2, 0]])
    """
    ids = [cls, *first, sep, *second, sep]
    sides = [0, *[1] * len(first), 0, *[2] * len(second), 0]
    return PairInput(np.array([ids], np.int64), np.array([sides], np.int64))
