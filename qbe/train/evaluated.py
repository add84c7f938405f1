"""Papers that models are evaluated on, which training leaves out."""

from __future__ import annotations

from pathlib import Path

from qbe.corpus.titles import TitleIndex
from qbe.graded_pairs import GradedLists, GradedPair
from qbe.index.reader import IndexReader
from qbe.train.graded_pairs import papers_of, without


def without_evaluated(
    lists: GradedLists, reader: IndexReader, evaluated: Path
) -> dict[str, list[GradedPair]]:
    """The pairs whose papers have no title like that of a paper in ``evaluated``, papers as JSON lines.

    Papers that the index lacks stay. Raises CorpusError where ``evaluated`` cannot be read.
    """
    titles = TitleIndex.of_corpus(evaluated)
    held = (paper_id for paper_id in papers_of(lists) if reader.papers.find(paper_id) is not None)
    return without(lists, frozenset(name for name in held if titles.holds(reader.paper(name).title)))
