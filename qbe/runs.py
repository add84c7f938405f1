"""Files of retrieval experiments: TREC runs and qrels, topics, pools and graded pairs.

Topics and pools are tab-separated with a header line. A topic whose facet is empty or left out is about its
paper's whole abstract. A topic about a paper outside the index has, in place of a paper's id, its abstract as
``text`` and perhaps its ``title``. A topic of several aspects states them in ``aspects``, separated by
spaces: each a weight and ``*`` (left out: 1), then ``background``, ``method``, ``result``, ``abstract`` or
``sentences:`` with positions from 0, then ``@`` and a paper's id (left out: the topic's paper), such as
``background -0.5*method@p7``.
"""

import itertools
import math
import re
import struct
import sys
from array import array
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from qbe.errors import FileFormatError, PaperNotFoundError, UsageError
from qbe.query import HIGHEST, Topic, TopicAspect, check_weight, format_weight
from qbe.types import Facet, Hit
from qbe.util.files import StrPath, write_text
from qbe.util.text import bad_line, plain_number, read_fields, some

Rankings = Mapping[str, Sequence[Hit]]  # by query id, best first
Qrels = Mapping[str, Mapping[str, int]]  # relevance by query id and paper id, as ir-measures takes it

MAX_RELEVANCE = 1000  # in qrels: measures take time and memory in proportion to it
TOPICS_HEADER = ("query_id", "paper_id", "facet", "aspects", "title", "text")
POOLS_HEADER = ("query_id", "paper_id")
PAIRS_HEADER = ("query_id", "paper_id", *(facet.value for facet in Facet))
_SPACED = ("aspects", "title", "text")  # columns whose fields may hold white space
_ASPECT = re.compile(
    r"(?:(?P<weight>[-+0-9.eE]+)\*)?"
    r"(?:(?P<facet>background|problem|method|result|findings)|abstract|sentences:(?P<positions>\d+(?:,\d+)*))"
    r"(?:@(?P<paper_id>\S+))?"
)


class RunFile(NamedTuple):
    """The content of a run file: its tag (of the last line), and hits by query id, best first."""

    tag: str
    rankings: dict[str, tuple[Hit, ...]]


class GradedPair(NamedTuple):
    """A candidate and its grades by facet, from 0 (unrelated) to 3 (nearly identical); NaN: not graded."""

    paper_id: str
    grades: tuple[float, ...]


GradedLists = Mapping[str, Sequence[GradedPair]]  # by query paper, in the order of the file


def _single(value: float) -> float:
    """The nearest IEEE single-precision number; infinite beyond the largest."""
    return array("f", [value])[0]


def strictly_decreasing(scores: Iterable[float]) -> Iterator[float]:
    """Yield scores in single precision, each below the one before it; ValueError for one that is not finite.

    trec_eval keeps scores so and breaks ties by document id, which would reorder a run: a score that does not
    lie below its predecessor becomes the next number below it.
    """
    previous = math.inf
    for score in scores:
        value = _single(score)
        if math.isfinite(value) and value >= previous:
            bits = struct.unpack("<i", struct.pack("<f", previous))[0]
            below = struct.pack("<i", bits - 1 if previous > 0 else bits + 1)
            value = float(struct.unpack("<f", below)[0]) if previous else -_single(2.0**-149)
        if not math.isfinite(value):
            raise ValueError(f"a score must be finite in single precision, found {score}")
        yield value
        previous = value


def as_written(rankings: Rankings) -> dict[str, tuple[Hit, ...]]:
    """Give hits the scores of a run file; raise UsageError for one not finite, or a paper twice."""
    written = {}
    for query_id, hits in rankings.items():
        try:
            scores = list(strictly_decreasing(hit.score for hit in hits))
        except ValueError as error:
            raise UsageError(f"query {query_id}: {error}; give other scores") from error
        twice = [paper_id for paper_id, count in Counter(hit.paper_id for hit in hits).items() if count > 1]
        if twice:
            raise UsageError(
                f"expected each paper once in a ranking, found {twice[0]} again for {query_id}; leave it out"
            )
        written[query_id] = tuple(hit._replace(score=score) for hit, score in zip(hits, scores, strict=True))
    return written


def format_run(tag: str, rankings: Rankings) -> str:
    """Format a run as TREC text (see `as_written`); raises UsageError for a tag or id of several words."""
    if tag.split() != [tag]:
        raise UsageError(f"expected a run tag of one word, found {tag!r}; leave out white space")
    lines = []
    for query_id, hits in as_written(rankings).items():
        for word in (query_id, *(hit.paper_id for hit in hits)):
            if str(word).split() != [str(word)]:
                raise UsageError(f"expected ids of one word each, found {word!r}; leave out white space")
        for rank, hit in enumerate(hits, start=1):
            lines.append(f"{query_id} Q0 {hit.paper_id} {rank} {hit.score:.9g} {tag}\n")
    return "".join(lines)


def read_run(path: StrPath) -> RunFile:
    """Read a TREC run as trec_eval does: hits by score in single precision, then by id, both descending."""
    rankings: dict[str, dict[str, Hit]] = {}
    tag = ""
    for number, fields in read_fields(path, None):
        if len(fields) != 6:
            raise bad_line(path, number, "query_id Q0 paper_id rank score tag", " ".join(fields))
        query_id, _, paper_id, _, score, tag = fields
        try:
            hit = Hit(sys.intern(paper_id), float(plain_number(score)))  # one string a document, not a line
        except ValueError as error:
            raise bad_line(path, number, "a number as score", score) from error
        if not math.isfinite(hit.score):
            raise bad_line(path, number, "a finite number as score", score)
        hits = rankings.setdefault(query_id, {})
        if paper_id in hits:
            raise bad_line(path, number, "each document once in a query", f"{paper_id} again for {query_id}")
        hits[hit.paper_id] = hit
    ordered = {
        query: tuple(sorted(hits.values(), key=lambda hit: (_single(hit.score), hit.paper_id), reverse=True))
        for query, hits in rankings.items()
    }
    return RunFile(tag, ordered)


def write_qrels(path: StrPath, qrels: Qrels) -> None:
    """Write a TREC qrels file: query id, 0, document id, relevance."""
    judgments = ((query, *each) for query, grades in qrels.items() for each in grades.items())
    write_text(path, "".join(f"{query} 0 {paper} {grade}\n" for query, paper, grade in judgments))


def read_qrels(*paths: StrPath) -> dict[str, dict[str, int]]:
    """Read TREC qrels files into relevance by query id and paper id, the mapping that ir-measures takes.

    Raises FileFormatError, also for a paper that is judged twice for a query, in one file or in two.

    >>> for facet, grade in (("method", 2), ("result", 0)):
    ...     write_qrels(f"{facet}.qrels", {f"1_{facet}": {"a": grade}})
    >>> read_qrels("method.qrels", "result.qrels")
    {'1_method': {'a': 2}, '1_result': {'a': 0}}
    """
    qrels: dict[str, dict[str, int]] = {}
    source: dict[str, StrPath] = {}
    for path in paths:
        of_file: dict[str, dict[str, int]] = {}
        for number, fields in read_fields(path, None):
            if len(fields) != 4:
                raise bad_line(path, number, "query_id 0 paper_id relevance", " ".join(fields))
            query_id, _, paper_id, relevance = fields
            grades = of_file.setdefault(query_id, {})
            if paper_id in grades:
                expected = "each document judged once for a query"
                raise bad_line(path, number, expected, f"{paper_id} again for {query_id}")
            try:
                grade = int(plain_number(relevance))
            except ValueError as error:
                raise bad_line(path, number, "a whole number as relevance", relevance) from error
            if abs(grade) > MAX_RELEVANCE:  # an id in the wrong column
                expected = f"a relevance from -{MAX_RELEVANCE} to {MAX_RELEVANCE}"
                raise bad_line(path, number, expected, relevance)
            grades[sys.intern(paper_id)] = grade
        for query_id, grades in of_file.items():
            if twice := qrels.get(query_id, {}).keys() & grades.keys():
                raise FileFormatError(
                    f"{path}: expected each document judged once for a query, found {min(twice)} for "
                    f"{query_id} in {source[query_id]} too; give each qrels file once"
                )
            qrels.setdefault(query_id, {}).update(grades)
            source[query_id] = path
    return qrels


def write_topics(path: StrPath, topics: Iterable[Topic]) -> None:
    """Write a topics file with its header; leave out columns that no topic needs."""
    rows = [
        (
            *(t.query_id, t.paper_id, t.facet.value if t.facet else ""),
            *(format_aspects(t.paper_id, t.aspects), " ".join(t.title.split()), " ".join(t.text.split())),
        )
        for t in topics
    ]
    used = [not place or any(row[place] for row in rows) for place in range(len(TOPICS_HEADER))]
    table = (itertools.compress(row, used) for row in (TOPICS_HEADER, *rows))
    write_text(path, "".join("\t".join(row) + "\n" for row in table))


def read_topics(path: StrPath) -> list[Topic]:
    """Read a topics file; raises FileFormatError for a wrong header, field, aspect or a repeated id."""
    return [topic for _, topic in numbered_topics(path)]


def numbered_topics(path: StrPath) -> Iterator[tuple[int, Topic]]:
    """Yield the topics of a file with their line numbers."""
    expected = (
        "a header line <query_id> <paper_id> <facet> <aspects>, or <text> <title> in place of <paper_id>, "
        "separated by tabs"
    )
    seen: set[str] = set()
    for number, row in _table(path, TOPICS_HEADER, (("query_id",), ("paper_id", "text")), expected):
        query_id, paper_id, facet, aspects, title, text = (row.get(name, "") for name in TOPICS_HEADER)
        if query_id in seen:
            raise bad_line(path, number, "each query_id once (a file of pools has more)", f"{query_id} again")
        seen.add(query_id)
        if facet and aspects:
            raise bad_line(path, number, "a facet or aspects", f"{facet} and {aspects}")
        if paper_id and text:
            raise bad_line(path, number, "a paper_id or a text", f"{paper_id} and {text}")
        try:
            parsed = parse_aspects(paper_id, aspects)
        except ValueError as error:
            example = "aspects such as background -0.5*method sentences:0,3@p7"
            raise bad_line(path, number, example, str(error)) from error
        try:
            topic = Topic(query_id, paper_id, Facet(facet) if facet else None, parsed, text, title)
        except ValueError as error:
            raise bad_line(path, number, "background, method, result or nothing as facet", facet) from error
        yield number, topic


def parse_aspects(paper_id: str, text: str) -> tuple[TopicAspect, ...]:
    """Parse the aspects of a topic about a paper; raises ValueError with the malformed part."""
    aspects = []
    for part in text.split():
        match = _ASPECT.fullmatch(part)
        if match is None:
            raise ValueError(part)
        try:
            weight = float(match["weight"] or 1)
            check_weight(weight)
        except (ValueError, UsageError):
            raise ValueError(part) from None
        facet = Facet(match["facet"]) if match["facet"] else None
        positions = tuple(map(int, match["positions"].split(","))) if match["positions"] else None
        aspects.append(TopicAspect(match["paper_id"] or paper_id, facet, positions, weight))
    if aspects and not any(aspect.weight > 0 for aspect in aspects):
        raise ValueError(f"no positive weight in {text}")
    return tuple(aspects)


def format_aspects(paper_id: str, aspects: Iterable[TopicAspect]) -> str:
    """Format aspects as `parse_aspects` reads them."""
    parts = []
    for aspect in aspects:
        what = aspect.facet.value if aspect.facet else "abstract"
        if aspect.positions is not None:
            what = "sentences:" + ",".join(map(str, aspect.positions))
        weight = "" if aspect.weight == 1 else f"{format_weight(aspect.weight)}*"
        parts.append(f"{weight}{what}" + ("" if aspect.paper_id == paper_id else f"@{aspect.paper_id}"))
    return " ".join(parts)


def write_pools(path: StrPath, pools: Mapping[str, Iterable[str]]) -> None:
    """Write a pools file with its header."""
    rows = ((query_id, paper_id) for query_id, paper_ids in pools.items() for paper_id in paper_ids)
    write_text(path, "".join("\t".join(row) + "\n" for row in itertools.chain((POOLS_HEADER,), rows)))


def read_pools(path: StrPath) -> dict[str, list[str]]:
    """Read a pools file into paper ids by query id, in the file's order, without repetitions."""
    pools: dict[str, dict[str, None]] = {}
    expected = "a header line <query_id> <paper_id> separated by tabs"
    for _, row in _table(path, POOLS_HEADER, (("query_id",), ("paper_id",)), expected):
        pools.setdefault(row["query_id"], {})[sys.intern(row["paper_id"])] = None
    return {query_id: list(paper_ids) for query_id, paper_ids in pools.items()}


def check_pools(pools: Mapping[str, Sequence[str]], query_ids: Iterable[str], papers: Container[str]) -> None:
    """Raise UsageError where a query has no pool, PaperNotFoundError where one names an unknown paper."""
    if absent := [query_id for query_id in query_ids if query_id not in pools]:
        raise UsageError(f"expected a pool for each query, found none for {some(absent)}; check `pools`")
    for query_id in query_ids:
        if missing := [paper_id for paper_id in pools[query_id] if paper_id not in papers]:
            raise PaperNotFoundError(
                f"expected the pool of {query_id} to name papers of the index, found {len(missing)} of "
                f"{len(pools[query_id])} that it lacks, such as {missing[0]}; build the index from the "
                "collection of the pool"
            )


def _table(
    path: StrPath, columns: Collection[str], needed: Sequence[Sequence[str]], expected: str
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield numbered rows by column, of each group of ``needed`` at least one; last fields may be missing."""
    rows = read_fields(path, "\t")
    number, header = next(rows, (1, []))
    complete = all(set(header) & set(names) for names in needed)
    if not complete or len({*columns, *header}) > len(columns) or len(set(header)) < len(header):
        raise bad_line(path, number, expected, "\t".join(header))
    for number, fields in rows:
        row = dict(zip(header, fields, strict=False))
        words = all(name in _SPACED or not field or field.split() == [field] for name, field in row.items())
        complete = all(any(row.get(name, "").strip() for name in names) for names in needed)
        if len(fields) > len(header) or not words or not complete:
            problem = f"{len(header)} tab-separated fields without white space in ids"
            raise bad_line(path, number, problem, "\t".join(fields))
        yield number, row


def has_graded_pairs(path: StrPath) -> bool:
    """Return True if the first line of a file names the columns of graded pairs."""
    _, header = next(read_fields(path, "\t"), (1, []))
    return set(PAIRS_HEADER) <= set(header)


def read_graded_pairs(path: StrPath, *, partial: bool = False) -> dict[str, list[GradedPair]]:
    """Read tab-separated columns, of them PAIRS_HEADER; an empty grade is an error, or NaN if ``partial``."""
    rows = read_fields(path, "\t")
    number, header = next(rows, (1, []))
    if header and (not set(PAIRS_HEADER) <= set(header) or len({*header}) < len(header)):
        expected = f"the tab-separated columns {', '.join(PAIRS_HEADER)}"
        raise bad_line(path, number, expected, "\t".join(header))
    lists: dict[str, list[GradedPair]] = {}
    for number, fields in rows:
        row = dict(zip(header, fields, strict=False))
        try:
            query_id, paper_id, *texts = (row[column] for column in PAIRS_HEADER)
            grades = tuple(math.nan if partial and not text else float(plain_number(text)) for text in texts)
            wrong = any(text and not 0 <= grade <= HIGHEST for text, grade in zip(texts, grades, strict=True))
            if wrong or not (query_id and paper_id) or any(fields[len(header) :]):
                raise ValueError(f"grades of {grades}")
        except (KeyError, ValueError) as error:
            expected = f"two ids and numbers from 0 to {HIGHEST:g} as grades"
            raise bad_line(path, number, expected, "\t".join(fields)) from error
        lists.setdefault(query_id, []).append(GradedPair(paper_id, grades))
    if not lists:
        raise FileFormatError(f"{path}: expected graded pairs, found none; give a file of graded pairs")
    return lists
