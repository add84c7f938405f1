"""Entries of BibTeX, for biber and biblatex or for BibTeX itself, in UTF-8.

The format is described in Oren Patashnik's "BibTeXing" and in the manual of the LaTeX package biblatex.
"""

from __future__ import annotations

from collections.abc import Iterator

from qbe.bibliography.latex import escaped, to_latex, to_latex_title
from qbe.bibliography.reference import ARTICLE, Reference
from qbe.corpus.authors import given_first, split_name

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
    lines = [f"  {name} = {{{value}}},\n" for name, value in _fields(reference) if value]
    return "".join((f"@{reference.kind}{{{key},\n", *lines, "}\n"))


def comment(text: str) -> str:
    """A line between entries; "@" would begin an entry, and is written as "(at)".

    >>> print(comment("method@s036"))
    %% method(at)s036
    <BLANKLINE>
    """
    return f"{COMMENT}{' '.join(text.split()).replace('@', '(at)')}\n"


def _fields(reference: Reference) -> Iterator[tuple[str, str]]:
    yield "title", to_latex_title(reference.title)
    yield (
        "author",
        " and ".join([*map(_author, reference.names), *(["others"] if reference.has_others else [])]),
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


def _author(name: str) -> str:
    """A name as BibTeX reads it back; in braces where its parts are not known."""
    parts = split_name(name)
    if parts is None:
        return f"{{{escaped(given_first(name))}}}"
    return ", ".join(filter(None, (parts.family, parts.suffix, parts.given)))


def _verbatim(address: str) -> str:
    """An address without braces, backslashes and ``^^``, which TeX may read as one: none can be escaped."""
    return address.replace("\\", "%5C").replace("{", "%7B").replace("}", "%7D").replace("^^", "%5E%5E")
