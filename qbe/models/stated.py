"""What a folder of sentence-transformers states of its own reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from qbe.errors import ModelError
from qbe.models.encoder_format import CLS, COSINE, L2, LEAST_TOKENS, MEAN, TITLE_ABSTRACT, EncoderFormat

MODULES = "modules.json"
STATED_FILES = (
    MODULES,
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "tokenizer_config.json",
)
"""The files, beside the model's own, that state it."""

_POOLINGS = {"pooling_mode_cls_token": CLS, "pooling_mode_mean_tokens": MEAN}
"""The two that qbe knows, as older folders name them."""

_UNLIMITED = 10**6
"""Tokenizers without a limit state a number beyond all lengths."""


def stated_convention(folder: Path) -> EncoderFormat | None:
    """How a folder of sentence-transformers is to be read; None where it is none (without ``modules.json``).

    Pooling, normalization, similarity and length are stated there; the layout is not: texts are single ones,
    and how a paper becomes a text is up to who encodes it, so that it is the default. Without normalization
    vectors are compared as ``similarity_fn_name`` says, by cosine where it says nothing. Raises ModelError
    where a file is damaged, or states what qbe does not do.
    """
    if not (folder / MODULES).is_file():
        return None
    modules = _read(folder / MODULES)
    try:
        kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
        paths = [str(module["path"]) for module in modules]
    except (TypeError, KeyError) as error:
        raise ModelError(f"{folder / MODULES}: expected a list of modules, found {error!r}") from error
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]) or paths[0]:
        raise _beyond(folder, "Transformer in the folder itself, Pooling and perhaps Normalize", kinds)
    settings = _read(folder / "config_sentence_transformers.json", {})
    if settings.get("default_prompt_name"):
        raise _beyond(folder, "no prompt by default", settings["default_prompt_name"])
    reading = _read(folder / "sentence_bert_config.json", {})
    if reading.get("do_lower_case"):
        raise _beyond(folder, "texts lowercased by the tokenizer or not at all", "do_lower_case")
    return EncoderFormat.pooled(
        TITLE_ABSTRACT,
        _pooling(folder, _read(folder / paths[1] / "config.json")),
        _similarity(folder, settings.get("similarity_fn_name"), normalized="Normalize" in kinds),
        _max_tokens(folder, reading, _read(folder / "tokenizer_config.json", {})),
    )


def _read(path: Path, default: dict[str, Any] | None = None) -> Any:
    if default is not None and not path.is_file():
        return default
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: expected JSON, found {error}; download the model again") from error
    if not isinstance(found, list if path.name == MODULES else dict):
        raise ModelError(f"{path}: expected settings, found {type(found).__name__}; download the model again")
    return found


def _pooling(folder: Path, settings: dict[str, Any]) -> str:
    modes = settings.get("pooling_mode")
    if modes is None:
        active = [name for name, on in settings.items() if name.startswith("pooling_mode_") and on is True]
        modes = [_POOLINGS.get(name, name) for name in active] or [MEAN]
    modes = [modes] if isinstance(modes, str) else modes
    if modes not in ([MEAN], [CLS]):
        raise _beyond(folder, f"one pooling, {MEAN} or {CLS}", modes)
    return str(modes[0])


def _similarity(folder: Path, name: object, *, normalized: bool) -> str:
    if name in (None, "cosine") or (normalized and name == "dot"):
        return COSINE
    if name == "euclidean" and not normalized:
        return L2
    raise _beyond(folder, "cosine or (of vectors that are not normalized) euclidean similarity", name)


def _max_tokens(folder: Path, reading: dict[str, Any], tokenizer: dict[str, Any]) -> int | None:
    """As older folders state it beside the model, or newer ones with the tokenizer."""
    stated = reading.get("max_seq_length") or tokenizer.get("model_max_length")
    if stated is None:
        return None
    if not isinstance(stated, int) or stated < LEAST_TOKENS:
        raise _beyond(folder, f"a length of at least {LEAST_TOKENS} tokens", repr(stated))
    return None if stated > _UNLIMITED else stated


def _beyond(folder: Path, expected: str, found: object) -> ModelError:
    return ModelError(
        f"{folder}: expected a sentence-transformers model with {expected}, found {found}; give another "
        "model, or state how it is read to: python -m qbe.export encoder"
    )
