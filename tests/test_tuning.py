"""Tuning: what it measures is what brute force says, and it takes the cheapest that is good enough."""

import json
import logging
from dataclasses import replace

import numpy as np
import pytest

from qbe.index.__main__ import main
from qbe.index.dense.ann import AnnParams, AnnSettings
from qbe.index.dense.exhaustive import DrawnQueries, best_papers, draw_queries
from qbe.index.dense.faiss_build import save
from qbe.index.dense.faiss_segment import FaissSegment
from qbe.index.dense.tuning import COLUMNS, TOP, agreement, tune
from qbe.index.index import Index


@pytest.fixture(scope="module")
def index(tiny_index):
    return Index(tiny_index)


@pytest.fixture(scope="module")
def vectors(index) -> np.ndarray:
    """Sentence vectors of the sample, moved apart: the tiny model's are nearly parallel."""
    centred = index.sentence_vectors.astype(np.float32)
    centred = centred - centred.mean(axis=0)
    return (centred / np.linalg.norm(centred, axis=1, keepdims=True)).astype(np.float16)


def brute_force(vectors, starts, paper: int, rows, similarity: str) -> list[int]:
    """All other papers by mean-max, best first, in plain loops."""
    exact = vectors.astype(np.float64)
    scores = {}
    for other in range(len(starts) - 1):
        total = 0.0
        for row in rows:
            sentences = exact[starts[other] : starts[other + 1]]
            if similarity == "l2":
                total += max(-np.linalg.norm(exact[row] - sentence) for sentence in sentences)
            else:
                total += max(float(exact[row] @ sentence) for sentence in sentences)
        scores[other] = total / len(rows)
    del scores[paper]
    return sorted(scores, key=lambda other: -scores[other])


@pytest.mark.parametrize("similarity", ["cosine", "l2"])
def test_exhaustive_search_is_that_of_plain_loops(index, vectors, similarity, monkeypatch):
    from qbe.index.dense import exhaustive

    monkeypatch.setattr(exhaustive, "BLOCK_SENTENCES", 100)
    starts = index.layout.starts
    drawn = draw_queries(index.layout, 7, seed=3)
    assert len(set(drawn.papers.tolist())) == 7
    ranked = best_papers(vectors, starts, drawn, 15, similarity)
    for paper, rows, best in zip(drawn.papers, drawn.sentences, ranked, strict=True):
        assert starts[paper] <= rows.min() <= rows.max() < starts[paper + 1]
        assert len(set(index.layout.facets[rows].tolist())) == 1
        assert best.tolist() == brute_force(vectors, starts, paper, rows, similarity)[:15]
    few = DrawnQueries(drawn.papers[:1], drawn.sentences[:1])
    every = best_papers(vectors, starts, few, 500, similarity)
    assert every.shape == (1, 128)
    assert (every[0, -1], len(set(every[0].tolist()))) == (-1, 128)


def test_agreement_counted_by_hand():
    best = np.arange(100, 100 + 5 * TOP)
    candidates = [p for p in best.tolist() if p not in (102, 119)]  # the third and the last of the best 20
    recall, same = agreement([np.array(candidates)], best[None])
    assert recall == 18 / 20
    assert same == 2 / 20  # all behind the third have moved up
    assert agreement([best], best[None]) == (1, 1)
    assert agreement([best[:1]], np.array([[100, 101, -1, -1]])) == (1 / 2, 1 / 2)


def test_a_trial_is_what_counting_by_hand_gives(tmp_path, index, vectors, monkeypatch):
    """The recall and the places of the plan that was chosen, once more from the index as it is read."""
    from qbe.index.dense import tuning

    monkeypatch.setattr(tuning, "MIN_CANDIDATES", (30, 80))
    layout, settings = index.layout, AnnSettings("ivf-pq", tune_recall=0.4)
    tuned = tune(vectors, layout, "cosine", settings)
    assert tuned.params in [
        replace(tuned.params, nlist=t.nlist, pq=t.pq, nprobe=t.nprobe, min_candidates=t.min_candidates)
        for t in tuned.trials
    ]
    save(tmp_path, tuned.index)
    neighbours = FaissSegment(tmp_path, 1, tuned.params)
    drawn = draw_queries(layout, tuning.QUERIES, seed=0)
    recalled = same = 0
    for paper, rows in zip(drawn.papers, drawn.sentences, strict=True):
        nearest = neighbours.nearest(vectors[rows].astype(np.float32), tuned.params.min_candidates)
        papers = {int(np.searchsorted(layout.starts, p, side="right")) - 1 for p in nearest.ravel() if p >= 0}
        best = brute_force(vectors, layout.starts, paper, rows, "cosine")
        ranked = [other for other in best if other in papers][:TOP]
        recalled += len(set(best[:TOP]) & papers)
        same += sum(a == b for a, b in zip(ranked, best[:TOP], strict=False))
    places = TOP * len(drawn.papers)
    (trial,) = [
        t
        for t in tuned.trials
        if t[:4] == (tuned.params.nlist, tuned.params.pq, tuned.params.nprobe, tuned.params.min_candidates)
    ]
    assert (trial.recall, trial.same) == pytest.approx((recalled / places, same / places), abs=2e-3)
    good = [t for t in tuned.trials if t.same >= 0.4]
    assert trial.cost == min(t.cost for t in good if t.pq == trial.pq)


def test_what_cannot_be_reached_is_told_and_the_best_is_taken(index, vectors, monkeypatch, caplog):
    from qbe.index.dense import tuning

    monkeypatch.setattr(tuning, "MIN_CANDIDATES", (1, 2))
    with caplog.at_level(logging.INFO, logger="qbe"):
        tuned = tune(vectors, index.layout, "cosine", AnnSettings("ivf-sq", tune_recall=1.0))
    assert "expected the best 20 papers of exhaustive search for 1 of places, found 0." in caplog.text
    best = max(tuned.trials, key=lambda trial: trial.same)
    assert tuned.params.min_candidates == best.min_candidates == 2
    assert best.same < 1


def test_a_tuned_index_states_its_trials(tmp_path, sample, tiny_encoder, capsys):
    corpus = tmp_path / "small.jsonl"
    corpus.write_text("".join((sample / "corpus.jsonl").read_text().splitlines(keepends=True)[:60]))
    command = [
        "--corpus",
        str(corpus),
        "--dense-only",
        "--encoder",
        str(tiny_encoder),
        "--tune-recall",
        "0.8",
    ]
    main([*command, "--output", str(tmp_path / "index"), "--stored", "int8"])
    main(
        [*command, "--output", str(tmp_path / "disk"), "--stored", "int8", "--ann-on-disk", "--ann", "ivf-sq"]
    )
    capsys.readouterr()
    for name, kind in (("index", "ivf-pq"), ("disk", "ivf-sq")):
        record = json.loads((tmp_path / name / "manifest.json").read_text())["dense"]["ann"]
        tuned = record.pop("tuned")
        assert (tuned["target"], tuned["top"], tuned["queries"]) == (0.8, 20, 60)
        assert tuned["columns"] == list(COLUMNS)
        params = AnnParams.read({"ann": record})
        assert params.kind == kind
        (row,) = [
            t
            for t in tuned["trials"]
            if t[:4] == [params.nlist, params.pq, params.nprobe, params.min_candidates]
        ]
        assert row[5] >= 0.8
        with Index(tmp_path / name) as index:
            assert index.candidate_source().sentences.nearest(np.ones((1, 16), np.float32), 5).shape == (1, 5)
