"""Long stages of a build tell how far they are."""

import numpy as np
import pytest
from support.factories import FACTORIES

from qbe.index import lucene
from qbe.index.dense import faiss_build
from qbe.index.dense.ann import resolve
from qbe.index.dense.faiss_build import write_faiss_segment
from qbe.index.dense.stored import blocks
from qbe.index.papers import IDS
from qbe.types import Paper, Sentence


@pytest.fixture
def vectors():
    """Sentence vectors (600, 16), float16."""
    return np.random.default_rng(0).normal(size=(600, 16)).astype(np.float16)


@pytest.mark.parametrize("factory", FACTORIES)
def test_faiss_counts_each_block_that_it_adds(tmp_path, vectors, monkeypatch, factory):
    monkeypatch.setattr(faiss_build, "blocks", lambda rows: blocks(rows, 250))
    made = resolve(factory, *vectors.shape)
    counted = []
    write_faiss_segment(tmp_path, vectors, "cosine", made, 1, counted.append)
    assert counted == [250, 250, 100]


def test_lucene_counts_its_papers(tmp_path, monkeypatch):
    monkeypatch.setattr(lucene, "_PAPERS_A_FILE", 100)
    papers = [Paper(str(number), "On fish", (Sentence("Fish swim."),)) for number in range(450)]
    assert len(list(lucene.write_input(tmp_path, papers))) == 450
    (tmp_path / IDS).write_text("".join(f"{paper.paper_id}\n" for paper in papers))
    counted = []
    lucene.write_lucene_index(tmp_path, 450, 1, advance=counted.append)
    assert sum(counted) == 450
    assert all(number > 0 for number in counted)
