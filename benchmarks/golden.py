"""Digests of what qbe answers, for comparing two versions of the code on one machine.

Every first stage with every reranker, over the sample of the tests and CSFCube, by the command line and
over HTTP: `python -m benchmarks.golden --output golden.json`, then, with the other version, `--compare
golden.json`. Digests of two processors differ where int8 is computed differently.
"""

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import SAMPLE, parsed, serving
from qbe.cli import common as _cli

FIRST_STAGES = ("bm25", "dense", "fused", "fused:background_penalty=0")
RERANKERS = (
    "none",
    "grades",
    "projections",
    "grades:joint=10",
    *(f"matching:kind={kind}" for kind in ("transport", "attention", "single-match", "mean-max")),
    "cross-encoder:depth=5",
)
SEARCHES: tuple[tuple[str, ...], ...] = (
    ("--like", "competitors", "--format", "json"),
    ("--like", "same-method-other-problem", "--format", "trec"),
    ("--facet", "method", "--format", "csv"),
    ("--facet", "result", "--format", "markdown"),
    ("--facet", "background", "--format", "json"),
    ("--format", "bibtex"),
    ("--format", "ris"),
)


def qbe(*arguments: object) -> bytes:
    """Run a command of qbe; return its output, or the error's last line where it fails."""
    command = [sys.executable, "-m", "qbe", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, check=False)
    return done.stdout if not done.returncode else b"failed: " + done.stderr.splitlines()[-1]


def answers(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Index a collection; yield the runs of all topics, in pools and over the corpus, searches of four papers
    in every format, and answers of a server.
    """
    corpus, index = folder / "corpus.jsonl", folder / "index"
    qbe("index", "--corpus", corpus, "--output", index)
    lines = corpus.read_text(encoding="utf-8").splitlines()
    papers = [json.loads(line)["paper_id"] for line in lines[:: max(1, len(lines) // 4)]][:4]
    searches: list[tuple[str, ...]] = [("--paper", paper, *each) for each in SEARCHES for paper in papers]
    topics = ("--topics", f"{folder}/topics.tsv", "--run-tag", "golden", "--format", "trec")
    for first in FIRST_STAGES:
        searches.append((*topics, "--first-stage", first, "--hits", "50"))
        for reranker in RERANKERS:
            if folder.name == "csfcube" and reranker.startswith(("cross-encoder", "grades:joint")):
                continue  # hours on two cores; the sample has them
            chosen = ("--first-stage", first, "--rerank", reranker)
            searches.append((*topics, *chosen, "--pool", f"{folder}/pools.tsv"))
    for options in searches:
        yield " ".join(options).replace(f"{folder}/", ""), qbe("search", "--index", index, *options)
    facets, stages = ("background", "method", "result"), ("bm25", "dense", "fused")
    with serving(index, folder / "log") as (port, _):
        for paper, facet, stage, rerank in itertools.product(papers, facets, stages, (False, True)):
            body = {"paper_ids": [paper], "facet": facet, "first_stage": stage, "rerank": rerank}
            yield f"POST {json.dumps(body)}", post(f"http://127.0.0.1:{port}/api/search", body)


def post(url: str, body: dict[str, Any]) -> bytes:
    """Return the JSON of an answer without its times."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request) as response:  # noqa: S310
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}".encode()
    for name in [name for name in answer if "time" in name or "seconds" in name or name.endswith("_ms")]:
        del answer[name]
    return json.dumps(answer, sort_keys=True).encode()


def main(argv: list[str]) -> None:
    output = {"type": Path, "metavar": "FILE", "help": "write the digests there"}
    compare = {"type": Path, "metavar": "FILE", "help": "compare with the digests of this file"}
    collections: dict[str, Any] = {"nargs": "+", "default": ["sample", "csfcube"], "metavar": "NAME"}
    own = {"output": output, "compare": compare, "collections": collections}
    options, digests = parsed("golden", __doc__, argv, **own, work={}), dict[str, str]()
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        for name in options.collections:
            if name == "csfcube" and not os.environ.get("QBE_DATA"):
                continue
            folder = Path(work, name)
            if name == "sample":
                shutil.copytree(SAMPLE, folder)
            else:
                qbe("datasets", name, "--output", folder)
            for what, answer in answers(folder):
                digests[f"{name}: {what}"] = hashlib.sha256(answer).hexdigest()
                if answer.startswith((b"failed", b"4", b"5")):
                    print(f"{name}: {what}: {answer[:200].decode()}", file=sys.stderr)
    if options.output:
        options.output.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    if options.compare:
        before = json.loads(options.compare.read_text(encoding="utf-8"))
        differing = [what for what in before if digests.get(what) != before[what] if what in digests]
        print(*(f"differs: {what}" for what in differing), sep="\n")
        print(f"{len(digests) - len(differing)} of {len(digests)} as before")
        sys.exit(bool(differing))


if __name__ == "__main__":
    _cli.run("benchmarks.golden", main)
