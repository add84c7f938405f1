"""Training of the facet projections: what search computes, what is learned, the whole, resuming."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support.rerankers import score

from qbe.errors import CorpusError, ModelError
from qbe.files import sha256
from qbe.graded_pairs import GradedPair
from qbe.index.reader import IndexReader
from qbe.query import Query
from qbe.rerank.projection_model import WEIGHTS, read_model
from qbe.rerank.projections import ProjectedMatching, StoredPapers
from qbe.train.__main__ import main
from qbe.train.projections.data import read_lists
from qbe.train.projections.fit import correlations, fit, mean_projections, network_of
from qbe.train.projections.recipe import Recipe
from qbe.types import Facet

pytestmark = pytest.mark.usefixtures("one_thread")

RECIPE = Recipe(epochs=15, queries=2, anchor=0.0, memory=0.5)
POOL = [f"s{number:03d}" for number in range(1, 25)]


@pytest.fixture(scope="module")
def reader(graded_index):
    reader = IndexReader(graded_index)
    yield reader
    reader.release()


def planted(seed: int) -> dict[str, list[GradedPair]]:
    """Lists whose grades are drawn, but the same for a candidate in all lists."""
    random = np.random.default_rng(seed)
    grades = {paper_id: tuple(random.integers(0, 4, 3).astype(float).tolist()) for paper_id in POOL}
    return {
        query: [GradedPair(paper_id, grades[paper_id]) for paper_id in POOL]
        for query in ("s036", "s118", "s060")
    }


def stored(reader: IndexReader, papers: list) -> StoredPapers:
    rows = np.array([reader.papers.row(paper.paper_id) for paper in papers])
    block, whole = reader.vector_store.gather(rows), reader.vector_store.whole(rows)
    return StoredPapers(block.vectors.astype(np.float64), block.starts, whole.astype(np.float64))


def test_scores_are_those_of_a_search(reader):
    lists = read_lists(reader, [planted(1)])
    fitted = fit(lists._replace(sets=[lists.sets[0], lists.sets[0]]), Recipe(epochs=1, queries=2), 0)
    network = network_of(lists, fitted, RECIPE)
    matching = ProjectedMatching(fitted, lambda papers: stored(reader, papers))
    papers = [reader.paper(paper_id) for paper_id in POOL]
    for (query_id, _), graded in zip(planted(1).items(), lists.sets[0], strict=True):
        scores = network(graded).detach().numpy()
        for column, facet in enumerate(Facet):
            query = reader.paper(query_id)
            found = score(matching, Query(query, facet), papers, vectors=reader.stored_vectors)
            assert np.allclose([each.score for each in found], scores[:, column], atol=1e-4)


def test_planted_grades_are_learned_and_a_seed_gives_the_same(reader):
    lists = read_lists(reader, [planted(2), planted(2)])
    fitted, again = fit(lists, RECIPE, 3), fit(lists, RECIPE, 3)
    for facet in Facet:
        assert np.array_equal(fitted[facet].matrix, again[facet].matrix)
    start = correlations(network_of(lists, mean_projections([fitted]), RECIPE), lists.sets[0])
    untrained = network_of(lists, fitted, RECIPE)
    with torch.no_grad():
        untrained.matrices[:] = torch.eye(384)
    assert min(start.values()) > max(correlations(untrained, lists.sets[0]).values()) + 0.2


def test_what_the_index_lacks_is_left_out(reader):
    lists = {
        **planted(1),
        "elsewhere": planted(1)["s036"],
        "s002": [GradedPair("elsewhere", (1.0, 1.0, 1.0))],
    }
    assert len(read_lists(reader, [lists]).sets[0]) == 3
    with pytest.raises(CorpusError, match="expected graded pairs of papers of the index, found none"):
        read_lists(reader, [{"elsewhere": planted(1)["s036"]}])


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    header = "query_id\tpaper_id\tbackground\tmethod\tresult\n"
    for name, queries in (("train.tsv", ("s036", "s118")), ("dev.tsv", ("s060",))):
        rows = [
            "\t".join([query, pair.paper_id, *map(str, pair.grades)]) + "\n"
            for query in queries
            for pair in planted(4)[query]
        ]
        (folder / name).write_text(header + "".join(rows))
    return folder


def read_title(index: Path, paper_id: str) -> str:
    reader = IndexReader(index)
    try:
        return reader.paper(paper_id).title
    finally:
        reader.release()


def test_the_command_publishes_and_resumes(graded_index, pairs, tmp_path, capsys):
    command = ["facet-projections", "--index", str(graded_index), "--seeds", "0,1", "--threads", "1"]
    command += ["--pairs", str(pairs), "--dev", str(pairs / "dev.tsv"), "--work", str(tmp_path / "work")]
    evaluated = {"paper_id": "e", "title": read_title(graded_index, POOL[0]), "abstract": ["Other words."]}
    (tmp_path / "evaluated.jsonl").write_text(json.dumps(evaluated) + "\n")
    command += ["--leave-out", str(tmp_path / "evaluated.jsonl")]
    main([*command, "--output", str(tmp_path / "first")])
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'first'}: ")
    card = (tmp_path / "first" / "README.md").read_text()
    assert "46 pairs" in card  # of 24 candidates of two queries, one has the title of an evaluated paper
    assert "| seed 1" in card
    assert read_model(tmp_path / "first").encoder["name"] == "facet-encoder"
    main([*command, "--output", str(tmp_path / "second")])
    assert sha256(tmp_path / "second" / WEIGHTS) == sha256(tmp_path / "first" / WEIGHTS)
    seed = tmp_path / "work" / "seed-1.npz"
    seed.write_bytes(seed.read_bytes()[:-200])
    with pytest.raises(ModelError, match=r"seed-1\.npz: expected the projections of this training, found: "):
        main([*command, "--output", str(tmp_path / "damaged")])
    seed.unlink()
    main([*command, "--output", str(tmp_path / "repeated")])
    assert sha256(tmp_path / "repeated" / WEIGHTS) == sha256(tmp_path / "first" / WEIGHTS)
    (pairs / "train.tsv").write_text((pairs / "train.tsv").read_text().replace("3.0", "2.0"))
    with pytest.raises(ModelError, match="give another `work`"):
        main([*command, "--output", str(tmp_path / "third")])


def test_grades_of_dev_that_are_all_equal(graded_index, pairs, tmp_path):
    """They have no correlation, which was told as 0."""
    dev = tmp_path / "equal.tsv"
    rows = [f"s060\t{paper_id}\t{place}\t1\t{place}\n" for place, paper_id in enumerate(POOL[:3])]
    dev.write_text("query_id\tpaper_id\tbackground\tmethod\tresult\n" + "".join(rows))
    command = ["facet-projections", "--index", str(graded_index), "--seeds", "0", "--threads", "1"]
    command += ["--pairs", str(pairs), "--dev", str(pairs / "dev.tsv"), str(dev)]
    (tmp_path / "evaluated.jsonl").write_text(
        '{"paper_id": "e", "title": "Beside", "abstract": ["Words."]}\n'
    )
    command += ["--leave-out", str(tmp_path / "evaluated.jsonl"), "--work", str(tmp_path / "work")]
    with pytest.raises(CorpusError) as caught:
        main([*command, "--output", str(tmp_path / "output")])
    assert str(caught.value) == (
        f"{dev}: expected a query with two different grades for each facet, found none for method; give more "
        "pairs as `dev`"
    )
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["made-from.json"]
