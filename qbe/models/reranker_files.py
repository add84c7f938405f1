"""The files of a reranker: found by name in the package, in a folder, or exported on first use."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.errors import ModelError, UsageError
from qbe.models.exports import ExportKind, exported_folder, model_file, verify_digest
from qbe.models.registry import DEFAULT_RERANKER, RERANKERS
from qbe.models.session import open_session
from qbe.types import Facet

RERANKER_CARD = "reranker.json"
RERANKER_FORMAT = 1
CROSS_ENCODER = ExportKind("reranker", "cross-encoder", RERANKER_CARD, "rerankers", RERANKER_FORMAT)
RERANKER_PRECISIONS = ("int8", "fp16", "fp32")
TRUNK = "trunk.bin"
"""The weights that the models of the facets share, as ONNX external data."""
TOKENIZER = "tokenizer.json"
PAIR_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""What a pair cross-encoder takes; not every one has the last."""
SCORE = "score"
"""What a pair cross-encoder gives."""
FACET_INPUTS = ("input_ids", "pooling", "past_keys", "past_values")
FACET_OUTPUTS = ("keys", "values", "vectors", "tokens", "token_logits")
"""What the model of a facet takes and gives; `qbe.export.facet_rerankers` says what each is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEncoderMetadata:
    """What the export of a pair cross-encoder records.

    ``labels`` counts the logits of the original, ``token_types`` tells whether the model takes
    ``token_type_ids``, ``files`` holds SHA-256 by file name. ``parity`` holds, for each precision, the
    difference from the PyTorch original that the export measured: ``max_abs_difference`` of scores, and
    ``share_of_spread``, the same divided by the standard deviation of the original's scores.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetRerankersMetadata:
    """What a folder of facet rerankers states of itself.

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
CARDS: Mapping[str, type[RerankerMetadata]] = {"pair": CrossEncoderMetadata, "facet": FacetRerankersMetadata}


@dataclass(frozen=True, slots=True)
class RerankerFiles:
    """A reranker on disk, in one precision."""

    folder: Path
    card: RerankerMetadata
    precision: str

    @property
    def tokenizer(self) -> Path:
        """The tokenizer, in the format of the ``tokenizers`` package."""
        return self.folder / TOKENIZER

    def model(self, facet: Facet | None = None) -> Path:
        """The ONNX model that judges queries of a facet; a pair cross-encoder has one for all queries.

        Raises UsageError where facet rerankers have none for that facet.
        """
        if isinstance(self.card, CrossEncoderMetadata):
            return self.folder / model_file(self.precision)
        if facet is None or str(facet) not in self.card.heads:
            raise UsageError(
                f"expected a facet that {self.card.name} reranks ({', '.join(self.card.heads)}), found "
                f"{facet or 'none'}; choose one of these, or another --reranker"
            )
        return self.folder / f"{facet}.onnx"

    def verify(self, facet: Facet | None = None) -> None:
        """Raise ModelError when a file that judging a facet needs is missing or is not the card's.

        None means what every query needs of a pair cross-encoder, and all files of facet rerankers.
        """
        if isinstance(self.card, CrossEncoderMetadata):
            names: Iterable[str] = (self.model().name, TOKENIZER)
            remedy = f"delete the folder {self.folder}, and export the reranker again"
        else:
            names = self.card.files if facet is None else (self.model(facet).name, TRUNK, TOKENIZER)
            remedy = "install qbe again, or train the rerankers again"
        for name in names:
            verify_digest(self.folder / name, self.card.files.get(name), remedy)


def resolve_reranker(name: str = DEFAULT_RERANKER, precision: str = "int8") -> RerankerFiles:
    """The files of a reranker: a registry name, an exported or Hugging Face folder, or a hub name.

    Weights that were never exported are exported once, see `qbe.models.exports.exported_folder`. Raises
    UsageError for a precision that is unknown or that facet rerankers do not have, and ModelError when
    nothing of that name is found, read or exported.
    """
    if precision not in RERANKER_PRECISIONS:
        raise UsageError(f"expected a precision of {', '.join(RERANKER_PRECISIONS)}, found {precision!r}")
    folder = (
        Path(__file__).parent / RERANKERS[name] if name in RERANKERS else exported_folder(CROSS_ENCODER, name)
    )
    if folder is None:
        raise ModelError(
            f"expected a reranker known by name ({', '.join(RERANKERS)}), a folder, or a hub name such as "
            f"owner/model, found {name!r}; check --reranker"
        )
    card = read_reranker_card(folder)
    if isinstance(card, FacetRerankersMetadata) and precision != card.precision:
        raise UsageError(
            f"expected precision {card.precision}, the only one of {folder}, found {precision}; give "
            f"--rerank-precision {card.precision}"
        )
    return RerankerFiles(folder, card, precision)


def read_reranker_card(folder: Path) -> RerankerMetadata:
    """Read the card of either kind; raises ModelError when it is damaged, or of another kind or format."""
    path = folder / RERANKER_CARD
    try:
        record = json.loads(path.read_text())
        kind, found = record.get("kind"), record.get("format")
        if kind not in CARDS or found != RERANKER_FORMAT:
            raise ModelError(
                f"{path}: expected a reranker of kind {' or '.join(CARDS)} in format {RERANKER_FORMAT}, "
                f"found kind {kind} in format {found}; export or train it again"
            )
        return CARDS[kind](**record)
    except (AttributeError, OSError, ValueError, TypeError) as error:
        raise ModelError(
            f"{path}: expected the card of a reranker, found {error}; export or train it again"
        ) from error


def write_reranker_card(folder: Path, card: RerankerMetadata) -> None:
    """Write the card of a reranker that is being made."""
    (folder / RERANKER_CARD).write_text(json.dumps(dataclasses.asdict(card), indent=1) + "\n")


def open_reranker_session(model: Path, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """A single-threaded session on a reranker's model, see `qbe.models.session.open_session`.

    Raises ModelError when the file is no ONNX model, or one with other inputs or without the outputs.
    """
    session = open_session(model)
    found = [value.name for value in session.get_inputs()]
    given = [value.name for value in session.get_outputs()]
    if set(found) != set(inputs) or not set(outputs) <= set(given):
        raise ModelError(
            f"{model}: expected a reranker of {', '.join(inputs)} to {', '.join(outputs)}, found a model of "
            f"{', '.join(found)} to {', '.join(given)}; export or train it again"
        )
    return session
