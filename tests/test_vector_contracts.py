"""What dense search needs of an index, whatever it is made of: candidates, and vectors to score them by."""

import numpy as np
import pytest
from support.live import corpus

from qbe.errors import UsageError
from qbe.index import faiss as faiss_candidates
from qbe.index.build import build
from qbe.index.reader import IndexReader
from qbe.index.source import BuildSettings
from qbe.index.store import EXACT
from qbe.index.update import append_papers, delete_papers
from qbe.index.vectors import best_per_paper, mean_max

KINDS = [("float16", EXACT, False), ("int8", "IVF4,PQ4x4fs", True), ("float16", EXACT, True)]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def reader(request, tmp_path_factory, papers, tiny_encoder) -> IndexReader:
    """An index as it was built, or updated."""
    stored, faiss, updated = request.param
    settings = BuildSettings(bm25=False, encoder=str(tiny_encoder), stored=stored, faiss=faiss)
    folder = tmp_path_factory.mktemp("index")
    build(folder / "index", corpus(folder, "first", papers[:70] if updated else papers), settings)
    if updated:
        append_papers(folder / "index", corpus(folder, "second", papers[60:]), update=True)
        delete_papers(folder / "index", ["s003", "s100"])
    return IndexReader(folder / "index")


def queries(reader: IndexReader) -> list[np.ndarray]:
    rows = range(0, len(reader), 9)
    return [reader.gather(np.array([row])).vectors.astype(np.float32) for row in rows]


def test_candidates_are_rows_ascending(reader):
    for candidates in reader.candidate_source().nearest(queries(reader), 10):
        assert candidates.dtype == np.int64
        assert (np.diff(candidates) > 0).all()
        assert 0 <= candidates[0] <= candidates[-1] < len(reader)
    for candidates in reader.candidate_source().nearest(queries(reader)[:2], 10**6):
        assert len(candidates) >= len(reader) - 3  # FAISS drops some codes whose sums are near 0


def test_candidates_of_a_query_do_not_depend_on_the_others(reader, monkeypatch):
    source, many = reader.candidate_source(), queries(reader)
    together = [rows.tolist() for rows in source.nearest(many, 5)]
    assert together == [rows.tolist() for query in many for rows in source.nearest([query], 5)]
    monkeypatch.setattr(faiss_candidates, "MOST_POSITIONS", 20 * len(reader.sentence_vectors))
    assert together == [rows.tolist() for rows in source.nearest(many, 5)]
    assert list(source.nearest([], 5)) == []


@pytest.mark.parametrize("k", [1, 5, 40])
def test_the_best_are_among_the_candidates_for_their_mean(reader, k):
    """Whatever is left out, the best are those that they are among all candidates."""
    source, many = reader.candidate_source(), queries(reader)
    sides = source.nearest(many, k), source.nearest(many, k, by_mean=True)
    for query, every, few in zip(many, *sides, strict=True):
        assert {*few.tolist()} <= {*every.tolist()}
        ranked = []
        for rows in (every, few):
            compared = reader.compare(query, rows)
            scores = mean_max(best_per_paper(compared.similarities, compared.starts))
            ranked.append(rows[np.argsort(-scores, kind="stable")[:k]].tolist())
        assert ranked[0] == ranked[1]
    if k == 1 and source.sentences.has_similarities:
        assert any(len(few) < len(reader) for few in source.nearest(many[:1], k, by_mean=True))


def test_at_least_so_many_sentences_are_looked_up(reader, monkeypatch):
    source, counts = reader.candidate_source(), []
    nearest = source.sentences.nearest
    monkeypatch.setattr(
        source.sentences, "nearest", lambda *given: counts.append(given[1]) or nearest(*given)
    )
    for k in (1, 1500):
        list(source.nearest(queries(reader)[:1], k))
    assert counts == [2000, 3000]


def test_gathered_sentences_are_those_of_the_papers_in_order(reader):
    starts = reader.layout.starts
    rows = np.array([5, 0, 40])
    block = reader.gather(rows)
    expected = [sentence for row in rows for sentence in range(starts[row], starts[row + 1])]
    assert block.rows.tolist() == expected
    assert block.starts.tolist() == [0, *np.cumsum(np.diff(starts)[rows])[:-1].tolist()]
    vectors = block.vectors.astype(np.float32)
    assert vectors.shape == (len(expected), reader.sentence_vectors.shape[1])
    for position, row in enumerate(expected):
        assert (vectors[position] == reader.sentence_vectors[row].astype(np.float32)).all()
    assert (reader.whole(rows).astype(np.float32) == reader.whole_vectors[rows].astype(np.float32)).all()
    none = np.zeros(0, np.int64)
    assert [len(part) for part in reader.gather(none)] == [0, 0, 0]
    assert len(reader.whole(none)) == 0


def test_fewer_lists_give_fewer_candidates_and_need_lists(reader):
    with pytest.raises(UsageError, match="expected `nprobe` of at least 1, found 0"):
        reader.candidate_source(0)
    if reader.manifest.dense["ann"]["factory"] == EXACT:
        with pytest.raises(UsageError, match="`nprobe` goes with an index of lists, found SQfp16; drop it"):
            reader.candidate_source(1)
        return
    narrow = reader.candidate_source(1)
    assert narrow is reader.candidate_source(1)
    few, all_ = (next(source.nearest(queries(reader), 10)) for source in (narrow, reader.candidate_source()))
    assert {*few.tolist()} <= {*all_.tolist()}
