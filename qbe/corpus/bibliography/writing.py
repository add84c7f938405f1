"""Papers as the entries of a file: BibTeX (for biber and biblatex or BibTeX itself) and RIS, in UTF-8.

Oren Patashnik's "BibTeXing", the manual of the LaTeX package biblatex and Research Information Systems' "RIS
Format Specifications" describe them.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import count

from qbe.corpus.authors import ET_AL, given_first, split_name
from qbe.corpus.bibliography.latex import escaped, to_latex, to_latex_title
from qbe.corpus.bibliography.reference import ARTICLE, IN_PROCEEDINGS, Reference, reference_of
from qbe.errors import UsageError
from qbe.types import Paper

PROVIDER = "qbe"
"""The provider of the record (DP), by which files of RIS are told from others."""

_TYPES = {ARTICLE: "JOUR", IN_PROCEEDINGS: "CONF"}


FORMATS = ("bibtex", "ris")
"""Formats of bibliographies."""


COMMENT = "%% "
"""What begins a comment between entries."""

FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "about across after against all along also among an and are as at be been before between beyond "
        "both but by can did do does each for from had has have how if in into is it its may more most no "
        "not of off on onto or other our over so such than that the their them then there these they this "
        "those through to toward towards under upon us using via was we were what when where which while "
        "who why will with within without you your ",
    )
)
"""English articles, pronouns, prepositions, conjunctions and auxiliary verbs, in lower case."""


_LONGEST = 40
"""Letters of a name or a word in a key; longer ones are no words."""

_ANONYMOUS = "Anonymous"
_LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L"}
    | {"đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "\u0131": "i"}
)
"""Letters that have no accent to be removed."""


def to_bibtex(reference: Reference, key: str) -> str:
    r"""An entry, each field in one line.

    Its type is the `Reference.kind`. Characters with a meaning in LaTeX are escaped; accents and formulas
    stay, and so do the dashes (``--``) and quotation marks of LaTeX. DOI and URL are as they are, which
    biblatex expects, but for braces, backslashes and ``^^``, which are percent-encoded.

    >>> from qbe.corpus.bibliography.reference import reference_of
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

    >>> from qbe.corpus.bibliography.reference import reference_of
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
    yield "N1", ET_AL if reference.has_others else ""
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


class Keys:
    """Gives the entries of a file their keys, one after the other.

    A key is the library's own, else the first author's family name without particles, the year, and the
    first word of the title that says something, in ASCII. It depends on the paper alone; of papers with the
    same key in a file, the second gets an "a" at its end, the third a "b", of the library's own keys behind a
    hyphen: "smith2020a" may be that of a later paper. Keys that differ by case only are the same, since they
    are to BibTeX.

    >>> from qbe.corpus.bibliography.reference import reference_of
    >>> from qbe.types import Paper
    >>> paper = Paper("7", "On the Fish of Çeşme", (), metadata={"authors": ["Ann Müller"], "year": 2019})
    >>> keys = Keys()
    >>> [keys.add(reference_of(paper)) for _ in range(3)]
    ['Muller2019fish', 'Muller2019fisha', 'Muller2019fishb']
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, count[int]] = {}

    def add(self, reference: Reference) -> str:
        """The key of a paper that is not in the file yet."""
        key = plain = reference.key or key_of(reference)
        hyphen = "-" if reference.key else ""
        while key.casefold() in self._taken:
            key = plain + hyphen + _in_letters(next(self._next.setdefault(plain.casefold(), count())))
        self._taken.add(key.casefold())
        return key


def key_of(reference: Reference) -> str:
    """The key that is made for a paper in a file of its own.

    >>> from qbe.corpus.bibliography.reference import reference_of
    >>> from qbe.types import Paper
    >>> key_of(reference_of(Paper("W1-7", "鱼", ()))), key_of(reference_of(Paper("8", "On fish", ())))
    ('AnonymousW17', 'Anonymousfish')
    """
    first = reference.names[0] if reference.names else ""
    name = split_name(first)
    family = _ascii_letters(_without_particles(name.family) if name else first) or _ANONYMOUS
    words = (_ascii_letters(word).lower() for word in re.split(r"[\W_]+", _folded(reference.title)))
    subject = next((word for word in words if len(word) > 2 and word not in FUNCTION_WORDS), "")
    return f"{family}{reference.year}{subject or _ascii_letters(reference.paper_id, string.digits)}"


def _without_particles(family: str) -> str:
    """The family name without words in lower case, such as "van der", if anything is left."""
    return " ".join(word for word in family.split() if not word.islower()) or family


def _folded(text: str) -> str:
    """The text without accents."""
    decomposed = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    return "".join(each for each in decomposed if not unicodedata.combining(each))


def _ascii_letters(text: str, others: str = "") -> str:
    allowed = string.ascii_letters + others
    return "".join(each for each in _folded(text) if each in allowed)[:_LONGEST]


def _in_letters(number: int) -> str:
    """0 is a, 25 is z, 26 is aa."""
    text = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        text = string.ascii_lowercase[letter] + text
    return text


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
