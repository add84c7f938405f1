"""Papers as the entries of one file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from qbe.bibliography.bibtex import to_bibtex
from qbe.bibliography.keys import Keys
from qbe.bibliography.reference import ARTICLE, IN_PROCEEDINGS, Reference, reference_of
from qbe.corpus.authors import given_first, split_name
from qbe.errors import UsageError
from qbe.types import Paper

PROVIDER = "qbe"
"""The provider of the record (DP), by which files of RIS are told from others."""

_TYPES = {ARTICLE: "JOUR", IN_PROCEEDINGS: "CONF"}


FORMATS = ("bibtex", "ris")
"""Formats of bibliographies."""


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


class Bibliography:
    """The entries of a file that grows: each paper has one, and a key of its own.

    >>> from qbe.types import Sentence
    >>> paper = Paper("7", "On fish", (Sentence("Fish swim."),), metadata={"year": 2019})
    >>> bibliography = Bibliography("bibtex")
    >>> print(bibliography.add(paper))
    @misc{Anonymous2019fish,
      title = {On fish},
      year = {2019},
      abstract = {Fish swim.},
    }
    >>> bibliography.add(paper) is None, bibliography.key("7")
    (True, 'Anonymous2019fish')
    """

    def __init__(self, form: str) -> None:
        """``form`` is one of FORMATS; raises UsageError for another."""
        if form not in FORMATS:
            raise UsageError(f"expected `form` {' or '.join(FORMATS)}, found {form!r}")
        self._is_bibtex = form == "bibtex"
        self._keys = Keys()
        self._by_id: dict[str, str] = {}

    def add(self, paper: Paper) -> str | None:
        """The entry of a paper, lines that end with a line break; None for a paper that has one already."""
        if paper.paper_id in self._by_id:
            return None
        reference = reference_of(paper)
        self._by_id[paper.paper_id] = key = self._keys.add(reference)
        if self._is_bibtex:
            return to_bibtex(reference, key)
        return to_ris(reference, key if reference.key else "")

    def key(self, paper_id: str) -> str:
        """The key of a paper's entry; raises KeyError for a paper that has none."""
        return self._by_id[paper_id]


def entries(papers: Iterable[Paper], form: str = "bibtex") -> Iterator[str]:
    r"""The entries of papers in one of FORMATS, each paper's once; joined by line breaks they are a file.

    Raises UsageError for another format.

    >>> papers = [Paper("7", "On fish", ()), Paper("8", "On stone", ()), Paper("7", "On fish", ())]
    >>> print("\n".join(entries(papers)))
    @misc{Anonymousfish,
      title = {On fish},
    }
    <BLANKLINE>
    @misc{Anonymousstone,
      title = {On stone},
    }
    """
    bibliography = Bibliography(form)
    return (entry for paper in papers if (entry := bibliography.add(paper)) is not None)
