"""Search by Lucene in few calls: each call from Python into Java takes as long as scoring many papers."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from qbe.errors import IndexFormatError
from qbe.index import jvm as _jvm
from qbe.index.lucene import LUCENE, read_rows
from qbe.index.rows import Rows, run_starts
from qbe.index.store import Files

_NEAR = np.float32(1.5e-4)
"""More than the difference up to which scores count as equal, which is a ten-thousandth."""

BUILDER_LOCK = threading.Lock()
"""pyjnius binds a method to the object on which it was last looked up, in whatever thread. So methods of a
thread's own objects are called by one thread at a time, of all that are in the process; those of objects that
all threads share by several.
"""

_WARM_UP = 2
"""Times after which Lucene keeps the documents of a costly filter; from then on they cost next to nothing."""

_SPARE = 16
"""Documents asked for beyond those wanted, so that one search mostly suffices: of equal scores at the last
place all must be known, since ties are told apart by id.
"""


class Ranked(NamedTuple):
    """Papers, best first: their ``rows`` (n,) int64 and ``scores`` (n,) float64."""

    rows: Rows
    scores: NDArray[np.float64]


class TextSearch(Protocol):
    """Searches the texts of an index by BM25; several threads may use one at a time."""

    def search(
        self,
        text: str,
        k: int,
        pool: Rows | None = None,
        allowed: Any = None,
    ) -> Ranked:
        """The best papers for a bag of words; see `LuceneSearch.search`."""

    def filtering(self, rows: Rows) -> Any:
        """Some papers in the form that `search` takes as ``allowed``."""


class LuceneSearch:
    """Searches as Anserini's SimpleSearcher does: the same queries, scores and order.

    SimpleSearcher reads one folder, fetches the stored fields of each hit, and has Lucene compare ids where
    scores are equal, which takes half as long as all else. Here the result of a search comes as one text of
    document numbers and scores, and ties are ordered afterwards. Nearly all
    the time is spent in Java, where several threads run in parallel (pyjnius releases the interpreter's lock
    meanwhile).

    >>> with index.reading() as reader:
    ...     lucene = LuceneSearch(reader.lucene, reader.papers.ids)
    ...     (row,), scores = lucene.search("unlabelled eye photographs", 1)
    >>> index.papers[row].title
    'Fewer Graded Retinas: Learning from Unlabelled Eye Photographs'
    """

    def __init__(self, postings: Postings, ids: Sequence[str]) -> None:
        """Search these postings, as long as they are open; ``ids`` are those of their papers by row."""
        java = _jvm.java_class
        self._rows, self._ids = postings.rows, ids
        self._searcher = java("org.apache.lucene.search.IndexSearcher")(postings.reader.getContext())
        similarity = java("org.apache.lucene.search.similarities.BM25Similarity")
        self._searcher.setSimilarity(similarity(postings.k1, postings.b))
        self._analyzer = java("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
        self._generator = java("io.anserini.search.query.BagOfWordsQueryGenerator")()
        mapper = java("com.fasterxml.jackson.databind.ObjectMapper")()
        self._writer = mapper.writer()
        terms = java("java.lang.Class").forName("org.apache.lucene.util.BytesRef")
        self._terms = mapper.readerForListOf(terms)

    def search(
        self,
        text: str,
        k: int,
        pool: NDArray[np.int64] | None = None,
        allowed: Any = None,
    ) -> Ranked:
        """The best hits for a bag of words, ties by id; with a ``pool`` (rows) only of its papers, those
        without any of the words too, at a score of 0 or, by the adjustment of ties, a little below.

        ``allowed`` (see `filtering`) restricts the hits, and nothing else: they have the scores that they
        have without it, but for the millionths by which equal scores are told apart. A pool is ranked as
        it is.
        """
        query = self._generator.buildQuery("contents", self._analyzer, text)
        return self.best(self.restricted(query, pool, allowed), k)

    def restricted(self, query: Any, pool: NDArray[np.int64] | None, allowed: Any) -> Any:
        """A query of Lucene's that finds papers of a pool (rows), all of them, or of ``allowed``."""
        if pool is not None:
            return _within(query, self._of(pool), all_of_them=True)
        return query if allowed is None else _within(query, allowed, all_of_them=False)

    def filtering(self, rows: Rows) -> Any:
        """A query of Lucene's that some papers match, ready to be a filter of many searches."""
        query = self._of(rows)
        for _ in range(_WARM_UP):
            self._searcher.count(query)
        return query

    def best(self, query: Any, k: int) -> Ranked:
        """The best papers for a query of Lucene's, ties by id and then broken."""
        rows, scores = self.best_unbroken(query, k)
        return Ranked(rows, break_ties(scores))

    def best_unbroken(self, query: Any, k: int) -> Ranked:
        """The same with scores as Lucene gives them, equal ones among them."""
        k = min(k, len(self._rows))
        wanted = k + _SPARE
        while True:
            documents, scores = self._top(query, wanted)
            rows = self._rows[documents].astype(np.int64)
            is_all = len(rows) < wanted
            if is_all or (len(rows) > k and scores[k - 1] > scores[-1]):
                return Ranked(self._ties_by_id(rows, scores)[:k], scores[:k])
            wanted *= 2

    def _top(self, query: Any, k: int) -> tuple[Rows, NDArray[np.float64]]:
        """Numbers and scores (n,) of the best documents, best first, ties in no order that matters."""
        text = self._writer.writeValueAsString(self._searcher.search(query, k))
        best = json.loads(text)["scoreDocs"]
        documents = np.array([each["doc"] for each in best], dtype=np.int64)
        # Java writes the shortest decimal number that is read back as the same one in single precision.
        scores = np.array([each["score"] for each in best], dtype=np.float32)
        return documents, scores.astype(np.float64)

    def _ties_by_id(self, rows: Rows, scores: NDArray[np.float64]) -> Rows:
        """Rows in the order of descending ``scores`` that they have, those of equal scores by id."""
        begins = run_starts(scores)
        if len(begins) == len(scores):
            return rows
        ordered, ids = rows.tolist(), self._ids
        ends = [*begins[1:].tolist(), len(ordered)]
        for begin, end in zip(begins.tolist(), ends, strict=True):
            if end - begin > 1:
                ordered[begin:end] = sorted(ordered[begin:end], key=ids.__getitem__)
        return np.array(ordered, dtype=np.int64)

    def _of(self, rows: Rows) -> Any:
        """A query that the papers at these rows match."""
        ids = self._terms.readValue(json.dumps([_bytes_ref(self._ids[row]) for row in rows.tolist()]))
        return _jvm.java_class("org.apache.lucene.search.TermInSetQuery")("id", ids)


def _within(query: Any, allowed: Any, *, all_of_them: bool) -> Any:
    """A query, restricted to what matches ``allowed``, which adds nothing to a score; ``all_of_them`` are
    found, or those only that match the query as well.
    """
    java = _jvm.java_class
    occur = java("org.apache.lucene.search.BooleanClause$Occur")
    with BUILDER_LOCK:
        builder = java("org.apache.lucene.search.BooleanQuery$Builder")()
        builder.add(query, occur.SHOULD if all_of_them else occur.MUST)
        builder.add(allowed, occur.FILTER)
        return builder.build()


def _bytes_ref(text: str) -> dict[str, Any]:
    """The fields of Lucene's ``BytesRef`` of a text, as its reader of JSON takes them."""
    encoded = text.encode()
    return {"bytes": base64.b64encode(encoded).decode(), "offset": 0, "length": len(encoded)}


def break_ties(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Descending scores (n,) to four decimals; of equal ones the second is lowered by a millionth, the third
    by two millionths, and so on, in single precision, as by Anserini's ``ScoreTiesAdjusterReranker``.

    >>> break_ties(np.array([2.5, 2.5, 2.5, 1.0])).round(6).tolist()
    [2.5, 2.499999, 2.499998, 1.0]
    """
    adjusted = (np.floor(scores * 10_000 + 0.5) / 10_000).astype(np.float32)
    run = 0
    # Most scores are further apart: only behind one that is near enough, or was lowered, there is more to do.
    near = (adjusted[:-1] - adjusted[1:] <= _NEAR).tolist()
    place = near.index(True) + 1 if True in near else len(adjusted)
    while place < len(adjusted):
        if not adjusted[place - 1] - adjusted[place] > np.float32(1e-4):
            run += 1
            adjusted[place] -= np.float32(1e-6) * np.float32(run)
            place += 1
            continue
        run = 0
        place += 1
        while place < len(adjusted) and not near[place - 1]:
            place += 1
    return adjusted.astype(np.float64)


_OF_A_LATER_LUCENE = ("IndexFormatTooNewException", "indexCreatedVersionMajor is in the future")
"""What Lucene says of an index that a later Lucene wrote."""


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """The postings of an index: a ``reader``, with the BM25 parameters ``k1`` and ``b``; ``rows`` (documents,)
    int32 has the row of each document's paper.

    >>> index.lucene.k1, index.lucene.b, index.lucene.reader.maxDoc()
    (0.9, 0.4, 128)
    """

    reader: Any
    k1: float
    b: float
    rows: NDArray[np.int32]

    def close(self) -> None:
        """Close the reader."""
        self.reader.close()


def open_postings(files: Files, ids: Sequence[str], lucene: Mapping[str, Any]) -> Postings:
    """The postings of an index, with the parameters of its manifest and the ids of its papers by row; the
    caller closes them.

    Raises IndexFormatError where they are damaged.
    """
    _jvm.java_class("java.lang.Object")  # raises where there is no Java
    path = files.path(LUCENE)
    try:
        reader = _jvm.open_lucene(path)
    except Exception as error:
        reason = _jvm.java_message(error)
        if any(words in reason for words in _OF_A_LATER_LUCENE):
            raise IndexFormatError(
                f"{path}: expected an index that Lucene {_jvm.lucene_version()} can read, "
                "found one of a later Lucene; open it with Python 3.12 or later, or build it again"
            ) from error
        raise files.damaged(LUCENE, "a Lucene index", reason) from error
    files.check()
    return Postings(reader, lucene["k1"], lucene["b"], read_rows(files, reader, ids))
