"""BM25 over title and abstract, by Lucene through Anserini."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qbe import _jvm
from qbe.encode.selection import selected_positions
from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.index.postings import contents
from qbe.types import Hit, Query

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
        self._lucene = index.lucene
        self._generator = _jvm.java_class("io.anserini.search.query.BagOfWordsQueryGenerator")()

    def search(
        self, query: Query, hits: int, pool: Sequence[str] | None = None, *, explain: bool = False
    ) -> list[Hit]:
        """The best hits, ties by id; of a pool every paper, the ones without a common word with score 0."""
        bag = self._bag(query)
        if pool is None:
            found = self._lucene.search(bag, hits)
        else:
            found = self._lucene.search(_within(bag, pool), len(pool))
        # Anserini lowers equal scores by a millionth each; it must not make a score of 0 negative.
        best = [Hit(document.docid, max(document.score, 0.0)) for document in found][:hits]
        return [hit._replace(parts={"bm25": hit.score}) for hit in best] if explain else best

    def _bag(self, query: Query) -> Any:
        text = query_text(query, self._form)
        return self._generator.buildQuery("contents", self._lucene.get_analyzer(), text)


def _within(bag: Any, pool: Sequence[str]) -> Any:
    """The query, restricted to the papers of a pool; being in the pool adds nothing to a score."""
    occur = _jvm.java_class("org.apache.lucene.search.BooleanClause$Occur")
    term = _jvm.java_class("org.apache.lucene.index.Term")
    ids = _jvm.java_class("java.util.ArrayList")()
    for docid in pool:
        ids.add(term("id", docid).bytes())
    builder = _jvm.java_class("org.apache.lucene.search.BooleanQuery$Builder")()
    builder.add(bag, occur.SHOULD)
    builder.add(_jvm.java_class("org.apache.lucene.search.TermInSetQuery")("id", ids), occur.FILTER)
    return builder.build()
