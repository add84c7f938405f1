"""Digests of what qbe answers, for comparing two versions of the code on one machine.

Every first stage with every reranker, over the sample of the tests and CSFCube, by the command line and
over HTTP: `python -m benchmarks.golden --output golden.json`, then, with the other version, `--compare
golden.json`. Digests of two processors differ where int8 is computed differently.
"""

import argparse
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

from benchmarks.common import SAMPLE, serving

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


def collection(name: str, work: Path) -> Path | None:
    """Write a collection and its index below ``work``; None where it is not at hand."""
    folder = work / name
    if name == "csfcube" and not os.environ.get("QBE_DATA"):
        return None
    if name == "sample":
        shutil.copytree(SAMPLE, folder)
    else:
        qbe("datasets", name, "--output", folder)
    qbe("index", "--corpus", folder / "corpus.jsonl", "--output", folder / "index")
    return folder


def runs(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the runs of all topics, in pools by each first stage and reranker, and over the corpus."""
    common = ("search", "--index", folder / "index", "--topics", folder / "topics.tsv")
    pools = folder / "pools.tsv"
    for first in FIRST_STAGES:
        for reranker in RERANKERS:
            if folder.name == "csfcube" and reranker.startswith(("cross-encoder", "grades:joint")):
                continue  # hours on two cores; the sample has them
            stages = ("--first-stage", first, "--rerank", reranker, "--run-tag", "golden")
            yield f"{first} >> {reranker}, pools", qbe(*common, *stages, "--pool", pools, "--format", "trec")
        stages = ("--first-stage", first, "--run-tag", "golden", "--hits", "50")
        yield f"{first}, corpus", qbe(*common, *stages, "--format", "trec")


def searches(folder: Path, papers: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield single searches in every format."""
    for options in SEARCHES:
        for paper in papers:
            command = ("search", "--index", folder / "index", "--paper", paper, *options)
            yield f"{paper} {' '.join(options)}", qbe(*command)


def answers(folder: Path, papers: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the answers of a server."""
    facets, stages = ("background", "method", "result"), ("bm25", "dense", "fused")
    with serving(folder / "index", folder / "log") as (port, _):
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


def golden(work: Path, names: list[str]) -> dict[str, str]:
    """Return the digest of every output, by a description of what made it."""
    digests = {}
    for name in names:
        folder = collection(name, work)
        if folder is None:
            continue
        corpus = (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
        papers = [json.loads(line)["paper_id"] for line in corpus[:: max(1, len(corpus) // 4)]][:4]
        for kind in (runs(folder), searches(folder, papers), answers(folder, papers)):
            for what, output in kind:
                digests[f"{name}: {what}"] = hashlib.sha256(output).hexdigest()
                if output.startswith((b"failed", b"4", b"5")):
                    print(f"{name}: {what}: {output[:200].decode()}", file=sys.stderr)
    return digests


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="write the digests there")
    parser.add_argument("--compare", type=Path, help="compare with the digests of this file")
    parser.add_argument("--collections", nargs="+", default=["sample", "csfcube"])
    parser.add_argument("--work", type=Path, help="keep collections and indexes there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        digests = golden(options.work or Path(scratch), options.collections)
    if options.output:
        options.output.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    if options.compare:
        before = json.loads(options.compare.read_text(encoding="utf-8"))
        differing = [what for what in before if digests.get(what) != before[what] if what in digests]
        print(*(f"differs: {what}" for what in differing), sep="\n")
        print(f"{len(digests) - len(differing)} of {len(digests)} as before")
        sys.exit(bool(differing))


if __name__ == "__main__":
    main()
