"""What a bibliography says of a paper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from qbe.corpus import fields
from qbe.corpus.authors import ET_AL, given_first, person_name, read_name, split_authors
from qbe.corpus.markup import without_latex
from qbe.types import Paper
from qbe.util.text import one_line

ARTICLE, IN_PROCEEDINGS, OTHER = "article", "inproceedings", "misc"
"""The kinds of references, by the names that BibTeX has for them."""

_ARXIV = re.compile(r"(\d\d(?:0[1-9]|1[0-2])\.\d{4,5}|[a-z-]{2,20}(?:\.[A-Z]{2})?/\d{7})(?:v\d+)?")
_ARXIV_DOI = re.compile(r"10\.48550/arxiv\.(.+)", re.ASCII)
_ARXIV_PAGE = re.compile(r"https?://(?:www\.)?arxiv\.org/(?:abs|pdf)/(.+?)(?:\.pdf)?")
_ARXIV_CLASS = re.compile(r"[a-z-]{2,20}(?:\.[A-Za-z-]{2,20})?")
_PREPRINTS = re.compile(r"(?:arxiv|corr)\b.*", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[^\s<>\"]+", re.IGNORECASE)
_JOURNAL = re.compile(
    r"\b(?:journal|transactions|letters|magazine|review|annals|quarterly|bulletin)\b"
    r"|^proceedings of the (?:acm on|ieee$|national academy|royal society|vldb endowment)",
    re.IGNORECASE,
)
_MEETING = re.compile(
    r"\b(?:proceedings|proc\.|conference|conf\.|workshop|symposium|congress|colloquium|meeting)(?!\w)"
    r"|^(?:advances in neural|findings of the|lecture notes)\b",
    re.IGNORECASE,
)
_NO_NAME = re.compile(r"\[?no authors?(?: names?)? (?:available|listed|found)\]?", re.IGNORECASE)
_KEY = re.compile(r'[^\s"#%,={}\\~@^$]{1,200}')
_ACRONYM = re.compile(r"[A-Z][\w-]*[A-Z][\w-]*[ '\u2019]*\d{2}(?:\d{2})?")
"""An acronym with a year, such as "ACL 2020"."""


def _clean(value: Any) -> str:
    """A text in one line, with characters in place of LaTeX's accents and escapes; '' for what is no text."""
    return " ".join(without_latex(_in_one_line(value)).split())


def _in_one_line(value: Any) -> str:
    """A text in single spaces and without control characters; '' for what is no text."""
    return one_line(value) if isinstance(value, str) else ""


def author_names(value: Any) -> list[str]:
    """The authors of a paper's metadata as `qbe.corpus.authors.person_name` has them, LaTeX's accents as
    letters; what is no name is left out, such as what databases write where none is known.

    ``value`` is a list of strings, as the readers make it. In a corpus of JSON lines it may also be one
    string of names with commas, semicolons or "and" between them, or a list of objects with ``name`` or with
    ``first``, ``middle`` (a list), ``last`` and ``suffix``, as S2ORC has them.

    >>> author_names("Ann Lee, Jan van der Berg and Cy Doe"), author_names(["Lee, Ann", "Plato"])
    (['Ann Lee', 'Jan van der Berg', 'Cy Doe'], ['Ann Lee', 'Plato'])
    >>> author_names([{"first": "Ann", "middle": ["B."], "last": "Lee", "suffix": ""}, {"name": "Cy Doe"}])
    ['Ann B. Lee', 'Cy Doe']
    """
    names: Iterable[str] = map(_name, value) if isinstance(value, list | tuple) else ()
    if isinstance(value, str):
        names = split_authors(_clean(value))
    return [name for name in names if name and not _NO_NAME.fullmatch(name)]


def _name(value: Any) -> str:
    if isinstance(value, str):
        name = _clean(value)
        return read_name(name) if "," in name else name
    if not isinstance(value, Mapping):
        return ""
    middle = value.get("middle")
    given = [value.get("first"), *(middle if isinstance(middle, list) else [middle])]
    family, suffix = _clean(value.get("last")), _clean(value.get("suffix"))
    return _clean(value.get("name")) or person_name(
        family, " ".join(filter(None, map(_clean, given))), suffix
    )


class Reference(NamedTuple):
    """What a bibliography says of a paper; texts are in one line, and '' where nothing is known.

    ``names`` are the authors' as `qbe.corpus.authors.person_name` has them, and there are others where
    ``has_others``; ``year`` has four digits, ``arxiv`` is an id without version and ``category`` its category
    of arXiv, ``doi`` is in lower case and bare, ``key`` the library's own, if it does no harm in LaTeX.
    """

    paper_id: str
    title: str
    names: tuple[str, ...]
    has_others: bool
    year: str
    venue: str
    doi: str
    arxiv: str
    category: str
    url: str
    abstract: str
    key: str
    tags: tuple[str, ...]

    @property
    def authors(self) -> tuple[str, ...]:
        """The names for readers, "Given Family"; "et al." is the last where there are others."""
        return (*map(given_first, self.names), *((ET_AL,) if self.has_others else ()))

    @property
    def kind(self) -> str:
        """ARTICLE of a journal, IN_PROCEEDINGS, or OTHER where no venue is known, such as preprints.

        The words of the venue tell, such as "Workshop"; a venue whose name tells nothing is a journal. An
        acronym with a year, "ACL 2020", is a conference.
        """
        if not self.venue:
            return OTHER
        if _JOURNAL.search(self.venue):
            return ARTICLE
        is_meeting = _MEETING.search(self.venue) or _ACRONYM.fullmatch(self.venue)
        return IN_PROCEEDINGS if is_meeting else ARTICLE

    @property
    def links(self) -> dict[str, str]:
        """Addresses by name, as far as there are any: ``arxiv``, ``doi`` and ``url``, the corpus's own."""
        from urllib.parse import quote

        links = {
            "arxiv": self.arxiv and f"https://arxiv.org/abs/{self.arxiv}",
            "doi": self.doi and f"https://doi.org/{quote(self.doi, safe='/:;()')}",
            "url": self.url,
        }
        return {name: address for name, address in links.items() if address}

    @property
    def link(self) -> str:
        """The first of `links`, or ''."""
        return next(iter(self.links.values()), "")

    @property
    def page(self) -> str:
        """The corpus's own address, else that of arXiv, or ''; a DOI stands in a field of its own."""
        return self.url or self.links.get("arxiv", "")


def reference_of(paper: Paper) -> Reference:
    """What a bibliography says of a paper, out of its metadata (their names are in ``docs/corpora.md``).

    Metadata of other types than these are left out. The id of arXiv is that of ``ids``, or else one that the
    DOI, the URL or the paper's own id is; "arXiv" and "CoRR" are no venues. A text that stands for the title
    and the abstract is the title only.

    >>> from qbe.types import Sentence
    >>> metadata = {"authors": ["Ann Lee"], "year": 2019, "venue": "ACL 2019", "doi": "10.1145/7.9"}
    >>> reference = reference_of(Paper("1905.01234", "On fish", (Sentence("Fish swim."),), metadata=metadata))
    >>> reference.authors, reference.year, reference.kind, reference.links
    (('Ann Lee',), '2019', 'inproceedings',
    {'arxiv': 'https://arxiv.org/abs/1905.01234', 'doi': 'https://doi.org/10.1145/7.9'})
    """
    metadata = paper.metadata
    ids = metadata.get("ids")
    url = _address(metadata.get("url"))
    doi = fields.doi(_in_one_line(metadata.get("doi")))
    arxiv_id = _in_one_line(ids.get("arxiv")) if isinstance(ids, dict) else ""
    arxiv = _arxiv(arxiv_id, doi, url, paper.paper_id)
    categories, tags = metadata.get("categories"), metadata.get("tags")
    year = fields.year(paper.year)
    venue, key = _clean(metadata.get("venue")), _in_one_line(metadata.get("key"))
    return Reference(
        _in_one_line(paper.paper_id),
        _clean(paper.title),
        tuple(author_names(metadata.get("authors"))),
        metadata.get("et_al") is True,
        "" if year is None else f"{year:04}",
        "" if _PREPRINTS.fullmatch(venue) else venue,
        doi,
        arxiv,
        _arxiv_class(categories) if arxiv else "",
        url,
        _clean(paper.abstract) if paper.abstract != paper.title else "",
        key if _KEY.fullmatch(key) and key.isprintable() else "",
        tuple(tag for each in tags if (tag := _clean(each))) if isinstance(tags, list | tuple) else (),
    )


def _address(value: object) -> str:
    """A link to the web; '' for other addresses, which a reader should not follow, and for other texts."""
    text = _in_one_line(value)
    is_whole = isinstance(value, str) and text == value.strip()  # a control character may hide an address
    return text if is_whole and _ADDRESS.fullmatch(text) and text.isprintable() else ""


def _arxiv(arxiv_id: str, doi: str, url: str, paper_id: str) -> str:
    by_doi, by_url = _ARXIV_DOI.fullmatch(doi), _ARXIV_PAGE.fullmatch(url)
    for text in (arxiv_id.removeprefix("arXiv:"), by_doi and by_doi[1], by_url and by_url[1], paper_id):
        match = _ARXIV.fullmatch(text) if text else None
        if match:
            return match[1]
    return ""


def _arxiv_class(categories: object) -> str:
    first = categories[0] if isinstance(categories, list | tuple) and categories else None
    return first if isinstance(first, str) and _ARXIV_CLASS.fullmatch(first) else ""
