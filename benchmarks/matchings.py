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
from qbe.encode.aspect import EncodedAspect
from qbe.evaluate.protocol import Folds, csfcube_protocol, load_folds
from qbe.index.building.settings import BuildSettings
from qbe.index.index import Index
from qbe.index.opening import build_index
from qbe.models.registry import BASE_ENCODER, DEFAULT_ENCODER
from qbe.parallel import Workers
from qbe.query import Aspect
from qbe.rerank.matching import MATCHINGS, VectorMatching
from qbe.rerank.reranker import RerankRequest
from qbe.run import Run
from qbe.topics import read_pools, read_topics
from qbe.trec import read_qrels
from qbe.types import Facet, Hit

SCOPES = (*map(str, Facet), "aggregated")


def ranked(index: Index, folder: Path, matching: str, workers: Workers) -> Run:
    """Rank each pool by the scores of a matching."""
    matcher = VectorMatching(
        matching, lambda paper: index.vectors(paper).sentences, similarity=index.similarity, workers=workers
    )
    rankings = {}
    pools = read_pools(folder / "pools.tsv")
    for topic in read_topics(folder / "topics.tsv"):
        paper = index.paper(topic.paper_id)
        query = EncodedAspect.of(Aspect(paper, topic.facet), index.vectors(paper))
        pool = [paper_id for paper_id in pools[topic.query_id] if paper_id != topic.paper_id]
        papers = [index.paper(paper_id) for paper_id in pool]
        (scores,) = matcher.batch_score([RerankRequest(query, papers)])
        hits = [Hit(paper_id, scored.score) for paper_id, scored in zip(pool, scores, strict=True)]
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
        qrels: dict[str, Mapping[str, int]] = {}
        for facet in Facet:
            qrels |= read_qrels(folder / f"csfcube.{facet}.qrels")
        folds = load_folds(folder / "folds.json")
        print("| encoder | matching | " + " | ".join(SCOPES) + " |")
        print("|---|---|" + "---:|" * len(SCOPES))
        for number, encoder in enumerate(options.encoders):
            corpus, settings = folder / "corpus.jsonl", BuildSettings(bm25=False, encoder=encoder)
            with (
                build_index(folder / str(number), corpus, settings, threads=threads) as index,
                Workers(threads) as workers,
            ):
                for matching in MATCHINGS:
                    row = _figures(qrels, ranked(index, folder, matching, workers), folds)
                    print(f"| {Path(encoder).name} | {matching} | {row} |", flush=True)


def _figures(qrels: Mapping[str, Mapping[str, int]], run: Run, folds: Folds) -> str:
    figures = csfcube_protocol(qrels, run, folds).figures["NDCG%20"]
    return " | ".join(f"{100 * (figures[scope] or 0):.2f}" for scope in SCOPES)


if __name__ == "__main__":
    main()
