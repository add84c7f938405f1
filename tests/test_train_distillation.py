"""Distillation of the facet rerankers: scores of a batch, losses by hand, what is learned, the whole."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.tiny_reranker import MAX_TOKENS, stirred, tokenized, write_lists

from qbe.errors import CorpusError
from qbe.index.reader import IndexReader
from qbe.runs import GradedPair
from qbe.search.projections import FacetProjection, StoredPapers, compare
from qbe.train.distillation import DistillationTask, Papers, Recipe, Teacher, scored
from qbe.train.late_interaction import StoredVectors, token_terms
from qbe.train.reranker.papers import TokenizedPaper, layout_of
from qbe.train.reranker.task import CandidateScorer
from qbe.train.trainer import fit
from qbe.train.weights import PUBLISHED, best_weights, mean
from qbe.types import Facet

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

POOL = [f"s{number:03d}" for number in range(1, 13)]


@pytest.fixture(scope="module")
def reader(graded_index):
    reader = IndexReader(graded_index)
    yield reader
    reader.release()


@pytest.fixture
def scorer(tiny_reranker_weights, reader) -> CandidateScorer:
    return CandidateScorer(stirred(tiny_reranker_weights), tokenized(tiny_reranker_weights, reader))


@pytest.fixture(scope="module")
def projections() -> dict[Facet, FacetProjection]:
    """A random projection of vectors of 384 dimensions for each facet."""
    drawn = np.random.default_rng(0)
    return {
        facet: FacetProjection(np.eye(384) + 0.02 * drawn.standard_normal((384, 384)), drawn.uniform(2, 6, 4))
        for facet in Facet
    }


@pytest.fixture
def teacher(reader, projections) -> Teacher:
    rows = np.arange(len(reader))
    return Teacher(
        StoredVectors.of_block(reader.vector_store.gather(rows), reader.vector_store.whole(rows)), projections
    )


def test_a_batch_is_scored_as_the_candidates_of_each_of_its_papers(scorer):
    """Where the gates are shut, so that no candidate sees the query."""
    for layer in scorer.network.upper:
        layer.gate.data.fill_(-1e4)
    with torch.no_grad():
        scores = scored(scorer, POOL).scores
        for row, query in enumerate(POOL):
            expected = scorer.scores(query, [GradedPair(name, (0.0,) * 3) for name in POOL])
            assert torch.allclose(scores[:, row].T, expected, atol=1e-4)


def test_gradients_of_token_similarities_are_those_of_dense_products():
    generator = torch.Generator().manual_seed(1)
    counts = (4, 6, 5)
    papers = [
        TokenizedPaper(
            torch.arange(count),
            (torch.rand(5 + 1, count, generator=generator) > 0.4).float() + 0.01,
            tuple(torch.tensor([0]) for _ in Facet),
        )
        for count in counts
    ]
    marked = [torch.cat([paper.facet_tokens(facet) for paper in papers]) for facet in range(3)]
    weights = torch.randn(3, 8, generator=generator)
    wanted = torch.randn(3, 3, 3, generator=generator)
    gradients = []
    for sparse in (True, False):
        flat = torch.randn(sum(counts), 8, generator=torch.Generator().manual_seed(2), requires_grad=True)
        states = torch.split(flat, counts)
        terms = (
            token_terms(marked, states, states, weights) if sparse else dense_terms(states, papers, weights)
        )
        (terms * wanted).sum().backward()
        gradients.append((terms.detach(), flat.grad))
    (terms, gradient), (dense, expected) = gradients
    assert torch.allclose(terms, dense, atol=1e-5)
    assert torch.allclose(gradient, expected, atol=1e-5)


def dense_terms(states, papers, weights):
    unit = [torch.nn.functional.normalize(part, dim=-1) for part in states]
    rows = []
    for facet, weight in enumerate(weights):
        for query, own, paper in zip(unit, states, papers, strict=True):
            inside = paper.facet_tokens(facet)
            shares = torch.softmax(own[inside] @ weight, 0)
            rows += [(query @ other.T).max(1).values[inside] @ shares for other in unit]
    return torch.stack(rows).view(3, len(papers), len(papers))


def test_the_teacher_scores_as_projections_do_in_a_search(scorer, reader, teacher, projections):
    """`qbe.search.projections.compare`, of one query with some papers."""
    places = [5, 2, 9, 60]
    ids = [paper.paper_id for paper in reader]
    papers = [reader.paper(ids[place]) for place in places]
    layout = layout_of([scorer.papers[paper.paper_id] for paper in papers])
    scores = teacher.scored(places, layout).scores.numpy()
    block = reader.vector_store.gather(np.array(places))
    counts = np.bincount(layout.places.numpy())
    kept = np.concatenate(
        [start + np.arange(count) for start, count in zip(block.starts, counts, strict=True)]
    )
    stored = StoredPapers(
        block.vectors[kept].astype(np.float64),
        np.cumsum([0, *counts[:-1]]),
        reader.vector_store.whole(np.array(places)).astype(np.float64),
    )
    for number, facet in enumerate(Facet):
        marked = layout.marked[number].numpy()
        matrix, weights = projections[facet]
        for row, place in enumerate(stored.places()):
            query = stored.sentences[place][marked[place]]
            compared = compare(query, stored.whole[row], stored, marked, matrix)
            assert np.allclose(weights @ compared.terms, scores[number, row], atol=1e-3)


def test_neighbours_are_the_most_similar_papers_that_may_be_used(teacher, reader, projections):
    usable = torch.ones(len(reader), dtype=torch.bool)
    usable[:40] = False
    whole = reader.vector_store.whole(np.arange(len(reader))).astype(np.float64)
    neighbours = teacher.neighbours(usable, 5)
    assert neighbours.shape == (3, len(reader), 5)
    for number, facet in enumerate(Facet):
        projected = whole @ projections[facet].matrix.T
        projected /= np.linalg.norm(projected, axis=1, keepdims=True)
        cosines = projected @ projected.T
        np.fill_diagonal(cosines, -2)
        cosines[:, :40] = -2
        expected = np.argsort(-cosines, axis=1)[:, :5]
        assert np.mean(neighbours[number].numpy() == expected) > 0.99


def test_every_paper_becomes_an_anchor_before_one_does_again(teacher, reader):
    recipe = Recipe(anchors=2, others=3, neighbours=8)
    usable = torch.ones(len(reader), dtype=torch.bool)
    usable[[3, 4]] = False
    papers = Papers([paper.paper_id for paper in reader], usable, teacher, recipe)
    steps = [papers.drawn(step, seed=7) for step in range(63)]
    assert steps == [papers.drawn(step, seed=7) for step in range(63)]
    assert steps != [papers.drawn(step, seed=8) for step in range(63)]
    assert all(len(set(drawn)) == len(drawn) <= 8 for drawn in steps)
    assert not {3, 4} & {place for drawn in steps for place in drawn}
    assert len({drawn[0] for drawn in steps}) == 63  # of 126 that are usable, two a step


@pytest.mark.parametrize("count", [0, 2])
def test_too_few_papers_to_learn_from(teacher, reader, count):
    """A step needs a paper and two others, of which one is scored higher."""
    usable = torch.zeros(len(reader), dtype=torch.bool)
    usable[:count] = True
    message = f"expected at least 3 papers of the index to learn from, found {count}; give an index of more"
    with pytest.raises(CorpusError, match=message):
        Papers([paper.paper_id for paper in reader], usable, teacher, TINY)


def test_scores_of_the_teacher_are_learned(scorer, reader, teacher, tmp_path):
    recipe = Recipe(steps=60, others=5, neighbours=8, learning_rate=3e-3, head_rate=1e-2, ema_decay=0.8)
    usable = torch.ones(len(reader), dtype=torch.bool)
    papers = Papers([paper.paper_id for paper in reader], usable, teacher, recipe)
    held_out = random.Random(0).sample(range(len(reader)), 16)
    start = agreement(scorer, teacher, papers, held_out)
    task = DistillationTask(scorer, papers, recipe)
    fit(task, recipe.schedule(), 0, tmp_path / "fit.pt", 100)
    assert agreement(scorer, teacher, papers, held_out) > start + 0.02


def agreement(scorer, teacher, papers, places) -> float:
    """The correlation of the student's scores with the teacher's, over all pairs of some papers."""
    ids = [papers.ids[place] for place in places]
    layout = layout_of([scorer.papers[name] for name in ids])
    others = ~torch.eye(len(ids), dtype=torch.bool)
    with torch.no_grad():
        student = scored(scorer, ids).scores[:, others].flatten()
        wanted = teacher.scored(places, layout).scores[:, others].flatten()
    return float(torch.corrcoef(torch.stack([student, wanted]))[0, 1])


TINY = Recipe(steps=3, joint=2, max_tokens=MAX_TOKENS, others=3, neighbours=8)


TRAINED = "distillation"


def test_rerankers_are_distilled_and_measured(trained):
    name, dev = trained.result
    assert list(dev) == ["start", "seed 0", "seed 1", "mean", name]
    seeds = [best_weights(trained.work / f"seed-{seed}.pt") for seed in (0, 1)]
    start = best_weights(trained.training.options["start"] / PUBLISHED)
    for name, part in best_weights(trained.work / PUBLISHED).items():
        torch.testing.assert_close(part, 0.5 * start[name] + 0.5 * mean(seeds)[name])


def test_queries_of_dev_are_not_learned_from(trained, tmp_path, caplog):
    with caplog.at_level("INFO", "qbe"):
        trained.again(tmp_path)
    assert "learning from 126 of 128 papers" in caplog.text


def test_a_dev_of_no_paper_of_the_index(trained, tmp_path):
    dev = write_lists(tmp_path / "dev.tsv", {"x": [GradedPair("y", (1.0, 2.0, 3.0))] * 2})
    with pytest.raises(CorpusError, match="found none of 2"):
        trained.again(tmp_path, replace(trained.sources, dev=(dev,)))
    assert not (tmp_path / "work").exists()
