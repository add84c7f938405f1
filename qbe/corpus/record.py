"""A record of a corpus and its Paper, converted in both directions.

The fields are those of CSFCube's release (Mysore et al., 2021): ``paper_id`` (string or whole number),
``title``, ``abstract`` (a list of sentences, or one string), and optionally ``pred_labels`` (one
``<facet>_label`` a sentence), ``metadata`` (an object) and ``sentence_offsets`` (a pair a sentence, where
the abstract was split here). Other fields are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from qbe.errors import RecordError
from qbe.types import Facet, Paper, Sentence

Splitter = Callable[[str], Sequence[str]]
"""Splits an abstract into sentences."""

FIELDS = ("paper_id", "title", "abstract", "pred_labels", "metadata")
_LABELS = "background, objective, method, result or other, with or without '_label'"

MAX_ABSTRACT_CHARS = 1_000_000
"""The longest abstract (or title) allowed; whole books are shorter, so a longer one is a conversion error."""

MAX_ID_CHARS = 512

NO_ABSTRACT = "no abstract"
"""The reason of the error for a paper without an abstract."""

_CONTROLS = dict.fromkeys((*range(1, 32), *range(127, 160)), " ")
_VISIBLE = re.compile(r"[^\s\x00-\x1f\x7f-\x9f]")

MAX_DEPTH = 100
"""How many objects and lists may be within each other in metadata, which other code follows to the end."""

OFFSETS = "sentence_offsets"
Offsets = tuple[tuple[int, int], ...]
"""Offsets (begin, end) of each sentence, end exclusive, in characters."""


def locate(text: str, sentences: Sequence[str]) -> Offsets | None:
    """Offsets into ``text`` of the sentences that it was split into, in their order.

    White space and control characters may differ. None where a splitter has added or dropped
    visible characters.

    >>> locate("Fish  swim. We count.", ["Fish swim.", "We count."])
    ((0, 11), (12, 21))
    >>> locate("Fish swim.", ["Fish"]) is None
    True
    """
    offsets, end = list[tuple[int, int]](), 0
    for sentence in sentences:  # nearly all stand there as they are: ten times as fast as what follows
        begin = text.find(sentence, end)
        if begin < 0 or not sentence or (begin > end and not text[end:begin].isspace()):
            break
        end = begin + len(sentence)
        offsets.append((begin, end))
    if len(offsets) == len(sentences) and not text[end:].strip():
        return tuple(offsets)
    places = [match.start() for match in _VISIBLE.finditer(text)]
    counts = [len(_VISIBLE.findall(sentence)) for sentence in sentences]
    if sum(counts) != len(places):
        return None
    offsets, first, end = [], 0, 0
    for count in counts:
        begin, end = (places[first], places[first + count - 1] + 1) if count else (end, end)
        offsets.append((begin, end))
        first += count
    return tuple(offsets)


def parse_paper(
    record: Mapping[str, Any], where: str, split: Splitter | None = None, default_id: str | None = None
) -> Paper:
    """The paper of a record.

    ``where`` (file and line) begins every error message. ``split`` splits an abstract that is one string;
    without it such an abstract is an error. ``default_id`` replaces a missing ``paper_id``. White space and
    control characters within a text become single spaces; sentences that are empty then are dropped,
    together with their labels.

    Raises RecordError for a missing or invalid field, an abstract without a sentence, texts over
    MAX_ABSTRACT_CHARS, NUL characters and lone surrogates, labels that are unknown or not one a sentence.

    >>> record = {"paper_id": 7, "title": "On  fish", "abstract": ["We count."], "pred_labels": ["method"]}
    >>> paper = parse_paper(record, "papers.jsonl, line 1")
    >>> paper.paper_id, paper.title, paper.sentences[0].facet
    ('7', 'On fish', <Facet.METHOD: 'method'>)
    """
    paper_id = _paper_id(record.get("paper_id"), where, default_id)
    title, abstract, labels = (record.get(name) for name in ("title", "abstract", "pred_labels"))
    if not isinstance(title, str):
        advice = 'add "title", if need be the empty string'
        raise _invalid(where, "a string as title", title, advice, "no title")
    _check_length(len(title), "title", where)
    texts = _sentences(abstract, where, split)
    if not any(texts):
        raise lacking_abstract(where, "an empty one")
    offsets = record.get(OFFSETS)
    if isinstance(abstract, str):
        offsets = locate(abstract, texts)
    elif offsets is not None:
        offsets = _offsets(offsets, len(texts), where)
    facets = [None] * len(texts) if labels is None else _facets(labels, abstract, len(texts), where)
    kept = [place for place, text in enumerate(texts) if text]
    return Paper(
        paper_id,
        _clean(title, "title", where),
        tuple(Sentence(texts[place], facets[place]) for place in kept),
        labels is not None,
        _metadata(record.get("metadata"), where),
        None if offsets is None else tuple(offsets[place] for place in kept),
    )


def paper_from_record(record: Mapping[str, Any]) -> Paper:
    """The paper of a record that `paper_to_record` made; nothing is validated or cleaned.

    >>> from qbe.types import Paper, Sentence
    >>> paper = Paper("1", "A title", (Sentence("One."), Sentence("Two.")))
    >>> paper_from_record(paper_to_record(paper)) == paper
    True
    """
    labels, offsets = record.get("pred_labels"), record.get(OFFSETS)
    facets = [None] * len(record["abstract"]) if labels is None else map(Facet.from_label, labels)
    return Paper(
        record["paper_id"],
        record["title"],
        tuple(map(Sentence, record["abstract"], facets)),
        labels is not None,
        record.get("metadata") or {},
        None if offsets is None else tuple((begin, end) for begin, end in offsets),
    )


def paper_to_record(paper: Paper) -> dict[str, Any]:
    """The inverse of `parse_paper`: abstract as a list, ``pred_labels`` for a labelled paper.

    A sentence whose label was predicted has that label; of the others one without facet is labelled
    ``other_label``, and one that was given as ``objective_label`` has become ``background_label``. The
    probabilities of predicted labels are not kept.

    >>> sentences = Sentence("One.", Facet.METHOD), Sentence("Two.")
    >>> paper_to_record(Paper("1", "A title", sentences, labelled=True))["pred_labels"]
    ['method_label', 'other_label']
    """
    record: dict[str, Any] = {
        "paper_id": paper.paper_id,
        "title": paper.title,
        "abstract": [sentence.text for sentence in paper.sentences],
    }
    if paper.labelled:
        record["pred_labels"] = [f"{_label(sentence)}_label" for sentence in paper.sentences]
    if paper.offsets is not None:
        record[OFFSETS] = [list(pair) for pair in paper.offsets]
    if paper.metadata:
        record["metadata"] = dict(paper.metadata)
    return record


def dump_record(record: dict[str, Any]) -> bytes:
    """One line of JSON, with its line end.

    >>> print(dump_record({"paper_id": "1", "title": "Über"}).decode(), end="")
    {"paper_id": "1", "title": "Über"}
    """
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _label(sentence: Sentence) -> str:
    return sentence.probabilities.label if sentence.probabilities else str(sentence.facet or "other")


def is_id(text: str) -> bool:
    """Whether a text can be the id of a paper: one word without control characters, not too long.

    >>> is_id("10.1000/abc"), is_id("Lee 2019")
    (True, False)
    """
    # isprintable() refuses white space other than the space, control characters and surrogates.
    return 0 < len(text) <= MAX_ID_CHARS and " " not in text and text.isprintable()


def check_unicode(text: str, where: str) -> None:
    """Raise RecordError for half a surrogate pair, which no UTF-8 file can hold.

    >>> check_unicode(chr(0xD800), "papers.jsonl, line 3")
    Traceback (most recent call last):
        ...
    qbe.errors.RecordError: papers.jsonl, line 3: expected Unicode text, found a lone surrogate ...
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RecordError(
            f"{where}: expected Unicode text, found a lone surrogate (\\ud800 to \\udfff); remove it",
            "a lone surrogate",
        ) from None


def lacking_abstract(where: str, actual: str) -> RecordError:
    """The error for a paper whose abstract is ``actual``, which is none."""
    return RecordError(
        f"{where}: expected an abstract, found {actual}; add its text or drop the paper", NO_ABSTRACT
    )


def _paper_id(value: Any, where: str, default: str | None) -> str:
    if value is None and default is not None:
        return default
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        expected = "a string or whole number as paper_id"
        raise _invalid(where, expected, value, 'give each paper a "paper_id"', "no paper_id")
    if is_id(value):
        return value
    if len(value) <= MAX_ID_CHARS:
        problem = "white space" if value.split() != [value] else "an unprintable character"
        raise RecordError(
            f"{where}: expected a paper_id without white space (a TREC run could not hold it), "
            f"found {problem} in {_short(value)}; rename the paper",
            "a paper_id with white space or control characters",
        )
    raise RecordError(
        f"{where}: expected a paper_id of at most {MAX_ID_CHARS} characters, found {len(value):,}; "
        "shorten it",
        "a paper_id that is too long",
    )


def _sentences(abstract: Any, where: str, split: Splitter | None) -> list[str]:
    """Cleaned sentences, empty ones kept."""
    if isinstance(abstract, str):
        _check_length(len(abstract), "abstract", where)
        if split is None:
            reason = "an abstract that is not split" if abstract.strip() else NO_ABSTRACT
            expected = "a list of sentences as abstract"
            raise _invalid(where, expected, abstract, "split it into sentences", reason)
        return [text.strip() for text in split(_clean(abstract, "abstract", where))]
    if not isinstance(abstract, (list, tuple)):
        expected = "a list of sentences or a string as abstract"
        reason = NO_ABSTRACT if abstract is None else "an abstract that is no text"
        raise _invalid(where, expected, abstract, 'add "abstract" or drop the paper', reason)
    _check_length(sum(len(text) for text in abstract if isinstance(text, str)), "abstract", where)
    return [_clean(text, "abstract", where) for text in abstract]


def _facets(labels: Any, abstract: Any, count: int, where: str) -> list[Facet | None]:
    reason = "labels that do not fit"
    if isinstance(abstract, str):
        expected = "a list of sentences as abstract, one for each of pred_labels"
        raise _invalid(where, expected, abstract, "split it", reason)
    advice = "give one label a sentence, or none at all"
    if not isinstance(labels, (list, tuple)):
        raise _invalid(where, "a list as pred_labels", labels, advice, reason)
    if len(labels) != count:
        raise RecordError(
            f"{where}: expected as many pred_labels as sentences in the abstract ({count}), "
            f"found {len(labels)}; {advice}",
            reason,
        )
    facets: list[Facet | None] = []
    for label in labels:
        try:
            facets.append(Facet.from_label(label))
        except (KeyError, AttributeError):
            raise _invalid(
                where, f"{_LABELS} as label", label, "rename the label", "an unknown label"
            ) from None
    return facets


def _offsets(value: Any, sentences: int, where: str) -> Offsets:
    """The offsets of a record; raises RecordError unless they are one ascending pair a sentence."""
    try:
        offsets = tuple((begin, end) for begin, end in value)
        flat = [0, *(offset for pair in offsets for offset in pair)]
        if len(offsets) == sentences and all(type(each) is int for each in flat) and flat == sorted(flat):
            return offsets
    except (TypeError, ValueError):
        pass
    raise RecordError(
        f"{where}: expected {OFFSETS} as one pair of ascending offsets a sentence, found others; drop "
        "the field",
        "offsets that are not the sentences'",
    )


def _metadata(metadata: Any, where: str) -> Mapping[str, Any]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        reason = "metadata that is no object"
        raise _invalid(where, "an object as metadata", metadata, "make it one or drop it", reason)
    level: list[Any] = [metadata]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, Mapping) else each)
            if isinstance(child, (Mapping, list, tuple))
        ]
        if not level:
            return metadata
    raise RecordError(
        f"{where}: expected metadata of at most {MAX_DEPTH} objects and lists within each other, "
        "found more; drop it",
        "metadata nested too deeply",
    )


def _clean(text: Any, field: str, where: str) -> str:
    """The text with single spaces for white space and control characters, none at its ends."""
    if not isinstance(text, str):
        raise _invalid(where, f"strings in the {field}", text, "mend the record", f"{field} that is no text")
    if text.isprintable():  # of white space it lets only the space pass
        return text.strip() if "  " not in text else " ".join(text.split())
    if "\0" in text:
        raise RecordError(
            f"{where}: expected text, found a NUL character in the {field}; remove it", "a NUL character"
        )
    check_unicode(text, where)
    return " ".join(text.translate(_CONTROLS).split())


def _check_length(length: int, field: str, where: str) -> None:
    if length > MAX_ABSTRACT_CHARS:
        raise RecordError(
            f"{where}: expected {field} of at most {MAX_ABSTRACT_CHARS:,} characters, found {length:,}; "
            "shorten it or drop the paper",
            f"{field} that is too long",
        )


def _invalid(where: str, expected: str, value: Any, advice: str, reason: str) -> RecordError:
    what = "none" if value is None else f"{type(value).__name__} {_short(value)}"
    return RecordError(f"{where}: expected {expected}, found {what}; {advice}", reason)


def _short(value: Any) -> str:
    try:
        text = ascii(value if not isinstance(value, str) else value[:60])
    except RecursionError:
        text = "values within values"
    return text if len(text) <= 62 else text[:59] + "..."
