"""Records of RIS, as reference managers read them.

The tags are those that RefMan and EndNote document for the RIS format.
"""

from __future__ import annotations

from collections.abc import Iterator

from qbe.bibliography.reference import ARTICLE, IN_PROCEEDINGS, Reference
from qbe.corpus.authors import given_first, split_name

PROVIDER = "qbe"
"""The provider of the record (DP), by which files of RIS are told from others."""

_TYPES = {ARTICLE: "JOUR", IN_PROCEEDINGS: "CONF"}


def to_ris(reference: Reference, key: str = "") -> str:
    """A record, a value a line; the type is JOUR, CONF, UNPB for preprints, or GEN.

    The ID is the ``key``, if there is one, else the paper's id.

    >>> from qbe.bibliography.reference import reference_of
    >>> from qbe.types import Paper, Sentence
    >>> metadata = {"authors": ["Ann van Müller", "Plato"], "year": 2019, "venue": "Fish & Chips"}
    >>> print(to_ris(reference_of(Paper("7", "On fish", (Sentence("Fish swim."),), metadata=metadata))))
    TY  - JOUR
    DP  - qbe
    ID  - 7
    TI  - On fish
    AU  - van Müller, Ann
    AU  - Plato
    PY  - 2019
    JO  - Fish & Chips
    AB  - Fish swim.
    ER  -
    """
    return "".join(f"{tag}  - {value}\n" for tag, value in _lines(reference, key) if value or tag == "ER")


def _lines(reference: Reference, key: str) -> Iterator[tuple[str, str]]:
    yield "TY", _TYPES.get(reference.kind) or ("UNPB" if reference.arxiv else "GEN")
    yield "DP", PROVIDER
    yield "ID", key or reference.paper_id
    yield "TI", reference.title
    for name in reference.names:
        yield "AU", _author(name)
    yield "AU", "et al." if reference.has_others else ""
    yield "PY", reference.year
    yield "T2" if reference.kind == IN_PROCEEDINGS else "JO", reference.venue
    yield "DO", reference.doi
    # A semicolon separates addresses.
    yield "UR", reference.page.replace(";", "%3B")
    for tag in reference.tags:
        yield "KW", tag
    yield "AB", reference.abstract
    yield "ER", ""


def _author(name: str) -> str:
    parts = split_name(name)
    if parts is None:
        return given_first(name)
    return ", ".join(filter(None, (parts.family, parts.given, parts.suffix)))
