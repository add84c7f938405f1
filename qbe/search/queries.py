"""Queries from what a user gives: ids, topics, a pasted abstract, a question, a file.

"Graph neural networks for traffic forecasting" and "who else uses optimal transport for alignment?" name a
technique and a problem by their form: a title's ("X for Y", "Y using X", "Y via X") or a question's. Where
the form leaves it open, the lean of words to techniques or problems decides (`qbe.models.words`).
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus.records import Reading, paper_from_text
from qbe.corpus.streams import MAX_LINE_BYTES, display_name, from_western, head_of, open_source
from qbe.errors import CorpusError, FileFormatError, PaperNotFoundError, RecordError, UsageError
from qbe.index.index import Index
from qbe.index.papers import contradicts
from qbe.index.reader import IndexReader
from qbe.query import Aspect, Query, Topic, TopicAspect
from qbe.runs import numbered_topics
from qbe.search.paper_file import pasted_paper
from qbe.types import Facet, Paper, Sentence
from qbe.util.text import read_ids, some

MOST_WORDS, MOST_CHARACTERS = 20, 300  # of a question
ASKED = "question"  # key of metadata for what a paper stands for: its ``text``, and the fields of `Question`
CLEAR_LEAN = 0.3  # words with this lean to techniques, or minus this to problems, need no form to tell which

_ANY = r"(?:recent|current|new|existing|related|good|other|more|some|any|all|the|best|first|early)\s+"
_PAPERS = (
    rf"(?:{_ANY})*(?:papers?|works?|articles?|literature|research|studies|publications|surveys?|overviews?|results?"
    r"|methods?|approach(?:es)?|techniques?|algorithms?|ways?|solutions?|mechanisms?|models?|tools?|systems?"
    r"|data\s?sets?|corpora|benchmarks?)"
)
_USE = (
    r"(?:us(?:e[sd]?|ing)|appl(?:y|ies|ied|ying)|tr(?:y|ies|ied)|employ(?:s|ed|ing)?|works?\s+with"
    r"|based\s+on)"
)
_FOR = r"(?:for|to|in|on)"
_X, _Y, _Z = r"(?P<method>.+?)", r"(?P<problem>.+?)", r"(?P<topic>.+?)"

# Questions, and phrases that ask for papers, with the technique, the problem, or a topic to be read further.
_FORMS: Sequence[str] = (
    rf"(?:who|which\s+\w+|what|has\s+any(?:one|body)|have\s+others)(?:\s+(?:else|still|already|also))*\s+{_USE}\s+{_X}"
    rf"(?:\s+{_FOR}\s+{_Y})?",
    rf"(?:how|where|what|when|for\s+what)\s+(?:is|are|was|were|can|could|has|have)\s+{_X}\s+(?:be(?:en)?\s+)?"
    rf"(?:used|useful|applied|employed|of\s+use|good)(?:\s+(?:{_FOR}\s+{_Y}|for))?",
    rf"(?:what|which)\s+can\s+\w+(?:\s+\w+)?\s+(?:do|done)\s+with\s+{_X}",
    rf"what\s+can\s+be\s+done\s+with\s+{_X}",
    rf"(?:{_ANY})*(?:applications?|uses?|usage|variants?|extensions?)\s+of\s+{_X}(?:\s+{_FOR}\s+{_Y})?",
    rf"(?:how\s+)?(?:do|does|did|can|could|will)\s+{_X}\s+(?:help|improve|work|serve|be\s+(?:used|applied))"
    rf"(?:\s+(?:to|with|in|for|on))?\s+{_Y}",
    rf"how\s+(?:do|does)\s+{_X}\s+work",
    rf"(?:{_PAPERS})\s+(?:(?:that|which|who)\s+)?(?:{_USE}|using|with)\s+{_X}(?:\s+{_FOR}\s+{_Y})?",
    rf"(?:{_PAPERS})\s+(?:for|to)\s+{_Y}",
    rf"(?:how|why|when)\s+(?:can|could|do|does|to|should|may)\s+(?:(?:people|others|i|you|one)\s+)?{_Y}",
    rf"(?:what|which)\s+(?:(?:results?|work|papers?|methods?|research)\s+)?(?:is|are|exists?)\s*"
    rf"(?:known|there|new|done|published)?\s+(?:about|on|for|in|of)\s+{_Z}",
    rf"(?:{_PAPERS})\s+(?:on|about|of|in)\s+{_Z}",
    rf"(?:what|who|which)(?:\s+(?:is|are|works?\s+on))?\s+{_Z}",
)

# Forms of titles, how much more the method must lean to techniques than the problem, and how much at least.
_SLOTS = (
    (rf"{_Y}\s+(?:using|via|based\s+on|by\s+means\s+of)\s+{_X}", -9.0, -9.0),
    (rf"{_X}\s+(?:for|applied\s+to)\s+{_Y}", 0.0, -9.0),
    (rf"{_Y}\s+(?:by|with|through)\s+{_X}", 0.3, 0.0),
    (rf"{_X}\s+(?:in|of|on)\s+{_Y}", 0.5, 0.0),
)

_REQUEST = re.compile(
    r"(?:please\s+)?(?:(?:find|show|list|give|suggest|recommend)(?:\s+me)?|i\s+am\s+looking\s+for|looking\s+for"
    r"|is\s+there|are\s+there)\s+",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"^(?:the|an?)\s+", re.IGNORECASE)
_STATEMENT = re.compile(r"(?:^|\s)(?:we|our|this\s+(?:paper|work|article))\s|[.!:;]$", re.IGNORECASE)


class Question(NamedTuple):
    """What a short text asks for: a ``method`` and a ``problem``, or a ``topic`` that may be either."""

    method: str = ""
    problem: str = ""
    topic: str = ""


def paper_from_question(text: str) -> Paper:
    """Make a paper of a question, with a sentence of the technique, and of the problem; raises UsageError."""
    paper = paper_from_text("", text)
    asked = asked_paper(paper)
    if asked is None:
        raise UsageError(
            f"expected a question or a phrase of at most {MOST_WORDS} words without a full stop, found "
            f"{paper.abstract!r:.60}; make a paper of an abstract by qbe.paper_from_text"
        )
    return asked


def asked_paper(paper: Paper) -> Paper | None:
    """Make the paper to search with of one that is a question; None with title, labels, or more sentences."""
    if paper.title or paper.labelled or len(paper.sentences) != 1:
        return None
    text = paper.sentences[0].text
    if (question := question_of(text)) is None:
        return None
    named = ((question.method, Facet.METHOD), (question.problem, Facet.BACKGROUND), (question.topic, None))
    sentences = tuple(Sentence(part, facet) for part, facet in named if part)
    metadata = {**paper.metadata, ASKED: {"text": text, **question._asdict()}}
    return replace(paper, sentences=sentences, labelled=True, offsets=None, metadata=metadata)


def is_question(query: Query) -> bool:
    """True if a query is what a question names."""
    return all(ASKED in paper.metadata for paper in query.papers)


def question_of(text: str) -> Question | None:
    """Read a text as a question; None for a statement, or for more than MOST_WORDS words."""
    words = text.split()
    text = " ".join(words)
    if not 0 < len(words) <= MOST_WORDS or len(text) > MOST_CHARACTERS or _STATEMENT.search(text):
        return None
    text = _REQUEST.sub("", text.rstrip("? "), count=1) or text
    for form in _FORMS:
        if match := re.fullmatch(form, text, re.IGNORECASE):
            found = {name: _ARTICLE.sub("", part, count=1) for name, part in match.groupdict("").items()}
            return _read_on(Question(**found))
    return _read_on(Question(topic=text))


def _read_on(question: Question) -> Question:
    method, problem, topic = question
    if method and problem:
        return question
    from qbe.models.words import shipped_words

    for form, more, least in _SLOTS:
        if match := re.fullmatch(form, method or problem or topic, re.IGNORECASE):
            parts = [_ARTICLE.sub("", match[name], count=1) for name in ("method", "problem")]
            lean, other = map(shipped_words().lean_of, parts)
            if lean >= least and lean - other >= more:
                return Question(*parts)
    lean = shipped_words().lean_of(topic) if topic else 0.0
    if abs(lean) < CLEAR_LEAN:
        return question
    return Question(method=topic) if lean > 0 else Question(problem=topic)


log = logging.getLogger(__name__)

# What counts of a paper: weights of facets, a facet, sentence positions, or its whole abstract for None.
AspectSpec = Mapping[Facet, float] | Facet | Sequence[int] | None

UNLIKE_WEIGHT = 0.5  # of all unwanted papers together, relative to the others together
LISTS = (".txt", ".ids", ".lst", ".md", "")  # suffixes of files that may be a list, if no bibliography


class QuerySource(NamedTuple):
    """Queries loaded a few at a time: ids in the run, aspects, what loads those at some places, notes."""

    ids: Sequence[str]
    aspects: Sequence[Sequence[TopicAspect]]
    load: Callable[[Sequence[int]], Sequence[Query]]
    notes: Sequence[str] = ()


def from_topics(
    index: Index, path: Path, counted: Facet | Mapping[Facet, float] | None = None, *, predicted: bool = True
) -> QuerySource:
    """Read the queries of a topics file, under the topics' ids.

    A ``counted`` facet is searched for in topics that state none; those that state another one, or aspects,
    are left out. ``counted`` weights of facets take the place of the topics' facets. Unless facets are
    ``predicted``, topics whose papers were given labels and lack the facet are left out, too.
    """
    topics = topics_of(index, path)
    used, other, lacking = list[Topic](), list[Topic](), list[Topic]()
    for topic in topics:
        if counted is not None:
            if topic.aspects or (isinstance(counted, Facet) and topic.facet not in (None, counted)):
                other.append(topic)
                continue
            if isinstance(counted, Facet):
                topic = topic._replace(facet=counted)
            else:
                weighted = [TopicAspect(topic.paper_id, facet, None, each) for facet, each in counted.items()]
                topic = topic._replace(facet=None, aspects=tuple(weighted))
        asked = {(each.paper_id, each.facet) for each in topic.resolved_aspects()}
        lacks = not predicted and any(
            paper.labelled and not paper.facet_positions(facet)[0]
            for paper, facet in ((index.paper(name), facet) for name, facet in asked if name and facet)
        )
        (lacking if lacks else used).append(topic)
    reasons = (
        (other, "state another facet, or aspects, and are left out"),
        (lacking, "are left out: their papers' labels lack the facet, which `facets` predicted would give"),
    )
    notes = [
        f"{path}: {len(out)} of {len(topics)} topics {reason} ({some([topic.query_id for topic in out])})"
        for out, reason in reasons
        if out
    ]
    if not topics:
        raise FileFormatError(f"{path}: expected at least one topic, found none; add lines to the file")
    if not used:
        raise UsageError("; ".join(notes))
    return QuerySource(
        [topic.query_id for topic in used],
        [topic.resolved_aspects() for topic in used],
        lambda places: queries_of(index, [used[place] for place in places]),
        notes,
    )


def query_by(papers: Sequence[Paper], unlike: Sequence[Paper], what: AspectSpec) -> Query:
    """Make a query for papers like several, ``unlike`` others; raise UsageError for one among both."""
    papers = [_searched(paper, what) for paper in papers]
    if not unlike and len(papers) == 1 and not isinstance(what, Mapping):
        return Query(papers[0], what) if isinstance(what, Facet) else Query(papers[0], None, what)
    both = {paper.paper_id for paper in unlike} & {paper.paper_id for paper in papers}
    if both:
        raise UsageError(
            f"expected papers that are wanted or not, found {min(both)} among both; check `not_paper_ids`"
        )
    share = UNLIKE_WEIGHT * len(papers) / max(len(unlike), 1)
    aspects = list[Aspect]()
    for paper, weight in (*((paper, 1.0) for paper in papers), *((paper, -share) for paper in unlike)):
        if isinstance(what, Mapping):  # of papers that are unlike, only the liked facets count
            kept = {facet: each for facet, each in what.items() if weight > 0 or each > 0}
            aspects += [Aspect(paper, facet, weight=weight * each) for facet, each in kept.items()]
        elif what is None or isinstance(what, Facet):
            aspects.append(Aspect(paper, what, weight=weight))
        else:
            aspects.append(Aspect(paper, positions=tuple(what) if weight > 0 else None, weight=weight))
    return Query.of(*aspects)


def _searched(paper: Paper, what: AspectSpec) -> Paper:
    """Replace a question by what it names, unless sentences are picked or another facet counts."""
    if what is not None and not isinstance(what, Facet | Mapping):
        return paper
    facets = [what] if isinstance(what, Facet) else list(what or ())
    asked = asked_paper(paper)
    return asked if asked and all(asked.positions(facet) for facet in facets) else paper


def topics_of(index: Index, path: Path) -> list[Topic]:
    """Read the topics of a file, and check them against the index; errors name the line."""
    topics = []
    for number, topic in numbered_topics(path):
        where = f"{path}, line {number}"
        outside = _paper_of(topic, where) if topic.text else None
        for aspect in topic.resolved_aspects():
            if aspect.paper_id and aspect.paper_id not in index:
                raise PaperNotFoundError(
                    f"{where}: expected the id of one of the {len(index)} papers of the index, found "
                    f"{aspect.paper_id!r}; qbe list shows ids and titles"
                )
            if aspect.positions is not None:
                paper = index.paper(aspect.paper_id) if aspect.paper_id or not outside else outside
                try:
                    Aspect(paper, positions=aspect.positions).selected_positions()
                except UsageError as error:
                    raise FileFormatError(f"{where}: {error}; mend the file") from None
        topics.append(topic)
    return topics


def distinct_papers(index: Index, names: Iterable[str], *, titles: bool = True) -> list[Paper]:
    """The papers of names (`Index.find`), each once, without ``titles`` those of ids that were kept."""
    papers = (index.find(name, titles=titles) for name in dict.fromkeys(names))
    return list({paper.paper_id: paper for paper in papers}.values())


def paper_named(index: Index, text: str) -> Paper:
    """The paper of this name, else one made of a text of several words; raises PaperNotFoundError."""
    if text in index or (len(text.split()) == 1 and text.isascii()):
        return index.find(text)
    try:
        paper = index.find(text)  # a text may also be a part of a title
        return paper if paper.title.casefold() == text.strip().casefold() else pasted_paper(text, "")
    except PaperNotFoundError:
        return pasted_paper(text, "")


def queries_of(index: Index, topics: Sequence[Topic]) -> list[Query]:
    """Make the queries of topics, their papers read from the index; raises PaperNotFoundError."""
    queries = []
    for topic in topics:
        papers: dict[str, Paper] = {"": _paper_of(topic, topic.query_id)} if topic.text else {}
        resolved = topic.resolved_aspects()
        if topic.text and all(aspect.positions is None for aspect in resolved):
            papers[""] = _searched(papers[""], {aspect.facet: 1.0 for aspect in resolved if aspect.facet})
        aspects = []
        for paper_id, facet, positions, weight in resolved:
            if paper_id not in papers:
                papers[paper_id] = index.paper(paper_id)
            aspects.append(Aspect(papers[paper_id], facet, positions, weight))
        queries.append(Query.of(*aspects))
    return queries


def _paper_of(topic: Topic, where: str) -> Paper:
    try:
        return paper_from_text(topic.title, topic.text)
    except CorpusError as error:
        raise CorpusError(f"{where}: {error}") from None


class NamedPapers(NamedTuple):
    """Papers of the index that entries name; names of ``missing`` papers, errors of ``broken`` entries."""

    paper_ids: list[str]
    entries: int
    missing: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    def missing_in_words(self, name: str) -> str | None:
        said = []
        if self.missing:
            count = f"{len(self.missing)} of {self.entries} entries"
            said.append(f"{count} are not in the index and are left out ({some(self.missing)})")
        if self.broken:
            said.append(f"{len(self.broken)} entries cannot be read and are left out ({self.broken[0]})")
        return f"{name}: {'; '.join(said)}" if said else None


def papers_of(reader: IndexReader, path: Path, *, required: bool = True) -> NamedPapers:
    """Find the papers of a bibliography, LaTeX source or list; raise UsageError for none if ``required``."""
    named = papers_named(reader, _entries(path))
    if required and not named.paper_ids:
        first = ", ".join([*named.missing[:3], *named.broken[:1]])
        raise UsageError(
            f"{path}: expected papers of the index, found none of its {named.entries} entries in it"
            f"{first and f' ({first})'}; give ids, DOIs or arXiv ids, one a line, or entries with a title"
        )
    return named


def papers_named(reader: IndexReader, named: Iterable[Mapping[str, Any] | RecordError | str]) -> NamedPapers:
    """Find papers by ids, then title, year and first author; by a key only where the title agrees."""
    from qbe.corpus.reading import id_of

    paper_ids: dict[str, None] = {}
    count, missing, broken = 0, [], []
    for count, entry in enumerate(named, start=1):
        if isinstance(entry, RecordError):
            record: Mapping[str, Any] = {"metadata": {"ids": dict(enumerate(reversed(entry.names)))}}
        else:
            record = {"paper_id": entry, "title": entry} if isinstance(entry, str) else entry
        paper_id = entry if isinstance(entry, str) else id_of(record) or ""
        row = reader.papers.find(paper_id)
        if row is None or (not isinstance(entry, str) and contradicts(reader.papers[row], record)):
            paper_id = reader.names.of_record(record) or ""
        if paper_id:
            paper_ids[paper_id] = None
        elif isinstance(entry, RecordError):
            broken.append(str(entry))
        else:
            missing.append(str(record.get("paper_id") or record.get("title") or f"entry {count}"))
    return NamedPapers(list(paper_ids), count, tuple(missing), tuple(broken))


def _entries(path: Path) -> Iterator[Mapping[str, Any] | RecordError | str]:
    from qbe.corpus.latex import SUFFIXES
    from qbe.corpus.reading import FORMATS, entries

    name = display_name(path)
    if path.suffix.lower() in SUFFIXES:
        yield from _cited_in(path)
        return
    if path.suffix.lower() in LISTS:
        with open_source(path) as stream:
            head = head_of(stream, name)
        if not any(each.recognizes(head) for each in FORMATS.values()):
            yield from read_ids(path)
            return
    for _, record in entries(str(path), Reading(on_error="skip", keep_without_abstract=True)):
        yield record


def _cited_in(path: Path) -> Iterator[Mapping[str, Any] | RecordError]:
    """The entries that a LaTeX source cites (all where none yet), then the keys that no bibliography has."""
    from qbe.corpus.latex import cited_in, source_of
    from qbe.corpus.reading import entries

    with open_source(path) as stream:
        text = from_western(stream, str(path))[0].read(MAX_LINE_BYTES).decode(errors="replace")
    lacking = list[str]()
    files, keys = cited_in(source_of(text, path.parent, lacking))
    if lacking:
        log.warning("%s: what it cites in files that cannot be read is left out (%s)", path, some(lacking))
    if not files:
        raise UsageError(
            f"{path}: expected \\bibliography{{...}} or \\addbibresource{{...}}, found neither; give the "
            "file of BibTeX itself"
        )
    known, unread = set[str | None](), list[CorpusError]()
    reading = Reading("bibtex", on_error="skip", keep_without_abstract=True)
    for file in files:
        try:
            for _, record in entries(str(path.parent / file), reading):
                if isinstance(record, RecordError):
                    key = next(iter(record.names), None)
                else:
                    key = record["metadata"].get("key")
                is_repeated = key is not None and key in known  # LaTeX cites the first one
                known.add(key)
                if not is_repeated and (not keys or "*" in keys or key in keys):
                    yield record
        except CorpusError as error:
            unread.append(error)
    if len(unread) == len(files):
        raise unread[0]
    for each in unread:
        log.warning("%s (its entries are left out)", each)
    yield from ({"paper_id": key} for key in sorted(keys - known - {"*"}))
