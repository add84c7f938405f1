"""Which papers are the same: ids, made from the content where a source has none, titles and DOIs."""

import hashlib
import json
import re
import tempfile
import unicodedata
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from qbe.corpus.fields import doi, present, unfit
from qbe.corpus.records import MAX_ID_CHARS, is_id, paper_to_record, parse_paper
from qbe.corpus.sentences import unsplit
from qbe.corpus.streams import display_name
from qbe.errors import output_error
from qbe.types import Paper

# Whose ids the papers of a format have: keys that people choose, so that two papers may have one; ids that a
# database assigns, so that these are one paper; or qbe's own, of which each must occur once.
CHOSEN, ASSIGNED, UNIQUE = "chosen", "assigned", "unique"

ARXIV_DOI = "10.48550/"  # begins DOIs of arXiv
MADE = "sha-"  # begins ids made from title, year and first author
MERGED_IDS = "merged_ids"  # in metadata: ids of papers that were merged into this one
FEWEST_WORDS = 4  # shorter titles ("Editorial") are compared only where year and first author are known
MAX_JACCARD = 0.7  # titles of a higher similarity (words in both / words in either) count as the same paper's

_ARXIV = re.compile(r"(?:arxiv:\s*)?(\S+?)(?:v\d+)?", re.IGNORECASE)
_WORDS = re.compile(r"\w+")
_MARKS = re.compile(r"(?<=\w)[+#]+")  # of "C++" and "C#"
_ASCII = {ord(c): c.lower() if c.isalnum() else "" if c == "'" else " " for c in map(chr, range(128))}
Told = tuple[str, str, str]


def content_id(paper: Paper) -> str:
    """Return the id of a paper without one: its DOI, else its arXiv id, else ``sha-`` and 16 digits."""
    other_ids = paper.metadata.get("ids")
    arxiv = other_ids.get("arxiv") if isinstance(other_ids, dict) else None
    match = _ARXIV.fullmatch(arxiv.strip()) if isinstance(arxiv, str) else None
    made = doi(str(paper.metadata.get("doi") or "")) or (match[1] if match else "")
    return usable_id(made) or made_id(paper)


def made_id(paper: Paper) -> str:
    return f"{MADE}{content_digest(paper)[:16]}"


def content_digest(paper: Paper) -> str:
    """Return the SHA-256 of title, year and first author; of the abstract, too, where these tell little."""
    title, author = normalized_title(paper.title), first_author(paper.metadata.get("authors"))
    parts = [title, paper.year or "", author]
    if title.count(" ") + 1 < FEWEST_WORDS and not (title and paper.year and author):
        parts.append(paper.abstract)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def second_id(paper: Paper, paper_id: str, digits: int = 6) -> str:
    """Return the id of a paper whose id another paper has: with some digits of its content."""
    letters, marks, _ = told_apart(paper)
    digest = content_digest(paper)
    if paper_id.startswith(MADE):
        digest = hashlib.sha256(f"{digest}{letters[:1]}{marks}".encode()).hexdigest()
    return f"{paper_id}-{digest[:digits]}"


def usable_id(key: str) -> str:
    """Return a key as an id that a TREC run can hold: with ``_`` for white space and control characters."""
    if is_id(key):
        return key
    key = "_".join("".join(c if c.isprintable() else " " for c in key).split())
    if len(key) > MAX_ID_CHARS:
        key = f"{key[: MAX_ID_CHARS - 17]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    return key


def other_ids(metadata: Mapping[str, Any]) -> list[str]:
    """Return what a paper is called besides its id and title: DOI, further and merged ids, URL."""
    ids, merged_ids = metadata.get("ids"), metadata.get(MERGED_IDS)
    further = [*ids.values()] if isinstance(ids, Mapping) else []
    further += merged_ids if isinstance(merged_ids, list) else []
    return [str(each) for each in (metadata.get("doi"), *further, metadata.get("url")) if each]


def normalized_title(title: str) -> str:
    """Return the words of letters and digits in lower case, without accents."""
    if title.isascii():
        return " ".join(title.translate(_ASCII).split())
    letters = unicodedata.normalize("NFKD", title.casefold())
    kept = (c if c.isalnum() else "" if c in "'\u2019" or unicodedata.combining(c) else " " for c in letters)
    return " ".join("".join(kept).split())


def first_author(authors: Any, *, whole: bool = False) -> str:
    """Return the family name, or the whole one, of the first of authors: a list, or one text of names."""
    if isinstance(authors, str) and not whole:
        authors = authors.replace(";", ",").split(",")
    first = authors[0] if isinstance(authors, list) and authors else ""
    name = first.get("name") or first.get("last") or first.get("family") if isinstance(first, dict) else first
    name = str(name or "")
    return name if whole else normalized_title(name.partition(",")[0]).rpartition(" ")[2]


def told_apart(paper: Paper) -> Told:
    """Return what may tell papers of one title, year and family name apart: initials, signs ("C++"), DOI."""
    family, comma, given = first_author(paper.metadata.get("authors"), whole=True).partition(",")
    given = given if comma else family.strip().rpartition(" ")[0]
    letters = "".join(dict.fromkeys(word[0] for word in normalized_title(given).split()))
    is_short = normalized_title(paper.title).count(" ") + 1 < FEWEST_WORDS
    return letters, "".join(_MARKS.findall(paper.title)), _doi(paper) if is_short else ""


def are_apart(one: Told, other: Told) -> bool:
    """Return True if what is known of two papers (`told_apart`) differs; a DOI of arXiv does not count."""
    (letters, marks, doi), (its_letters, its_marks, its_doi) = one, other
    return (
        marks != its_marks
        or bool(letters and its_letters and set(letters).isdisjoint(its_letters))
        or bool(doi and its_doi and doi != its_doi and ARXIV_DOI not in (doi[:9], its_doi[:9]))
    )


def _doi(paper: Paper) -> str:
    value = paper.metadata.get("doi")
    return (doi(value) or value.strip().lower()) if isinstance(value, str) else ""


class Ids:
    """The ids of papers; ``numbers`` in the corpus, from 1, by id, and at the ``ends`` of sources."""

    def __init__(self, sources: Sequence[str]) -> None:
        self._sources = sources
        self.numbers: dict[str, int] = {}
        self.ends: list[int] = []
        self._titles = array("q")  # hashes of their normalized titles
        self._made: dict[str, Told] = {}  # what tells papers apart whose ids are made, by id

    def place(self, paper: Paper, where: str, whose: str) -> tuple[str, bool]:
        """Return the id of a paper, and True if no paper before it has this id and title.

        Where a paper of another title has it, CHOSEN ids become a `second_id`, UNIQUE ones raise RecordError.
        """
        title, own = normalized_title(paper.title), paper.paper_id
        told = told_apart(paper) if whose == CHOSEN and own.startswith(MADE) else None
        for digits in (0, 6, 64):
            paper_id = second_id(paper, own, digits) if digits else own
            if paper_id not in self.numbers:
                self._titles.append(hash(title))
                self.numbers[paper_id] = len(self._titles)
                if told is not None:
                    self._made[paper_id] = told
                return paper_id, True
            is_apart = told and paper_id in self._made and are_apart(told, self._made[paper_id])
            is_same = title and self._titles[self.numbers[paper_id] - 1] == hash(title) and not is_apart
            if whose == ASSIGNED or is_same:
                break
            if whose == UNIQUE:
                found = f"{own!r} again with another title (first {self.first(own)})"
                reason = "a paper_id that occurs twice"
                raise unfit("each paper_id once", found, "drop one of them", reason, where)
        return paper_id, False

    def first(self, paper_id: str) -> str:
        """Say where the paper of an id stands."""
        number = self.numbers[paper_id]
        index = bisect_left(self.ends, number)
        before = self.ends[index - 1] if index else 0
        return f"as paper {number - before} of {display_name(self._sources[index])}"


class Seen:
    """The papers before, by ``title`` (with year and first author), by ``doi``, or by ``both``."""

    def __init__(self, by: str | None) -> None:
        names = {"doi": "DOI", "title": "title, year and first author"}
        self._by = tuple(names) if by == "both" else (by,) if by else ()
        self.by = " or ".join(names[each] for each in self._by)
        self._papers = defaultdict[str, dict[tuple[str, Told | None], None]](dict)

    def _keys(self, paper: Paper) -> Iterator[tuple[str, Told | None]]:
        if "doi" in self._by and (own := _doi(paper)):
            yield own, None
        if "title" in self._by:
            title, author = normalized_title(paper.title), first_author(paper.metadata.get("authors"))
            if title and (title.count(" ") + 1 >= FEWEST_WORDS or (paper.year and author)):
                yield f"{title}|{paper.year}|{author}", told_apart(paper)

    def first(self, paper: Paper) -> str | None:
        """Return the id of an earlier paper that is the same one; None where this is the first."""
        for key, told in self._keys(paper):
            for each, its in self._papers.get(key, ()):
                if not (told and its and are_apart(told, its)):
                    return each
        return None

    def add(self, paper: Paper, paper_id: str) -> None:
        """Note a paper by its own id, or a duplicate by that of the first."""
        for key, told in self._keys(paper):
            self._papers[key].setdefault((paper_id, told))


def merged(papers: Iterable[tuple[Paper, int | None]]) -> Iterator[Paper]:
    """Yield papers with what their duplicates add, in their order; raises OutputError for its temporary file.

    Papers come with None, duplicates with the number (from 1) of the paper that they repeat.
    """
    places, duplicates, end = array("q"), defaultdict[int, list[int]](list), 0
    with tempfile.TemporaryFile() as file:
        for paper, first in papers:
            if first is None:
                places.append(end)
            else:
                duplicates[first].append(end)
            try:
                end += file.write(json.dumps(paper_to_record(paper)).encode() + b"\n")
            except OSError as error:
                raise output_error(tempfile.gettempdir(), error) from error
        for number, begin in enumerate(places, start=1):
            versions = list[Paper]()
            for place in (begin, *duplicates.get(number, ())):
                file.seek(place)
                versions.append(parse_paper(json.loads(file.readline()), ""))
            yield reduce(_merge, versions)


def _merge(paper: Paper, other: Paper) -> Paper:
    longer = max(paper, other, key=lambda each: len(each.abstract))
    metadata = {**other.metadata, **present(paper.metadata)}
    complete = [each.metadata for each in (paper, other) if not each.metadata.get("et_al")]
    if authors := next((its["authors"] for its in complete if its.get("authors")), None):
        metadata = {name: value for name, value in metadata.items() if name != "et_al"} | {"authors": authors}
    for name in ("tags", "collections", MERGED_IDS):
        lists = [each.metadata.get(name) for each in (paper, other)]
        values = [value for each in lists if isinstance(each, list) for value in each]
        values += [other.paper_id] if name == MERGED_IDS and other.paper_id != paper.paper_id else []
        if values:
            metadata[name] = [value for place, value in enumerate(values) if value not in values[:place]]
    ids, others = paper.metadata.get("ids"), other.metadata.get("ids")
    if isinstance(ids, dict) and isinstance(others, dict):
        metadata["ids"] = {**others, **present(ids)}
    title = paper.title or other.title
    return Paper(paper.paper_id, title, longer.sentences, longer.labelled, metadata, longer.offsets)


class TitleIndex:
    """Find titles and near duplicates of them (Jaccard similarity of the words above MAX_JACCARD)."""

    def __init__(self, titles: Iterable[str]) -> None:
        self._titles = list({frozenset(_WORDS.findall(title.lower())) for title in titles} - {frozenset()})
        self._titles_by_word: dict[str, list[int]] = defaultdict(list)
        for number, words in enumerate(self._titles):
            for word in words:
                self._titles_by_word[word].append(number)

    @classmethod
    def of_corpus(cls, source: Path) -> "TitleIndex":
        """Index the titles of a corpus in JSON lines; raises CorpusError where it cannot be read."""
        from qbe.corpus.json_formats import read_jsonl

        return cls(paper.title for paper in read_jsonl(source, unsplit))

    def holds(self, title: str) -> bool:
        """Return True if the set has this title or a near duplicate of it."""
        words = frozenset(_WORDS.findall(title.lower()))
        # A near duplicate has more than MAX_JACCARD of the words, so it has one of any others than so many:
        # of the rarest. Frequent words would lead to most of a large set.
        numbers = (self._titles_by_word.get(word, []) for word in words)
        rarest = sorted(numbers, key=len)[: len(words) - int(MAX_JACCARD * len(words))]
        others = (self._titles[number] for number in set[int]().union(*rarest))
        return any(len(words & other) / len(words | other) > MAX_JACCARD for other in others)
