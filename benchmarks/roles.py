"""Processes of the sides of other benchmarks (`benchmarks.sides.Side`): ROLE and its arguments.

``bm25s-index CORPUS FOLDER`` makes a bm25s index of Pyserini's JSON lines. The others load what they search,
and answer every line that they read with a round: BM25 by ``qbe``, ``pyserini`` and ``bm25s`` (FOLDER
QUERIES; a line is the number of hits), texts by sentence-transformers' ONNX back end, a ``bi-encoder`` or
``cross-encoder`` (FOLDER TEXTS PRECISION THREADS; a line is the size of a batch). Some run in the environment
of peers: only the standard library loads first.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

TOKENS = 512
K1, B = 0.9, 0.4  # of BM25

# The best papers for a text and a number of hits: ids and scores.
Search = Callable[[str, int], list[tuple[str, float]]]


def say(**record: object) -> None:
    """Print one line of JSON, which begins on a new line whatever a library has printed before."""
    print("\n" + json.dumps(record), flush=True)


def of_qbe(folder: str) -> Search:
    """What the first stage calls, for a text."""
    from qbe.index.index import open_index

    index = open_index(folder)
    assert index.manifest.lucene is not None
    assert (index.manifest.lucene["k1"], index.manifest.lucene["b"]) == (K1, B)
    searcher, ids = index.reader, index.papers.ids

    def search(text: str, hits: int) -> list[tuple[str, float]]:
        rows, scores = searcher.search(text, hits)
        return [(ids[row], score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)]

    return search


def pyserini_searcher() -> Any:
    """Pyserini's searcher, without lists that its import downloads; qbe starts Java, which lacks a module."""
    from qbe.index import jvm

    jvm.java_class("java.lang.Object")
    lists: Any = ModuleType("pyserini.prebuilt_index_info")
    sys.modules[lists.__name__] = lists
    lists.__file__, lists.__getattr__ = "none", lambda name: {}  # noqa: ARG005
    from pyserini.search.lucene import LuceneSearcher

    return LuceneSearcher


def of_pyserini(folder: str) -> Search:
    searcher = pyserini_searcher()(folder)
    searcher.set_bm25(K1, B)
    return lambda text, hits: [(hit.docid, hit.score) for hit in searcher.search(text, hits)]


def of_bm25s(folder: str) -> Search:
    """bm25s as its manual has it: English stop words, Snowball's stemmer."""
    import bm25s
    import Stemmer

    stemmer, ids = Stemmer.Stemmer("english"), json.loads(Path(folder, "ids.json").read_text())
    index = bm25s.BM25.load(folder)

    def search(text: str, hits: int) -> list[tuple[str, float]]:
        tokens = bm25s.tokenize([text], stopwords="en", stemmer=stemmer, show_progress=False)
        rows, scores = index.retrieve(tokens, k=hits, show_progress=False, n_threads=0)
        return [(ids[row], score) for row, score in zip(rows[0].tolist(), scores[0].tolist(), strict=True)]

    return search


def index_bm25s(corpus: str, folder: str) -> None:
    """Make a bm25s index of Pyserini's JSON lines."""
    import bm25s
    import Stemmer

    records = [json.loads(line) for line in Path(corpus).read_text(encoding="utf-8").splitlines()]
    texts = [record["contents"] for record in records]
    tokens = bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)
    index = bm25s.BM25(k1=K1, b=B)
    index.index(tokens, show_progress=False)
    index.save(folder)
    Path(folder, "ids.json").write_text(json.dumps([record["id"] for record in records]))


def load(kind: str, folder: str, threads: int, work: str, precision: str) -> Any:
    """The model, exported by its own library."""
    import onnxruntime
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from sentence_transformers.backend import export_dynamic_quantized_onnx_model

    model_class = SentenceTransformer if kind == "bi-encoder" else CrossEncoder
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    options: dict[str, Any] = {"provider": "CPUExecutionProvider", "session_options": settings}
    model = model_class(folder, backend="onnx", device="cpu", model_kwargs=options)
    if precision == "int8":
        model.save_pretrained(work)
        export_dynamic_quantized_onnx_model(model, "avx512_vnni", work)
        (file,) = Path(work).rglob("*_qint8_*.onnx")
        options["file_name"] = str(file.relative_to(work))
        model = model_class(work, backend="onnx", device="cpu", model_kwargs=options)
    model.max_seq_length = TOKENS
    return model


def answer_bm25(load_index: Callable[[str], Search], folder: str, queries: str) -> None:
    search, texts = load_index(folder), json.loads(Path(queries).read_text())
    say(ready=True)
    for line in sys.stdin:
        seconds, best = [], []
        for text in texts:
            begin = time.perf_counter()
            ranked = search(text, int(line))
            seconds.append(time.perf_counter() - begin)
            best.append([paper_id for paper_id, _ in ranked[:10]])
        say(seconds=seconds, best=best)


def answer_texts(kind: str, folder: str, texts: str, precision: str, threads: str) -> None:
    inputs = json.loads(Path(texts).read_text())
    with tempfile.TemporaryDirectory() as work:
        model = load(kind, folder, int(threads), work, precision)
        call = model.encode if kind == "bi-encoder" else model.predict
        say(ready=True)
        for line in sys.stdin:
            call(inputs, batch_size=int(line), show_progress_bar=False)
            say()


INDEXES: dict[str, Callable[[str], Search]] = {"qbe": of_qbe, "pyserini": of_pyserini, "bm25s": of_bm25s}

if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    if role == "bm25s-index":
        index_bm25s(*arguments)
    elif role in INDEXES:
        answer_bm25(INDEXES[role], *arguments)
    else:
        answer_texts(role, *arguments)
