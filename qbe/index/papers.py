"""The papers of an index: records by row, by id, and by what people call them (DOI, arXiv id, title)."""

import dataclasses
import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.corpus import fields
from qbe.corpus.identity import FEWEST_WORDS, first_author, normalized_title, other_ids
from qbe.corpus.records import HEADED, dump_record, headed_sentence, paper_to_record
from qbe.corpus.records import OFFSETS as OFFSETS_FIELD
from qbe.errors import CorpusError, PaperNotFoundError
from qbe.index.store import RECORDS, Files, damaged
from qbe.index.vectors import Mask, Rows, run_starts
from qbe.types import Facet, FacetProbabilities, Paper, Sentence, year_given

IDS = "papers.ids"
OFFSETS = "papers.offsets.npy"
STARTS_FILE = "sentences.npy"
FACETS_FILE = "facets.npy"
PROBABILITIES_FILE = "facet_probabilities.npy"
FACET_CODES: tuple[Facet | None, ...] = (None, *Facet)  # a sentence's facet is stored as its position here

Metadata = Mapping[str, Any]
LABELS = len(FacetProbabilities._fields)
# What decoding raises for a line that is no record of a paper.
_NO_RECORD = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

# What stands behind the title in a line of `dump_record`, and before the metadata, its last field; no text
# in front of them has bare quotes.
_ABSTRACT_KEY, _METADATA_KEY = b'", "abstract": [', b'"metadata": '

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


class PaperLayout(NamedTuple):
    """Sentences of all papers, concatenated.

    ``starts`` (papers + 1,) int64: paper i has the sentences starts[i] to starts[i + 1]; ``facets``
    (sentences,) uint8: places in FACET_CODES; ``probabilities`` (sentences, 5) float16: of a tagger's labels,
    zeros where the corpus brought the label, None where nothing was tagged.
    """

    starts: np.ndarray[tuple[int], np.dtype[np.int64]]
    facets: np.ndarray[tuple[int], np.dtype[np.uint8]]
    probabilities: np.ndarray[tuple[int, int], np.dtype[np.float16]] | None = None


def write_papers(folder: Path, papers: Iterable[Paper]) -> dict[str, int]:
    """Write a stream of papers and their layout; return their counts."""
    offsets, starts, facets, labelled = [0], [0], bytearray(), 0
    with (folder / RECORDS).open("wb") as records, (folder / IDS).open("w", encoding="utf-8") as ids:
        for paper in papers:
            line = encode_paper(paper)
            records.write(line)
            ids.write(paper.paper_id + "\n")
            offsets.append(offsets[-1] + len(line))
            starts.append(starts[-1] + len(paper.sentences))
            facets += bytes(FACET_CODES.index(sentence.facet) for sentence in paper.sentences)
            labelled += paper.labelled
    np.save(folder / OFFSETS, np.array(offsets, dtype=np.int64))
    np.save(folder / STARTS_FILE, np.array(starts, dtype=np.int64))
    np.save(folder / FACETS_FILE, np.frombuffer(bytes(facets), dtype=np.uint8))
    return {"papers": len(offsets) - 1, "labelled": labelled, "sentences": starts[-1]}


def encode_paper(paper: Paper) -> bytes:
    """The JSON line of a paper, in UTF-8; raises CorpusError for metadata that JSON cannot hold."""
    try:
        return dump_record(paper_to_record(paper))
    except (TypeError, ValueError) as error:
        raise CorpusError(
            f"paper {paper.paper_id}: expected metadata that JSON can hold, found others ({error}); drop or "
            "convert them"
        ) from error


class Papers:
    """The papers of a generation, of several one after the other, or of a build under way, by row or by id.

    Papers that the index's tagger labelled come so, or, without ``predictions``, as the corpus brought them.
    """

    def __init__(self, *parts: Files, predictions: bool = True) -> None:
        self._parts, self._predictions = parts, predictions
        self.offsets = [files.array(OFFSETS, "int64", 1) for files in parts]
        for files, offsets in zip(parts, self.offsets, strict=True):
            size = (files.folder / RECORDS).stat().st_size
            if (ends := [*offsets[:1].tolist(), *offsets[-1:].tolist()]) != [0, size]:
                raise damaged(files.folder / OFFSETS, f"the places of lines in {size} bytes", ends)
        # Where the papers of each folder begin.
        self.starts: Rows = np.cumsum([0, *(len(offsets) - 1 for offsets in self.offsets)], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def ids(self) -> list[str]:
        ids: list[str] = []
        for files, count in zip(self._parts, np.diff(self.starts).tolist(), strict=True):
            own = files.read(IDS).decode(errors="replace").split("\n")[:-1]
            if len(own) != count:
                raise damaged(files.folder / IDS, f"ids of {count} papers", len(own))
            ids += own
        return ids

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {paper_id: row for row, paper_id in enumerate(self.ids)}

    def row(self, paper_id: str) -> int:
        """The row of a paper; raises PaperNotFoundError."""
        if (row := self.find(paper_id)) is None:
            raise PaperNotFoundError(
                f"expected the id of one of the {len(self)} papers of the index, found {paper_id!r}; check it"
            )
        return row

    def find(self, paper_id: str) -> int | None:
        return self._rows.get(paper_id)

    def __getitem__(self, row: int) -> Paper:
        return self._paper(row, *self.line(row))

    def line(self, row: int) -> tuple[Files, bytes]:
        """Return the record of a paper as it was written, and the files that it is in."""
        part = int(np.searchsorted(self.starts, row, side="right")) - 1
        own = row - int(self.starts[part])
        begin, end = self.offsets[part][own : own + 2].tolist()
        return self._parts[part], self._parts[part].read(RECORDS, begin, end)

    def _lines(self, row: int = 0) -> Iterator[tuple[Files, bytes]]:
        for files, offsets, start in zip(self._parts, self.offsets, self.starts.tolist(), strict=False):
            if row < start + len(offsets) - 1:
                with files.open(RECORDS) as lines:
                    lines.seek(int(offsets[max(row - start, 0)]))
                    for line in lines:
                        yield files, line

    def read_from(self, row: int) -> Iterator[Paper]:
        return (self._paper(place, *line) for place, line in enumerate(self._lines(row), row))

    def read_containing(self, parts: Sequence[bytes]) -> Iterator[Paper | None]:
        """Yield all papers; None for one of plain ASCII that lacks some of the parts, ASCII in lower case."""
        for row, (files, line) in enumerate(self._lines()):
            lower = line.lower()
            lacks = line.isascii() and not all(part in lower for part in parts)
            yield None if lacks else self._paper(row, files, line)

    def read_metadata(self) -> Iterator[Metadata]:
        return (metadata for _, _, metadata in self.read_headings())

    def read_headings(self) -> Iterator[tuple[str, str, Metadata]]:
        """Yield id, title and metadata of all papers, quicker than the papers: abstracts are not parsed."""
        for files, line in self._lines():
            try:
                end = line.index(_ABSTRACT_KEY) + 1
                begin = line.find(_METADATA_KEY, end)
                rest = b"}" if begin < 0 else b", " + line[begin:]
                record = json.loads(line[:end] + rest)
                yield record["paper_id"], record["title"], record.get("metadata", {})
            except _NO_RECORD as error:
                raise damaged(files.folder / RECORDS, "records of papers", repr(error)) from error

    @cached_property
    def layout(self) -> PaperLayout:
        """Of several generations, papers without predicted labels have probabilities of zero."""
        sizes, facets, known = list[NDArray[Any]](), list[NDArray[Any]](), list[NDArray[Any]]()
        for files, count in zip(self._parts, np.diff(self.starts).tolist(), strict=True):
            starts, codes = files.array(STARTS_FILE, "int64", 1), files.array(FACETS_FILE, "uint8", 1)
            ends = (len(starts), *starts[:1].tolist(), *starts[-1:].tolist())
            if ends != (count + 1, 0, len(codes)) or (np.diff(starts) < 0).any():
                raise damaged(files.folder / STARTS_FILE, f"{len(codes)} sentences of {count} papers", ends)
            if codes.max(initial=0) >= len(FACET_CODES):
                raise damaged(files.folder / FACETS_FILE, "facets", codes.max())
            probabilities = np.broadcast_to(np.float16(0), (len(codes), LABELS))
            if self._is_predicted(files):
                probabilities = files.array(PROBABILITIES_FILE, "float16", 2)
                if (shape := probabilities.shape) != (len(codes), LABELS):
                    raise damaged(files.folder / PROBABILITIES_FILE, f"{len(codes)} sentences", shape)
            sizes.append(np.diff(starts))
            facets.append(codes)
            known.append(probabilities)
        is_predicted = any(map(self._is_predicted, self._parts))
        return PaperLayout(
            np.cumsum(np.concatenate([[0], *sizes]), dtype=np.int64),
            np.concatenate(facets),
            (known[0] if len(known) == 1 else np.concatenate(known)) if is_predicted else None,
        )

    def _is_predicted(self, files: Files) -> bool:
        return self._predictions and (files.folder / PROBABILITIES_FILE).exists()

    def _paper(self, row: int, files: Files, line: bytes) -> Paper:
        """The paper of a line that `write_papers` wrote, which needs no validation."""
        try:
            record = json.loads(line)
            texts, labels, offsets = record["abstract"], record.get("pred_labels"), record.get(OFFSETS_FIELD)
            facets: Iterable[Facet | None] = [None] * len(texts)
            predicted: Iterable[FacetProbabilities | None] = [None] * len(texts)
            is_predicted = labels is None and self._is_predicted(files)
            if labels is not None:
                facets = map(Facet.from_label, labels)
            elif is_predicted:
                starts, codes, probabilities = self.layout
                assert probabilities is not None
                first, last = starts[row : row + 2].tolist()
                facets = (FACET_CODES[code] for code in codes[first:last].tolist())
                predicted = (FacetProbabilities(*shares) for shares in probabilities[first:last].tolist())
            sentences = tuple(Sentence(*each) for each in zip(texts, facets, predicted, strict=True))
            if HEADED in record and not is_predicted:
                sentences = tuple(map(headed_sentence, texts, record[HEADED]))
            return Paper(
                record["paper_id"],
                record["title"],
                sentences,
                labels is not None or is_predicted,
                record.get("metadata", {}),
                None if offsets is None else tuple((begin, end) for begin, end in offsets),
            )
        except _NO_RECORD as error:
            row -= int(self.starts[self._parts.index(files)])
            raise damaged(files.folder / RECORDS, f"the paper of row {row}", repr(error)) from error


def rows_of(papers: Papers, paper_ids: Iterable[str]) -> Rows:
    """The rows (n,) int64 of papers by their ids, in that order; raises PaperNotFoundError."""
    return np.array([papers.row(paper_id) for paper_id in paper_ids], dtype=np.int64)


def without_labels(paper: Paper) -> Paper:
    """Drop labels that a corpus gave; those of headings stay."""
    if not paper.labelled:
        return paper
    sentences = tuple(Sentence(sentence.text) for sentence in paper.sentences)
    return dataclasses.replace(paper, sentences=sentences, labelled=False)


def facet_mask(layout: PaperLayout, facet: Facet) -> Mask:
    """Return which sentences (sentences,) count as a facet, as `qbe.types.Paper.facet_positions` does."""
    mask: Mask = layout.facets == FACET_CODES.index(facet)
    if layout.probabilities is None:
        return mask
    starts, sizes = layout.starts[:-1], np.diff(layout.starts)
    # Every paper has a sentence, and probabilities of a predicted one are never all 0.
    lacking = layout.probabilities[starts].any(axis=1) & ~np.logical_or.reduceat(mask, starts)
    # Single precision holds the sum of two half-precision numbers up to 1 exactly.
    single = layout.probabilities.astype(np.float32)
    place = [*Facet].index(facet)
    probability = single[:, 0] + single[:, 1] if place == 0 else single[:, place + 1]
    best = np.maximum.reduceat(probability, starts)
    guesses = np.flatnonzero(np.repeat(lacking, sizes) & (probability == np.repeat(best, sizes)))
    mask[guesses[run_starts(np.searchsorted(starts, guesses, side="right"))]] = True
    return mask


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
