"""How vectors are stored and which FAISS index finds candidates among them; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qbe.errors import UsageError

AUTO = "auto"
# The factory string of an exhaustive index over vectors in half precision, which holds them as they are.
EXACT = "SQfp16"

FLOAT16, INT8 = "float16", "int8"
STORED = (FLOAT16, INT8)

AUTO_SENTENCES = 200_000  # sentences up to which ``auto`` means an exact index and half precision
MIN_CANDIDATES = 2000  # sentences that are looked up for each sentence of a query, at least
PROBE_FRACTION = 4  # a search reads nlist / 4 of the lists by default

_LISTS = re.compile(r"IVF(\d+)")
_ROUNDED = re.compile(r"PQ|SQ[468]|SQbf16|RQ|LSQ|LSH|ITQ|PCA|RR")
_CODES = re.compile(r"PQ(\d+)(?:x(\d+))?")


@dataclass(frozen=True, slots=True)
class FaissParams:
    """A FAISS index as a manifest holds it.

    A search reads ``nprobe`` lists (None where there are none) and looks up at least ``depth``
    sentences for each sentence of a query; ``seed`` draws the sample that centroids and codes learn from.
    """

    factory: str = EXACT
    nprobe: int | None = None
    depth: int = MIN_CANDIDATES
    seed: int = 0

    @property
    def nlist(self) -> int | None:
        match = _LISTS.search(self.factory)
        return int(match[1]) if match else None

    @property
    def learns(self) -> bool:
        """Whether centroids or codes are learned from the vectors."""
        return self.nlist is not None or _ROUNDED.search(self.factory) is not None

    @classmethod
    def read(cls, dense: Mapping[str, Any]) -> FaissParams:
        """Read a manifest's ``dense``."""
        return cls(**{name: dense["ann"][name] for name in cls.__dataclass_fields__})


def resolve(faiss: str, sentences: int, dimension: int) -> FaissParams:
    """Return the parameters for a factory string, or for ``auto``.

    ``auto`` is exact up to AUTO_SENTENCES sentences; above, there are as many lists as sentences in each, to
    a power of two, of 4-bit codes for three dimensions each (or four, two or one).
    """
    if faiss == AUTO:
        nlist = int(2 ** round(math.log2(max(sentences, 1)) / 2))
        numbers = next((size for size in (3, 4, 2) if dimension % (2 * size) == 0), 1)
        faiss = f"IVF{nlist},PQ{dimension // numbers}x4fs" if sentences > AUTO_SENTENCES else EXACT
    params = FaissParams(faiss)
    lists, codes = params.nlist or 0, _CODES.search(faiss)
    values = 2 ** int(codes[2] or 8) if codes else 0
    if max(lists, values) > sentences:
        raise UsageError(
            f"expected `faiss` of at most {sentences} lists and values of a code, which are learned from as "
            f"many sentences, found {faiss}; choose another, or auto"
        )
    if not lists:
        return params
    return dataclasses.replace(params, nprobe=min(max(lists // PROBE_FRACTION, PROBE_FRACTION), lists))


def resolve_stored(stored: str, sentences: int) -> str:
    """Resolve how vectors are stored; ``auto``: half precision for few sentences, bytes for many."""
    if stored != AUTO:
        return stored
    return INT8 if sentences > AUTO_SENTENCES else FLOAT16
