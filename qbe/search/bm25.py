"""BM25 over title and abstract, by Lucene through Anserini."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qbe import _jvm
from qbe.encode.aspect import EncodedAspect
from qbe.index.lucene import contents
from qbe.index.reader import IndexReader
from qbe.index.segments.views import rows_of
from qbe.index.selection import PerSelection, Selection
from qbe.index.text_search import Ranked
from qbe.parallel import Workers
from qbe.search.contracts import Candidates, Rows, Scores, in_order
from qbe.types import Hit, Pools


def query_text(query: EncodedAspect, form: str = "title+facet") -> str:
    """The words of a BM25 query, in one of `qbe.search.stages.BM25_QUERIES`: the title of the paper and the
    aspect's sentences (``title+facet``), or title and whole abstract (``abstract``).

    >>> from qbe import Facet, Paper, Sentence
    >>> from qbe.query import Aspect
    >>> paper = Paper("1", "On stone", (Sentence("Stone is hard."), Sentence("We cut it.", Facet.METHOD)))
    >>> query_text(EncodedAspect.of(Aspect(paper, Facet.METHOD)))
    'On stone We cut it.'
    """
    paper = query.aspect.paper
    if form == "abstract":
        return contents(paper)
    sentences = " ".join(paper.sentences[position].text for position in query.positions)
    return f"{paper.title} {sentences}"


class BM25Stage:
    """Ranks by BM25 (k1 and b from the manifest), exactly as Pyserini's LuceneSearcher does.

    >>> from qbe.query import Aspect
    >>> query = EncodedAspect.of(Aspect(index.paper("s036")))
    >>> with index.reading() as reader:
    ...     (hits,) = BM25Stage(reader, Workers()).batch_search([query], 3, [["s001", "s051"]])
    >>> [hit.paper_id for hit in hits]
    ['s051', 's001']
    """

    names = ("bm25",)
    needs_vectors = False

    def __init__(self, reader: IndexReader, workers: Workers, form: str = "title+facet") -> None:
        """``form`` is one of `qbe.search.stages.BM25_QUERIES`."""
        self._form, self._workers = form, workers
        self._papers = reader.papers
        self._lucene = reader.text_search()
        self._filters = PerSelection(self._filter)

    def batch_search(
        self,
        queries: Sequence[EncodedAspect],
        k: int,
        pools: Pools,
        allowed: Selection | None = None,
        *,
        explain: bool = False,
    ) -> list[list[Hit]]:
        """See `qbe.search.contracts.FirstStage`; of a pool every paper is ranked, those without a common
        word with a score of 0; of the whole index, or of selected papers, those with one.
        """

        def search(request: tuple[EncodedAspect, Sequence[str] | None]) -> list[Hit]:
            query, pool = request
            rows, scores = self._ranked(
                query, k, None if pool is None else rows_of(self._papers, pool), allowed
            )
            pairs = zip(rows[:k].tolist(), scores[:k].tolist(), strict=True)
            hits = [Hit(self._papers.ids[row], score) for row, score in pairs]
            return [hit._replace(component_scores={"bm25": hit.score}) for hit in hits] if explain else hits

        return _jvm.map_in_threads(search, list(zip(queries, pools, strict=True)), self._workers)

    def batch_candidates(
        self, queries: Sequence[EncodedAspect], k: int, allowed: Selection | None = None
    ) -> list[Candidates]:
        """See `qbe.search.contracts.ScoreSource`: the best ``k`` papers."""

        def search(query: EncodedAspect) -> Candidates:
            return in_order(*self._ranked(query, k, None, allowed))

        return _jvm.map_in_threads(search, list(queries), self._workers)

    def scores(self, query: EncodedAspect, rows: Rows, known: Candidates | None) -> dict[str, Scores]:
        """See `qbe.search.contracts.ScoreSource`: papers without a known score are searched for as a pool."""
        scores = np.full(len(rows), np.nan) if known is None else known.scores_of(rows)
        missing = np.flatnonzero(np.isnan(scores))
        if len(missing):
            pool = rows[missing]
            scores[missing] = in_order(*self._ranked(query, len(pool), pool)).scores_of(pool)
        return {"bm25": scores}

    def _ranked(
        self, query: EncodedAspect, k: int, pool: Rows | None, allowed: Selection | None = None
    ) -> Ranked:
        selected = self._filters(allowed) if pool is None and allowed is not None else None
        text = query_text(query, self._form)
        rows, scores = self._lucene.search(text, k if pool is None else len(pool), pool, selected)
        # Anserini lowers equal scores by a millionth each; it must not make a score of 0 negative.
        return Ranked(rows, np.maximum(scores, 0.0))

    def _filter(self, selection: Selection) -> Any:
        return self._lucene.filtering(selection.rows)
