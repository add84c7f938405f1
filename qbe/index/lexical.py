"""The Lucene side of an index opened for searching, over one segment or several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from qbe import _jvm
from qbe.errors import IndexFormatError
from qbe.index.postings import LUCENE
from qbe.index.rows import Rows
from qbe.index.snapshot import Part
from qbe.index.views import Papers, PaperStores

T = TypeVar("T")

_SPARE = 16
"""Documents asked for beyond the share of dead ones, so that one search mostly suffices."""


def open_searcher(parts: Sequence[Part], papers: Papers, lucene: Mapping[str, Any]) -> Any:
    """Anserini's ``SimpleSearcher`` on the postings of one segment, with the BM25 parameters of a manifest;
    for several, or where there are dead papers, a `PartsSearcher`.

    Raises IndexFormatError where the postings are damaged.
    """
    k1, b = lucene["k1"], lucene["b"]
    if isinstance(papers, PaperStores):
        readers = [_opened(part.path / LUCENE, _jvm.open_lucene) for part in parts]
        return PartsSearcher(readers, papers, k1, b)
    simple_searcher = _jvm.java_class("io.anserini.search.SimpleSearcher")
    # Java knows only the folder it was started in, not the current one.
    searcher: Any = _opened(parts[0].path / LUCENE, lambda path: simple_searcher(str(path.absolute())))
    searcher.set_bm25(k1, b)
    return searcher


def _opened(folder: Path, opener: Callable[[Path], T]) -> T:
    try:
        return opener(folder)
    except Exception as error:
        raise IndexFormatError(
            f"{folder}: expected a Lucene index, found {_jvm.java_message(error)}; "
            "the index is damaged: build it again"
        ) from error


class Document(NamedTuple):
    """What was found: a paper's id and score."""

    docid: str
    score: float


class PartsSearcher:
    """Searches several Lucene indexes as ``SimpleSearcher`` does one, and leaves dead papers out.

    Lucene's ``MultiReader`` sums the statistics of all, so that scores are those of an index built in one go.
    Dead papers still count in them, as documents that Lucene itself deleted do until they are merged away.
    It does not extend ``SimpleSearcher``, which can be told of no reader but its own: pyjnius's assignment
    to a field that holds an object frees a reference that is still in use.
    """

    def __init__(self, readers: Sequence[Any], papers: PaperStores, k1: float, b: float) -> None:
        """Takes the readers of all segments over; dead papers are known by segment and id."""
        self._begins: Rows = papers.starts[1:-1]  # a segment has as many documents as papers
        self._dead = papers.dead_ids
        self._live = len(papers)
        self._share = sum(map(len, self._dead)) / self._live
        self._reader = _jvm.java_class("org.apache.lucene.index.MultiReader")(list(readers), True)
        self._searcher = _jvm.java_class("org.apache.lucene.search.IndexSearcher")(self._reader.getContext())
        similarity = _jvm.java_class("org.apache.lucene.search.similarities.BM25Similarity")
        self._searcher.setSimilarity(similarity(k1, b))
        field = _jvm.java_class("org.apache.lucene.search.SortField")
        kind = _jvm.java_class("org.apache.lucene.search.SortField$Type")
        by_id = field("id", kind.STRING_VAL)
        self._order = _jvm.java_class("org.apache.lucene.search.Sort")(field.FIELD_SCORE, by_id)
        self._documents = _jvm.java_class("io.anserini.search.ScoredDocs")

    def search(self, query: Any, hits: int) -> list[Document]:
        """The best papers that are not dead, equal scores by id and then told apart (see `apart`)."""
        hits = min(hits, self._live)
        wanted = int(hits * (1 + self._share)) + _SPARE * any(self._dead)
        while True:
            top = self._searcher.search(query, wanted, self._order, True)
            found = self._documents.fromTopDocs(top, self._searcher)
            ids, scores = list(found.docids), list(found.scores)
            segments = np.searchsorted(self._begins, list(found.lucene_docids), side="right").tolist()
            live = [
                place
                for place, (docid, segment) in enumerate(zip(ids, segments, strict=True))
                if docid not in self._dead[segment]
            ][:hits]
            if len(live) == hits or len(ids) < wanted:
                kept = apart([scores[place] for place in live])
                return [Document(ids[place], score) for place, score in zip(live, kept, strict=True)]
            wanted *= 2

    def get_analyzer(self) -> Any:
        """The analyzer that documents and queries pass through."""
        return _jvm.java_class("io.anserini.index.IndexCollection").DEFAULT_ANALYZER

    def close(self) -> None:
        """Close the postings."""
        self._reader.close()


def apart(scores: Sequence[float]) -> list[float]:
    """Descending scores to four decimals, a run of equal ones lowered by a millionth, two millionths and so
    on: single-precision arithmetic as in Anserini's ``ScoreTiesAdjusterReranker``, which ``SimpleSearcher``
    applies.
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
