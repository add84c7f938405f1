"""The papers of an index by what people call them: ids, DOIs, ids of arXiv and the ACL, addresses, titles."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from qbe.corpus import fields
from qbe.corpus.identity import FEWEST_WORDS, first_author, normalized_title, other_ids
from qbe.index.papers import Papers
from qbe.types import Paper, year_given

MOST = 1000  # papers that a part of a title may find

_ARXIV_ID = r"(\d{4}\.\d{4,5}|[a-z-]+(?:\.[a-z]{2})?/\d{7})(?:v\d+)?(?![\w/])"
_ARXIV = re.compile(rf"(?:^|arxiv[.:]\s*|arxiv\.org/\w+/){_ARXIV_ID}")
_ARXIV_IDS = re.compile(rf"(?<![\w./-]){_ARXIV_ID}")
_PREFIX = re.compile(r"[a-z]+:\s*(?!/)")  # as of ``PMID: 7`` and ``doi:10.1234/5``
# Where a number alone is a paper's id; "isbn:123" and the page of a publisher name others.
_NUMBERED = re.compile(r"pubmed|ncbi\.nlm|pmid|pmc|semanticscholar|corpusid|mag:")
# Of a single word that may be a part of a title: "s12" or "2019" is rather an id that the index lacks.
_FEWEST_LETTERS = 4
_ACL = "10.18653/v1/"  # what a DOI of the ACL Anthology has before the id there
_ACL_NAME = re.compile(
    r"(?:acl:\s*|https?://(?:www\.)?aclanthology\.org/)([\w.]+-[\w.-]+?)(?:\.pdf)?/?", re.IGNORECASE
)


class Names:
    """What the papers of an index are called: ids, DOIs, addresses, titles."""

    def __init__(self, papers: Papers) -> None:
        """Read the ids, titles and metadata of all papers: 1.3 seconds of a processor for 180,000."""
        self._papers, self._titles = papers, list[str]()
        # Hashes take 8 bytes a name, where a dictionary takes some 200. Of a million names, two have the same
        # hash of 64 bits once in 30 million indexes. Ids of papers come first.
        keys, rows = (array("q"), array("q")), (array("q"), array("q"))
        for row, (paper_id, title, metadata) in enumerate(papers.read_headings()):
            self._titles.append(f" {normalized_title(title)} ")
            for place, texts in enumerate(([paper_id], other_ids(metadata))):
                for name in (name for text in texts for name in shortcuts(text, lookup=False)):
                    keys[place].append(hash(name))
                    rows[place].append(row)
        self._keys, first = np.unique(np.concatenate(keys), return_index=True)
        self._rows_of_keys = np.concatenate(rows)[first]

    def find(self, text: str, *, titles: bool = True) -> list[str]:
        """Return the ids of at most MOST papers that a text may name: by id, else by title, else those whose
        titles have these words in sequence, the last perhaps only begun, else those with all of them.
        Without ``titles`` only by id.
        """
        if (named := self._named([text])) is not None:
            return [self._papers.ids[named]]
        title = normalized_title(text) if titles else ""
        rows = self._by_title.get(title, [])[:MOST] if title else []
        if not rows and (" " in title or (title.isalpha() and len(title) >= _FEWEST_LETTERS)):
            rows = [*islice(self._with([title]), MOST)] or [*islice(self._with(title.split()), MOST)]
        return [self._papers.ids[row] for row in rows]

    def complete(self, text: str) -> Iterator[str]:
        """Yield the ids of the paper of that name, and of those whose titles have all words."""
        if (named := self._named([text])) is not None:
            yield self._papers.ids[named]
        if title := normalized_title(text):
            yield from (self._papers.ids[row] for row in self._with(title.split()) if row != named)

    def of_record(self, record: Mapping[str, Any]) -> str | None:
        """Return the id of the paper that a record of a corpus is: by its ids, its title, or a key."""
        metadata = record.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        own = record.get("paper_id")
        row = self._named([own] if isinstance(own, str) else [])
        similar = None
        if row is not None and contradicts(self._papers[row], record):
            similar, row = row if differs_little(self._papers[row], record) else None, None
        row = self._named(other_ids(metadata)) if row is None else row
        title = record.get("title")
        if row is None and isinstance(title, str):
            row = self._titled(normalized_title(title), metadata)
        row = similar if row is None else row
        return None if row is None else self._papers.ids[row]

    def _named(self, texts: Sequence[str]) -> int | None:
        for text in texts:
            for name in (*shortcuts(text, lookup=False), *_parts(text)):
                place = int(np.searchsorted(self._keys, hash(name)))
                if place < len(self._keys) and self._keys[place] == hash(name):
                    return int(self._rows_of_keys[place])
        return None

    @cached_property
    def _by_title(self) -> dict[str, list[int]]:
        rows: dict[str, list[int]] = {}
        for row, title in enumerate(self._titles):
            rows.setdefault(title.strip(), []).append(row)
        return rows

    def _titled(self, title: str, metadata: Mapping[str, Any]) -> int | None:
        year, author = year_given(metadata), first_author(metadata.get("authors"))
        short = title.count(" ") + 1 < FEWEST_WORDS
        for row in self._by_title.get(title, ()) if title else ():
            paper = self._papers[row]
            its_author = first_author(paper.metadata.get("authors"))
            pairs = [(a, b) for a, b in ((year, paper.year), (author, its_author)) if a and b]
            agree = sum(a == b for a, b in pairs)
            differ = len(pairs) - agree
            if (agree and not differ) if short else (agree or not (author and its_author)):
                return row
        return None

    def _with(self, words: Sequence[str]) -> Iterator[int]:
        """Yield rows of titles that have all words, or sequences of words, the last perhaps only begun."""
        parts = [*(f" {word} " for word in words[:-1]), f" {words[-1]}"]
        parts.sort(key=len, reverse=True)  # the rarest first
        return (row for row, title in enumerate(self._titles) if all(part in title for part in parts))


def contradicts(paper: Paper, record: Mapping[str, Any]) -> bool:
    """Return whether a record tells of another paper, though its id is the paper's: another title, year and
    first author; of a citation key, which others choose too, another title and no id of it.
    """
    title, metadata = record.get("title"), record.get("metadata")
    if not isinstance(title, str) or not isinstance(metadata, Mapping):
        return False
    titles = normalized_title(title), normalized_title(paper.title)
    authors = first_author(metadata.get("authors")), first_author(paper.metadata.get("authors"))
    pairs = [titles, (year_given(metadata), paper.year), authors]
    if metadata.get("key") and set(other_ids(metadata)).isdisjoint(other_ids(paper.metadata)):
        del pairs[1:]
    return all(one and other and one != other for one, other in pairs)


def differs_little(paper: Paper, record: Mapping[str, Any]) -> bool:
    """Return whether a record with the paper's key may tell of that paper: more than half the words of the
    shorter title are in the other, and neither first author nor DOI differs; a DOI of arXiv may.
    """
    metadata = record["metadata"]
    words, its_words = (set(normalized_title(each).split()) for each in (record["title"], paper.title))
    dois = [str(each.get("doi") or "") for each in (metadata, paper.metadata)]
    authors = [first_author(each.get("authors")) for each in (metadata, paper.metadata)]
    pairs = authors, ("", "") if any(_ARXIV.search(each.lower()) for each in dois) else dois
    differ = any(one and other and one != other for one, other in pairs)
    return not differ and 2 * len(words & its_words) > min(len(words), len(its_words)) >= FEWEST_WORDS


def shortcuts(text: str, lookup: bool = True) -> list[str]:
    """Ids that a text may stand for; for a ``lookup`` before all names are read, also that of an ACL page."""
    acl = _ACL_NAME.fullmatch(text.strip()) if lookup else None
    lower = text.strip().lower().rstrip("/.,;").removesuffix(".pdf")
    doi, arxiv = fields.doi(lower), _ARXIV.search(lower)
    if arxiv and len(set(_ARXIV_IDS.findall(lower))) > 1:
        arxiv = None  # several ids are no name of one paper
    of_acl = doi.removeprefix(_ACL) if doi.startswith(_ACL) and "-" in doi else ""
    names = (acl[1] if acl else "", lower, doi, arxiv[1] if arxiv else "", of_acl)
    return list(dict.fromkeys(filter(None, names)))


def _parts(text: str) -> list[str]:
    """What else of a text may be a paper's name: what follows ``PMID:``, the last part of an address."""
    lower = text.strip().lower()
    if lower.startswith(("http://", "https://")):
        if fields.doi(lower):  # of which the last part may be the id of another paper
            return []
        last = re.split(r"[?#]", lower)[0].rstrip("/").rpartition("/")[2]
    else:
        prefix = _PREFIX.match(lower)
        last = lower[prefix.end() :] if prefix else ""
    is_number = last.rstrip("/.,;").removesuffix(".pdf").isdecimal()
    return [] if is_number and not _NUMBERED.search(lower) else shortcuts(last, lookup=False)
