"""BM25 of a shard with the statistics of the whole corpus, so that its scores are those of one index of all.

Lucene takes its statistics from the index that it searches. Two of them enter a score: the inverse document
frequency of a term, and the average length of documents. Here a term's weight is multiplied so that it is, to
the last bit, what it is over the whole corpus; and the shard is searched together with a small index of
filler documents, which no query matches and which bring its average length to that of the corpus. So each
operation of ``BM25Similarity`` has the operands that it has in one index.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.index import jvm as _jvm
from qbe.index.text_search import BUILDER_LOCK, LuceneSearch, Postings, Ranked

FIELD = "contents"
FILLER = "\ue000"
"""The only word of filler documents: of the private use area, and so in no query."""

FEWEST_FILLERS = 16
"""Filler documents there are at the least, so that document frequencies can be raised by a few."""

_MOST_FILLERS = 1 << 24
_TERMS_KEPT = 1 << 16
"""Terms whose queries are kept."""


class CorpusStatistics(NamedTuple):
    """The number of ``documents`` and of their ``tokens``; those of shards add up to those of the corpus."""

    documents: int
    tokens: int

    @property
    def average(self) -> np.float32:
        """The average length of a document as Lucene computes it."""
        return np.float32(self.tokens / self.documents)


class QueryTerm(NamedTuple):
    """A term of a query, how many times it is there, and in how many documents of the shard."""

    text: str
    times: int
    documents: int


def idf(documents: int, document_frequency: int) -> np.float32:
    """Inverse document frequency as in Lucene's ``BM25Similarity.idf`` (Robertson and Zaragoza, 2009, section
    3.3, plus 1 under the logarithm).

    >>> round(float(idf(10, 2)), 4)
    1.4816
    """
    ratio = (documents - document_frequency + 0.5) / (document_frequency + 0.5)
    return np.float32(math.log(1 + ratio))


def filler_for(shard: CorpusStatistics, corpus: CorpusStatistics) -> CorpusStatistics:
    """The fewest filler documents, and their tokens, with which a shard has the average length of the corpus
    in single precision.

    >>> shard, corpus = CorpusStatistics(4, 40), CorpusStatistics(8, 100)
    >>> filler_for(shard, corpus)
    CorpusStatistics(documents=16, tokens=210)
    """
    target, first = corpus.tokens / corpus.documents, FEWEST_FILLERS
    while first < _MOST_FILLERS:
        documents = np.arange(first, 2 * first)
        tokens = np.rint(target * (shard.documents + documents)).astype(np.int64) - shard.tokens
        averages = ((shard.tokens + tokens) / (shard.documents + documents)).astype(np.float32)
        fitting = np.flatnonzero((averages == corpus.average) & (tokens >= documents))
        if len(fitting):
            place = fitting[0]
            return CorpusStatistics(int(documents[place]), int(tokens[place]))
        first *= 2
    raise AssertionError(f"no filler for {shard} of {corpus}")


class Multiplied(NamedTuple):
    """By how much to raise a term's document frequency, and the ``boost`` of its query then."""

    raised: int
    boost: np.float32


def multiplied(weight: np.float32, documents: int, document_frequency: int) -> Multiplied:
    """How a term of a shard gets exactly this weight: the product, in single precision, of its boost and its
    inverse document frequency in the shard. For some of these no boost gives the weight; a document frequency
    a little higher then does.

    >>> raised, boost = multiplied(np.float32(2.5), 100, 7)
    >>> float(boost * idf(100, 7 + raised))
    2.5
    """
    for raised in range(document_frequency, documents):
        factor = idf(documents, raised)
        nearest = np.float32(weight / factor)
        down, up = (np.nextafter(nearest, np.float32(side)) for side in (0, np.inf))
        for boost in (nearest, down, up):
            if np.float32(boost * factor) == weight:
                return Multiplied(raised - document_frequency, boost)
    raise AssertionError(f"no boost for {weight} of {document_frequency} in {documents} documents")


class ShardSearch(LuceneSearch):
    """Searches the postings of a shard with the statistics of a corpus.

    >>> with index.reading() as reader:
    ...     corpus = statistics_of(reader.lucene)
    ...     shard = ShardSearch(reader.lucene, reader.papers.ids, corpus)
    ...     terms = shard.terms("unlabelled eye photographs")
    ...     (row,), scores = shard.best_of_terms(terms, {term.text: term.documents for term in terms}, 1)
    >>> index.papers[row].title
    'Fewer Graded Retinas: Learning from Unlabelled Eye Photographs'
    """

    def __init__(self, postings: Postings, ids: Sequence[str], corpus: CorpusStatistics) -> None:
        """``ids`` are those of the shard's papers by row; ``corpus`` are the statistics of all shards."""
        filler = filler_for(statistics_of(postings), corpus)
        multi_reader = _jvm.java_class("org.apache.lucene.index.MultiReader")
        self._filled = multi_reader([postings.reader, _filler_index(filler)], False)
        super().__init__(Postings(self._filled, postings.k1, postings.b, postings.rows, postings.alive), ids)
        self._corpus = corpus
        self._documents = statistics_of(postings).documents + filler.documents
        self._query_of = lru_cache(_TERMS_KEPT)(self._query_of_term)

    def terms(self, text: str) -> list[QueryTerm]:
        """The terms of a text, analysed as queries are, and their document frequencies in the shard."""
        analysis = _jvm.java_class("io.anserini.analysis.AnalyzerUtils")
        words = json.loads(self._writer.writeValueAsString(analysis.analyze(self._analyzer, text)))
        counts: dict[str, int] = {}
        for word in words:
            counts[word] = counts.get(word, 0) + 1
        return [QueryTerm(word, count, self._document_frequency(word)) for word, count in counts.items()]

    def best_of_terms(
        self,
        terms: Sequence[QueryTerm],
        frequencies: Mapping[str, int],
        k: int,
        pool: NDArray[np.int64] | None = None,
        allowed: Any = None,
    ) -> Ranked:
        """The best ``k`` papers of the shard for terms whose document frequencies in the corpus are
        ``frequencies``; ties by id, scores as Lucene gives them. ``pool`` and ``allowed`` are those of
        `LuceneSearch.search`.
        """
        java = _jvm.java_class
        should = java("org.apache.lucene.search.BooleanClause$Occur").SHOULD
        with BUILDER_LOCK:
            builder = java("org.apache.lucene.search.BooleanQuery$Builder")()
            for term in terms:
                query = self._query_of(term.text, term.times, frequencies[term.text])
                if query is not None:
                    builder.add(query, should)
            query = builder.build()
        return self.best_unbroken(self.restricted(query, pool, allowed), k)

    @lru_cache(_TERMS_KEPT)  # noqa: B019  (a shard lives as long as its actor)
    def _document_frequency(self, term: str) -> int:
        frequency: int = self._filled.docFreq(_jvm.java_class("org.apache.lucene.index.Term")(FIELD, term))
        return frequency

    def _query_of_term(self, text: str, count: int, frequency: int) -> Any:
        """The query of a term that is ``count`` times in a text and in ``frequency`` documents of the corpus;
        None where the shard lacks it.
        """
        shard_frequency = self._document_frequency(text)
        if not shard_frequency:
            return None
        java = _jvm.java_class
        weight = np.float32(np.float32(count) * idf(self._corpus.documents, frequency))
        raised, boost = multiplied(weight, self._documents, shard_frequency)
        term = java("org.apache.lucene.index.Term")(FIELD, text)
        states = java("org.apache.lucene.index.TermStates").build(self._searcher, term, True)
        states.accumulateStatistics(raised, raised)
        query = java("org.apache.lucene.search.TermQuery")(term, states)
        return java("org.apache.lucene.search.BoostQuery")(query, float(boost))


def statistics_of(postings: Postings) -> CorpusStatistics:
    """The statistics of postings.

    >>> with index.reading() as reader:
    ...     statistics_of(reader.lucene).documents
    128
    """
    searcher = _jvm.java_class("org.apache.lucene.search.IndexSearcher")(postings.reader.getContext())
    statistics = searcher.collectionStatistics(FIELD)
    return CorpusStatistics(statistics.docCount(), statistics.sumTotalTermFreq())


def _filler_index(filler: CorpusStatistics) -> Any:
    """A reader of an index in memory of so many documents with so many tokens."""
    java = _jvm.java_class
    directory = java("org.apache.lucene.store.ByteBuffersDirectory")()
    analyzer = java("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    writer = java("org.apache.lucene.index.IndexWriter")(
        directory, java("org.apache.lucene.index.IndexWriterConfig")(analyzer)
    )
    longest = filler.tokens - filler.documents + 1
    writer.addDocument(_filler_document(longest))
    copies = java("java.util.Collections").nCopies(filler.documents - 1, _filler_document(1))
    writer.addDocuments(copies)
    writer.close()
    return java("org.apache.lucene.index.DirectoryReader").open(directory)


def _filler_document(tokens: int) -> Any:
    java = _jvm.java_class
    document = java("org.apache.lucene.document.Document")()
    unstored = java("org.apache.lucene.document.Field$Store").NO
    document.add(java("org.apache.lucene.document.TextField")(FIELD, f"{FILLER} " * tokens, unstored))
    return document
