"""Rankings by Pyserini's own LuceneSearcher: reads a request as JSON on standard input, writes the answer.

The request maps a collection's name to ``ours`` (a Lucene index), ``documents`` (a folder of JSON lines
for Pyserini's own command line), ``index`` (where that one goes) and ``queries`` (texts). The answer maps
it to ``ours`` and ``pyserini``: for each query the list of (paper_id, score).

It is a process of its own because LuceneSearcher imports torch, transformers and an OpenAI client, and
because our way of starting Java must not depend on Pyserini's.
"""

import json
import os
import runpy
import sys

os.environ["OPENAI_API_KEY"] = "unused"

from qbe import _jvm

_jvm.java_class("java.lang.Object")  # a Java without the vector module would not start Pyserini's way


def index(documents: str, folder: str) -> None:
    """``python -m pyserini.index.lucene``, as its documentation has it."""
    sys.argv = ["pyserini.index.lucene", "--collection", "JsonCollection", "--input", documents]
    sys.argv += ["--index", folder, "--generator", "DefaultLuceneDocumentGenerator", "--threads", "1"]
    runpy.run_module("pyserini.index.lucene", run_name="__main__")


def rankings(folder: str, queries: list[str]) -> list[list[tuple[str, float]]]:
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(folder)
    hits = [[(hit.docid, hit.score) for hit in searcher.search(query, k=1000)] for query in queries]
    searcher.close()
    return hits


request = json.load(sys.stdin)
answer = {}
with os.fdopen(os.dup(1), "w") as output:
    os.dup2(2, 1)  # what Java prints goes to standard error
    for name, collection in request.items():
        index(collection["documents"], collection["index"])
        folders = {"ours": collection["ours"], "pyserini": collection["index"]}
        answer[name] = {side: rankings(folder, collection["queries"]) for side, folder in folders.items()}
    json.dump(answer, output)
