"""Which kind of FAISS index finds candidates, and with which parameters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from qbe.errors import UsageError

FLAT, HNSW, IVF_SQ, IVF_PQ, IVF_OPQ_PQ = "flat", "hnsw", "ivf-sq", "ivf-pq", "ivf-opq-pq"
KINDS = (FLAT, HNSW, IVF_SQ, IVF_PQ, IVF_OPQ_PQ)
IN_LISTS = (IVF_SQ, IVF_PQ, IVF_OPQ_PQ)
"""Kinds whose sentences lie in the lists of the nearest of ``nlist`` centroids."""
BY_PRODUCT = (IVF_PQ, IVF_OPQ_PQ)
"""Kinds with product quantization."""
AUTO = "auto"

FLOAT16, INT8 = "float16", "int8"
STORED = (FLOAT16, INT8)

AUTO_SENTENCES = 200_000
"""Sentences up to which ``auto`` means an exact index and half precision."""

MIN_CANDIDATES = 2000
"""Sentences looked up for each sentence of a query, at the least."""

PROBE_FRACTION = 4
"""By default a search reads nlist / 4 of the lists."""


@dataclass(frozen=True, slots=True)
class AnnSettings:
    """Settings of a build's FAISS index: its kind or ``auto``, and parameters that are not left to rules.

    ``pq`` is the number of bytes of a product-quantized code. With ``tune_recall`` parameters that are None
    are chosen by measurement, ``nprobe`` always.

    >>> AnnSettings("ivf-pq", nlist=1024).kind
    'ivf-pq'
    """

    kind: str = AUTO
    nlist: int | None = None
    nprobe: int | None = None
    pq: int | None = None
    on_disk: bool = False
    tune_recall: float | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for unknown kinds, numbers out of range, and settings that exclude each other."""
        if self.kind not in (AUTO, *KINDS):
            raise UsageError(f"expected `kind` of {', '.join((AUTO, *KINDS))}, found {self.kind!r}")
        for number in ("nlist", "nprobe", "pq"):
            value = getattr(self, number)
            if value is not None and value < 1:
                raise UsageError(f"expected `{number}` of at least 1, found {value}")
        if self.tune_recall is not None and not 0 < self.tune_recall <= 1:
            raise UsageError(f"expected `tune_recall` above 0, up to 1, found {self.tune_recall:g}")
        if self.tune_recall is not None and self.nprobe is not None:
            raise UsageError("`tune_recall` chooses `nprobe`; drop one of them")
        if self.kind != AUTO and self.kind not in IN_LISTS and (name := self._list_setting()):
            raise UsageError(f"`{name}` goes with `kind` {', '.join(IN_LISTS)}, found {self.kind}; drop one")
        if self.pq is not None and self.kind not in (AUTO, *BY_PRODUCT):
            raise UsageError(f"`pq` goes with `kind` {' or '.join(BY_PRODUCT)}, found {self.kind}; drop one")

    def _list_setting(self) -> str | None:
        """The first setting that is set and applies to lists only."""
        names = ("nlist", "nprobe", "pq", "on_disk", "tune_recall")
        return next((name for name in names if getattr(self, name) not in (None, False)), None)

    def resolve_kind(self, sentences: int) -> str:
        """The kind for a corpus of so many sentences: ``auto`` is flat for a small one."""
        if self.kind != AUTO:
            return self.kind
        return IVF_PQ if sentences > AUTO_SENTENCES or self._list_setting() else FLAT


_JSON_KEYS = {"min_candidates": "depth"}
"""Fields whose key in a manifest is not their name."""


@dataclass(frozen=True, slots=True)
class AnnParams:
    """A kind with all its parameters, as an index's manifest holds it; None where the kind has none.

    ``min_candidates`` is the number of sentences looked up for each sentence of a query, at the least;
    ``seed`` that of the sample that centroids and codes are learned from.

    >>> AnnParams("ivf-pq", nlist=512, nprobe=128, pq=64).subquantizers
    128
    """

    kind: str = FLAT
    nlist: int | None = None
    nprobe: int | None = None
    pq: int | None = None
    min_candidates: int = MIN_CANDIDATES
    on_disk: bool = False
    seed: int = 0

    @property
    def code_bits(self) -> int:
        """Bits of each subquantizer's code: 4 are added up in a processor's registers; lists on the disk are
        laid out otherwise, and there 8 are quicker.
        """
        return 8 if self.on_disk else 4

    @property
    def subquantizers(self) -> int:
        """Subquantizers of a product-quantized code."""
        return (self.pq or 0) * 8 // self.code_bits

    def record(self) -> dict[str, Any]:
        """The parameters as a manifest holds them."""
        return {_JSON_KEYS.get(name, name): value for name, value in dataclasses.asdict(self).items()}

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> AnnParams:
        """The parameters in a manifest's ``dense``; an exact index where an older one has none."""
        params = record.get("ann", {})
        keys = {field.name: _JSON_KEYS.get(field.name, field.name) for field in dataclasses.fields(cls)}
        return cls(**{name: params[key] for name, key in keys.items() if key in params})


class Learned(NamedTuple):
    """The parameters of FAISS indexes that are made apart and must find what one index of all would find, and
    the ``file`` of their centroids and codes, without vectors; None for kinds that learn nothing.
    """

    params: AnnParams
    file: Path | None = None


class SharedDense(NamedTuple):
    """What segments that are made apart have in common: how vectors are ``stored`` (one of STORED), and what
    of their FAISS indexes was ``learned`` of all of them.
    """

    stored: str
    learned: Learned


def resolve(settings: AnnSettings, sentences: int, dimension: int) -> AnnParams:
    """The parameters for a corpus: those of the settings, the rest by rules.

    There are as many lists as sentences in each, to a power of two. A subquantizer encodes three or four
    numbers of a vector. Raises UsageError for more lists than sentences, fewer sentences than codes are
    learned from, and codes whose subquantizers do not divide the dimension.

    >>> resolve(AnnSettings("ivf-sq", nlist=64), sentences=100_000, dimension=384).nprobe
    16
    """
    kind = settings.resolve_kind(sentences)
    if kind not in IN_LISTS:
        return AnnParams(kind)
    nlist = settings.nlist or usual_nlist(sentences)
    if nlist > sentences:
        raise UsageError(f"expected `nlist` of at most the {sentences} sentences, found {nlist}")
    nprobe = settings.nprobe or max(nlist // PROBE_FRACTION, PROBE_FRACTION)
    params = AnnParams(kind, nlist, min(nprobe, nlist), on_disk=settings.on_disk)
    if kind not in BY_PRODUCT:
        return params
    params = dataclasses.replace(params, pq=settings.pq or usual_pq(dimension))
    check_pq(params, sentences, dimension)
    return params


def checked(settings: AnnSettings, sentences: int, dimension: int) -> AnnSettings:
    """The settings, if they fit a corpus; raises UsageError as `resolve` does."""
    resolve(settings, sentences, dimension)
    return settings


def checked_or_flat(settings: AnnSettings, sentences: int, dimension: int) -> AnnSettings:
    """The settings, or those of an exact index where there are too few sentences for them: how many papers an
    append brings or deletions leave is not known when the settings are chosen.

    >>> checked_or_flat(AnnSettings("ivf-sq", nlist=64), sentences=10, dimension=384).kind
    'flat'
    """
    try:
        return checked(settings, sentences, dimension)
    except UsageError:
        return AnnSettings(FLAT)


def usual_nlist(sentences: int) -> int:
    """The power of two nearest to the square root of the number of sentences, in a logarithmic scale.

    >>> usual_nlist(100_000)
    256
    """
    return int(2 ** round(math.log2(max(sentences, 1)) / 2))


def usual_pq(dimension: int) -> int:
    """Bytes of a code whose subquantizers, two a byte, encode three numbers each, or four, or two.

    >>> usual_pq(384), usual_pq(768)
    (64, 128)
    """
    return next((dimension // (2 * size) for size in (3, 4, 2) if dimension % (2 * size) == 0), dimension)


def check_pq(params: AnnParams, sentences: int, dimension: int) -> None:
    """Raise UsageError where the subquantizers of the codes do not divide the dimension, or there are fewer
    sentences than codes to learn.

    >>> check_pq(AnnParams("ivf-pq", nlist=2, pq=64), sentences=10, dimension=384)
    Traceback (most recent call last):
        ...
    qbe.errors.UsageError: expected at least 16 sentences to learn codes from, found 10; ...
    """
    if dimension % params.subquantizers:
        raise UsageError(
            f"expected `pq` of bytes whose {8 // params.code_bits} parts each divide the dimension "
            f"{dimension}, found {params.pq}; choose another, or `kind` ivf-sq"
        )
    if sentences < 2**params.code_bits:
        raise UsageError(
            f"expected at least {2**params.code_bits} sentences to learn codes from, found {sentences}; "
            "choose `kind` flat"
        )


def resolve_stored(stored: str, sentences: int) -> str:
    """How vectors are stored; ``auto`` is half precision for a small corpus, and bytes for a large one.

    Raises UsageError for an unknown form.

    >>> resolve_stored("auto", 1_000), resolve_stored("auto", 1_000_000)
    ('float16', 'int8')
    """
    if stored not in (AUTO, *STORED):
        raise UsageError(f"expected `stored` of {', '.join((AUTO, *STORED))}, found {stored!r}")
    if stored != AUTO:
        return stored
    return INT8 if sentences > AUTO_SENTENCES else FLOAT16
