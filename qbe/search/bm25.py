"""BM25 over title and abstract, by Lucene through Anserini."""

from __future__ import annotations

from collections.abc import Sequence

from qbe import _jvm
from qbe.encode.selection import selected_positions
from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.index.lucene import contents
from qbe.parallel import Workers
from qbe.query import Query
from qbe.search.lucene import LuceneSearch
from qbe.types import Hit, Pools

QUERY_FORMS = ("title+facet", "facet", "abstract")


def query_text(query: Query, form: str) -> str:
    """The words of a query: its sentences alone (``facet``), behind its title (``title+facet``), or the
    title and whole abstract (``abstract``). Raises UsageError for another form.
    """
    if form not in QUERY_FORMS:
        raise UsageError(f"expected a BM25 query form of {', '.join(QUERY_FORMS)}, found {form!r}")
    if form == "abstract":
        return contents(query.paper)
    chosen = " ".join(query.paper.sentences[position].text for position in selected_positions(query))
    return chosen if form == "facet" else f"{query.paper.title} {chosen}"


class BM25Searcher:
    """Ranks by BM25 (k1 and b from the manifest), exactly as Pyserini's LuceneSearcher does."""

    def __init__(self, index: Index, form: str = "title+facet") -> None:
        """``form`` is one of QUERY_FORMS."""
        self._form = form
        self._workers = Workers(index.threads)
        self._lucene = LuceneSearch(index.lucene)

    def search(
        self, query: Query, hits: int, pool: Sequence[str] | None = None, *, explain: bool = False
    ) -> list[Hit]:
        """The best hits, ties by id; of a pool every paper, the ones without a common word with score 0."""
        found = self._lucene.search(query_text(query, self._form), hits if pool is None else len(pool), pool)
        # Anserini lowers equal scores by a millionth each; it must not make a score of 0 negative.
        best = [Hit(paper_id, max(score, 0.0)) for paper_id, score in found[:hits]]
        return [hit._replace(parts={"bm25": hit.score}) for hit in best] if explain else best

    def batch_search(
        self, queries: Sequence[Query], hits: int, pools: Pools, *, explain: bool = False
    ) -> list[list[Hit]]:
        """What `search` finds for each query and its pool, as many at a time as the index has threads."""

        def search(asked: tuple[Query, Sequence[str] | None]) -> list[Hit]:
            return self.search(asked[0], hits, asked[1], explain=explain)

        return _jvm.map_in_threads(search, list(zip(queries, pools, strict=True)), self._workers)
