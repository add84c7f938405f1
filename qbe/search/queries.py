"""Queries from what a user gives: topics, the id of a paper, a file, a pasted abstract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from qbe.corpus import parse_paper, read_paper_file
from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.query import Aspect, Query, Topic
from qbe.text.split import split_sentences
from qbe.topics import read_topics
from qbe.types import Facet, Paper


class QuerySource(NamedTuple):
    """Queries that are loaded a few at a time: their ids in the run, the facets of each one's aspects (None
    for an aspect that is none), and a function that loads those of a slice.

    >>> from_query(Query(index.paper("s036"))).has_facet
    False
    """

    ids: Sequence[str]
    facets: Sequence[Sequence[Facet | None]]
    load: Callable[[slice], Sequence[Query]]

    @property
    def has_facet(self) -> bool:
        """Whether any query has a facet."""
        return any(facet is not None for facets in self.facets for facet in facets)


def from_topics(index: Index, path: Path, facet: Facet | None = None) -> QuerySource:
    """The queries of a topics file, their papers read from the index; errors are those of `topics_of`.

    >>> source = from_topics(index, Path("sample/topics.tsv"), Facet.METHOD)
    >>> source.ids[:2], [query.query_id for query in source.load(slice(2))]
    (['s024_method', 's063_method'], ['s024_method', 's063_method'])
    """
    topics = topics_of(index, path, facet)
    facets = [[aspect.facet for aspect in topic.resolved_aspects()] for topic in topics]
    ids = [topic.query_id for topic in topics]
    return QuerySource(ids, facets, lambda block: queries_of(index, topics[block]))


def from_query(query: Query) -> QuerySource:
    """One query.

    >>> from_query(Query(index.paper("s036"), Facet.METHOD)).ids
    ['s036_method']
    """
    facets = [aspect.facet for aspect in query.aspects]
    return QuerySource([query.query_id], [facets], lambda block: [query][block])


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
