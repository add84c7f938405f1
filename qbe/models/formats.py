"""Formats of encoders: what goes in, how vectors come out, and how folders of other libraries declare it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qbe.errors import ModelError, UsageError
from qbe.models import reading

TITLE_ABSTRACT, TITLE_SEP_ABSTRACT, SENTENCES = "title-abstract", "title-sep-abstract", "sentences"
LAYOUTS = (TITLE_ABSTRACT, TITLE_SEP_ABSTRACT, SENTENCES)
MEAN, CLS = "mean", "cls"
POOLINGS = (MEAN, CLS)
COSINE, L2 = "cosine", "l2"
SIMILARITIES = (COSINE, L2)
MIN_PASS_TOKENS = 16  # a shorter pass would leave no room for a sentence after the title


@dataclass(frozen=True, slots=True)
class EncoderFormat:
    """The input of an encoder, and how vectors come out; the defaults are those of all-MiniLM-L6-v2.

    ``layout``: ``title-abstract`` is [CLS] title, all sentences [SEP]; ``title-sep-abstract`` has another
    [SEP] after the title; ``sentences`` passes each sentence alone, and both together for the whole paper.
    ``whole`` pools the last states by ``mean`` or ``cls``, ``sentences`` (in context always by ``mean``) too.
    ``l2`` is minus the Euclidean distance. ``max_tokens`` limits a pass; None: the model's positions.
    """

    layout: str = TITLE_ABSTRACT
    sentences: str = field(init=False)
    whole: str = MEAN
    similarity: str = COSINE
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("layout", self.layout, LAYOUTS),
            ("pooling of the whole", self.whole, POOLINGS),
            ("similarity", self.similarity, SIMILARITIES),
        ):
            if value not in known:
                raise UsageError(f"expected a {name} of {', '.join(known)}, found {value!r}")
        object.__setattr__(self, "sentences", self.whole if self.layout == SENTENCES else MEAN)
        if self.max_tokens is not None and self.max_tokens < MIN_PASS_TOKENS:
            raise UsageError(f"expected passes of at least {MIN_PASS_TOKENS} tokens, found {self.max_tokens}")

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
    """Return the format, of the default layout, that a sentence-transformers folder declares, if any."""
    if not (folder / MODULES).is_file():
        return None
    remedy = "give another model, or declare its format by the options of: qbe export encoder"
    with reading(folder / MODULES, "a list of modules", "download the model again"):
        modules = json.loads((folder / MODULES).read_text(encoding="utf-8"))
        kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
        paths = [str(module["path"]) for module in modules]
        if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]) or paths[0]:
            raise ModelError(
                f"{folder}: expected a sentence-transformers model with Transformer in the folder itself, "
                f"Pooling and perhaps Normalize, found {kinds}; {remedy}"
            )

    def read(name: str) -> dict[str, Any]:
        if not (folder / name).is_file():
            return {}
        with reading(folder / name, "settings in JSON", "download the model again"):
            return dict(json.loads((folder / name).read_text(encoding="utf-8")))

    library, transformer = read("config_sentence_transformers.json"), read("sentence_bert_config.json")
    pooling = read(f"{paths[1]}/config.json")
    modes = pooling.get("pooling_mode")
    if modes is None:
        active = [name for name, on in pooling.items() if name.startswith("pooling_mode_") and on is True]
        modes = [_OLD_POOLINGS.get(name, name) for name in active] or [MEAN]
    modes = [modes] if isinstance(modes, str) else modes
    similarity = library.get("similarity_fn_name")
    unscaled = "dot" if "Normalize" in kinds else "euclidean"
    # older folders declare the length with the model, newer ones with the tokenizer
    limit = transformer.get("max_seq_length") or read("tokenizer_config.json").get("model_max_length")
    fits = limit is None or (isinstance(limit, int) and limit >= MIN_PASS_TOKENS)
    prompt, lowers = library.get("default_prompt_name"), transformer.get("do_lower_case")
    for is_known, expected, found in (
        (not prompt, "no prompt by default", prompt),
        (not lowers, "texts lowercased by the tokenizer or not at all", "do_lower_case"),
        (modes in ([MEAN], [CLS]), f"one pooling, {MEAN} or {CLS}", modes),
        (similarity in (None, "cosine", unscaled), f"cosine or {unscaled} similarity", similarity),
        (fits, f"a length of at least {MIN_PASS_TOKENS} tokens", repr(limit)),
    ):
        if not is_known:
            expected = f"{folder}: expected a sentence-transformers model with {expected}"
            raise ModelError(f"{expected}, found {found}; {remedy}")
    max_tokens = None if limit is None or limit > _UNLIMITED else limit
    compared = L2 if similarity == "euclidean" else COSINE
    return EncoderFormat(TITLE_ABSTRACT, str(modes[0]), compared, max_tokens)
