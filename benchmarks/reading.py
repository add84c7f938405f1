"""Reading arXiv's metadata snapshot: records a second on one core, and the peak of memory.

    python -m benchmarks.reading [--records 2400000] [--folder DIR]

A snapshot of so many records is made out of ``$QBE_DATA/arxiv-cs``, a third of them of computer science, then
`qbe datasets arxiv-cs` reads, filters, cleans and writes it in a process of its own, on one core.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def snapshot_record(number: int, paper: dict[str, Any]) -> dict[str, Any]:
    """A record of the snapshot's schema; two of three have categories outside computer science."""
    metadata = paper["metadata"]
    names = [name.strip() for name in metadata["authors"].split(",")]
    categories = " ".join(metadata["categories"]) if number % 3 == 0 else "math.AG hep-th"
    return {
        "id": f"{number:07}.{paper['paper_id']}".replace("/", "-"),
        "submitter": names[0],
        "authors": " and ".join(names),
        "title": paper["title"],
        "comments": "12 pages, 3 figures",
        "journal-ref": None,
        "doi": None,
        "report-no": None,
        "categories": categories,
        "license": None,
        "abstract": f"  {paper['abstract']}\n",
        "versions": [{"version": "v1", "created": "Mon, 2 Apr 2007 19:18:42 GMT"}],
        "update_date": metadata["date"],
        "authors_parsed": [[name.split()[-1], " ".join(name.split()[:-1]), ""] for name in names if name],
    }


def papers(source: Path) -> Iterator[dict[str, Any]]:
    while True:
        with lzma.open(source, "rt", encoding="utf-8") as stream:
            for line in stream:
                yield json.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=2_400_000)
    parser.add_argument("--folder", type=Path, help="where the files are written (default: a temporary one)")
    options = parser.parse_args()
    source = Path(os.environ["QBE_DATA"], "arxiv-cs", "arxiv-cs.jsonl.xz")
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        snapshot = Path(temporary, "arxiv-metadata-oai-snapshot.json")
        with snapshot.open("w", encoding="utf-8") as stream:
            for number, paper in enumerate(itertools.islice(papers(source), options.records)):
                stream.write(json.dumps(snapshot_record(number, paper)) + "\n")
        size = snapshot.stat().st_size
        command = [sys.executable, "-m", "qbe", "datasets", "arxiv-cs", "--source", str(snapshot)]
        core = {min(os.sched_getaffinity(0))}
        began = time.perf_counter()
        subprocess.run(
            [*command, "--output", f"{temporary}/out"],
            check=True,
            preexec_fn=lambda: os.sched_setaffinity(0, core),
        )
        seconds = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        began = time.perf_counter()
        with snapshot.open("rb") as raw:
            lines = sum(1 for _ in raw)
        floor = time.perf_counter() - began
    print(f"{lines:,} records, {size / 1e9:.2f} GB: {seconds:.1f} s, {lines / seconds:,.0f} records a second")
    print(f"peak of memory {peak:.0f} MiB; reading the lines alone takes {floor:.1f} s")


if __name__ == "__main__":
    main()
