"""Papers in JSON: qbe's own records, arXiv, OpenAlex, Semantic Scholar, Crossref, CSL-JSON and Zotero.

Schemas: arXiv's ``arxiv-metadata-oai-snapshot.json``; OpenAlex's work object (developers.openalex.org); the
"S2AG Datasets" and "Academic Graph" APIs (api.semanticscholar.org) and S2ORC 20200705v1; Crossref's "Metadata
API JSON Format"; ``csl-data.json`` of the Citation Style Language, and items of Zotero's Web API.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, Any

from qbe.corpus import fields, records, tables
from qbe.corpus.fields import NOT_THIS_FORMAT, Fields, date_of_parts, dated, doi, record, unfit, wrong_type
from qbe.corpus.json_stream import json_lines, json_objects, list_path, object_items
from qbe.corpus.markup import plain, without_latex
from qbe.corpus.names import are_several, person_name, rows, split_authors
from qbe.corpus.records import FIELDS, HEADED, OFFSETS, Entry, Reader, Reading, Splitter, converted
from qbe.corpus.streams import display_name, head_of, numbered_lines, open_source
from qbe.errors import CorpusError, RecordError
from qbe.types import Paper


def reader(to_record: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Reader:
    """Return a reader of objects, in lines, an array, or the list of an answer."""
    return lambda stream, name, _: converted(json_objects(stream, name), to_record)


_MAPPING = re.compile(r'\{\s*"([^"\\]*)"\s*:\s*\{')
_OF_SENTENCES = ("pred_labels", OFFSETS, HEADED)
_TEXTS = {"id", "title", "abstract"}
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
    """Yield the papers of a file or of standard input (``-``); raises CorpusError for anything invalid."""
    for where, original in read_records(source):
        yield records.parse_paper(original, where, split)


def write_jsonl(papers: Iterable[Paper], stream: IO[bytes]) -> int:
    """Write papers in the form `read_jsonl` reads, UTF-8, and return their number."""
    return sum(1 for paper in papers if stream.write(records.dump_record(records.paper_to_record(paper))))


def read_entries(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """Yield qbe's own records, or records that tell title and others under usual names, as a table does."""
    lacking, known = set(reading.columns.values()), dict[tuple[str, ...], tables.Columns]()

    def to_record(original: Mapping[str, Any]) -> dict[str, Any]:
        original = original if "title" in original and "paper_id" in original else _opened(original)
        is_own = "paper_id" in original and not reading.columns
        metadata = original.get("metadata")
        own_alone = original.keys() <= _OWN or "title" not in original
        if is_own and (own_alone or not isinstance(metadata, Mapping | None)):
            return dict(original)
        names = tuple(original)
        if names not in known:
            lacking.difference_update(names)
            there = {field: column for field, column in reading.columns.items() if column in names}
            known[names] = tables.find_columns(names, there, may_lack_abstract=True)
        columns = known[names]
        values = {field: original[names[position]] for field, position in columns.positions.items()}
        if is_own:
            told = fields.cleaned(tables.metadata_of({each: values[each] for each in values.keys() - _TEXTS}))
            return {**original, "metadata": told | fields.present(metadata or {})}
        made = tables.to_record(columns, values)
        if isinstance(made["abstract"], list):
            made |= {each: original[each] for each in _OF_SENTENCES if each in original}
        if isinstance(metadata, Mapping):
            made["metadata"] |= metadata
        return made

    yield from converted(_own_entries(stream, name), to_record)
    if lacking:
        names = ", ".join(map(ascii, sorted(lacking)))
        raise CorpusError(f"{name}: expected records with {names}, found none; check `columns`")


_PARTS = ("metadata", "attributes", "content", "bibjson")  # of records of answers
_TITLES = {"title", "titles", "title_s"}
_OF_LANGUAGES = _TITLES | {"abstracts", "abstract_s", "descriptions"}


def _opened(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record with the fields of its part that has the title, and the first of texts in languages."""
    parts = (part for name in _PARTS if isinstance(part := record.get(name), Mapping))
    if (part := next((each for each in parts if each.keys() & _TITLES), None)) and "title" not in record:
        record = {name: value for name, value in record.items() if name not in _PARTS} | dict(part)
    made = {name: _first_text(name, value) for name, value in record.items()}
    return made | ({"cites": record.get("references")} if "indexed_abstract" in record else {})  # AMiner


def _first_text(name: str, value: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(words := value.get("InvertedIndex"), Mapping):  # AMiner
        return _inverted(Fields({_INVERTED: words}))
    if isinstance(value, list) and name in _OF_LANGUAGES:
        kinds = {each.get("descriptionType"): each for each in value[::-1] if isinstance(each, Mapping)}
        value = kinds.get("Abstract") or (value[0] if value else None)
        if isinstance(value, Mapping):
            return next((value[each] for each in ("title", "value", "description") if each in value), None)
    return value["value"] if isinstance(value, Mapping) and "value" in value else value


def _own_entries(stream: io.BufferedReader, name: str) -> Iterator[Entry]:
    """Return the objects; those of an object of objects (CSFCube's form) get their names as their ids."""
    head = head_of(stream, name)
    match = _MAPPING.match(head.text)
    is_record = any(key.lower().endswith("title") for key in head.record)
    if match is None or match[1] in FIELDS or is_record or list_path(head) is not None:
        return json_objects(stream, name)
    return object_items(stream, name)


_CATEGORIES = re.compile(rb'"categories"\s*:\s*"([^"\\]*)"')
_AND = re.compile(r",\s*+(?:and\s++)?|(?<!\s)\s+and\s+")


def read_arxiv(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """Yield the records of arXiv's snapshot; those of other categories are not even parsed."""
    is_kept = cache(lambda categories: reading.keeps({"categories": categories.decode(errors="replace")}))

    lines: Iterable[tuple[int, bytes]] = numbered_lines(stream, name)
    if reading.categories:
        found = ((each, _CATEGORIES.search(each[1])) for each in lines)
        lines = (each for each, match in found if match is None or is_kept(match[1]))
    return converted(json_lines(lines, name), from_arxiv)


def from_arxiv(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a paper of arXiv, with the date of its first version."""
    try:
        authors = list[str]()
        for parts in source.get("authors_parsed") or ():
            family, given, suffix = (*map(without_latex, parts[:3]), "")[:3]
            is_usual = family.isalpha() and given[:1].isupper() and " " not in given and not suffix
            # Most are, and this is faster.
            authors.append(f"{given} {family}" if is_usual else person_name(family, given, suffix))
        metadata: dict[str, Any] = {
            "authors": authors or [without_latex(name) for name in _AND.split(source.get("authors") or "")],
            "categories": (source.get("categories") or "").split(),
            "venue": source.get("journal-ref"),
            "doi": source.get("doi"),
            "url": f"https://arxiv.org/abs/{source['id']}",
        }
        versions = source.get("versions")
        # Without the time of the day, "02:26:18 GMT".
        created = fields.date(versions[0]["created"].rsplit(" ", 2)[0]) if versions else ""
        metadata["date"] = created or source.get("update_date")
        return record(source["id"], source["title"], source["abstract"] or "", metadata)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        expected, found = "a record of arXiv's snapshot with id, title and abstract", type(error).__name__
        raise unfit(expected, f"{found} {error}", "mend or remove it", NOT_THIS_FORMAT) from None


MAX_POSITION = 100_000  # the highest position of a word in an abstract that is believed
_WORK = re.compile(r"(?:^|/)(W\d{1,18})$")


def from_openalex(source: Mapping[str, Any]) -> dict[str, Any]:
    if "results" in source:
        raise unfit("a work", "an answer within it", "mend the file", NOT_THIS_FORMAT)
    work = Fields(source)
    if (match := _WORK.search(identifier := work.text("id"))) is None:
        expected, reason = "a work's id such as https://openalex.org/W2741809807", "no paper_id"
        found, reason = (ascii(identifier[:60]), NOT_THIS_FORMAT) if identifier else ("none", reason)
        raise unfit(expected, found, "give files of works only", reason)
    ids: Mapping[str, Any] = next(iter(work.all("ids", dict)), {})
    numbers = (str(n) if isinstance(n, str | int) else "" for n in map(ids.get, ("pmid", "pmcid", "mag")))
    pmid, pmc, mag = (number.rstrip("/").rpartition("/")[2] for number in numbers)
    categories = work.all("topics[].field.display_name")
    if not work.all("topics[]", dict):  # before there were topics: the concepts of the highest level
        concepts = (each for each in work.all("concepts[]", dict) if each.get("level") == 0)
        categories = [str(each.get("display_name") or "") for each in concepts]
    metadata = {
        "authors": work.all("authorships[].author.display_name"),
        **dated(work.text("publication_date"), source.get("publication_year")),
        "venue": work.text("primary_location.source.display_name"),
        "categories": categories,
        "doi": work.text("doi") or str(ids.get("doi")),
        "url": work.text("primary_location.landing_page_url") or f"https://openalex.org/{match[1]}",
        "cites": [each[1] for each in map(_WORK.search, work.all("referenced_works[]")) if each],
        "ids": {"pmid": pmid, "pmc": _PMC.sub("PMC", pmc), "mag": mag},
        "tags": work.all("keywords[].display_name") or work.all("keywords[].keyword"),
    }
    abstract = _inverted(work) or work.text("abstract")
    return record(match[1], work.text("title", "display_name"), abstract, metadata, is_fault=False)


def _inverted(work: Fields) -> str:
    words = list[tuple[int, str]]()
    length = 0
    for word, positions in (item for each in work.all(_INVERTED, dict) for item in each.items()):
        if not isinstance(positions, list):
            raise wrong_type(_INVERTED, "lists of positions", positions)
        length += len(positions) * (len(word) + 1)
        records.check_length(length, found="more")
        words += [(position, word) for position in positions]
    if bad := [each for each, _ in words if type(each) is not int or not 0 <= each <= MAX_POSITION]:
        found = str(bad[0]) if isinstance(bad[0], int) else type(bad[0]).__name__
        expected = f"positions from 0 to {MAX_POSITION:,} in {_INVERTED}"
        raise unfit(expected, found, "mend or remove the record", NOT_THIS_FORMAT)
    return " ".join(word for _, word in sorted(words))


_INVERTED, _PMC = "abstract_inverted_index", re.compile(r"^(?:PMC)?(?=.)", re.IGNORECASE)

# The names of further ids, in small letters, in metadata of the API and of S2ORC.
_IDS = {each: each for each in ("arxiv", "acl", "dblp", "mag")} | {"pubmed": "pmid", "pubmedcentral": "pmc"}
_IDS |= {"arxiv_id": "arxiv", "acl_id": "acl", "pubmed_id": "pmid", "pmc_id": "pmc", "mag_id": "mag"}


def read_semantic_scholar(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """Yield the papers of data sets, lists and answers of the API; raises CorpusError for abstracts alone."""
    head = head_of(stream, name)
    if head.has("corpusid abstract") and not head.has("title"):
        found = "its abstracts, which have no titles; join both by corpusid first"
        raise CorpusError(f"{name}: expected Semantic Scholar's papers, found {found}")
    return reader(_from_s2)(stream, name, reading)


def _from_s2(source: Mapping[str, Any]) -> dict[str, Any]:
    for relation in ("citedPaper", "citingPaper"):
        source = next(iter(Fields(source).all(relation, dict)), {}) or source
    # The names of the bulk data sets are those of the API in lower case; S2ORC's have underscores.
    names = {name.lower(): value for name, value in source.items()}
    paper = Fields(names)
    ids = (name for name in ("paper_id", "paperid", "corpusid") if names.get(name) not in (None, ""))
    paper_id = names.get(named_by := next(ids, ""))
    if isinstance(paper_id, bool) or not isinstance(paper_id, str | int | None):
        raise wrong_type(named_by, "a string or whole number", paper_id)
    externals = (item for each in paper.all("externalids", dict) for item in each.items())
    external = {name.lower(): value for name, value in externals if value}
    known = ((key, external.get(name, names.get(name))) for name, key in _IDS.items())
    numbers = {key: str(number) for key, number in known if isinstance(number, str | int)}
    journal = "journal.name" if isinstance(names.get("journal"), Mapping) else "journal"
    categories = paper.all("s2fieldsofstudy[].category") or paper.all("fieldsofstudy[]")
    cites = [each.get("paperId") for each in paper.all("references[]", dict)]
    people, parts = paper.all("authors[]", dict), ("first", "middle[]", "last", "suffix")  # of S2ORC
    metadata = {
        "authors": [its.text("name") or " ".join(chain(*map(its.all, parts))) for its in map(Fields, people)],
        **dated(paper.text("publicationdate"), names.get("year")),
        "venue": paper.text("venue", journal),
        "categories": categories or paper.all("mag_field_of_study[]"),
        "doi": doi(Fields(external).text("doi") or paper.text("doi")),
        "url": paper.text("url", "s2_url"),
        "cites": [each for each in cites if isinstance(each, str)] or paper.all("outbound_citations[]"),
        "ids": {**numbers, "pmc": _PMC.sub("PMC", numbers.get("pmc", ""))},
    }
    title, abstract = paper.text("title"), paper.text("abstract")
    if "paper_id" in names:  # S2ORC's mark between the parts of an abstract
        abstract = abstract.replace(":::", " ")
    return record(None if paper_id is None else str(paper_id), title, abstract, metadata, is_fault=False)


_TWICE = re.compile(r"(?<=tex-math>)\s*<mml:math\b")  # begins a formula in MathML after the same in LaTeX


def from_crossref(source: Mapping[str, Any]) -> dict[str, Any]:
    if "message" in source and "DOI" not in source:
        source = next(iter(Fields(source).all("message", dict)), {})
    if "items" in source:
        raise unfit("a work", "a list of works within a work", "mend the file", NOT_THIS_FORMAT)
    work = Fields(source)
    title, subtitle = plain(work.text("title[]")), plain(work.text("subtitle[]"))
    if subtitle and subtitle.lower() not in title.lower():  # further titles are translations
        title = f"{title.rstrip(' :')}: {subtitle.lstrip(': ')}" if title else subtitle
    own_doi = work.text("DOI").strip().lower()
    metadata = {
        "authors": _authors(work),
        **dated(date_of_parts(source.get("issued")) or date_of_parts(source.get("published"))),
        "venue": work.text("container-title[]"),
        "categories": work.all("subject[]"),
        "doi": own_doi,
        "url": work.text("URL"),
        "cites": list(filter(None, dict.fromkeys(map(doi, work.all("reference[].DOI"))))),
    }
    # The abstract is in JATS: each formula once.
    text, *others = _TWICE.split(work.text("abstract"))
    text += "".join(other.partition("</mml:math>")[2] for other in others)
    return record(own_doi, title, text, metadata, is_fault=False)


def _authors(item: Fields) -> list[str]:
    """Return the authors of a work of Crossref or an item of CSL-JSON, which share their fields."""
    names, people = list[str](), item.all("author[]", dict)
    for author in map(Fields, people):
        particles = ("dropping-particle", "non-dropping-particle", "family")
        family = " ".join(filter(None, (plain(author.text(part)) for part in particles)))
        name = person_name(family, plain(author.text("given")), plain(author.text("suffix")))
        if not name and are_several(name := plain(author.text("literal", "name")), is_only=len(people) == 1):
            names += split_authors(name)
        else:
            names.append(name)
    return names


_ZOTERO = rows("zotero")  # the fields of Zotero's items by CSL's
_URL = re.compile(r"https?://[^/]+/")
_ARXIV = re.compile(r"arXiv:\s*(\S+?)(?:v\d+)?(?:\s|$)", re.IGNORECASE)
_KEY = re.compile(r"^[^\S\n]*Citation Key:\s*(\S+)", re.IGNORECASE | re.MULTILINE)


def from_csl(source: Mapping[str, Any]) -> dict[str, Any]:
    source = next(iter(Fields(source).all("data", dict)), {}) or source
    source = _of_zotero(source) if "itemType" in source else source
    item = Fields(source)
    noted = _KEY.search(str(source.get("note") or ""))  # in Zotero's field Extra
    key = item.text("citation-key").strip() or (noted[1] if noted else "")
    arxiv, words = _ARXIV.match(str(source.get("number") or "")), source.get("keyword")
    words = re.split("[;,]", words) if isinstance(words, str) else words if isinstance(words, list) else []
    ids = {"arxiv": arxiv[1] if arxiv else "", "pmid": source.get("PMID"), "pmcid": source.get("PMCID")}
    metadata = {
        "authors": _authors(item),
        **dated(date_of_parts(source.get("issued"))),
        "venue": item.text("container-title"),
        "doi": item.text("DOI"),
        "url": item.text("URL"),
        "ids": {name: str(value).strip() for name, value in ids.items() if isinstance(value, str | int)},
        "key": key,
        "tags": [word for word in words if isinstance(word, str)],
    }
    paper_id = source.get("id")
    if not key and (isinstance(paper_id, bool) or not isinstance(paper_id, str | int | float | None)):
        raise wrong_type("id", "a string or a number", paper_id)
    paper_id = str(paper_id if paper_id is not None else "").strip().removesuffix(".0")
    if _URL.match(paper_id):
        paper_id = doi(paper_id) or paper_id.rstrip("/").rpartition("/")[2]
    return record(key or paper_id, item.text("title"), item.text("abstract"), metadata)


def _of_zotero(item: Mapping[str, Any]) -> dict[str, Any]:
    its = Fields(item)
    if (kind := its.text("itemType")) in ("attachment", "note", "annotation"):
        raise unfit("a paper", f"an {kind}", "left it out", "not a paper", is_fault=False)
    creators = its.all("creators[]", dict)
    authors = [each for each in creators if each.get("creatorType") in ("author", None)] or creators
    found: dict[str, Any] = {to: next(filter(None, map(item.get, of.split())), None) for to, of in _ZOTERO}
    names = {"family": "lastName", "given": "firstName", "literal": "name"}
    found["author"] = [{part: each.get(name) for part, name in names.items()} for each in authors]
    return {**found, "keyword": [each.get("tag") for each in its.all("tags[]", dict)]}
