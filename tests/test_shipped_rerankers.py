"""The facet rerankers that the package carries: figures of their card, order of what is plainly alike."""

import numpy as np
import pytest
from support.rerankers import score

from qbe.models.registry import DEFAULT_RERANKER
from qbe.models.reranker_files import resolve_reranker
from qbe.parallel import Workers
from qbe.query import Query
from qbe.rerank.open import open_reranker
from qbe.types import Facet, Paper, Sentence

pytestmark = pytest.mark.slow

SIZE = 75e6
"""Bytes that the package may carry for them."""

FUSED = (0.693, 0.484, 0.499)
"""Mean Spearman of fused on the dev split of facet-judgments."""


@pytest.fixture(scope="module")
def reranker():
    return open_reranker(workers=Workers(2))


def paper(name: str, title: str, *sentences: str) -> Paper:
    facets = (Facet.BACKGROUND, Facet.METHOD, Facet.RESULT)
    labelled = tuple(Sentence(text, facet) for text, facet in zip(sentences, facets, strict=True))
    return Paper(name, title, labelled, labelled=True)


QUERY = paper(
    "query",
    "Segmenting Chinese words with conditional random fields",
    "Chinese is written without spaces, so that words must be found before parsing.",
    "We label characters with a linear-chain conditional random field over character n-grams.",
    "Unknown words are recalled far better than with a dictionary.",
)
SAME_TASK = paper(
    "task",
    "A greedy dictionary segmenter for Chinese text",
    "Chinese text has no spaces between words, and every parser needs them.",
    "We match the longest entry of a lexicon from left to right.",
    "The matcher is twenty times as fast as statistical systems.",
)
SAME_METHOD = paper(
    "method",
    "Tagging genes in clinical notes",
    "Names of genes in clinical notes are to be found for curation.",
    "A linear-chain conditional random field over character n-grams labels each token.",
    "Curators save a third of their time.",
)
OTHER = paper(
    "other",
    "Routing trucks with precedence constraints",
    "Deliveries must be made within time windows.",
    "We solve an integer program by column generation.",
    "Trucks drive a fifth less than before.",
)


def test_each_facet_prefers_what_shares_it(reranker):
    candidates = [SAME_TASK, SAME_METHOD, OTHER]
    for facet, best in ((Facet.BACKGROUND, 0), (Facet.METHOD, 1)):
        scores = [judged.score for judged in score(reranker, Query(QUERY, facet), candidates)]
        assert int(np.argmax(scores)) == best
        assert min(scores[:2]) > scores[2]


def test_figures_on_dev_are_in_the_card_and_beat_fused():
    """Every seed, and what ships; the figures are those of `qbe.train reranker`."""
    training = resolve_reranker().metadata.training
    for name, row in (training["dev"] | training["exported"]).items():
        if name != "untrained":
            assert all(figure > fused for figure, fused in zip(row, FUSED, strict=True))


def test_it_is_small_and_whole():
    files = resolve_reranker()
    assert files.metadata.name == DEFAULT_RERANKER
    for facet in Facet:
        files.verify(facet)
    assert sum((files.folder / name).stat().st_size for name in files.metadata.files) <= SIZE
