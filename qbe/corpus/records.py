"""Records of papers: what readers yield, how they are asked to read, and the `qbe.types.Paper` of a record.

The fields are those of CSFCube's release (Mysore et al., 2021): ``paper_id``, ``title``, ``abstract`` (a list
of sentences, or one string), and optionally ``pred_labels`` (one ``<facet>_label`` a sentence), ``metadata``
and ``sentence_offsets`` (a pair a sentence, where the abstract was split here). Records that are not used are
counted by reason, and listed.
"""

import hashlib
import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice, product
from typing import IO, Any, NamedTuple, TypeVar

from qbe.corpus.fields import noted, placed, unfit
from qbe.corpus.sentences import Part, headed_parts, split_sentences, unsplit
from qbe.corpus.streams import NOT_RECOGNIZED
from qbe.errors import CorpusError, RecordError, UsageError
from qbe.types import Facet, FacetProbabilities, Paper, Sentence

Original = TypeVar("Original")
Splitter = Callable[[str], Sequence[str]]  # of abstracts into sentences
Offsets = tuple[tuple[int, int], ...]  # (begin, end) of each sentence, end exclusive, in characters

FIELDS = ("paper_id", "title", "abstract", "pred_labels", "metadata")
OFFSETS, HEADED = "sentence_offsets", "heading_labels"
STOP, SKIP = "stop", "skip"
SKIP_BYTES = 256 << 20
CHOICES = {"on_error": (STOP, SKIP), "dedupe": ("title", "doi", "both")}
# The fields of a table that `Reading.columns` may name.
COLUMNS: tuple[str, ...] = ("id", "title", "abstract", "year", "date", "authors")
COLUMNS += ("venue", "categories", "tags", "doi", "url", "cites")

MAX_ABSTRACT_CHARS = 1_000_000  # also of titles; whole books are shorter, so it is a conversion error
MAX_ID_CHARS = 512
MAX_DEPTH = 100  # of objects and lists within metadata, which other code follows to the end
NO_ABSTRACT = "no abstract"  # the reason of the error
NO_ABSTRACT_ADVICE = "add its text or drop the paper"

RENAMED, RECODED = "papers with a new id", "files not in UTF-8"
KEPT = "papers that the index has with other content"
STANDS_IN = "papers without an abstract, indexed by title or first paragraph"
REPEATED = "papers with a field twice"
NOTED = (RENAMED, RECODED, KEPT, STANDS_IN, REPEATED)
FEWEST = 100  # of fewer records any share may be broken: it is reported, and for a person to judge
REJECTED_SUFFIX = ".rejected.jsonl"  # of the file next to an index that lists them

_SCALARS = {str, int, float, bool, type(None)}  # told in a fraction of the time that isinstance takes
_CONTROLS = dict.fromkeys((*range(1, 32), *range(127, 160)), " ")
_VISIBLE = re.compile(r"[^\s\x00-\x1f\x7f-\x9f]")


class Entry(NamedTuple):
    """Hold a record of a source or its error; ``where`` is its place (file and line or number)."""

    where: str
    record: Mapping[str, Any] | RecordError


@dataclass(frozen=True)
class Reading:
    """Options of reading a corpus; raises UsageError for impossible values.

    ``format`` is one of `qbe.corpus.streams.FORMAT_NAMES`; None: recognize each file's. ``columns`` names the
    columns of a table for fields of papers (COLUMNS). ``categories`` are patterns such as ``cs.*``: papers
    without a matching category are left out.

    ``on_error`` is ``stop`` (end at a record that cannot be used) or ``skip`` (leave it out); None: ``skip``
    for files of more than SKIP_BYTES together. Where more than the share ``max_rejected`` of at least 100
    records cannot be used, reading ends with an error; papers that lack only an abstract do not count.
    ``keep_without_abstract`` keeps such papers, with the title as abstract, as do formats of reference
    managers where ``on_error`` is None. ``dedupe`` merges papers of one ``title`` (normalized, with year and
    first author), one ``doi``, or ``both``. Reading ends after ``limit`` papers.

    >>> Reading(categories=("cs.*",)).keeps({"categories": ["math.CO", "cs.CG"]})
    True
    """

    format: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    categories: tuple[str, ...] = ()
    on_error: str | None = None
    max_rejected: float = 0.01
    keep_without_abstract: bool = False
    dedupe: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        for name, values in CHOICES.items():
            if (value := getattr(self, name)) is not None and value not in values:
                raise UsageError(f"expected `{name}` of {', '.join(values)}, found {value!r}")
        if unknown := sorted(set(self.columns) - set(COLUMNS)):
            raise UsageError(f"expected fields {', '.join(COLUMNS)}, found {unknown[0]!r}; check `columns`")
        if not 0 <= self.max_rejected <= 1:
            raise UsageError(f"expected `max_rejected` from 0 to 1, found {self.max_rejected:g}")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"expected `limit` of at least 1, found {self.limit}")

    def keeps(self, metadata: Mapping[str, Any]) -> bool:
        """Return True if no category is chosen, or the paper has a chosen one."""
        names = metadata.get("categories") or ()
        names = names.split() if isinstance(names, str) else map(str, names)
        return not self.categories or any(fnmatchcase(*each) for each in product(names, self.categories))

    def record(self) -> dict[str, Any]:
        """Return the options that are not the default, as JSON values."""
        values = vars(self) | {"columns": dict(self.columns), "categories": list(self.categories)}
        if self.max_rejected == Reading.max_rejected:
            values["max_rejected"] = None
        return {name: value for name, value in values.items() if value}


AS_IT_COMES = Reading()
# Reads the decompressed bytes of a source, whose name stands in messages, as entries. What is wrong with one
# record is a RecordError in its entry; CorpusError is raised where nothing more can be read.
Reader = Callable[[io.BufferedReader, str, Reading], Iterator[Entry]]


def converted(
    originals: Iterable[tuple[str, Original | RecordError]],
    to_record: Callable[[Original], dict[str, Any] | None],
) -> Iterator[Entry]:
    """Convert originals, each with its place, to entries; errors become entries, None is left out."""
    for where, original in originals:
        try:
            if isinstance(original, RecordError):
                raise original
            if (record := to_record(original)) is not None:
                # An object of JSON has the names that stand twice in it.
                yield Entry(where, noted(record, getattr(original, "twice", ()), "last"))
        except RecordError as error:
            yield Entry(where, placed(error, where))


def locate(text: str, sentences: Sequence[str]) -> Offsets | None:
    """Return the offsets into ``text`` of its sentences, in order; None where a splitter changed letters."""
    offsets, end = list[tuple[int, int]](), 0
    for sentence in sentences:
        found = _VISIBLE.search(text, end) if sentence else None
        begin = found.start() if found else end
        end = begin + len(sentence)
        if not text.startswith(sentence, begin):  # white space within it is another
            count = len(_VISIBLE.findall(sentence))
            places = [match.end() for match in islice(_VISIBLE.finditer(text, begin), count)]
            if len(places) < count:
                return None
            end = places[-1] if places else begin
        offsets.append((begin, end))
    return None if _VISIBLE.search(text, end) else tuple(offsets)


def parse_paper(
    record: Mapping[str, Any], where: str, split: Splitter | None = None, default_id: str | None = None
) -> Paper:
    """Return the paper of a record; raises RecordError, which begins with ``where``, for invalid fields.

    ``split`` splits an abstract that is one string, which is an error without it. ``default_id`` replaces a
    missing ``paper_id``. White space and control characters become single spaces; empty sentences are dropped
    with their labels.
    """
    paper_id, title, abstract, labels, metadata = map(record.get, FIELDS)
    try:
        paper_id = default_id if paper_id is None and default_id is not None else _paper_id(paper_id)
        if not isinstance(title, str):
            raise _invalid("a string as title", title, 'add "title", if need be the empty string', "no title")
        title = _clean(title, "title")
        if isinstance(abstract, str) and split is not None:
            sentences, offsets = _split(abstract, split)
        else:
            headed, offsets, texts = record.get(HEADED), record.get(OFFSETS), _sentences(abstract)
            if not (isinstance(headed, list) and len(headed) == len(texts)):
                headed = [None] * len(texts)
            sentences = list(map(headed_sentence, texts, headed))
            offsets = None if offsets is None else _offsets(offsets, len(sentences))
        if labels is not None:
            facets = _facets(labels, abstract, len(sentences))
            sentences = [Sentence(each.text, facet) for each, facet in zip(sentences, facets, strict=True)]
        kept = [place for place, sentence in enumerate(sentences) if sentence.text]
        if not kept:
            raise unfit("an abstract", "an empty one", NO_ABSTRACT_ADVICE, NO_ABSTRACT)
        whole = tuple(sentences[place] for place in kept)
        about = {} if metadata is None else _metadata(metadata)
        spans = None if offsets is None else tuple(offsets[place] for place in kept)
        return Paper(paper_id, title, whole, labels is not None, about, spans)
    except RecordError as error:
        raise placed(error, where) from None


def paper_from_text(title: str, abstract: str, *, paper_id: str | None = None) -> Paper:
    """Make a paper of a title, which may be empty, and an abstract, which is split into sentences.

    Without ``paper_id`` its id is ``sha-`` and 16 hexadecimal digits of the SHA-256 of both texts.

    White space and control characters become single spaces. Raises TypeError for an argument that is not a
    string, and CorpusError for an empty abstract, a text that no corpus may contain (NUL characters, lone
    surrogates, over a million characters), or an id with white space.

    >>> paper = paper_from_text("On fish", "Fish swim. We count them, e.g. cod.")
    >>> [sentence.text for sentence in paper.sentences]
    ['Fish swim.', 'We count them, e.g. cod.']
    >>> paper.paper_id
    'sha-18d06b14ce4412fd'
    """
    given = {"title": title, "abstract": abstract} | ({} if paper_id is None else {"paper_id": paper_id})
    for name, value in given.items():
        if not isinstance(value, str):
            raise TypeError(f"expected `{name}` of type str, found {type(value).__name__}")
    if paper_id is None:
        texts = "\n".join(" ".join(text.split()) for text in (title, abstract))
        paper_id = f"sha-{hashlib.sha256(texts.encode(errors='replace')).hexdigest()[:16]}"
    where = f"paper {paper_id}" if paper_id.isprintable() else "paper"
    return parse_paper(given | {"paper_id": paper_id}, where, split_sentences)


def paper_to_record(paper: Paper) -> dict[str, Any]:
    """Invert `parse_paper`; no facet becomes ``other_label``, an objective given ``background_label``."""
    abstract = [sentence.text for sentence in paper.sentences]
    record: dict[str, Any] = {"paper_id": paper.paper_id, "title": paper.title, "abstract": abstract}
    if paper.labelled:
        given = ((each.probabilities, each.facet or "other") for each in paper.sentences)
        record["pred_labels"] = [f"{its.label if its else facet!s}_label" for its, facet in given]
    elif any(each.probabilities for each in paper.sentences):
        record[HEADED] = [each.probabilities and each.probabilities.label for each in paper.sentences]
    if paper.offsets is not None:
        record[OFFSETS] = [list(pair) for pair in paper.offsets]
    if paper.metadata:
        record["metadata"] = dict(paper.metadata)
    return record


def dump_record(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def is_id(text: str) -> bool:
    """Return True for one printable word that is not too long."""
    # isprintable() refuses white space other than the space, control characters and surrogates.
    return 0 < len(text) <= MAX_ID_CHARS and " " not in text and text.isprintable()


def check_unicode(text: str, where: str = "") -> None:
    """Raise RecordError for half a surrogate pair, which no UTF-8 file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        found, reason = "a lone surrogate (\\ud800 to \\udfff)", "a lone surrogate"
        raise unfit("Unicode text", found, "remove it", reason, where) from None


def _paper_id(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        expected = "a string or whole number as paper_id"
        raise _invalid(expected, value, 'give each paper a "paper_id"', "no paper_id")
    if is_id(value):
        return value
    if len(value) > MAX_ID_CHARS:
        expected = f"a paper_id of at most {MAX_ID_CHARS} characters"
        raise unfit(expected, f"{len(value):,}", "shorten it", "a paper_id that is too long")
    expected = "a paper_id without white space (a TREC run could not hold it)"
    found = "white space" if value.split() != [value] else "an unprintable character"
    reason = "a paper_id with white space or control characters"
    raise unfit(expected, f"{found} in {_short(value)}", "rename the paper", reason)


def _split(abstract: str, split: Splitter) -> tuple[list[Sentence], Offsets | None]:
    check_length(len(abstract))
    sentences, offsets = list[Sentence](), list[tuple[int, int]]()
    whole = [Part(0, len(abstract))]
    for begin, end, label in whole if split is unsplit else headed_parts(abstract):
        part = abstract[begin:end]
        texts = [text.strip() for text in split(_clean(part, "abstract"))]
        sentences += [headed_sentence(text, label) for text in texts] if label else map(Sentence, texts)
        offsets += [(begin + first, begin + last) for first, last in locate(part, texts) or ()]
    return sentences, tuple(offsets) if len(offsets) == len(sentences) else None


def headed_sentence(text: str, label: Any) -> Sentence:
    """Make a sentence; the ``label`` of its heading has the probability 1."""
    if label not in FacetProbabilities._fields:
        return Sentence(text)
    shares = FacetProbabilities(*(float(name == label) for name in FacetProbabilities._fields))
    return Sentence(text, shares.facet, shares)


def _sentences(abstract: Any) -> list[str]:
    """Return cleaned sentences, empty ones kept, as labels count them."""
    if isinstance(abstract, list | tuple):
        check_length(sum(len(text) for text in abstract if isinstance(text, str)))
        return [_clean(text, "abstract") for text in abstract]
    if isinstance(abstract, str):
        check_length(len(abstract))
        reason = "an abstract that is not split" if abstract.strip() else NO_ABSTRACT
        raise _invalid("a list of sentences as abstract", abstract, "split it into sentences", reason)
    reason = NO_ABSTRACT if abstract is None else "an abstract that is no text"
    raise _invalid("an abstract", abstract, 'add "abstract" or drop the paper', reason)


def _facets(labels: Any, abstract: Any, count: int) -> list[Facet | None]:
    reason, advice = "labels that do not fit", "give one label a sentence, or none at all"
    if isinstance(abstract, str):
        expected = "a list of sentences as abstract, one for each of pred_labels"
        raise _invalid(expected, abstract, "split it", reason)
    if not isinstance(labels, list | tuple):
        raise _invalid("a list as pred_labels", labels, advice, reason)
    if len(labels) != count:
        expected = f"as many pred_labels as sentences in the abstract ({count})"
        raise unfit(expected, str(len(labels)), advice, reason)
    facets: list[Facet | None] = []
    for label in labels:
        try:
            facets.append(Facet.from_label(label))
        except (KeyError, AttributeError):
            expected = "background, problem, objective, method, result, findings or other as label"
            raise _invalid(expected, label, "rename the label", "an unknown label") from None
    return facets


def _offsets(value: Any, sentences: int) -> Offsets:
    try:
        offsets = tuple((begin, end) for begin, end in value)
        flat = [0, *(offset for pair in offsets for offset in pair)]
        if len(offsets) == sentences and all(type(each) is int for each in flat) and flat == sorted(flat):
            return offsets
    except (TypeError, ValueError):
        pass
    expected = f"{OFFSETS} as one pair of ascending offsets a sentence"
    raise unfit(expected, "others", "drop the field", "offsets that are not the sentences'")


def _metadata(metadata: Any) -> Mapping[str, Any]:
    if not isinstance(metadata, Mapping):
        advice, reason = "make it one or drop it", "metadata that is no object"
        raise _invalid("an object as metadata", metadata, advice, reason)
    level: list[Any] = [metadata]
    for _ in range(MAX_DEPTH):
        values = (each.values() if isinstance(each, Mapping) else each for each in level)
        children = (child for each in values for child in each if type(child) not in _SCALARS)
        level = [child for child in children if isinstance(child, (Mapping, list, tuple))]
        if not level:
            return metadata
    expected = f"metadata of at most {MAX_DEPTH} objects and lists within each other"
    raise unfit(expected, "more", "drop it", "metadata nested too deeply")


def _clean(text: Any, field: str) -> str:
    if not isinstance(text, str):
        raise _invalid(f"strings in the {field}", text, "mend the record", f"{field} that is no text")
    check_length(len(text), field)
    if text.isprintable():  # of white space it lets only the space pass
        return text.strip() if "  " not in text else " ".join(text.split())
    if "\0" in text:
        raise unfit("text", f"a NUL character in the {field}", "remove it", "a NUL character")
    check_unicode(text)
    return " ".join(text.translate(_CONTROLS).split())


def check_length(length: int, field: str = "abstract", found: str = "") -> None:
    if length > MAX_ABSTRACT_CHARS:
        expected, found = f"{field} of at most {MAX_ABSTRACT_CHARS:,} characters", found or f"{length:,}"
        raise unfit(expected, found, "shorten it or drop the paper", f"{field} that is too long")


def _invalid(expected: str, value: Any, advice: str, reason: str) -> RecordError:
    found = "none" if value is None else f"{type(value).__name__} {_short(value)}"
    return unfit(expected, found, advice, reason)


def _short(value: Any) -> str:
    try:
        text = ascii(value if not isinstance(value, str) else value[:60])
    except RecursionError:
        text = "values within values"
    return text if len(text) <= 62 else text[:59] + "..."


class RejectedRecords:
    """Count records of a corpus that were not used, or not as they are.

    ``skipped`` counts by the reason of their errors, ``noted`` by NOTED. ``deleted`` has the ids that the
    sources declare deleted, ``ids`` known ids of skipped records. With a ``stream``, each record is a line of
    JSON there: ``where``, ``reason`` and ``message``.
    """

    def __init__(self, stream: IO[bytes] | None = None) -> None:
        self.skipped: Counter[str] = Counter()
        self.merged = 0
        self.noted: Counter[str] = Counter()
        self.deleted: frozenset[str] = frozenset()
        self.ids: set[str] = set()
        self.broken = 0  # but for those that lack an abstract, non-papers and other formats
        self.accepted = 0  # broken records of reference managers, whose libraries have some
        self.nameless = 0  # the broken records whose ids are not known
        self._stream = stream

    def __bool__(self) -> bool:
        return bool(self.skipped or self.merged or self.noted)

    def skip(
        self, where: str, error: RecordError, paper_id: str | None = None, title: str | None = None
    ) -> None:
        """Count a record that cannot be used, of that id and title where it tells them."""
        self.skipped[error.reason] += 1
        is_broken = error.is_fault and error.reason not in (NO_ABSTRACT, NOT_RECOGNIZED)
        self.broken += is_broken
        if paper_id is None:
            self.nameless += is_broken
        else:
            self.ids.add(paper_id)
        told = {"paper_id": paper_id or next(iter(error.names), None), "title": title}
        self.note(error.reason, where, str(error), **{k: v for k, v in told.items() if v})

    def merge(self, where: str, paper_id: str, first: str, by: str | None, place: str) -> None:
        """Count a duplicate of the paper ``first``, which occurred at ``place``; ``by`` is what both have."""
        self.merged += 1
        same = f"{paper_id!r} has the {by} of {first!r}" if by else f"{first!r} was there before"
        self.note("duplicate", where, f"{same} ({place}), which is kept")

    def note(self, kind: str, where: str, message: str, **more: str) -> None:
        """List what is wrong with a record, a paper or a file; count it if it is one of NOTED."""
        if kind in NOTED:
            self.noted[kind] += 1
        if self._stream is not None:
            message = message if message.startswith(where) else f"{where}: {message}"
            self._stream.write(dump_record({"where": where, "reason": kind, "message": message, **more}))

    def check(self, max_rejected: float, kept: int) -> None:
        """Raise CorpusError where too large a share of at least FEWEST records is broken."""
        total = kept + sum(self.skipped.values()) + self.merged
        if self.broken - self.accepted > max_rejected * total and total >= FEWEST:
            raise CorpusError(
                f"{self.broken:,} of {total:,} records are broken ({self.reasons()}), expected at most "
                f"{100 * max_rejected:.3g} %; mend them, or accept them with `max_rejected` "
                f"{math.ceil(1000 * self.broken / total) / 1000:g}"
            )

    def reasons(self) -> str:
        """Return the counts by reason, the most frequent first."""
        return ", ".join(f"{reason}: {count:,}" for reason, count in self.skipped.most_common())

    def summary(self) -> str:
        """Say what was left out in one line; empty where nothing was."""
        total = sum(self.skipped.values())
        noun = "record" if total == 1 else "records"
        skipped = f"{total:,} {noun} skipped ({self.reasons()})" if total else ""
        merged = f"{self.merged:,} merged as duplicates" if self.merged else ""
        notes = (f"{reason}: {count:,}" for reason, count in self.noted.items())
        return ", ".join(filter(None, (skipped, merged, *notes)))

    def counts(self) -> dict[str, int]:
        """Return the counts by reason, with those of duplicates and notes, as JSON values."""
        duplicates = {"duplicate": self.merged} if self.merged else {}
        return {**dict(self.skipped.most_common()), **duplicates, **self.noted}
