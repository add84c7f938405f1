"""Papers in JSON: qbe's own records, arXiv, OpenAlex, Semantic Scholar, Crossref, CSL-JSON and Zotero.

Schemas: arXiv's ``arxiv-metadata-oai-snapshot.json``; OpenAlex's work object (developers.openalex.org); the
"S2AG Datasets" and "Academic Graph" APIs (api.semanticscholar.org) and S2ORC 20200705v1; Crossref's "Metadata
API JSON Format"; ``csl-data.json`` of the Citation Style Language, and items of Zotero's Web API.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from email.utils import parsedate
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from qbe.corpus import tables
from qbe.corpus.fields import (
    NOT_THIS_FORMAT,
    Fields,
    date_of_parts,
    dated,
    doi,
    no_title,
    not_a_paper,
    once,
    present,
    record,
    unfit,
    wrong_type,
    year,
)
from qbe.corpus.json_stream import decode_record, decode_text, json_objects, object_items
from qbe.corpus.markup import clean_abstract, clean_title, plain, without_latex
from qbe.corpus.names import person_name
from qbe.corpus.records import (
    FIELDS,
    MAX_ABSTRACT_CHARS,
    OFFSETS,
    Entry,
    Reading,
    Splitter,
    converted,
    dump_record,
    paper_to_record,
    parse_paper,
)
from qbe.corpus.streams import Head, display_name, head_of, numbered_lines, open_source
from qbe.errors import CorpusError, RecordError
from qbe.types import Paper


class Database(NamedTuple):
    """Describe a format of JSON objects: how it is known, the path to its objects, and an object's record."""

    recognizes: Callable[[Head], bool]
    path: Callable[[Head], str | None]
    to_record: Callable[[Mapping[str, Any], str], dict[str, Any]]

    def read(self, stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
        """Yield the records of lines, an array, or the list at a path of an answer."""
        objects = json_objects(stream, name, self.path(head_of(stream, name)))
        return converted(objects, self.to_record, reading)


# --- qbe's own, and others with usual names ---

_MAPPING = re.compile(r'\{\s*"([^"\\]*)"\s*:\s*\{')
_TITLE = re.compile(r'"[a-z_ ]*title"\s*:', re.IGNORECASE)
# An object with a list of papers, as databases answer (Lens, Dimensions).
_ANSWER = re.compile(
    r'\{(?:(?!"title")[^\[\]{}])*"(data|items|results|papers|records|documents|publications|works|articles|hits)"'
    r"\s*:\s*\[\s*(?:null\s*,\s*)*\{"
)
_OF_SENTENCES = ("pred_labels", OFFSETS)
_OWN = frozenset((*FIELDS, *_OF_SENTENCES))


def read_records(source: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield unchanged records with their places (``{file}, line {number}``); blank lines are skipped.

    Raises CorpusError for an unreadable source, and for a line that is no JSON object in UTF-8 or too long.
    """
    with open_source(source) as stream:
        for where, found in _own_entries(stream, display_name(source)):
            if isinstance(found, RecordError):
                raise found
            yield where, dict(found)


def read_jsonl(source: str | Path, split: Splitter | None = None) -> Iterator[Paper]:
    """Yield the papers of a file (plain, .gz, .bz2, .xz, .zst, .zip) or of standard input (``-``).

    ``split`` splits abstracts that are one string. Raises CorpusError with the place for anything invalid.
    """
    for where, original in read_records(source):
        yield parse_paper(original, where, split)


def write_jsonl(papers: Iterable[Paper], stream: IO[bytes]) -> int:
    """Write papers in the form `read_jsonl` reads, UTF-8, and return their number."""
    return sum(1 for paper in papers if stream.write(dump_record(paper_to_record(paper))))


def is_jsonl(head: Head) -> bool:
    return head.text.startswith(("{", "[")) and _TITLE.search(head.text) is not None


def read_entries(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """Yield qbe's own records, or records that tell title and others under usual names, as a table does."""
    lacking = set(reading.columns.values())
    by_names: dict[tuple[str, ...], tables.Columns] = {}

    def to_record(original: Mapping[str, Any], where: str) -> dict[str, Any]:
        is_own = "paper_id" in original and not reading.columns
        metadata = original.get("metadata")
        own_alone = original.keys() <= _OWN or "title" not in original
        if is_own and (own_alone or not isinstance(metadata, Mapping | None)):
            return dict(original)
        names = tuple(original)
        lacking.difference_update(names)
        if names not in by_names:
            there = {field: column for field, column in reading.columns.items() if column in names}
            try:
                by_names[names] = tables.find_columns(names, there, where, may_lack_abstract=True)
            except CorpusError as error:
                raise RecordError(str(error), "no title") from None
        columns = by_names[names]
        values = {field: original[names[position]] for field, position in columns.positions.items()}
        if is_own:
            return {**original, "metadata": tables.metadata_of(values, where) | present(metadata or {})}
        made = tables.to_record(columns, values, where)
        if isinstance(made["abstract"], list):
            made |= {each: original[each] for each in _OF_SENTENCES if each in original}
        if isinstance(metadata, Mapping):
            made["metadata"] |= metadata
        return made

    yield from converted(_own_entries(stream, name), to_record)
    if lacking:
        raise CorpusError(
            f"{name}: expected records with {', '.join(map(ascii, sorted(lacking)))}, found none; "
            "check `columns`"
        )


def _own_entries(stream: io.BufferedReader, name: str) -> Iterator[Entry]:
    """Yield the objects as they are; one of an object of objects (CSFCube's form) gets its name as its id."""
    head = head_of(stream, name)
    match, answer = _MAPPING.match(head.text), _ANSWER.match(head.text)
    if match is None or match[1] in FIELDS or any(key.lower().endswith("title") for key in head.record):
        yield from json_objects(stream, name, answer[1] if answer else None)
        return
    for key, (where, found) in object_items(stream, name):
        yield Entry(where, found if isinstance(found, RecordError) else {"paper_id": key, **found})


# --- arXiv ---

OF_ARXIV = ("id", "title", "abstract", "categories", "versions")
_CATEGORIES = re.compile(rb'"categories"\s*:\s*"([^"\\]*)"')
_AND = re.compile(r",\s*(?:and\s+)?|\s+and\s+")


def read_arxiv(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """Yield the records of arXiv's snapshot; those of other categories are not even parsed."""
    is_kept = cache(lambda categories: reading.keeps({"categories": categories.decode(errors="replace")}))

    def lines() -> Iterator[tuple[str, bytes]]:
        for number, line in numbered_lines(stream, name):
            if reading.categories and (match := _CATEGORIES.search(line)) and not is_kept(match[1]):
                continue
            if not line.isspace():
                yield f"{name}, line {number}", line

    def to_record(line: bytes, where: str) -> dict[str, Any]:
        return from_arxiv(decode_record(decode_text(line, where).rstrip(), where), where)

    return converted(lines(), to_record)


def from_arxiv(source: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the record of a paper of arXiv, with the date of its first version."""
    try:
        metadata: dict[str, Any] = {
            "authors": [_arxiv_author(*each[:3]) for each in source.get("authors_parsed") or ()]
            or [without_latex(name).strip() for name in _AND.split(source.get("authors") or "") if name],
            "categories": (source.get("categories") or "").split(),
            "date": source.get("update_date"),
            "venue": source.get("journal-ref"),
            "doi": doi(source.get("doi") or ""),
            "url": f"https://arxiv.org/abs/{source['id']}",
        }
        versions = source.get("versions")
        if versions and (parsed := parsedate(versions[0]["created"])):
            metadata["date"] = f"{parsed[0]:04}-{parsed[1]:02}-{parsed[2]:02}"
        title, abstract = clean_title(source["title"]), clean_abstract(source["abstract"] or "")
        return record(source["id"], title, abstract, metadata)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        expected, found = "a record of arXiv's snapshot with id, title and abstract", type(error).__name__
        raise unfit(where, expected, f"{found} {error}", "mend or remove it", NOT_THIS_FORMAT) from None


def _arxiv_author(*parts: str) -> str:
    family, given, suffix = (*map(without_latex, parts), "")[:3]
    if family.isalpha() and given[:1].isupper() and " " not in given and not suffix:  # most, faster
        return f"{given} {family}"
    return person_name(family, given, suffix)


# --- OpenAlex ---

MAX_POSITION = 100_000  # the highest position of a word in an abstract that is believed
_WORK = re.compile(r"(?:^|/)(W\d{1,18})$")
_WORK_ID = re.compile(r'"id"\s*:\s*"https://openalex\.org/W\d+"')
_FIELD = re.compile(
    r'"(?:authorships|abstract_inverted_index|publication_year|referenced_works|primary_location)"\s*:'
)
_RESULTS = re.compile(r'\{\s*"(?:meta|results)"\s*:\s*[\[{]')


def _from_openalex(source: Mapping[str, Any], where: str) -> dict[str, Any]:
    if "results" in source:
        raise CorpusError(f"{where}: expected a work, found an answer within it; mend the file")
    work = Fields(source, where)
    if (match := _WORK.search(identifier := work.text("id"))) is None:
        expected, reason = "a work's id such as https://openalex.org/W2741809807", "no paper_id"
        found, reason = (ascii(identifier[:60]), NOT_THIS_FORMAT) if identifier else ("none", reason)
        raise unfit(where, expected, found, "give files of works only", reason)
    title = clean_title(work.text("title", "display_name"))
    if not title:
        raise no_title(where)
    ids = work.object("ids")
    numbers = {
        key: str(ids[name]).rstrip("/").rpartition("/")[2] if isinstance(ids.get(name), str | int) else ""
        for key, name in (("pmid", "pmid"), ("pmc", "pmcid"), ("mag", "mag"))
    }
    cites = (_WORK.search(each) for each in work.texts("referenced_works[]"))
    categories = work.texts("topics[].field.display_name")
    if not work.objects("topics[]"):  # before there were topics: the concepts of the highest level
        concepts = (each for each in work.objects("concepts[]") if each.get("level") == 0)
        categories = [str(each.get("display_name") or "") for each in concepts]
    metadata = {
        "authors": list(filter(None, map(plain, work.texts("authorships[].author.display_name")))),
        "year": year(source.get("publication_year")),
        "date": work.text("publication_date"),
        "venue": plain(work.text("primary_location.source.display_name")),
        "categories": once(map(plain, categories)),
        "doi": doi(work.text("doi") or str(ids.get("doi"))),
        "url": work.text("primary_location.landing_page_url") or f"https://openalex.org/{match[1]}",
        "cites": [each[1] for each in cites if each],
        "ids": present({**numbers, "pmc": _pmc(numbers["pmc"])}),
        "tags": once(map(plain, work.texts("keywords[].display_name"))),
    }
    abstract = clean_abstract(_inverted(work, where) or work.text("abstract"))
    return record(match[1], title, abstract, metadata)


def _inverted(work: Fields, where: str) -> str:
    words = list[tuple[int, str]]()
    length = 0
    for word, positions in work.object("abstract_inverted_index").items():
        if not isinstance(positions, list):
            raise wrong_type(where, "abstract_inverted_index", "lists of positions", positions)
        if bad := [each for each in positions if type(each) is not int or not 0 <= each <= MAX_POSITION]:
            actual = str(bad[0]) if isinstance(bad[0], int) else type(bad[0]).__name__
            expected = f"positions from 0 to {MAX_POSITION:,} in abstract_inverted_index"
            raise unfit(where, expected, actual, "mend or remove the record", NOT_THIS_FORMAT)
        length += len(positions) * (len(word) + 1)
        if length > MAX_ABSTRACT_CHARS:
            expected = f"abstract of at most {MAX_ABSTRACT_CHARS:,} characters"
            raise unfit(where, expected, "more", "shorten it or drop the paper", "abstract that is too long")
        words += ((position, word) for position in positions)
    return " ".join(word for _, word in sorted(words))


def _pmc(number: str) -> str:
    digits = number.upper().removeprefix("PMC")
    return digits and f"PMC{digits}"


OPENALEX = Database(
    lambda head: bool(
        head.text.startswith(("{", "[")) and _WORK_ID.search(head.text) and _FIELD.search(head.text)
    ),
    lambda head: "results" if _RESULTS.match(head.text) else None,
    _from_openalex,
)

# --- Semantic Scholar ---

_S2ORC_FIELDS = ("s2_url", "outbound_citations", "has_pdf_parse")
# A list of papers, with null for those that are not known, perhaps in an object.
_LIST = re.compile(
    r'(?:\{(?:[^\[\]{}]{0,1000},)?\s*"(data|recommendedPapers|papers)"\s*:\s*)?\[\s*(?:null\s*,\s*)*\{'
)
# The names of further ids, in small letters, in metadata of the API and of S2ORC.
_IDS = {each: each for each in ("arxiv", "acl", "dblp", "mag")} | {"pubmed": "pmid", "pubmedcentral": "pmc"}
_IDS |= {"arxiv_id": "arxiv", "acl_id": "acl", "pubmed_id": "pmid", "pmc_id": "pmc", "mag_id": "mag"}


def _is_s2(head: Head) -> bool:
    return (
        head.has("corpusid", "title", "externalids")
        or head.has("corpusid", "abstract")
        or head.has("paperId", "title")
        or (head.has("paper_id", "title", "abstract") and any(map(head.has, _S2ORC_FIELDS)))
        or (_LIST.match(head.text) is not None and '"paperId"' in head.text and '"title"' in head.text)
    )


def _s2_path(head: Head) -> str | None:
    if head.has("corpusid", "abstract") and not head.has("title"):
        raise CorpusError(
            f"{head.name}: expected Semantic Scholar's papers, found its abstracts, which have no titles; "
            "join both by corpusid first"
        )
    answer = _LIST.match(head.text)
    return answer[1] if answer else None


def _from_s2(source: Mapping[str, Any], where: str) -> dict[str, Any]:
    for relation in ("citedPaper", "citingPaper"):
        source = Fields(source, where).object(relation) or source
    # The names of the bulk data sets are those of the API in lower case; S2ORC's have underscores.
    names = {name.lower(): value for name, value in source.items()}
    paper = Fields(names, where)
    title, abstract = clean_title(paper.text("title")), paper.text("abstract")
    if not title:
        raise no_title(where)
    ids = (name for name in ("paper_id", "paperid", "corpusid") if names.get(name) not in (None, ""))
    paper_id = names.get(named_by := next(ids, ""))
    if isinstance(paper_id, bool) or not isinstance(paper_id, str | int | None):
        raise wrong_type(where, named_by, "a string or whole number", paper_id)
    external = {name.lower(): value for name, value in paper.object("externalids").items() if value}
    journal = "journal.name" if isinstance(names.get("journal"), Mapping) else "journal"
    fields_of_study = paper.texts("s2fieldsofstudy[].category") or paper.texts("fieldsofstudy[]")
    cites = [each.get("paperId") for each in paper.objects("references[]")]
    values = {**names, **external}
    known = ((key, values.get(name)) for name, key in _IDS.items())
    numbers = {key: str(number) for key, number in known if isinstance(number, str | int)}
    authors = list[str]()
    for each in (Fields(author, where) for author in paper.objects("authors[]")):
        parts = each.text("first"), *each.texts("middle[]"), each.text("last"), each.text("suffix")  # S2ORC
        authors.append(plain(each.text("name") or " ".join(parts)))
    metadata = {
        "authors": list(filter(None, authors)),
        "year": year(names.get("year")),
        "date": paper.text("publicationdate"),
        "venue": plain(paper.text("venue", journal)),
        "categories": once(fields_of_study or paper.texts("mag_field_of_study[]")),
        "doi": doi(Fields(external, where).text("doi") or paper.text("doi")),
        "url": paper.text("url", "s2_url"),
        "cites": [each for each in cites if isinstance(each, str)] or paper.texts("outbound_citations[]"),
        "ids": present({**numbers, "pmc": _pmc(numbers.get("pmc", ""))}),
    }
    if "paper_id" in names:  # S2ORC's mark between the parts of an abstract
        abstract = abstract.replace(":::", " ")
    return record(None if paper_id is None else str(paper_id), title, clean_abstract(abstract), metadata)


SEMANTIC_SCHOLAR = Database(_is_s2, _s2_path, _from_s2)

# --- Crossref ---

_DOI = re.compile(r'"DOI"\s*:\s*"')
_TITLES = re.compile(r'"(?:container-)?title"\s*:\s*\[')  # those of CSL-JSON, which is similar, are strings
_ITEMS = re.compile(r'"items"\s*:\s*\[')
_MESSAGE = re.compile(r'"message"\s*:\s*\{')
_HEADING = re.compile(r"<(?:jats:)?title>([^<]{1,200})</(?:jats:)?title>")
_TWICE = re.compile(r"(?<=tex-math>)\s*<mml:math\b")  # begins a formula in MathML after the same in LaTeX


def _is_crossref(head: Head) -> bool:
    is_json = head.text.startswith(("{", "[")) and not head.has("paper_id")
    return is_json and _DOI.search(head.text) is not None and _TITLES.search(head.text) is not None


def _crossref_path(head: Head) -> str | None:
    """Return the path of the public data file's ``items``, or of those of an answer of the REST API."""
    items = _ITEMS.search(head.text)
    if not head.text.startswith("{") or items is None or _DOI.search(head.text, 0, items.start()):
        return None
    return "message.items" if _MESSAGE.search(head.text, 0, items.start()) else "items"


def _from_crossref(source: Mapping[str, Any], where: str) -> dict[str, Any]:
    if "message" in source and "DOI" not in source:
        source = Fields(source, where).object("message")
    if "items" in source:
        raise CorpusError(f"{where}: expected a work, found a list of works within a work; mend the file")
    work = Fields(source, where)
    title, subtitle = clean_title(work.text("title[]")), clean_title(work.text("subtitle[]"))
    if subtitle and subtitle.lower() not in title.lower():  # further titles are translations
        title = f"{title.rstrip(' :')}: {subtitle.lstrip(': ')}" if title else subtitle
    if not title:
        raise no_title(where)
    authors = list[str]()
    for each in (Fields(author, where) for author in work.objects("author[]")):
        family, given, suffix = (plain(each.text(part)) for part in ("family", "given", "suffix"))
        authors.append(person_name(family, given, suffix) or plain(each.text("name")))
    own_doi = work.text("DOI").strip().lower()
    metadata = {
        "authors": list(filter(None, authors)),
        **dated(date_of_parts(source.get("issued")) or date_of_parts(source.get("published"))),
        "venue": plain(work.text("container-title[]")),
        "categories": work.texts("subject[]"),
        "doi": own_doi,
        "url": work.text("URL"),
        "cites": once(map(doi, work.texts("reference[].DOI"))),
    }
    # The abstract is in JATS: a colon after each heading, and each formula once.
    text, *others = _TWICE.split(work.text("abstract"))
    text += "".join(other.partition("</mml:math>")[2] for other in others)
    text = _HEADING.sub(lambda it: f" {words}: " if (words := it[1].strip(" \t\n\r.:")) else " ", text)
    return record(own_doi, title, clean_abstract(text), metadata)


CROSSREF = Database(_is_crossref, _crossref_path, _from_crossref)

# --- CSL-JSON and Zotero ---

_CSL_ITEMS = re.compile(r'\{.*?"items"\s*:\s*\[\s*(?=\{)', re.DOTALL)
# What an item has and other formats lack.
_OF_CSL = re.compile(
    r'"itemType"\s*:|"type"\s*:\s*"(?:article-(?:journal|magazine|newspaper)|paper-conference|review-book)"|"(?:date-parts|container-title|citation-key|issued)"\s*:|"author"\s*:\s*\[\s*\{\s*'
    r'"(?:family|given|literal|(?:non-)?dropping-particle)"'
)
_NOT_CSL = re.compile(r'"(?:display_name|paper_id|paperId)"|"title"\s*:\s*\[')
_ZOTERO = {  # the fields of Zotero's items by CSL's
    "id": "key itemKey",
    "citation-key": "citationKey citekey",
    "title": "title caseName subject",
    "abstract": "abstractNote",
    "issued": "date",
    "container-title": "publicationTitle bookTitle proceedingsTitle conferenceName",
    "DOI": "DOI",
    "URL": "url",
    "note": "extra",
    "number": "archiveID",
}
_URL = re.compile(r"https?://[^/]+/")
_ARXIV = re.compile(r"arXiv:\s*(\S+?)(?:v\d+)?(?:\s|$)", re.IGNORECASE)
_KEY = re.compile(r"^\s*Citation Key:\s*(\S+)", re.IGNORECASE | re.MULTILINE)


def _from_csl(source: Mapping[str, Any], where: str) -> dict[str, Any]:
    source = Fields(source, where).object("data") or source
    source = _of_zotero(source, where) if "itemType" in source else source
    item = Fields(source, where)
    title = clean_title(item.text("title"))
    if not title:
        raise no_title(where, is_fault=True)
    noted = _KEY.search(str(source.get("note") or ""))  # in Zotero's field Extra
    key = item.text("citation-key").strip() or (noted[1] if noted else "")
    arxiv, words = _ARXIV.match(str(source.get("number") or "")), source.get("keyword")
    words = re.split("[;,]", words) if isinstance(words, str) else words if isinstance(words, list) else []
    ids = {"arxiv": arxiv[1] if arxiv else "", "pmid": source.get("PMID"), "pmcid": source.get("PMCID")}
    metadata = {
        "authors": [_csl_author(Fields(author, where)) for author in item.objects("author[]")],
        **dated(date_of_parts(source.get("issued"))),
        "venue": plain(item.text("container-title")),
        "doi": doi(item.text("DOI")),
        "url": item.text("URL").strip(),
        "ids": {
            name: str(value).strip() for name, value in ids.items() if value and isinstance(value, str | int)
        },
        "key": key,
        "tags": once(plain(word) for word in words if isinstance(word, str)),
    }
    paper_id = source.get("id")
    if not key and (isinstance(paper_id, bool) or not isinstance(paper_id, str | int | float | None)):
        raise wrong_type(where, "id", "a string or a number", paper_id)
    paper_id = str(paper_id if paper_id is not None else "").strip().removesuffix(".0")
    if _URL.match(paper_id):
        paper_id = doi(paper_id) or paper_id.rstrip("/").rpartition("/")[2]
    return record(key or paper_id, title, clean_abstract(item.text("abstract")), metadata)


def _of_zotero(item: Mapping[str, Any], where: str) -> dict[str, Any]:
    fields = Fields(item, where)
    if (kind := fields.text("itemType")) in ("attachment", "note", "annotation"):
        raise not_a_paper(where, f"an {kind}")
    creators = fields.objects("creators[]")
    authors = [each for each in creators if each.get("creatorType") in ("author", None)] or creators
    names = {"family": "lastName", "given": "firstName", "literal": "name"}
    found = {
        name: next((item[each] for each in others.split() if item.get(each)), None)
        for name, others in _ZOTERO.items()
    }
    found["author"] = [{part: each.get(name) for part, name in names.items()} for each in authors]
    return {**found, "keyword": [each.get("tag") for each in fields.objects("tags[]")]}


def _csl_author(author: Fields) -> str:
    particles = ("dropping-particle", "non-dropping-particle", "family")
    family = " ".join(filter(None, (plain(author.text(part)) for part in particles)))
    name = person_name(family, plain(author.text("given")), plain(author.text("suffix")))
    return name or plain(author.text("literal"))


CSL = Database(
    lambda head: bool(
        head.text.startswith(("[", "{")) and _OF_CSL.search(head.text) and not _NOT_CSL.search(head.text)
    ),
    lambda head: "items" if head.text.startswith("{") and _CSL_ITEMS.match(head.text) else None,
    _from_csl,
)
