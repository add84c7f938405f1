"""Long stages of a build tell how far they are."""

import numpy as np
import pytest
from support.factories import FACTORIES

from qbe.index.dense import faiss_build
from qbe.index.dense.ann import resolve
from qbe.index.dense.faiss_build import write_faiss_segment
from qbe.index.dense.stored import blocks


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
