"""Encoder formats: the input of a pass, how vectors are pooled, and how they are compared."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbe.errors import ModelError, UsageError

TITLE_ABSTRACT, TITLE_SEP_ABSTRACT, SENTENCES = "title-abstract", "title-sep-abstract", "sentences"
LAYOUTS = (TITLE_ABSTRACT, TITLE_SEP_ABSTRACT, SENTENCES)
MEAN, CLS = "mean", "cls"
POOLINGS = (MEAN, CLS)
COSINE, L2 = "cosine", "l2"
SIMILARITIES = (COSINE, L2)
MIN_PASS_TOKENS = 16  # a shorter pass would leave no room for a sentence after the title


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderFormat:
    """The input of an encoder, and how vectors come out; the defaults are those of all-MiniLM-L6-v2.

    ``layout``: ``title-abstract`` is [CLS] title, all sentences [SEP]; ``title-sep-abstract`` has another
    [SEP] after the title; ``sentences`` passes each sentence alone, and both together for the whole paper.
    ``sentences`` and ``whole`` pool the last states by ``mean`` or ``cls``; in context sentences have no
    [CLS], else both are equal. ``similarity`` is ``cosine``, or ``l2``, minus the Euclidean distance.
    ``max_tokens`` limits a pass; None: the model's positions. Raises UsageError for other values.

    >>> EncoderFormat(whole="cls", similarity="l2").sentences
    'mean'
    """

    layout: str = TITLE_ABSTRACT
    sentences: str = MEAN
    whole: str = MEAN
    similarity: str = COSINE
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        layout, whole, similarity = (
            (self.layout, LAYOUTS),
            (self.whole, POOLINGS),
            (self.similarity, SIMILARITIES),
        )
        names = {"layout": layout, "pooling of the whole": whole, "similarity": similarity}
        for name, (value, known) in names.items():
            if value not in known:
                raise UsageError(f"expected a {name} of {', '.join(known)}, found {value!r}")
        pooling = self.whole if self.layout == SENTENCES else MEAN
        if self.sentences != pooling:
            raise UsageError(
                f"expected sentences pooled by {pooling} with the layout {self.layout}, found "
                f"{self.sentences!r}"
            )
        if self.max_tokens is not None and self.max_tokens < MIN_PASS_TOKENS:
            raise UsageError(f"expected passes of at least {MIN_PASS_TOKENS} tokens, found {self.max_tokens}")

    @classmethod
    def pooled(
        cls, layout: str, pooling: str, similarity: str = COSINE, max_tokens: int | None = None
    ) -> EncoderFormat:
        """Return a format with one pooling, for sentences too with the layout ``sentences``."""
        sentences = pooling if layout == SENTENCES else MEAN
        return cls(
            layout=layout, sentences=sentences, whole=pooling, similarity=similarity, max_tokens=max_tokens
        )

    def options(self) -> list[str]:
        options = ["--layout", self.layout, "--pooling", self.whole, "--similarity", self.similarity]
        return [*options, "--max-tokens", str(self.max_tokens or 0)]


DEFAULT_FORMAT = EncoderFormat()

MODULES = "modules.json"
DECLARING_FILES = (  # of a sentence-transformers folder: they declare its format
    *(MODULES, "1_Pooling/config.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    "tokenizer_config.json",
)

_OLD_POOLINGS = {"pooling_mode_cls_token": CLS, "pooling_mode_mean_tokens": MEAN}
_UNLIMITED = 10**6  # tokenizers without a limit declare a number larger than any length


def declared_format(folder: Path) -> EncoderFormat | None:
    """Return the format that a sentence-transformers folder declares; None without ``modules.json``.

    It declares no layout: that is the default. Vectors that are not normalized are compared by
    ``similarity_fn_name``, else by cosine.
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
        raise _unsupported(folder, "Transformer in the folder itself, Pooling and perhaps Normalize", kinds)
    settings = _read(folder / "config_sentence_transformers.json", {})
    if settings.get("default_prompt_name"):
        raise _unsupported(folder, "no prompt by default", settings["default_prompt_name"])
    transformer = _read(folder / "sentence_bert_config.json", {})
    if transformer.get("do_lower_case"):
        raise _unsupported(folder, "texts lowercased by the tokenizer or not at all", "do_lower_case")

    pooling = _read(folder / paths[1] / "config.json")
    modes = pooling.get("pooling_mode")
    if modes is None:
        active = [name for name, on in pooling.items() if name.startswith("pooling_mode_") and on is True]
        modes = [_OLD_POOLINGS.get(name, name) for name in active] or [MEAN]
    modes = [modes] if isinstance(modes, str) else modes
    if modes not in ([MEAN], [CLS]):
        raise _unsupported(folder, f"one pooling, {MEAN} or {CLS}", modes)

    similarity, normalized = settings.get("similarity_fn_name"), "Normalize" in kinds
    if similarity not in (None, "cosine", "dot" if normalized else "euclidean"):
        expected = "cosine or (of vectors that are not normalized) euclidean similarity"
        raise _unsupported(folder, expected, similarity)

    # older folders declare the length with the model, newer ones with the tokenizer
    limit = transformer.get("max_seq_length")
    limit = limit or _read(folder / "tokenizer_config.json", {}).get("model_max_length")
    if limit is not None and (not isinstance(limit, int) or limit < MIN_PASS_TOKENS):
        raise _unsupported(folder, f"a length of at least {MIN_PASS_TOKENS} tokens", repr(limit))
    max_tokens = None if limit is None or limit > _UNLIMITED else limit
    return EncoderFormat.pooled(
        TITLE_ABSTRACT, str(modes[0]), L2 if similarity == "euclidean" else COSINE, max_tokens
    )


def _read(path: Path, default: dict[str, Any] | None = None) -> Any:
    if default is not None and not path.is_file():
        return default
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: expected JSON, found {error}; download the model again") from error
    if not isinstance(settings, list if path.name == MODULES else dict):
        kind = type(settings).__name__
        raise ModelError(f"{path}: expected settings, found {kind}; download the model again")
    return settings


def _unsupported(folder: Path, expected: str, actual: object) -> ModelError:
    return ModelError(
        f"{folder}: expected a sentence-transformers model with {expected}, found {actual}; give another "
        "model, or declare its format by the options of: qbe export encoder"
    )
