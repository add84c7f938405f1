"""Which kind of FAISS index finds candidates, and with which parameters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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

DEPTH = 2000
"""Sentences brought for each sentence of a query, at the least."""

PROBE_FRACTION = 4
"""One of so many lists is read by default."""


@dataclass(frozen=True, slots=True)
class AnnSettings:
    """What is asked of a build: a kind or ``auto``, and what is not left to rules.

    ``pq`` is the number of bytes of a product-quantized code. With ``tune_recall`` what is not given is
    chosen by measurement, ``nprobe`` always.
    """

    kind: str = AUTO
    nlist: int | None = None
    nprobe: int | None = None
    pq: int | None = None
    on_disk: bool = False
    tune_recall: float | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for unknown kinds, numbers out of range, and what does not go together."""
        if self.kind not in (AUTO, *KINDS):
            raise UsageError(f"expected --ann of {', '.join((AUTO, *KINDS))}, found {self.kind!r}")
        for name in ("nlist", "nprobe", "pq"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"expected --{name} of at least 1, found {value}")
        if self.tune_recall is not None and not 0 < self.tune_recall <= 1:
            raise UsageError(f"expected --tune-recall above 0, up to 1, found {self.tune_recall:g}")
        if self.tune_recall is not None and self.nprobe is not None:
            raise UsageError("--tune-recall chooses --nprobe; drop one of them")
        if self.kind != AUTO and self.kind not in IN_LISTS and (option := self._of_lists()):
            raise UsageError(f"{option} goes with --ann {', '.join(IN_LISTS)}, found {self.kind}; drop one")
        if self.pq is not None and self.kind not in (AUTO, *BY_PRODUCT):
            raise UsageError(f"--pq goes with --ann {' or '.join(BY_PRODUCT)}, found {self.kind}; drop one")

    def _of_lists(self) -> str | None:
        """The first option given that is of use with lists only."""
        options = ("nlist", "nprobe", "pq", "on_disk", "tune_recall")
        written = {"on_disk": "--ann-on-disk", "tune_recall": "--tune-recall"}
        given = [name for name in options if getattr(self, name) not in (None, False)]
        return written.get(given[0], f"--{given[0]}") if given else None

    def settled_kind(self, sentences: int) -> str:
        """The kind for a corpus of so many sentences: ``auto`` is flat for a small one."""
        if self.kind != AUTO:
            return self.kind
        return IVF_PQ if sentences > AUTO_SENTENCES or self._of_lists() else FLAT


@dataclass(frozen=True, slots=True)
class AnnParams:
    """A kind with all its parameters, as an index's manifest holds it; None where the kind has none.

    ``depth`` is the number of sentences brought for each sentence of a query, at the least; ``seed`` that of
    the sample that centroids and codes are learned from.
    """

    kind: str = FLAT
    nlist: int | None = None
    nprobe: int | None = None
    pq: int | None = None
    depth: int = DEPTH
    on_disk: bool = False
    seed: int = 0

    @property
    def code_bits(self) -> int:
        """Bits of each part of a product-quantized code: 4 are added up in a processor's registers; lists on
        the disk are laid out otherwise, and there 8 are quicker.
        """
        return 8 if self.on_disk else 4

    @property
    def parts(self) -> int:
        """Parts of a product-quantized code."""
        return (self.pq or 0) * 8 // self.code_bits

    def record(self) -> dict[str, Any]:
        """The plan for a manifest."""
        return dataclasses.asdict(self)

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> AnnParams:
        """The plan of a manifest's ``dense``; an exact index where it says nothing, being older."""
        found = record.get("ann", {})
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: found[name] for name in names if name in found})


def plan(settings: AnnSettings, sentences: int, dimension: int) -> AnnParams:
    """The plan for a corpus: what the settings give, the rest by rules.

    Lists are as many as each holds sentences, to a power of two. A code's parts stand for three or four
    numbers of a vector. Raises UsageError for more lists than sentences, fewer sentences than codes are
    learned from, and codes whose parts do not divide the dimension.
    """
    kind = settings.settled_kind(sentences)
    if kind not in IN_LISTS:
        return AnnParams(kind)
    nlist = settings.nlist or usual_nlist(sentences)
    if nlist > sentences:
        raise UsageError(f"expected --nlist of at most the {sentences} sentences, found {nlist}")
    nprobe = settings.nprobe or max(nlist // PROBE_FRACTION, PROBE_FRACTION)
    made = AnnParams(kind, nlist, min(nprobe, nlist), on_disk=settings.on_disk)
    if kind not in BY_PRODUCT:
        return made
    made = dataclasses.replace(made, pq=settings.pq or usual_pq(dimension))
    check_pq(made, sentences, dimension)
    return made


def checked(settings: AnnSettings, sentences: int, dimension: int) -> AnnSettings:
    """The settings, if they fit a corpus; raises UsageError as `plan` does."""
    plan(settings, sentences, dimension)
    return settings


def fitting(settings: AnnSettings, sentences: int, dimension: int) -> AnnSettings:
    """The settings, or those of an exact index where there are too few sentences for them, which is not known
    beforehand of what is added to an index or left in it.
    """
    try:
        return checked(settings, sentences, dimension)
    except UsageError:
        return AnnSettings(FLAT)


def usual_nlist(sentences: int) -> int:
    """The power of two nearest to the square root."""
    return int(2 ** round(math.log2(max(sentences, 1)) / 2))


def usual_pq(dimension: int) -> int:
    """Bytes of a code whose parts, two a byte, stand for three numbers each, or four, or two."""
    return next((dimension // (2 * part) for part in (3, 4, 2) if dimension % (2 * part) == 0), dimension)


def check_pq(plan: AnnParams, sentences: int, dimension: int) -> None:
    """Raise UsageError where the codes of a plan cannot be made."""
    if dimension % plan.parts:
        raise UsageError(
            f"expected --pq of bytes whose {8 // plan.code_bits} parts each divide the dimension "
            f"{dimension}, found {plan.pq}; choose another, or --ann ivf-sq"
        )
    if sentences < 2**plan.code_bits:
        raise UsageError(
            f"expected at least {2**plan.code_bits} sentences to learn codes from, found {sentences}; "
            "choose --ann flat"
        )


def settled_stored(stored: str, sentences: int) -> str:
    """How vectors are stored; ``auto`` is half precision for a small corpus, and bytes for a large one.

    Raises UsageError for an unknown form.
    """
    if stored not in (AUTO, *STORED):
        raise UsageError(f"expected --stored of {', '.join((AUTO, *STORED))}, found {stored!r}")
    if stored != AUTO:
        return stored
    return INT8 if sentences > AUTO_SENTENCES else FLOAT16
