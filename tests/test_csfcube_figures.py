"""The main job on the real collection: its figures stay above their floors, and the dense stage is exact."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from qbe.datasets.csfcube import convert
from qbe.evaluate.folds import load_folds
from qbe.evaluate.protocol import csfcube_protocol
from qbe.index.build import build_index
from qbe.index.index import Index
from qbe.index.settings import BuildSettings
from qbe.search.dense import DenseSearcher, QueryVectors, best_hits
from qbe.search.searcher import Searcher
from qbe.trec import read_pools, read_qrels, read_run, read_topics, write_run
from qbe.types import Query, Run

FLOORS = {
    "bm25": {"aggregated": 53.5},
    "dense": {"aggregated": 60.5},
    "fused": {"background": 74.5, "method": 45.5, "result": 65.5, "aggregated": 62.0},
}
MAP_FLOOR = 41.0


class Collection(NamedTuple):
    folder: Path
    index: Index
    queries: dict[str, Query]


@pytest.fixture(scope="module")
def collection(qbe_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("csfcube")
    convert(qbe_data / "csfcube", folder)
    build_index(folder / "index", BuildSettings((str(folder / "corpus.jsonl"),), threads=2))
    with Index(folder / "index", threads=2) as index:
        topics = read_topics(folder / "topics.tsv")
        queries = {topic.query_id: Query(index.paper(topic.paper_id), topic.facet) for topic in topics}
        yield Collection(folder, index, queries)


@pytest.mark.parametrize("stage", FLOORS)
def test_figures(collection, stage, tmp_path):
    """NDCG%20 on the test folds (and MAP of fused), from the run file as it was written."""
    searcher = Searcher(collection.index, stage)
    pools = read_pools(collection.folder / "pools.tsv")
    rankings = {
        query_id: tuple(searcher.search(query, 1000, pools[query_id], matches=False))
        for query_id, query in collection.queries.items()
    }
    write_run(tmp_path / "run.trec", Run(stage, rankings))
    qrels = {}
    for facet in ("background", "method", "result"):
        qrels |= read_qrels(collection.folder / f"csfcube.{facet}.qrels")
    folds = load_folds(collection.folder / "folds.json")
    result = csfcube_protocol(qrels, read_run(tmp_path / "run.trec"), folds)
    for scope, floor in FLOORS[stage].items():
        assert 100 * result.figures["NDCG%20"][scope] >= floor
    if stage == "fused":
        assert 100 * result.figures["MAP"]["aggregated"] >= MAP_FLOOR


def test_candidates_of_faiss_lose_nothing(collection):
    """The 100 best papers of a search are those of scoring every paper of the index."""
    index, dense = collection.index, DenseSearcher(collection.index)
    everything = np.arange(len(index))
    for query in collection.queries.values():
        scores = dense.scores(QueryVectors(index, query), everything)
        expected = best_hits(index.papers.ids, scores, 100)
        assert [hit.docid for hit in dense.search(query, 100)] == [hit.docid for hit in expected]
