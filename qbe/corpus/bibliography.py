"""Papers as entries of a bibliography: BibTeX (for biber and biblatex or BibTeX itself) and RIS, in UTF-8."""

import re
import string
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, count, product
from typing import Any, NamedTuple

from qbe.corpus import fields
from qbe.corpus import names as lists
from qbe.corpus.markup import symbol_of, without_latex
from qbe.corpus.names import ET_AL, given_first, person_name, read_name, split_authors, split_name
from qbe.errors import UsageError
from qbe.types import Paper
from qbe.util.text import one_line

FORMATS = ("bibtex", "ris")
ARTICLE, IN_PROCEEDINGS, OTHER = "article", "inproceedings", "misc"  # kinds, as BibTeX names them

PROVIDER = "qbe"  # of the record (DP), by which files of RIS are told from others

_ARXIV = re.compile(r"(\d\d(?:0[1-9]|1[0-2])\.\d{4,5}|[a-z-]{2,20}(?:\.[A-Z]{2})?/\d{7})(?:v\d+)?")
_ARXIV_DOI = re.compile(r"10\.48550/arxiv\.(.+)", re.ASCII)
_ARXIV_PAGE = re.compile(r"https?://(?:www\.)?arxiv\.org/(?:abs|pdf)/(.+?)(?:\.pdf)?")
_ARXIV_CLASS = re.compile(r"[a-z-]{2,20}(?:\.[A-Za-z-]{2,20})?")
_PREPRINTS = re.compile(r"(?:arxiv|corr)\b.*", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[^\s<>\"]+", re.IGNORECASE)
_ZOTERO = re.compile(r"zotero://(?:select|open-pdf)/[\w/]+", re.ASCII)
_JOURNAL, _MEETING = (re.compile(lists.alternatives(name), re.I) for name in ("journals", "meetings"))
_NO_NAME = re.compile(r"\[?no authors?(?: names?)? (?:available|listed|found)\]?", re.IGNORECASE)
_KEY = re.compile(r'[^\s"#%,={}\\~@^$]{1,200}')
# With a year, such as "ACL 2020".
_ACRONYM = re.compile(r"[A-Z][\w-]{0,20}[A-Z][\w-]{0,20}[ '\u2019]{0,3}\d{2}(?:\d{2})?")

_TYPES = {ARTICLE: "JOUR", IN_PROCEEDINGS: "CONF"}
# English articles, pronouns, prepositions, conjunctions and auxiliary verbs.
FUNCTION_WORDS = lists.WORDS["function words"]
_LONGEST = 40  # letters of a name or a word in a key; longer ones are no words
_ANONYMOUS = "Anonymous"
_LETTERS = str.maketrans(dict(lists.rows("letters")))  # that have no accent to be removed

# A formula: nothing but text stands between the amounts of "$5 and $10".
_FORMULA = re.compile(lists.alternatives("formula"))
_NOT_IN_FORMULAS = re.compile(r"(?<!\\)[%#&]|\^\^")
_COMMAND = re.compile(r"\\([A-Za-z]+)")
# Commands with arguments and names of functions that a formula may have, besides symbols.
_MATHEMATICS = re.compile("|".join(sorted(lists.WORDS["mathematics"])))
_ESCAPED_BRACE = re.compile(r"\\[{}]")
# Braces have names, since BibTeX counts escaped ones.
_ESCAPES = str.maketrans(
    {"\\": r"\textbackslash{}", "{": r"\textbraceleft{}", "}": r"\textbraceright{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", **{sign: f"\\{sign}" for sign in "&%$#_"}}
)
_PERCENT = str.maketrans({"\\": "%5C", "{": "%7B", "}": "%7D"})
_WORD = re.compile(r"[^\W_][\w&'\u2019]*")
_NEW_BEGIN = re.compile(r"[:.?!\u2013\u2014-]\s")


class Reference(NamedTuple):
    """Hold what a bibliography says of a paper: texts in one line, '' for unknown values.

    ``names`` are in the form of `qbe.corpus.names.person_name`, ``authors`` for readers, "Given Family", with
    "et al." last where there are others; ``year`` has four digits; ``kind`` is ARTICLE, IN_PROCEEDINGS (by
    words such as "Workshop"), or OTHER without a venue; ``arxiv`` has no version; ``doi`` is bare and in
    lower case; ``links`` are URLs by name (``zotero`` and ``pdf`` in the user's Zotero, ``arxiv``, ``doi``
    and ``url``, the corpus's own), ``link`` the first of them, ``page`` the last, or arXiv's; ``key`` is the
    library's own where LaTeX can take it.
    """

    paper_id: str
    title: str
    abstract: str
    year: str
    venue: str
    kind: str
    doi: str
    arxiv: str
    category: str
    key: str
    names: tuple[str, ...]
    authors: tuple[str, ...]
    tags: tuple[str, ...]
    links: Mapping[str, str]
    link: str
    page: str
    file: str


def reference_of(paper: Paper) -> Reference:
    """Return what a bibliography says of a paper, by its metadata (``docs/corpora.md`` has their names)."""
    from urllib.parse import quote

    metadata = paper.metadata
    ids, link, categories, tags = map(metadata.get, ("ids", "url", "categories", "tags"))
    url, doi, key = (_clean(metadata.get(name), latex=False) for name in ("url", "doi", "key"))
    is_whole = isinstance(link, str) and url == link.strip()  # a control character may hide an address
    if not (is_whole and _ADDRESS.fullmatch(url) and url.isprintable()):
        url = ""  # a reader should follow links to the web only
    doi = fields.doi(doi)
    arxiv_id = _clean(ids.get("arxiv"), latex=False) if isinstance(ids, dict) else ""
    by_doi, by_url = _ARXIV_DOI.fullmatch(doi), _ARXIV_PAGE.fullmatch(url)
    texts = arxiv_id.removeprefix("arXiv:"), by_doi and by_doi[1], by_url and by_url[1], paper.paper_id
    arxiv = next((match[1] for text in texts if text and (match := _ARXIV.fullmatch(text))), "")
    category = categories[0] if isinstance(categories, list | tuple) and categories else None
    is_class = arxiv and isinstance(category, str) and _ARXIV_CLASS.fullmatch(category)
    year = fields.year(paper.year)
    venue = _clean(metadata.get("venue"))
    venue = "" if _PREPRINTS.fullmatch(venue) else venue
    is_meeting = not _JOURNAL.search(venue) and (_MEETING.search(venue) or _ACRONYM.fullmatch(venue))
    names = tuple(author_names(metadata.get("authors")))
    others = (ET_AL,) if metadata.get("et_al") is True else ()
    own = {name: str(metadata.get(name)) for name in ("zotero", "pdf")}
    links = {
        **{name: address for name, address in own.items() if _ZOTERO.fullmatch(address)},
        "arxiv": arxiv and f"https://arxiv.org/abs/{arxiv}",
        "doi": doi and f"https://doi.org/{quote(doi, safe='/:;()')}",
        "url": url,
    }
    return Reference(
        paper_id=_clean(paper.paper_id, latex=False),
        title=_clean(paper.title),
        abstract=_clean(paper.abstract) if paper.abstract != paper.title else "",
        year="" if year is None else f"{year:04}",
        venue=venue,
        kind=OTHER if not venue else IN_PROCEEDINGS if is_meeting else ARTICLE,
        doi=doi,
        arxiv=arxiv,
        category=str(category) if is_class else "",
        key=key if _KEY.fullmatch(key) and key.isprintable() else "",
        names=names,
        authors=(*map(given_first, names), *others),
        tags=tuple(tag for each in tags if (tag := _clean(each))) if isinstance(tags, list | tuple) else (),
        links=fields.present(links),
        link=next(filter(None, links.values()), ""),
        page=url or links["arxiv"],
        file=_clean(metadata.get("file"), latex=False),
    )


def _clean(value: Any, *, latex: bool = True) -> str:
    text = one_line(value) if isinstance(value, str) else ""
    return " ".join(without_latex(text).split()) if latex else text


def author_names(value: Any) -> list[str]:
    """Return the authors of metadata (one text, texts, or objects such as S2ORC's) as `person_name` does."""
    names = split_authors(_clean(value)) if isinstance(value, str) else []
    for each in value if isinstance(value, list | tuple) else ():
        name = _clean(each)
        if isinstance(each, Mapping):
            middle = each.get("middle")
            parts = [each.get("first"), *(middle if isinstance(middle, list) else [middle])]
            family, suffix = _clean(each.get("last")), _clean(each.get("suffix"))
            given = " ".join(filter(None, map(_clean, parts)))
            name = _clean(each.get("name")) or person_name(family, given, suffix)
        elif "," in name:
            name = read_name(name)
        names.append(name)
    return [name for name in names if name and not _NO_NAME.fullmatch(name)]


class Bibliography:
    """The entries of a file that grows: each paper has one, and a key of its own (``keys``, by its id).

    A key is the library's own, else like "Lee2019fish". One that is repeated, ignoring case as BibTeX does,
    gets a letter, behind a hyphen where the key is the library's own.
    """

    def __init__(self, form: str) -> None:
        if form not in FORMATS:
            raise UsageError(f"expected `form` {' or '.join(FORMATS)}, found {form!r}")
        self.keys: dict[str, str] = {}
        self._letters: dict[str, Iterator[tuple[str, ...]]] = {}  # that are left to be put behind a key
        self._is_bibtex, self._taken = form == "bibtex", set[str]()

    def add(self, paper: Paper) -> str | None:
        """Return the entry of a paper, with its line break; None for a paper that has one already."""
        if paper.paper_id in self.keys:
            return None
        reference = reference_of(paper)
        key = reference.key
        if not key:
            first = reference.names[0] if reference.names else ""
            if name := split_name(first):  # without particles such as "van der", if anything is left
                first = " ".join(word for word in name.family.split() if not word.islower()) or name.family
            # Letters with their accents decomposed, which belong to words.
            title = re.sub(r"[^\w\u0300-\u036f]|_", " ", unicodedata.normalize("NFKD", reference.title))
            words = (_ascii_letters(word).lower() for word in title.split())
            subject = next((word for word in words if len(word) > 2 and word not in FUNCTION_WORDS), "")
            subject = subject or _ascii_letters(reference.paper_id, string.digits)
            key = f"{_ascii_letters(first) or _ANONYMOUS}{reference.year}{subject}"
        if key.casefold() in self._taken:
            fresh = (each for length in count(1) for each in product(string.ascii_lowercase, repeat=length))
            letters = self._letters.setdefault(key.casefold(), fresh)
            others = (f"{key}{'-' if reference.key else ''}{''.join(each)}" for each in letters)
            key = next(other for other in others if other.casefold() not in self._taken)
        self._taken.add(key.casefold())
        self.keys[paper.paper_id] = key
        return to_bibtex(reference, key) if self._is_bibtex else to_ris(reference, reference.key and key)


def entries(papers: Iterable[Paper], form: str = "bibtex") -> Iterator[str]:
    """Yield the entries of papers in one of FORMATS, each once; joined by line breaks they are a file."""
    return filter(None, map(Bibliography(form).add, papers))


def to_bibtex(reference: Reference, key: str) -> str:
    """Return an entry with each field in one line, its texts as `to_latex` has them."""
    authors = [
        ", ".join(filter(None, (parts.family, parts.suffix, parts.given)))
        if (parts := split_name(name))
        else f"{{{given_first(name).translate(_ESCAPES)}}}"
        for name in reference.names
    ]
    separator = "; " if any("," in tag for tag in reference.tags) else ", "
    values = {
        "title": to_latex_title(reference.title),
        "author": " and ".join([*authors, *["others"] * (ET_AL in reference.authors[-1:])]),
        "journal" if reference.kind == ARTICLE else "booktitle": to_latex(reference.venue),
        "year": reference.year,
        "doi": reference.doi,
        "url": reference.page,
        "eprint": reference.arxiv,
        "archiveprefix": "arXiv" if reference.arxiv else "",
        "primaryclass": reference.category,
        "keywords": to_latex(separator.join(reference.tags)),
        "abstract": to_latex(reference.abstract),
    }
    for name in ("doi", "url"):  # TeX may read "^^" as one character
        values[name] = values[name].translate(_PERCENT).replace("^^", "%5E%5E")
    lines = [f"  {name} = {{{value}}},\n" for name, value in values.items() if value]
    return "".join((f"@{reference.kind}{{{key},\n", *lines, "}\n"))


def comment(text: str) -> str:
    """Return a line between entries; "@" would begin an entry, and is written as "(at)"."""
    return f"% {' '.join(text.split()).replace('@', '(at)')}\n"


def to_ris(reference: Reference, key: str = "") -> str:
    """Return a record of type JOUR, CONF, UNPB (preprints) or GEN; its ID is the key or the paper's id."""
    lines = [
        ("TY", _TYPES.get(reference.kind) or ("UNPB" if reference.arxiv else "GEN")),
        ("DP", PROVIDER),
        ("ID", key or reference.paper_id),
        ("TI", reference.title),
        *(("AU", ", ".join(filter(None, split_name(n) or [given_first(n)]))) for n in reference.names),
        ("N1", ET_AL if ET_AL in reference.authors[-1:] else ""),
        ("PY", reference.year),
        ("T2" if reference.kind == IN_PROCEEDINGS else "JO", reference.venue),
        ("DO", reference.doi),
        ("UR", reference.page.replace(";", "%3B")),  # a semicolon separates addresses
        *(("KW", tag) for tag in reference.tags),
        ("AB", reference.abstract),
        ("ER", ""),
    ]
    return "".join(f"{tag}  - {value}\n" for tag, value in lines if value or tag == "ER")


def _ascii_letters(text: str, others: str = "") -> str:
    decomposed = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    allowed = string.ascii_letters + others
    return "".join(each for each in decomposed if each in allowed)[:_LONGEST]


def with_formulas(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a text, each with True for a formula in dollars."""
    begin = 0
    for match in _FORMULA.finditer(text):
        if _is_safe(match[0]):
            yield text[begin : match.start()], False
            yield match[0], True
            begin = match.end()
    yield text[begin:], False


def to_latex(text: str) -> str:
    """Return a text in LaTeX: characters with a meaning are escaped, formulas stay."""
    return "".join(part if formula else part.translate(_ESCAPES) for part, formula in with_formulas(text))


def to_latex_title(title: str) -> str:
    """Return a title in LaTeX, with braces around formulas and what has to keep its capital letters.

    Styles of bibliographies change the case of letters. Where at most half of the words of more than four
    letters begin with a capital, all capitals are kept but those that begin a sentence or a subtitle.
    """
    longer = [word for word in _WORD.findall(title)[1:] if len(word) > 4 and word[1:].islower()]
    every_capital = bool(longer) and 2 * sum(word[0].isupper() for word in longer) <= len(longer)
    in_capitals, is_first = title.isupper(), True
    parts = list[str]()
    for part, formula in with_formulas(title):
        if formula:
            parts.append(f"{{{part}}}")
            is_first = False
            continue
        begin = 0
        for match in _WORD.finditer(part):
            word, between = match[0], part[begin : match.start()]
            may_change = is_first or _NEW_BEGIN.search(between) is not None or not every_capital
            is_symbol = len(word) == 1 and word.isupper() and word != "A"
            is_code = word[0].isupper() and (not may_change or any(map(str.isdigit, word)))
            keeps = is_symbol or is_code or any(map(str.isupper, word[1:]))
            written = word.translate(_ESCAPES)
            parts += [between.translate(_ESCAPES), f"{{{written}}}" if keeps and not in_capitals else written]
            begin, is_first = match.end(), False
        parts.append(part[begin:].translate(_ESCAPES))
    return "".join(parts)


def _is_safe(formula: str) -> bool:
    """Return True if a formula may stay: balanced for BibTeX, which counts escaped braces, and for others."""
    if _NOT_IN_FORMULAS.search(formula):
        return False
    for text in (formula, _ESCAPED_BRACE.sub("", formula)):
        depths = list(accumulate((c == "{") - (c == "}") for c in text))
        if depths[-1] or min(depths) < 0:
            return False
    if "\\" not in formula:
        return True
    if not all(_MATHEMATICS.fullmatch(name) or symbol_of(name) for name in _COMMAND.findall(formula)):
        return False
    from pylatexenc.latexwalker import LatexMathNode, LatexWalker, LatexWalkerError

    try:
        nodes, _, length = LatexWalker(formula, tolerant_parsing=False).get_latex_nodes()
    except LatexWalkerError:
        return False
    return len(nodes) == 1 and isinstance(nodes[0], LatexMathNode) and length == len(formula)
