"""Training of the citation model: figures and losses by hand, what is learned, the whole, resuming."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qbe import CiteConfig, CorpusError, PaperFilter, Recommender
from qbe.cite.recommender import read_model
from qbe.cite.scoring import FEATURE_SETS, MeasuredPapers, lengths, terms
from qbe.index.index import Index
from qbe.index.reader import IndexReader
from qbe.train import citation
from qbe.train.citation import FeatureList, ProjectionNetwork, ProjectionSchedule, read_split
from qbe.train.fit import Schedule, copied, fit
from qbe.train.losses import citation_loss
from qbe.train.network import StoredVectors

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
TRAINED = "citation"


def test_a_split_has_the_rows_of_what_is_cited(trained, tmp_path):
    path = tmp_path / "dev.qrels"
    path.write_text("s040 0 s009 1\ns040 0 s003 1\ns040 0 s005 0\ns011 0 s001 2\n")
    reader = IndexReader(trained.sources.index)
    assert {row: rows.tolist() for row, rows in read_split(reader, path).items()} == {39: [2, 8], 10: [0]}
    for line in ("absent 0 s001 1", "s040 0 absent 1"):
        path.write_text(f"s041 0 s002 1\n{line}\n")
        with pytest.raises(CorpusError, match="papers of the index, found absent, which it lacks"):
            read_split(reader, path)


def ranking(*places: int, length: int = 30, total: int) -> tuple[np.ndarray, int]:
    return np.isin(np.arange(1, length + 1), places), total


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (ranking(2, 20, 21, total=5), (2 * (2 / 20) * (2 / 5) / (2 / 20 + 2 / 5), 1 / 2, 3 / 5)),
        (ranking(21, total=1), (0, 1 / 21, 1)),
        (ranking(total=3), (0, 0, 0)),
        (ranking(*range(1, 31), total=40), (2 * 1 * 0.5 / 1.5, 1, 30 / 40)),
        (ranking(1, length=1, total=1), (2 / 21, 1, 1)),
        (ranking(length=0, total=4), (0, 0, 0)),
    ],
)
def test_figures_of_one_query(found, expected):
    """F1 is the harmonic mean of P@20 and R@20, of what was found or not."""
    assert citation.citation_figures([found]) == pytest.approx(citation.CitationFigures(*expected))


def test_the_loss_is_that_of_each_cited_paper_against_the_rest():
    """exp(scores) are 1, 2, 3 and 4; the third does not count. Shares are 1/5 and 4/8 of the rest of 4."""
    scores = torch.log(torch.tensor([1.0, 4.0, 3.0, 4.0]))
    cited = torch.tensor([True, True, False, False])
    counts = torch.tensor([True, True, False, True])
    expected = -(math.log(1 / 5) + math.log(4 / 8)) / 2
    assert citation_loss(scores, cited, counts).item() == pytest.approx(expected)
    assert citation_loss(scores, cited, cited).item() == 0  # without rivals


def vectors_of(counts: list[int], size: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    sentences, whole = (random.standard_normal((count, size)) for count in (sum(counts), len(counts)))
    return sentences, whole, np.cumsum([0, *counts])


def test_the_network_scores_as_search_does():
    counts = [2, 1, 3, 1, 4]
    sentences, whole, starts = vectors_of(counts, 6, seed=3)
    network = ProjectionNetwork(StoredVectors(sentences, whole, starts))
    random = np.random.default_rng(4)
    with torch.no_grad():
        network.matrices.copy_(torch.tensor(random.standard_normal((2, 6, 6))))
        network.weights.copy_(torch.tensor([1.0, -2.0, 0.5]))
        queries, candidates = [4, 0], [1, 2, 4]
        actual = network(torch.tensor(queries), torch.tensor(candidates)).numpy()
    projection = citation.projection_of(copied(network))
    rows = [row for paper in candidates for row in range(starts[paper], starts[paper + 1])]
    stored = MeasuredPapers(
        sentences[rows],
        lengths(sentences[rows], projection.sentences),
        whole[candidates],
        lengths(whole[candidates], projection.whole),
        np.cumsum([0, *(counts[paper] for paper in candidates[:-1])]),
    )
    for paper, scores in zip(queries, actual, strict=True):
        own = sentences[starts[paper] : starts[paper + 1]]
        found = projection.weights @ terms(projection, own, whole[paper], stored)
        np.testing.assert_allclose(scores, found, atol=1e-5)


TOY, OLD = 40, 20  # papers, the second half of which cite some of the first


@pytest.fixture(scope="module")
def toy():
    """Vectors whose first two numbers say by their signs what a paper cites; the others are louder."""
    random = np.random.default_rng(5)
    counts = [1 + paper % 3 for paper in range(TOY)]
    kinds = random.choice([-1.0, 1.0], (TOY, 2))
    whole = np.hstack([kinds, random.standard_normal((TOY, 8)) * 2])
    sentences = np.repeat(whole, counts, axis=0)
    sentences[:, 2:] += random.standard_normal((len(sentences), 8))
    vectors = StoredVectors(sentences, whole, np.cumsum([0, *counts]))
    cited = {
        paper: np.array([old for old in range(OLD) if (kinds[old] == kinds[paper]).all()])
        for paper in range(OLD, TOY)
    }
    nearest = {paper: np.setdiff1d(np.arange(OLD), cited[paper]) for paper in cited}
    return vectors, cited, nearest, np.where(np.arange(TOY) < OLD, 2000.0, 2001.0)


def toy_mrr(toy, network: ProjectionNetwork) -> float:
    _, cited, *_ = toy
    with torch.no_grad():
        scores = network(torch.tensor([*cited]), torch.arange(OLD)).numpy()
    lists = [
        (np.isin(np.argsort(-row), cited[query]), len(cited[query]))
        for query, row in zip(cited, scores, strict=True)
    ]
    return citation.citation_figures(lists).mrr


FAST = ProjectionSchedule(epochs=6, queries=5, nearest=20, random=0, learning_rate=5e-2)


def fitted(toy, path: Path, schedule: ProjectionSchedule = FAST) -> Any:
    task = citation.projection_task(ProjectionNetwork(toy[0]), *toy[1:], schedule=schedule)
    fit(task, Schedule(schedule.epochs, patience=schedule.patience), 0, path)
    return task.network


def test_what_is_cited_is_learned(toy, tmp_path):
    assert toy_mrr(toy, ProjectionNetwork(toy[0])) < 0.7
    assert toy_mrr(toy, fitted(toy, tmp_path / "fit.pt")) > 0.9


@pytest.mark.parametrize(
    ("year", "is_rival"), [(1999.0, True), (2001.0, True), (2002.0, False), (math.nan, True)]
)
def test_younger_papers_and_the_query_are_no_rivals(toy, year, is_rival):
    years = np.full(TOY, 2001.0)
    years[1] = year
    citations = {20: np.array([0])}, {20: np.array([1, 20])}, years
    task = citation.projection_task(ProjectionNetwork(toy[0]), *citations, ProjectionSchedule(anchor=0.0))
    (loss,) = task.losses(next(task.batches(0)))
    with torch.no_grad():
        right, wrong = task.network(torch.tensor([20]), torch.tensor([0, 1]))[0].tolist()
    assert loss.item() == pytest.approx(math.log1p(math.exp(wrong - right)) if is_rival else 0.0)


def separable(queries: int, seed: int) -> list[FeatureList]:
    """Ten candidates a query; the second feature is higher for what is cited, the first says nothing and the
    third is never known.
    """
    random = np.random.default_rng(seed)
    lists = []
    for _ in range(queries):
        cited = np.arange(10) < 3
        columns = [random.standard_normal(10), 4 * cited + random.standard_normal(10), np.full(10, np.nan)]
        columns[0][random.integers(10)] = np.nan
        lists.append(FeatureList(np.stack(columns, axis=1), cited, 3))
    return lists


def mrr(head, lists: list[FeatureList]) -> float:
    ranked = ((each.cited[np.argsort(-head.scores(each.features))], each.total) for each in lists)
    return citation.citation_figures(ranked).mrr


@pytest.mark.filterwarnings("ignore:Mean of empty slice:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:Degrees of freedom:RuntimeWarning")
def test_a_head_learns_by_what_cited_papers_differ(tmp_path):
    lists, schedule = separable(12, seed=0), citation.HeadSchedule(epochs=15, hidden=4, learning_rate=2e-2)
    head = citation.fit_head(lists, schedule, 0, lambda head: mrr(head, lists), tmp_path / "head.pt")
    assert mrr(head, separable(50, seed=1)) > 0.9
    together = np.concatenate([each.features for each in lists])
    np.testing.assert_allclose(head.mean[:2], np.nanmean(together[:, :2], axis=0))
    np.testing.assert_allclose(head.scale[:2], np.nanstd(together[:, :2], axis=0))
    assert np.isfinite(head.scores(np.array([[np.nan, 1.0, np.nan], [0.0, 1.0, 5.0]]))).all()
    assert [part.shape for part in head] == [(3,), (3,), (3, 4), (4,), (3,), (4,)]


def test_a_model_is_published(trained):
    model, figures = read_model(trained.output), trained.result
    assert model.heads.keys() == {known.key for known in FEATURE_SETS}
    assert figures.keys() == model.heads.keys() | {f"text{citation.HALF}", f"links{citation.HALF}"}
    for head in model.heads.values():
        assert len(head.out) == 2 * model.training["recipe"]["heads"]["hidden"]  # both seeds' heads, in mean
    assert model.training["dev"] == {key: each._asdict() for key, each in figures.items()}
    assert model.training["seeds"] == [0, 1]
    with Index(trained.sources.index) as index:
        assert model.training["index"] == index.manifest.digest
        assert model.encoder == index.manifest.dense["encoder"]


def test_the_mean_of_the_seeds_is_published(trained):
    projection = read_model(trained.output).projection
    parts = [torch.load(trained.work / f"seed-{seed}.pt")["best"] for seed in (0, 1)]
    sentences, whole = np.mean([part["matrices"].numpy() for part in parts], axis=0)
    weights = np.mean([part["weights"].numpy() for part in parts], axis=0)
    np.testing.assert_array_equal(projection.sentences, sentences.astype(np.float16))
    np.testing.assert_array_equal(projection.whole, whole.astype(np.float16))
    np.testing.assert_array_equal(projection.weights, weights.astype(np.float32))
    assert not torch.equal(parts[0]["matrices"], parts[1]["matrices"])


def test_figures_are_those_of_the_recommendations(trained):
    """What the published model recommends for dev, by texts alone, has the figures that the training told,
    as far as half precision goes.
    """
    with Index(trained.sources.index) as index:
        dev = read_split(index.reader, trained.sources.dev[0])
        for key, links in (("text", False), ("links", True)):
            before = PaperFilter(before="query")
            config = CiteConfig(model=str(trained.output), links=links, depth=12, filter=before)
            lists = []
            with Recommender.open(index, config) as recommender:
                for row, cited in dev.items():
                    hits = recommender.recommend(index.papers[row], 1000, matches=False)
                    rows = [index.papers.row(hit.paper_id) for hit in hits]
                    lists.append((np.isin(rows, cited), len(cited)))
            assert citation.citation_figures(lists) == pytest.approx(trained.result[key], abs=0.02)


def test_an_index_without_citations_is_refused(trained, tiny_index, tmp_path):
    sources = replace(trained.sources, index=tiny_index)
    with pytest.raises(CorpusError, match="expected an `index` whose papers say what they cite"):
        trained.again(tmp_path, sources)
