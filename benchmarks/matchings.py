"""Every matching of sentence vectors with every encoder, on CSFCube.

    QBE_DATA=... python -m benchmarks.matchings [--encoders NAME_OR_FOLDER ...]

Indexes the collection with each encoder, ranks each pool by each matching only, and prints NDCG%20 on the
test folds by CSFCube's protocol. These are test data: no setting may be chosen by these figures.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from qbe import _cli
from qbe.datasets.csfcube import convert
from qbe.evaluate.folds import Folds, load_folds
from qbe.evaluate.protocol import csfcube_protocol
from qbe.index.building.build import build
from qbe.index.building.settings import BuildSettings, Execution
from qbe.index.index import Index
from qbe.models.registry import BASE_ENCODER, DEFAULT_ENCODER
from qbe.query import Query
from qbe.rerank.vector_matching import MATCHINGS, VectorMatching
from qbe.trec import read_pools, read_qrels, read_topics
from qbe.types import Facet, Hit, Run

SCOPES = (*map(str, Facet), "aggregated")


def ranked(index: Index, folder: Path, matching: str, threads: int) -> Run:
    """Rank each pool by the scores of a matching."""
    matcher = VectorMatching(
        matching, lambda paper: index.vectors(paper).sentences, similarity=index.similarity, threads=threads
    )
    rankings = {}
    pools = read_pools(folder / "pools.tsv")
    for topic in read_topics(folder / "topics.tsv"):
        query = Query(index.paper(topic.paper_id), topic.facet)
        pool = [paper_id for paper_id in pools[topic.query_id] if paper_id != topic.paper_id]
        scores = matcher.score(query, [index.paper(paper_id) for paper_id in pool])
        hits = [Hit(paper_id, rerank.score) for paper_id, rerank in zip(pool, scores, strict=True)]
        rankings[topic.query_id] = tuple(sorted(hits, key=lambda hit: -hit.score))
    return Run(matching, rankings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoders", nargs="+", default=[BASE_ENCODER, DEFAULT_ENCODER])
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    threads = _cli.threads(options.threads)
    with tempfile.TemporaryDirectory(prefix="qbe-") as temporary:
        folder = Path(temporary)
        convert(Path(os.environ["QBE_DATA"]) / "csfcube", folder)
        qrels = {}
        for facet in Facet:
            qrels |= read_qrels(folder / f"csfcube.{facet}.qrels")
        folds = load_folds(folder / "folds.json")
        print("| encoder | matching | " + " | ".join(SCOPES) + " |")
        print("|---|---|" + "---:|" * len(SCOPES))
        for number, encoder in enumerate(options.encoders):
            corpus = (str(folder / "corpus.jsonl"),)
            settings = BuildSettings(bm25=False, encoder=encoder)
            build(folder / str(number), corpus, settings, execution=Execution(threads))
            with Index(folder / str(number), threads=threads) as index:
                for matching in MATCHINGS:
                    row = _figures(qrels, ranked(index, folder, matching, threads), folds)
                    print(f"| {Path(encoder).name} | {matching} | {row} |", flush=True)


def _figures(qrels: Mapping[str, Mapping[str, int]], run: Run, folds: Folds) -> str:
    figures = csfcube_protocol(qrels, run, folds).figures["NDCG%20"]
    return " | ".join(f"{100 * (figures[scope] or 0):.2f}" for scope in SCOPES)


if __name__ == "__main__":
    main()
