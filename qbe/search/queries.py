"""Queries from what a user gives: topics, the id of a paper, a file, a pasted abstract."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from qbe.corpus import parse_paper
from qbe.corpus.fields import ABSTRACT_FROM, NOT_READ
from qbe.corpus.sentences import paper_from_text, split_sentences
from qbe.errors import CorpusError, FileFormatError, PaperNotFoundError, UsageError
from qbe.index.index import Index
from qbe.query import Aspect, Query, Topic, TopicAspect
from qbe.runs import numbered_topics
from qbe.search.questions import asked_paper
from qbe.types import Facet, Paper
from qbe.util.text import one_line

AspectSpec = Mapping[Facet, float] | Facet | Sequence[int] | None
"""What counts of a paper: facets with weights, a facet, sentence positions, or (None) its whole abstract."""

UNLIKE_WEIGHT = 0.5
"""What papers that are not wanted weigh together, against the others together."""


LONG_ABSTRACT = 20_000
"""Characters of an abstract beyond which reading it takes seconds."""


class QuerySource(NamedTuple):
    """Queries that are loaded a few at a time: their ids in the run, each one's aspects, a function that
    loads those of a slice, and what a user should know of topics that are left out.

    >>> from_query(Query(index.paper("s036"))).has_facet
    False
    """

    ids: Sequence[str]
    aspects: Sequence[Sequence[TopicAspect]]
    load: Callable[[slice], Sequence[Query]]
    notes: Sequence[str] = ()

    @property
    def has_facet(self) -> bool:
        """Whether any query has a facet."""
        return any(aspect.facet is not None for aspects in self.aspects for aspect in aspects)


def from_topics(
    index: Index,
    path: Path,
    counted: Facet | Mapping[Facet, float] | None = None,
    *,
    predicted: bool = True,
) -> QuerySource:
    """The queries of a topics file under the topics' own ids, their papers read from the index.

    A ``counted`` facet is searched for in all topics that state none; those that state another one, or
    aspects, are left out. ``counted`` weights of facets (`Query.by_facets`) take the place of the topics'
    facets; topics with aspects are left out. Unless facets are ``predicted`` where they are needed, topics
    whose papers were given labels and lack the facet are left out, too. Notes name what is left out.

    Raises what `topics_of` does, FileFormatError for a file without topics, UsageError where none is left.

    >>> source = from_topics(index, Path("sample/topics.tsv"), Facet.METHOD)
    >>> source.ids[:2], source.notes
    (['s024_method', 's063_method'], ['sample/topics.tsv: 16 of 24 topics state another facet, ...'])
    """
    topics = topics_of(index, path)
    used = [topic for topic in topics if not _states_another(topic, counted)]
    other = [topic for topic in topics if _states_another(topic, counted)]
    used = [_counting(topic, counted) for topic in used]
    lacking = [] if predicted else [topic for topic in used if _lacks_facet(index, topic)]
    left_out = {topic.query_id for topic in lacking}
    used = [topic for topic in used if topic.query_id not in left_out]
    reasons = (
        (other, "state another facet, or aspects, and are left out"),
        (lacking, "are left out: their papers' labels lack the facet, which `facets` predicted would give"),
    )
    notes = [
        f"{path}: {len(out)} of {len(topics)} topics {reason} ({_first(topic.query_id for topic in out)})"
        for out, reason in reasons
        if out
    ]
    if not used:
        if not topics:
            raise FileFormatError(f"{path}: expected at least one topic, found none; add lines to the file")
        raise UsageError("; ".join(notes))
    aspects = [topic.resolved_aspects() for topic in used]
    ids = [topic.query_id for topic in used]
    return QuerySource(ids, aspects, lambda block: queries_of(index, used[block]), notes)


def _states_another(topic: Topic, counted: Facet | Mapping[Facet, float] | None) -> bool:
    if counted is None:
        return False
    return bool(topic.aspects) or (isinstance(counted, Facet) and topic.facet not in (None, counted))


def _counting(topic: Topic, counted: Facet | Mapping[Facet, float] | None) -> Topic:
    """A topic by a facet, or by weights of facets."""
    if not isinstance(counted, Mapping):
        return topic if counted is None else topic._replace(facet=counted)
    aspects = (TopicAspect(topic.paper_id, facet, None, weight) for facet, weight in counted.items())
    return topic._replace(facet=None, aspects=tuple(aspects))


def _lacks_facet(index: Index, topic: Topic) -> bool:
    """Whether the labels that a paper of the topic brings lack a facet that the topic is about."""
    asked = {(paper_id, facet) for paper_id, facet, *_ in topic.resolved_aspects() if paper_id and facet}
    papers = ((index.paper(paper_id), facet) for paper_id, facet in asked)
    return any(paper.labelled and not paper.facet_positions(facet)[0] for paper, facet in papers)


def _first(names: Iterable[str], most: int = 3) -> str:
    """The first of some names, such as ``a, b, c, ...``."""
    *named, rest = [*islice(names, most + 1), *[""] * most][: most + 1]
    return ", ".join([*filter(None, named), *(["..."] if rest else [])])


def from_query(query: Query) -> QuerySource:
    """One query.

    >>> from_query(Query(index.paper("s036"), Facet.METHOD)).ids
    ['s036_method']
    """
    aspects = [
        TopicAspect(aspect.paper.paper_id, aspect.facet, aspect.positions, aspect.weight)
        for aspect in query.aspects
    ]
    return QuerySource([query.query_id], [aspects], lambda block: [query][block])


def query_by(papers: Sequence[Paper], unlike: Sequence[Paper], what: AspectSpec) -> Query:
    """A query for papers like several, and ``unlike`` others; a question (`qbe.search.questions`) that stands
    for a paper is searched by what it names.

    The ``unlike`` papers weigh UNLIKE_WEIGHT times what the others weigh together, by what is liked of these.
    Raises UsageError for a paper that is among both.

    >>> papers = [index.paper(paper_id) for paper_id in ("s036", "s051")]
    >>> query_by(papers, [index.paper("s031")], Facet.METHOD).query_id
    '1*s036_method&1*s051_method&-1*s031_method'
    """
    papers = [_searched(paper, what) for paper in papers]
    if not unlike and len(papers) == 1 and not isinstance(what, Mapping):
        facet = what if isinstance(what, Facet) else None
        return Query(papers[0], facet, None if facet else what)  # type: ignore[arg-type]
    both = {paper.paper_id for paper in unlike} & {paper.paper_id for paper in papers}
    if both:
        raise UsageError(
            f"expected papers that are wanted or not, found {min(both)} among both; check `not_paper_ids`"
        )
    share = UNLIKE_WEIGHT * len(papers) / max(len(unlike), 1)
    weighted = [*((paper, 1.0) for paper in papers), *((paper, -share) for paper in unlike)]
    return Query.of(*(aspect for paper, weight in weighted for aspect in _aspects(paper, weight, what)))


def _searched(paper: Paper, what: AspectSpec) -> Paper:
    """What a paper is searched by: where it is a question, the technique and the problem that this names,
    unless sentences are picked, or a facet counts that the question does not name.
    """
    if what is not None and not isinstance(what, Facet | Mapping):
        return paper
    facets = [what] if isinstance(what, Facet) else list(what or ())
    asked = asked_paper(paper)
    return asked if asked and all(asked.positions(facet) for facet in facets) else paper


def _aspects(paper: Paper, weight: float, what: AspectSpec) -> list[Aspect]:
    """What counts of one paper; of one that is not wanted only what is liked of the others, and not the
    sentences at positions of another paper.
    """
    if isinstance(what, Mapping):
        kept = {facet: each for facet, each in what.items() if weight > 0 or each > 0}
        return [Aspect(paper, facet, weight=weight * each) for facet, each in kept.items()]
    if what is None or isinstance(what, Facet):
        return [Aspect(paper, what, weight=weight)]
    return [Aspect(paper, positions=tuple(what) if weight > 0 else None, weight=weight)]


def topics_of(index: Index, path: Path) -> list[Topic]:
    """The topics of a file.

    Raises FileFormatError for a malformed file and for sentence positions that a paper lacks, CorpusError for
    a text that is no abstract, and PaperNotFoundError for a paper that the index lacks, each with the line.

    >>> topics_of(index, Path("sample/topics.tsv"))[1][:3]
    ('s118_background', 's118', <Facet.BACKGROUND: 'background'>)
    """
    topics = []
    for number, topic in numbered_topics(path):
        where = f"{path}, line {number}"
        outside = _paper_of(topic, where) if topic.text else None
        for aspect in topic.resolved_aspects():
            if aspect.paper_id and aspect.paper_id not in index:
                raise _not_found(index, aspect.paper_id, f"{where}: ")
            if aspect.positions is not None:
                paper = index.paper(aspect.paper_id) if aspect.paper_id or not outside else outside
                try:
                    Aspect(paper, positions=aspect.positions).selected_positions()
                except UsageError as error:
                    raise FileFormatError(f"{where}: {error}; mend the file") from None
        topics.append(topic)
    return topics


def find_papers(index: Index, names: Iterable[str]) -> list[Paper]:
    """Papers of the index by their names (`qbe.index.reader.IndexReader.find`), each once; raises
    PaperNotFoundError.

    >>> [paper.paper_id for paper in find_papers(index, ["s036", "s001", "two crops of a"])]
    ['s036', 's001']
    """
    try:
        papers = [index.find(name) for name in dict.fromkeys(names)]
    except PaperNotFoundError as error:
        raise PaperNotFoundError(str(error).replace("; check it", f"; {_LISTS}")) from None
    return list({paper.paper_id: paper for paper in papers}.values())


_LISTS = "qbe list shows ids and titles"


def _not_found(index: Index, paper_id: str, where: str) -> PaperNotFoundError:
    """The error for an id that the index lacks, with the paper that may be meant."""
    with index.reading() as reader:
        meant = reader.names.find(paper_id)
        hint = f"did you mean {meant[0]}?" if len(meant) == 1 else _LISTS
        expected = f"expected the id of one of the {len(reader)} papers of the index"
    return PaperNotFoundError(f"{where}{expected}, found {paper_id!r}; {hint}")


def queries_of(index: Index, topics: Sequence[Topic]) -> list[Query]:
    """The queries of topics, their papers read from the index; raises PaperNotFoundError.

    >>> (query,) = queries_of(index, [Topic("q1", "s036", Facet.METHOD)])
    >>> query.papers[0].title
    'Two Crops of a Paragraph: Self-Supervised Vectors for Suggesting Citations'
    """
    return [_query(index, topic) for topic in topics]


def _query(index: Index, topic: Topic) -> Query:
    papers: dict[str, Paper] = {"": _paper_of(topic, topic.query_id)} if topic.text else {}
    resolved = topic.resolved_aspects()
    if topic.text and all(aspect.positions is None for aspect in resolved):
        papers[""] = _searched(papers[""], {aspect.facet: 1.0 for aspect in resolved if aspect.facet})
    aspects = []
    for paper_id, facet, positions, weight in resolved:
        if paper_id not in papers:
            papers[paper_id] = index.paper(paper_id)
        aspects.append(Aspect(papers[paper_id], facet, positions, weight))
    return Query.of(*aspects)


def _paper_of(topic: Topic, where: str) -> Paper:
    """The paper of a topic that brings its text; raises CorpusError."""
    try:
        return paper_from_text(topic.title, topic.text)
    except CorpusError as error:
        raise CorpusError(f"{where}: {error}") from None


def note_on_papers(papers: Iterable[Paper]) -> str:
    """What to say of papers from outside that lack an abstract or parts of it, or whose abstracts are far
    longer than any, in one line; '' where there is nothing to say.

    >>> note_on_papers([Paper("query", "On fish", (), metadata={"abstract_from": "its first paragraph"})])
    'no abstract was found in the query; its first paragraph stands for it'
    """
    papers = list(papers)
    notes = [
        f"no abstract was found in the query; {paper.metadata[ABSTRACT_FROM]} stands for it"
        for paper in papers
        if ABSTRACT_FROM in paper.metadata
    ]
    notes += [
        "title or abstract of the query may lack parts in files that cannot be read "
        f"({paper.metadata[NOT_READ]}): give them as text"
        for paper in papers
        if NOT_READ in paper.metadata
    ]
    longest = max((len(paper.abstract) for paper in papers), default=0)
    if longest > LONG_ABSTRACT:
        notes.append(
            f"the query has {longest:,} characters, all of which are read: give the abstract alone to save "
            "time"
        )
    return one_line("; ".join(notes))


def pasted_paper(text: str, title: str) -> Paper:
    """A paper of the id ``query`` from a pasted abstract; raises CorpusError when it is empty.

    >>> paper = pasted_paper("Stone is hard. We cut it.", "On stone")
    >>> paper.paper_id, [sentence.text for sentence in paper.sentences]
    ('query', ['Stone is hard.', 'We cut it.'])
    """
    record = {"paper_id": "query", "title": title, "abstract": text}
    return parse_paper(record, "`text`", split_sentences)
