"""Processes of the sides of other benchmarks (`benchmarks.sides.Side`): ROLE and its arguments.

``bm25s-index CORPUS FOLDER K1 B`` makes a bm25s index of Pyserini's JSON lines. The others load what they
search, and answer every line that they read with a round: BM25 by ``qbe``, ``pyserini`` and ``bm25s`` (FOLDER
QUERIES K1 B HITS), texts by
sentence-transformers' ONNX back end, a ``bi-encoder`` or ``cross-encoder`` (FOLDER TEXTS PRECISION THREADS;
a line is the size of a batch). Some run in the environment of peers: only the standard library loads first.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

TOKENS = 512

Search = Callable[..., Any]


def say(**record: object) -> None:
    """Print one line of JSON, which begins on a new line whatever a library has printed before."""
    print("\n" + json.dumps(record), flush=True)


def timed(search: Callable[..., Any], queries: Iterable[tuple[Any, ...]]) -> tuple[list[float], list[Any]]:
    """Run queries one after the other; return the seconds and the result of each."""
    seconds, results = [], []
    for query in queries:
        begin = time.perf_counter()
        hits = search(*query)
        seconds.append(time.perf_counter() - begin)
        results.append(hits)
    return seconds, results


def memory(process: int | str = "self") -> dict[str, float]:
    """The memory of a process in 10^9 bytes: peak, resident and anonymous; OSError or KeyError where it
    ended.
    """
    lines = (line.split() for line in Path(f"/proc/{process}/status").read_text().splitlines())
    fields = {words[0]: words[1] for words in lines if len(words) > 1}
    names = {"peak": "VmHWM:", "resident": "VmRSS:", "anonymous": "RssAnon:"}
    return {name: int(fields[field]) * 1024 / 1e9 for name, field in names.items()}


def of_qbe(folder: Path, k1: float, b: float, hits: int) -> Search:
    """What the first stage calls, for a text."""
    from qbe.index.index import open_index

    index = open_index(folder)
    manifest = index.manifest.lucene
    assert manifest is not None
    assert (manifest["k1"], manifest["b"]) == (k1, b)
    searcher = index.reader
    ids = index.papers.ids

    def search(text: str) -> list[tuple[str, float]]:
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


def of_pyserini(folder: Path, k1: float, b: float, hits: int) -> Search:
    searcher = pyserini_searcher()(str(folder))
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


def answer_bm25(role: str, folder: str, queries: str, k1: str, b: str, hits: str = "0") -> None:
    if role == "bm25s-index":
        index_bm25s(Path(folder), Path(queries), float(k1), float(b))
        return
    search = {"qbe": of_qbe, "pyserini": of_pyserini, "bm25s": of_bm25s}[role](
        Path(folder), float(k1), float(b), int(hits)
    )
    texts = json.loads(Path(queries).read_text())
    say(ready=True)
    for _ in sys.stdin:
        seconds, ranked = timed(search, [(text,) for text in texts])
        say(seconds=seconds, best=[[paper_id for paper_id, _ in each[:10]] for each in ranked])


def answer_texts(role: str, folder: str, texts: str, precision: str, threads: str) -> None:
    inputs = json.loads(Path(texts).read_text())
    with tempfile.TemporaryDirectory() as work:
        model = load(role, folder, int(threads), work, precision)
        call = model.encode if role == "bi-encoder" else model.predict
        say(ready=True)
        for line in sys.stdin:
            outputs = call(inputs, batch_size=int(line), show_progress_bar=False)
            first = outputs[0] if role == "bi-encoder" else outputs[:1]
            say(first=[float(number) for number in first])


ROLES: dict[str, Callable[..., None]] = {
    **dict.fromkeys(("bm25s-index", "qbe", "pyserini", "bm25s"), answer_bm25),
    **dict.fromkeys(("bi-encoder", "cross-encoder"), answer_texts),
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[1:])
