"""The Lucene side of an index opened for searching, over one segment or several."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qbe import _jvm
from qbe.errors import IndexFormatError
from qbe.index.postings import LUCENE
from qbe.index.rows import Rows
from qbe.index.snapshot import Part
from qbe.index.views import Papers, PaperStores

_SPARE = 16
"""Documents asked for beyond the share of dead ones, so that one search mostly suffices."""


def open_searcher(parts: Sequence[Part], papers: Papers, lucene: Mapping[str, Any]) -> Any:
    """Anserini's ``SimpleSearcher`` on the postings, with the BM25 parameters of a manifest; where there are
    dead papers, one that skips them.

    Several segments are read as one by Lucene's ``MultiReader``, so that its statistics are of the whole
    and scores are those of an index built in one go. Raises IndexFormatError where the postings are damaged.
    """
    opened = _opened([part.path / LUCENE for part in parts])
    opened.set_bm25(lucene["k1"], lucene["b"])
    if isinstance(papers, PaperStores) and any(papers.dead_ids):
        return LiveSearcher(opened, papers.starts[1:-1], papers.dead_ids, len(papers))
    return opened


def _opened(folders: Sequence[Path]) -> Any:
    """A ``SimpleSearcher`` over all the folders."""
    folder = folders[0]
    try:
        # Java knows only the folder it was started in, not the current one.
        searcher = _jvm.java_class("io.anserini.search.SimpleSearcher")(str(folder.absolute()))
        if len(folders) > 1:  # it makes its Lucene searcher when it first searches, from whatever it reads
            searcher.reader.close()
            readers = [_jvm.open_lucene(folder := one) for one in folders]
            searcher.reader = _jvm.java_class("org.apache.lucene.index.MultiReader")(readers, True)
    except Exception as error:
        raise IndexFormatError(
            f"{folder}: expected a Lucene index, found {_jvm.java_message(error)}; "
            "the index is damaged: build it again"
        ) from error
    return searcher


class LiveSearcher:
    """A ``SimpleSearcher`` whose dead documents are left out of what it finds.

    They still count in BM25's statistics, as documents that Lucene itself deleted do until they are merged
    away; and one whose score equals a living one's may lower that by the millionth by which Anserini
    tells ties apart.
    """

    def __init__(self, searcher: Any, begins: Rows, dead: Sequence[Collection[str]], live: int) -> None:
        """``begins`` are the Lucene numbers at which the second and later segments begin, ``dead`` the dead
        ids of each segment, and ``live`` counts all other documents.
        """
        self._searcher, self._begins, self._dead, self._live = searcher, begins, dead, live
        self._share = sum(map(len, dead)) / live

    def search(self, query: Any, hits: int) -> list[Any]:
        """The best documents that are not dead."""
        hits = min(hits, self._live)
        wanted = int(hits * (1 + self._share)) + _SPARE
        while True:
            found = self._searcher.search(query, wanted)
            live = [document for document in found if not self._is_dead(document)]
            if len(live) >= hits or len(found) < wanted:
                return live[:hits]
            wanted *= 2

    def _is_dead(self, document: Any) -> bool:
        segment = int(np.searchsorted(self._begins, document.lucene_docid, side="right"))
        return document.docid in self._dead[segment]

    def get_analyzer(self) -> Any:
        """The analyzer that the documents passed through."""
        return self._searcher.get_analyzer()

    def close(self) -> None:
        """Close the postings."""
        self._searcher.close()
