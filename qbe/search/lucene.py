"""Asking Lucene in few calls: each step from Python into Java costs as much as scoring many papers."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Sequence
from typing import Any

from qbe import _jvm

_BUILDING = threading.Lock()
"""pyjnius binds a method to the object on which it was last looked up, in whatever thread. So methods of a
thread's own objects are called by one thread at a time; those of objects that all threads share by several.
"""


class LuceneSearch:
    """Searches as Anserini's SimpleSearcher does, by Anserini's own parts, with the same scores.

    SimpleSearcher hands over one object a hit, each taken apart by further calls; here ids and scores come
    as two arrays, and the ids of a pool go as one text. Nearly all the work is then Java's, which several
    threads do side by side (pyjnius lets go of the interpreter's lock meanwhile).
    """

    def __init__(self, simple_searcher: Any) -> None:
        """Take index, similarity and analyzer from an ``io.anserini.search.SimpleSearcher``."""
        java = _jvm.java_class
        self._searcher = java("org.apache.lucene.search.IndexSearcher")(simple_searcher.reader)
        self._searcher.setSimilarity(simple_searcher.similarity)
        self._analyzer = simple_searcher.get_analyzer()
        self._generator = java("io.anserini.search.query.BagOfWordsQueryGenerator")()
        field, kinds = (
            java("org.apache.lucene.search.SortField"),
            java("org.apache.lucene.search.SortField$Type"),
        )
        self._order = java("org.apache.lucene.search.Sort")(field.FIELD_SCORE, field("id", kinds.STRING_VAL))
        self._documents = java("io.anserini.search.ScoredDocs")
        self._ties = java("io.anserini.rerank.lib.ScoreTiesAdjusterReranker")()
        mapper = java("com.fasterxml.jackson.databind.ObjectMapper")()
        self._ids = mapper.readerForListOf(java("java.lang.Class").forName("org.apache.lucene.util.BytesRef"))

    def search(self, text: str, hits: int, pool: Sequence[str] | None = None) -> list[tuple[str, float]]:
        """Ids and scores of the best hits for a bag of words, ties by id; with a pool only of its papers,
        those without any of the words too, at a score of 0 or, by the adjustment of ties, a little below.
        """
        bag = self._generator.buildQuery("contents", self._analyzer, text)
        query = bag if pool is None else self._within(bag, pool)
        found = self._documents.fromTopDocs(
            self._searcher.search(query, hits, self._order, True), self._searcher
        )
        adjusted = self._ties.rerank(found, None)
        return list(zip(adjusted.docids, adjusted.scores, strict=True))

    def _within(self, bag: Any, pool: Sequence[str]) -> Any:
        """The query, restricted to the papers of a pool; being in the pool adds nothing to a score."""
        ids = self._ids.readValue(json.dumps([_bytes_ref(docid) for docid in pool]))
        java = _jvm.java_class
        occur = java("org.apache.lucene.search.BooleanClause$Occur")
        among = java("org.apache.lucene.search.TermInSetQuery")("id", ids)
        with _BUILDING:
            builder = java("org.apache.lucene.search.BooleanQuery$Builder")()
            builder.add(bag, occur.SHOULD)
            builder.add(among, occur.FILTER)
            return builder.build()


def _bytes_ref(text: str) -> dict[str, Any]:
    """The fields of Lucene's ``BytesRef`` of a text, as its reader of JSON takes them."""
    encoded = text.encode()
    return {"bytes": base64.b64encode(encoded).decode(), "offset": 0, "length": len(encoded)}
