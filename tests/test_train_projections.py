"""Training of the facet projections: what search computes, what is learned, the whole, resuming."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.rerankers import score
from support.tiny_reranker import write_lists
from support.trainings import PROJECTED, new_folders, planted_grades, projections

from qbe import CorpusError, Facet, Query
from qbe.index.reader import IndexReader
from qbe.runs import GradedPair
from qbe.search.projections import ProjectedMatching, StoredPapers, read_model
from qbe.train.fit import Schedule, copied, fit
from qbe.train.projections import ProjectionNetwork, Recipe, projection_task, projections_of, read_lists

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

RECIPE = Recipe(epochs=15, queries=2, anchor=0.0, ema_decay=0.5)


@pytest.fixture(scope="module")
def reader(graded_index):
    return IndexReader(graded_index)


def fitted(vectors, marked, sets: Any, recipe: Recipe, path: Path) -> Any:
    network = ProjectionNetwork(vectors, marked, recipe.start_weight)
    train, dev = sets
    task = projection_task(network, train, dev, recipe)
    fit(task, Schedule(recipe.epochs, recipe.clip, warm_up=0.1, ema_decay=recipe.ema_decay), 0, path)
    return task.network


def stored(reader: IndexReader, papers: list) -> StoredPapers:
    rows = np.array([reader.papers.row(paper.paper_id) for paper in papers])
    block, whole = reader.gather(rows), reader.whole(rows)
    return StoredPapers(block.vectors.astype(np.float64), block.starts, whole.astype(np.float64))


def test_scores_are_those_of_a_search(reader, tmp_path):
    vectors, marked, sets = read_lists(reader, [planted_grades(1)] * 2)
    network = fitted(vectors, marked, sets, Recipe(epochs=1, queries=2), tmp_path / "fit.pt")
    matching = ProjectedMatching(projections_of(copied(network)), lambda papers: stored(reader, papers))
    papers = [reader.paper(paper_id) for paper_id in PROJECTED]
    for (query_id, _), graded in zip(planted_grades(1).items(), sets[0], strict=True):
        scores = network(graded).detach().numpy()
        for column, facet in enumerate(Facet):
            query = reader.paper(query_id)
            found = score(matching, Query(query, facet), papers, vectors=reader.stored_vectors)
            assert np.allclose([each.score for each in found], scores[:, column], atol=1e-4)


def test_planted_grades_are_learned(reader, tmp_path):
    vectors, marked, sets = read_lists(reader, [planted_grades(2), planted_grades(2)])
    network = fitted(vectors, marked, sets, RECIPE, tmp_path / "fit.pt")
    learned = network.correlations(sets[0])
    with torch.no_grad():
        network.matrices[:] = torch.eye(384)
    assert min(learned) > max(network.correlations(sets[0])) + 0.2


def test_projections_are_published(request, tmp_path):
    """Of pairs of papers that the index has, without the paper that has the title of an evaluated one."""
    lists = {**planted_grades(4), "elsewhere": planted_grades(4)["s036"]}
    lists["s036"].append(GradedPair("elsewhere", (1.0, 1.0, 1.0)))
    training, folders = projections(request), new_folders(tmp_path)
    more = write_lists(tmp_path / "more.tsv", lists)
    sources = replace(training.sources, train=(*training.sources.train, more))
    training.train(folders, sources=sources)
    text = " ".join((folders.output / "README.md").read_text().split())
    assert "46 graded pairs" in text
    assert "| seed 1" in text
    assert read_model(folders.output).encoder["name"] == "facet-encoder"
    foreign = write_lists(tmp_path / "foreign.tsv", {"elsewhere": lists["elsewhere"]})
    with pytest.raises(CorpusError, match="expected graded pairs of papers of the index, found none"):
        training.train(new_folders(tmp_path / "other"), sources=replace(sources, train=(foreign,)))
