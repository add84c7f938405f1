"""Queries from what a user gives: topics, the id of a paper, a file, a pasted abstract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from qbe.corpus import parse_paper, read_paper_file
from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.query import Aspect, Query, Topic, TopicAspect
from qbe.text.split import split_sentences
from qbe.topics import read_topics
from qbe.types import Facet, Paper

Counted = Mapping[Facet, float] | Facet | Sequence[int] | None
"""What counts of a paper: facets with weights, a facet, sentence positions, or (None) its whole abstract."""

UNLIKE_WEIGHT = 0.5
"""What papers that are not wanted weigh together, against the others together."""


class QuerySource(NamedTuple):
    """Queries that are loaded a few at a time: their ids in the run, each one's aspects, a function that
    loads those of a slice, and the ids under which their pools stand in a file of pools.

    >>> from_query(Query(index.paper("s036"))).has_facet
    False
    """

    ids: Sequence[str]
    aspects: Sequence[Sequence[TopicAspect]]
    load: Callable[[slice], Sequence[Query]]
    pools: Sequence[str]

    @property
    def has_facet(self) -> bool:
        """Whether any query has a facet."""
        return any(aspect.facet is not None for aspects in self.aspects for aspect in aspects)


def from_topics(
    index: Index, path: Path, facet: Facet | None = None, weights: Mapping[Facet, float] | None = None
) -> QuerySource:
    """The queries of a topics file, their papers read from the index; errors are those of `topics_of`.

    With ``weights`` of facets there is one query for each paper of the file (`Query.by_facets`), whatever the
    topics are about; its pool is that of the paper's topic of the facet with most weight, or of the first.

    >>> source = from_topics(index, Path("sample/topics.tsv"), Facet.METHOD)
    >>> source.ids[:2], [query.query_id for query in source.load(slice(2))]
    (['s024_method', 's063_method'], ['s024_method', 's063_method'])
    """
    topics = topics_of(index, path, facet)
    pools = [topic.query_id for topic in topics]
    if weights is not None:
        liked = max(weights, key=lambda each: weights[each])
        by_paper: dict[str, str] = {}
        for topic in topics:
            if topic.paper_id not in by_paper or topic.facet is liked:
                by_paper[topic.paper_id] = topic.query_id
        pools = list(by_paper.values())
        topics = [_topic_by_facets(paper_id, weights) for paper_id in by_paper]
    ids = [topic.query_id for topic in topics]
    aspects = [topic.resolved_aspects() for topic in topics]
    return QuerySource(ids, aspects, lambda block: queries_of(index, topics[block]), pools)


def _topic_by_facets(paper_id: str, weights: Mapping[Facet, float]) -> Topic:
    query = Query.by_facets(Paper(paper_id, "", ()), weights)
    aspects = (TopicAspect(paper_id, facet, None, weight) for facet, weight in weights.items())
    return Topic(query.query_id, paper_id, None, tuple(aspects))


def from_query(query: Query) -> QuerySource:
    """One query.

    >>> from_query(Query(index.paper("s036"), Facet.METHOD)).ids
    ['s036_method']
    """
    aspects = [
        TopicAspect(aspect.paper.paper_id, aspect.facet, aspect.positions, aspect.weight)
        for aspect in query.aspects
    ]
    return QuerySource([query.query_id], [aspects], lambda block: [query][block], [query.query_id])


def query_by(papers: Sequence[Paper], unlike: Sequence[Paper], what: Counted) -> Query:
    """A query for papers like several, and ``unlike`` others.

    The ``unlike`` papers weigh UNLIKE_WEIGHT times what the others weigh together, by what is liked of these.
    Raises UsageError for a paper that is among both.

    >>> papers = [index.paper(paper_id) for paper_id in ("s036", "s051")]
    >>> query_by(papers, [index.paper("s031")], Facet.METHOD).query_id
    '1*s036_method&1*s051_method&-1*s031_method'
    """
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


def _aspects(paper: Paper, weight: float, what: Counted) -> list[Aspect]:
    """What counts of one paper; of one that is not wanted only what is liked of the others, and not the
    sentences at positions of another paper.
    """
    if isinstance(what, Mapping):
        kept = {facet: each for facet, each in what.items() if weight > 0 or each > 0}
        return [Aspect(paper, facet, weight=weight * each) for facet, each in kept.items()]
    if what is None or isinstance(what, Facet):
        return [Aspect(paper, what, weight=weight)]
    return [Aspect(paper, positions=tuple(what) if weight > 0 else None, weight=weight)]


def topics_of(index: Index, path: Path, facet: Facet | None = None) -> list[Topic]:
    """The topics of a file, of one facet where one is given.

    Raises FileFormatError for a malformed file, UsageError when no topic has the facet, and
    PaperNotFoundError for a paper that the index lacks.

    >>> topics_of(index, Path("sample/topics.tsv"), Facet.METHOD)[0]
    Topic(query_id='s024_method', paper_id='s024', facet=<Facet.METHOD: 'method'>, aspects=())
    """
    topics = [topic for topic in read_topics(path) if facet in (None, topic.facet)]
    if not topics:
        wanted = f"topics of the facet {facet}" if facet else "at least one topic"
        raise UsageError(f"{path}: expected {wanted}, found none; check `topics` and `facet`")
    for topic in topics:
        for aspect in topic.resolved_aspects():
            index.papers.row(aspect.paper_id)  # one that is absent is reported before anything is searched
    return topics


def queries_of(index: Index, topics: Sequence[Topic]) -> list[Query]:
    """The queries of topics, their papers read from the index; raises PaperNotFoundError.

    >>> (query,) = queries_of(index, [Topic("q1", "s036", Facet.METHOD)])
    >>> query.papers[0].title
    'Two Crops of a Paragraph: Self-Supervised Vectors for Suggesting Citations'
    """
    return [_query(index, topic) for topic in topics]


def _query(index: Index, topic: Topic) -> Query:
    papers: dict[str, Paper] = {}
    aspects = []
    for paper_id, facet, positions, weight in topic.resolved_aspects():
        paper = papers.setdefault(paper_id, index.paper(paper_id))
        aspects.append(Aspect(paper, facet, positions, weight))
    return Query.of(*aspects)


def paper_from_file(source: str) -> Paper:
    """A paper from a JSON file (``-``: standard input) with title and abstract; its id is ``query`` if it
    has none. Raises CorpusError for a file that holds no such paper.

    >>> _ = Path("paper.json").write_text('{"title": "On stone", "abstract": "Stone is hard. We cut it."}')
    >>> paper = paper_from_file("paper.json")
    >>> paper.paper_id, len(paper.sentences)
    ('query', 2)
    """
    return read_paper_file(source, split_sentences)


def pasted_paper(text: str, title: str) -> Paper:
    """A paper of the id ``query`` from a pasted abstract; raises CorpusError when it is empty.

    >>> paper = pasted_paper("Stone is hard. We cut it.", "On stone")
    >>> paper.paper_id, [sentence.text for sentence in paper.sentences]
    ('query', ['Stone is hard.', 'We cut it.'])
    """
    record = {"paper_id": "query", "title": title, "abstract": text}
    return parse_paper(record, "`text`", split_sentences)
