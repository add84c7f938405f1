"""Search by Lucene in few calls: each call from Python into Java takes as long as scoring many papers."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from qbe import _jvm
from qbe.index.segments.lucene import Postings

_BUILDING = threading.Lock()
"""pyjnius binds a method to the object on which it was last looked up, in whatever thread. So methods of a
thread's own objects are called by one thread at a time; those of objects that all threads share by several.
"""

_WARM_UP = 2
"""Times after which Lucene keeps the documents of a costly filter; from then on they cost next to nothing."""

_SPARE = 16
"""Documents asked for beyond the share of dead ones, so that one search mostly suffices."""

KEY_TERMS = 25
"""Words of a query of key terms: as many as Lucene's MoreLikeThis takes where nothing else is said."""

Scored = list[tuple[str, float]]
"""Ids and scores of papers, best first."""


class LuceneSearch:
    """Searches as Anserini's SimpleSearcher does, with Anserini's own classes and the same scores.

    SimpleSearcher returns one object a hit, whose fields take further calls, and reads one folder; here ids
    and scores come as two arrays, the ids of a pool are passed as one text, and there may be several
    segments. Nearly all the time is spent in Java, where several threads run in parallel (pyjnius releases
    the interpreter's lock meanwhile).

    >>> with index.reading() as reader:
    ...     ((paper_id, score),) = LuceneSearch(reader.lucene).search("unlabelled eye photographs", 1)
    >>> index.paper(paper_id).title
    'Fewer Graded Retinas: Learning from Unlabelled Eye Photographs'
    """

    def __init__(self, postings: Postings) -> None:
        """Search these postings, as long as they are open."""
        java = _jvm.java_class
        self._begins, self._dead = postings.starts[1:-1], postings.dead
        dead, documents = sum(map(len, postings.dead)), int(postings.starts[-1])
        self._live, self._share = documents - dead, dead / (documents - dead)
        self._searcher = java("org.apache.lucene.search.IndexSearcher")(postings.reader.getContext())
        similarity = java("org.apache.lucene.search.similarities.BM25Similarity")
        self._searcher.setSimilarity(similarity(postings.k1, postings.b))
        self._analyzer = java("io.anserini.index.IndexCollection").DEFAULT_ANALYZER
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

    def search(
        self,
        text: str,
        k: int,
        pool: Sequence[str] | None = None,
        among: Any = None,
        *,
        only_key_terms: bool = False,
    ) -> Scored:
        """Ids and scores of the best hits for a bag of words, ties by id; with a pool only of its papers,
        those without any of the words too, at a score of 0 or, by the adjustment of ties, a little below.

        ``among`` (see `filtering`) restricts the hits, and nothing else: they have the scores that they have
        without it, but for the millionths by which equal scores are told apart. A pool is ranked as it is.
        ``only_key_terms``: of the text the KEY_TERMS words count that tell it best from others.
        """
        if only_key_terms:
            query = self._key_terms(text)
        else:
            query = self._generator.buildQuery("contents", self._analyzer, text)
        if pool is not None:
            query = _within(query, self._of(pool), all_of_them=True)
        elif among is not None:
            query = _within(query, among, all_of_them=False)
        return self.best(query, k)

    def _key_terms(self, text: str) -> Any:
        """A query of the words with the highest tf-idf, by Lucene's MoreLikeThis: none that only one document
        has.
        """
        with _BUILDING:
            java = _jvm.java_class
            chooser = java("org.apache.lucene.queries.mlt.MoreLikeThis")(self._searcher.getIndexReader())
            chooser.setAnalyzer(self._analyzer)
            chooser.setFieldNames(["contents"])
            chooser.setMinTermFreq(1)
            chooser.setMinDocFreq(2)
            chooser.setMaxQueryTerms(KEY_TERMS)
            fields, texts = java("java.util.HashMap")(), java("java.util.ArrayList")()
            texts.add(text)
            fields.put("contents", texts)
            return chooser.like(fields)

    def filtering(self, paper_ids: Sequence[str]) -> Any:
        """A query of Lucene's that some papers match, ready to be a filter of many searches."""
        query = self._of(paper_ids)
        for _ in range(_WARM_UP):
            self._searcher.count(query)
        return query

    def best(self, query: Any, k: int) -> Scored:
        """The best papers for a query of Lucene's, without deleted ones, ties by id and then broken."""
        if self._share:
            return self._alive(query, min(k, self._live))
        adjusted = self._ties.rerank(self._top(query, k), None)
        return list(zip(adjusted.docids, adjusted.scores, strict=True))

    def _top(self, query: Any, k: int) -> Any:
        return self._documents.fromTopDocs(self._searcher.search(query, k, self._order, True), self._searcher)

    def _alive(self, query: Any, k: int) -> Scored:
        """The result of `best` where papers are deleted: as many more are fetched as may be deleted ones."""
        wanted = int(k * (1 + self._share)) + _SPARE
        while True:
            documents = self._top(query, wanted)
            ids, scores = list(documents.docids), list(documents.scores)
            places = np.searchsorted(self._begins, list(documents.lucene_docids), side="right")
            segments = places.tolist()
            pairs = enumerate(zip(ids, segments, strict=True))
            live = [place for place, (paper_id, segment) in pairs if paper_id not in self._dead[segment]][:k]
            if len(live) == k or len(ids) < wanted:
                kept = break_ties([scores[place] for place in live])
                return [(ids[place], score) for place, score in zip(live, kept, strict=True)]
            wanted *= 2

    def _of(self, paper_ids: Sequence[str]) -> Any:
        """A query that the papers of these ids match."""
        ids = self._ids.readValue(json.dumps([_bytes_ref(paper_id) for paper_id in paper_ids]))
        return _jvm.java_class("org.apache.lucene.search.TermInSetQuery")("id", ids)


def _within(query: Any, among: Any, *, all_of_them: bool) -> Any:
    """A query, restricted to what matches ``among``, which adds nothing to a score; ``all_of_them`` are
    found, or those only that match the query as well.
    """
    java = _jvm.java_class
    occur = java("org.apache.lucene.search.BooleanClause$Occur")
    with _BUILDING:
        builder = java("org.apache.lucene.search.BooleanQuery$Builder")()
        builder.add(query, occur.SHOULD if all_of_them else occur.MUST)
        builder.add(among, occur.FILTER)
        return builder.build()


def _bytes_ref(text: str) -> dict[str, Any]:
    """The fields of Lucene's ``BytesRef`` of a text, as its reader of JSON takes them."""
    encoded = text.encode()
    return {"bytes": base64.b64encode(encoded).decode(), "offset": 0, "length": len(encoded)}


def break_ties(scores: Sequence[float]) -> list[float]:
    """Descending scores to four decimals; of equal ones the second is lowered by a millionth, the third by
    two millionths, and so on: in single precision as by Anserini's ``ScoreTiesAdjusterReranker``, which can
    be given only what Lucene found, deleted papers included.

    >>> [round(score, 6) for score in break_ties([2.5, 2.5, 2.5, 1.0])]
    [2.5, 2.499999, 2.499998, 1.0]
    """
    adjusted: list[np.float32] = []
    run = np.float32(0)
    for score in scores:
        rounded = np.float32(np.floor(float(score) * 10_000 + 0.5) / 10_000)
        if adjusted and not adjusted[-1] - rounded > np.float32(1e-4):
            run += np.float32(1)
            rounded -= np.float32(1e-6) * run
        else:
            run = np.float32(0)
        adjusted.append(rounded)
    return [float(score) for score in adjusted]
