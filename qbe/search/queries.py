"""Queries from what a user gives: topics, the id of a paper, a file, a pasted abstract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from qbe.corpus import parse_paper, read_paper_file
from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.parallel import ordered_map
from qbe.query import Query, Topic
from qbe.text.split import split_sentences
from qbe.trec import read_topics
from qbe.types import Facet, Paper


def queries_from_topics(
    index: Index, path: Path, facet: Facet | None, facets: str = "given", *, explain: bool = False
) -> Iterator[tuple[str, Query]]:
    """Query ids and queries of a topics file, in its order, of one facet where one is given.

    ``facets`` tells whose labels count (see `qbe.index.index.Index.label_facets`). A topic without a facet is
    about its paper's whole abstract, whose labels are read only for those who want them explained.

    Raises FileFormatError for a malformed file, UsageError when no topic has the facet, and
    PaperNotFoundError for a paper that the index lacks.
    """
    topics = topics_of(index, path, facet)
    for topic, query in zip(topics, read_queries(index, topics, facets, explain=explain), strict=True):
        yield topic.query_id, query


def topics_of(index: Index, path: Path, facet: Facet | None) -> list[Topic]:
    """The topics of a file, of one facet where one is given; errors are those of `queries_from_topics`."""
    topics = [topic for topic in read_topics(path) if facet in (None, topic.facet)]
    if not topics:
        wanted = f"topics of the facet {facet}" if facet else "at least one topic"
        raise UsageError(f"{path}: expected {wanted}, found none; check --topics and --facet")
    for topic in topics:
        index.papers.row(topic.paper_id)  # one that is absent is told of before anything is searched
    return topics


def read_queries(
    index: Index, asked: Sequence[Topic | Query], facets: str = "given", *, explain: bool = False
) -> list[Query]:
    """Queries of topics, read from the index as `queries_from_topics` has it; those that are queries already
    stay. Papers whose labels have to be predicted are read as many at a time as the index has threads.
    """

    def read(one: Topic | Query) -> Query:
        if isinstance(one, Query):
            return one
        paper = index.paper(one.paper_id)
        return Query(index.label_facets(paper, facets) if one.facet or explain else paper, one.facet)

    return list(ordered_map(read, asked, min(len(asked), index.threads)))


def paper_from_file(source: str) -> Paper:
    """A paper from a JSON file (``-``: standard input) with title and abstract; its id is ``query`` if it
    has none. Raises CorpusError for a file that holds no such paper.
    """
    return read_paper_file(source, split_sentences)


def paper_from_text(text: str, title: str) -> Paper:
    """A paper of the id ``query`` from a pasted abstract; raises CorpusError when it is empty."""
    record = {"paper_id": "query", "title": title, "abstract": text}
    return parse_paper(record, "--text", split_sentences)


def parse_positions(text: str) -> tuple[int, ...]:
    """Sentence positions such as ``0,3``, counted from 0; raises UsageError."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"expected sentence positions such as 0,3, found {text!r}; check --sentences"
        ) from None


def parse_weights(text: str, names: Sequence[str]) -> dict[str, float]:
    """Component weights such as ``bm25=1,whole=0.5``; components not named get 0; raises UsageError."""
    weights = dict.fromkeys(names, 0.0)
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            if name not in weights:
                raise ValueError
            weights[name] = float(value)
        except ValueError:
            raise UsageError(
                f"expected weights such as {names[0]}=1,{names[-1]}=0.5 of {', '.join(names)}, found {part!r}"
            ) from None
    return weights
