"""Papers as the entries of a file: BibTeX (for biber and biblatex or BibTeX itself) and RIS, in UTF-8.

Oren Patashnik's "BibTeXing", the manual of the LaTeX package biblatex and Research Information Systems' "RIS
Format Specifications" describe them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from qbe.bibliography.keys import Keys
from qbe.bibliography.latex import escaped, to_latex, to_latex_title
from qbe.bibliography.reference import ARTICLE, IN_PROCEEDINGS, Reference, reference_of
from qbe.corpus.authors import given_first, split_name
from qbe.errors import UsageError
from qbe.types import Paper

PROVIDER = "qbe"
"""The provider of the record (DP), by which files of RIS are told from others."""

_TYPES = {ARTICLE: "JOUR", IN_PROCEEDINGS: "CONF"}


FORMATS = ("bibtex", "ris")
"""Formats of bibliographies."""


COMMENT = "%% "
"""What begins a comment between entries."""


def to_bibtex(reference: Reference, key: str) -> str:
    r"""An entry, each field in one line.

    Its type is the `Reference.kind`. Characters with a meaning in LaTeX are escaped; accents and formulas
    stay, and so do the dashes (``--``) and quotation marks of LaTeX. DOI and URL are as they are, which
    biblatex expects, but for braces, backslashes and ``^^``, which are percent-encoded.

    >>> from qbe.bibliography.reference import reference_of
    >>> from qbe.types import Paper, Sentence
    >>> metadata = {"authors": ["Ann van Müller"], "year": 2019, "venue": "Fish & Chips", "doi": "10.1145/7"}
    >>> paper = Paper("7", "Ten ways to use BERT", (Sentence("We save 50%."),), metadata=metadata)
    >>> print(to_bibtex(reference_of(paper), "Mueller2019bert"))
    @article{Mueller2019bert,
      title = {Ten ways to use {BERT}},
      author = {van Müller, Ann},
      journal = {Fish \& Chips},
      year = {2019},
      doi = {10.1145/7},
      abstract = {We save 50\%.},
    }
    """
    lines = [f"  {name} = {{{value}}},\n" for name, value in _bibtex_fields(reference) if value]
    return "".join((f"@{reference.kind}{{{key},\n", *lines, "}\n"))


def comment(text: str) -> str:
    """A line between entries; "@" would begin an entry, and is written as "(at)".

    >>> print(comment("method@s036"))
    %% method(at)s036
    <BLANKLINE>
    """
    return f"{COMMENT}{' '.join(text.split()).replace('@', '(at)')}\n"


def _bibtex_fields(reference: Reference) -> Iterator[tuple[str, str]]:
    yield "title", to_latex_title(reference.title)
    yield (
        "author",
        " and ".join([*map(_bibtex_author, reference.names), *(["others"] if reference.has_others else [])]),
    )
    yield "journal" if reference.kind == ARTICLE else "booktitle", to_latex(reference.venue)
    yield "year", reference.year
    yield "doi", _verbatim(reference.doi)
    yield "url", _verbatim(reference.page)
    yield "eprint", reference.arxiv
    yield "archiveprefix", "arXiv" if reference.arxiv else ""
    yield "primaryclass", reference.category
    separator = "; " if any("," in tag for tag in reference.tags) else ", "
    yield "keywords", to_latex(separator.join(reference.tags))
    yield "abstract", to_latex(reference.abstract)


def _bibtex_author(name: str) -> str:
    """A name as BibTeX reads it back; in braces where its parts are not known."""
    parts = split_name(name)
    if parts is None:
        return f"{{{escaped(given_first(name))}}}"
    return ", ".join(filter(None, (parts.family, parts.suffix, parts.given)))


def _verbatim(address: str) -> str:
    """An address without braces, backslashes and ``^^``, which TeX may read as one: none can be escaped."""
    return address.replace("\\", "%5C").replace("{", "%7B").replace("}", "%7D").replace("^^", "%5E%5E")


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
