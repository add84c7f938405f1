"""The files of a reranker, resolved from a name and verified."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.errors import ModelError, UsageError
from qbe.models.encoder_files import HALF, PRECISIONS
from qbe.models.kinds import CROSS_ENCODER, TOKENIZER, read_metadata, verify_digest, write_metadata
from qbe.models.registry import DEFAULT_RERANKER
from qbe.models.session import CPU, open_session
from qbe.models.sources import exported, find_reranker, model_file

RERANKER_CARD = CROSS_ENCODER.metadata_file
RERANKER_FORMAT = CROSS_ENCODER.format
PAIR_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""Inputs of a pair cross-encoder; some have no ``token_type_ids``."""
SCORE = "score"
"""Output of a pair cross-encoder."""
JOINT, JOINT_CARD, JOINT_MODEL = DEFAULT_RERANKER, "joint-grades.json", model_file("int8")
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


@dataclass(frozen=True, slots=True)
class RerankerFiles:
    """A pair cross-encoder on disk, in one precision."""

    folder: Path
    metadata: CrossEncoderMetadata
    precision: str

    @property
    def tokenizer(self) -> Path:
        """The tokenizer, in the format of the ``tokenizers`` package."""
        return self.folder / TOKENIZER

    def model(self) -> Path:
        """The ONNX model that scores pairs."""
        return self.folder / model_file("fp32" if self.precision == HALF else self.precision)

    def verify(self) -> None:
        """Raise ModelError when a file is missing or has another digest than recorded."""
        for name in (self.model().name, TOKENIZER):
            remedy = f"delete the folder {self.folder}, and export the reranker again"
            verify_digest(self.folder / name, self.metadata.files.get(name), remedy)


def resolve_reranker(name: str, precision: str = "int8") -> RerankerFiles:
    """The files of a pair cross-encoder: an exported or Hugging Face folder, or a hub name.

    Weights that were never exported are exported once, see `qbe.models.sources.exported`. Raises UsageError
    for a precision that is unknown, and ModelError when nothing has that name, or it cannot be read or
    exported.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"expected a precision of {', '.join(PRECISIONS)}, found {precision!r}")
    if joint_folder(name) is not None:
        raise ModelError(
            f"{name}: expected a pair cross-encoder, found joint grades; open them with qbe.search.rerankers"
        )
    folder = exported(CROSS_ENCODER, find_reranker(name))
    return RerankerFiles(folder, read_reranker_card(folder), precision)


def read_reranker_card(folder: Path) -> CrossEncoderMetadata:
    """Read the metadata of a pair cross-encoder.

    Raises ModelError when they are damaged, or of another kind or format.
    """
    path = folder / RERANKER_CARD
    remedy = "export or train it again"

    def parse(record: Any) -> CrossEncoderMetadata:
        kind, version = record.get("kind"), record.get("format")
        if (kind, version) != ("pair", RERANKER_FORMAT):
            raise ModelError(
                f"{path}: expected a reranker of kind pair in format {RERANKER_FORMAT}, found kind {kind} in "
                f"format {version}; {remedy}"
            )
        return CrossEncoderMetadata(**record)

    return read_metadata(path, parse, "the metadata of a reranker", remedy)


def write_reranker_card(folder: Path, metadata: CrossEncoderMetadata) -> None:
    """Write the metadata of a reranker whose folder is being made."""
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


def joint_folder(name: str) -> Path | None:
    """The folder of joint grades: one of `qbe train joint-grades`, or, by their name, of those that ship;
    None for another reranker.

    >>> joint_folder("joint-grades") == JOINT_GRADES, joint_folder("owner/model")
    (True, None)
    """
    if (Path(name) / JOINT_CARD).is_file():
        return Path(name)
    return JOINT_GRADES if name == JOINT else None


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
