"""Scores of candidates from sentence similarities: worked by hand, and against slow loops."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qbe.index.vectors import best_per_paper, kept_or_all, mean_max, sentence_rows


@st.composite
def collections(draw):
    """Sentences of each paper of an index, some of its papers, similarities to them, and which to keep."""
    counts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    papers = draw(st.lists(st.integers(0, len(counts) - 1), min_size=1, unique=True))
    sentences = sum(counts[paper] for paper in papers)
    queries = draw(st.integers(1, 4))
    values = draw(st.lists(st.integers(-8, 8), min_size=queries * sentences, max_size=queries * sentences))
    keep = draw(st.lists(st.booleans(), min_size=sentences, max_size=sentences))
    similarities = np.array(values, np.float32).reshape(queries, sentences) / 8
    return counts, papers, similarities, np.array(keep)


@given(collections())
def test_against_slow_loops(collection):
    counts, papers, similarities, keep = collection
    starts = np.concatenate([[0], np.cumsum(counts)])
    found, begins = sentence_rows(starts, np.array(papers, np.int64))
    rows = [row for paper in papers for row in range(starts[paper], starts[paper + 1])]
    assert found.tolist() == rows
    column, best, kept = 0, [], []
    for number, paper in enumerate(papers):
        assert begins[number] == column
        columns = range(column, column + counts[paper])
        chosen = [c for c in columns if keep[c]] or list(columns)
        best.append([max(row[c] for c in columns) for row in similarities])
        kept.append([max(row[c] for c in chosen) for row in similarities])
        column += counts[paper]
    per_paper = best_per_paper(similarities, begins)
    assert per_paper.T.tolist() == best
    restricted = np.where(kept_or_all(keep, begins), similarities, -np.inf)
    assert best_per_paper(restricted, begins).T.tolist() == kept
    np.testing.assert_allclose(mean_max(per_paper), [sum(row) / len(row) for row in best], rtol=1e-6)
