"""``python -m benchmarks.recommending``: how long a recommendation of citations takes, and its memory.

An index is made out of a real one (`benchmarks.synthetic`), with postings; each paper gets a year and cites
some earlier ones at random. 20 papers are recommended to some of the papers, one at a time: by texts, by
texts and links, and with ten papers that the query cites already.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import machine, median_p95, positive, table
from qbe import _cli

if TYPE_CHECKING:
    from qbe.types import Paper

PACKAGES = ("faiss-cpu", "numpy", "pyserini")
FIRST_YEAR, YEARS = 1990, 30
CITED = 10
"""Papers that a paper cites, and that are known of a bibliography."""
HITS = 20
KNOWN = (("texts", False, 0), ("links", True, 0), ("links, cited", True, CITED))
HEADER = ["known", "opening, s", "first query, s", "s a query / p95", "longest, s", "peak so far, MiB"]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.recommending", description=__doc__.split("\n\n")[0])
    parser.add_argument("--index", type=Path, required=True, metavar="DIR", help="of real papers, by cosine")
    parser.add_argument("--papers", type=positive, default=100_000, help="default: %(default)s")
    parser.add_argument("--queries", type=positive, default=30, help="default: %(default)s")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where the index is made (default: $TMPDIR)")
    parser.add_argument("--made", type=Path, metavar="DIR", help="the index, kept there; used if it exists")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser


def with_links(papers: Iterator[Paper]) -> Iterator[Paper]:
    """The papers, each with a year and citations of earlier ones."""
    import numpy as np

    random, ids = np.random.default_rng(0), list[str]()
    for number, paper in enumerate(papers):
        cites = sorted({ids[row] for row in random.integers(number, size=CITED).tolist()} if ids else ())
        ids.append(paper.paper_id)
        year = FIRST_YEAR + int(random.integers(YEARS))
        yield dataclasses.replace(paper, metadata={"year": year, "cites": cites})


def main(argv: list[str]) -> None:
    from benchmarks.drawn import drawn
    from benchmarks.synthetic import write_searchable
    from qbe.cite.config import CiteConfig
    from qbe.cite.recommender import CiteRequest, Recommender
    from qbe.index.opening import open_index

    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    print(machine(threads, PACKAGES))
    with tempfile.TemporaryDirectory(prefix="qbe-", dir=options.work) as work:
        folder = options.made or Path(work) / "index"
        if not folder.exists():
            with open_index(options.index) as source:
                write_searchable(source, folder, options.papers, "auto", threads, with_links)
        rows = []
        with open_index(folder, threads=threads) as index:
            papers = [index.papers[int(row)] for row in drawn(index, options.queries).papers]
            print(f"{len(index):,} papers, {len(index.sentence_vectors):,} sentences\n")
            for name, links, seeds in KNOWN:
                begin = time.perf_counter()
                with Recommender.open(index, CiteConfig(links=links)) as recommender:
                    opened, seconds = time.perf_counter() - begin, []
                    for paper in papers:
                        cited = paper.metadata["cites"][:seeds]
                        begin = time.perf_counter()
                        recommender.batch_recommend([CiteRequest(paper, cited)], HITS)
                        seconds.append(time.perf_counter() - begin)
                first, *warm = seconds
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                row = [f"{opened:.2f}", f"{first:.2f}", " / ".join(median_p95(warm, 1.0))]
                rows.append([name, *row, f"{max(warm):.2f}", f"{memory:.0f}"])
        print(table(HEADER, rows))


if __name__ == "__main__":
    _cli.run("benchmarks.recommending", main)
