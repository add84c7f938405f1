"""Models of sentence-transformers, and any like them, as functions that score papers for an aspect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qbe.query import Aspect
from qbe.rerank.reranker import Scoring
from qbe.types import Paper


def query_text(aspect: Aspect) -> str:
    """The text of an aspect: the title, and the sentences that it selects.

    >>> from qbe.types import Facet, Sentence
    >>> sentences = (Sentence("Stone is hard.", Facet.BACKGROUND), Sentence("We cut it.", Facet.METHOD))
    >>> query_text(Aspect(Paper("1", "On stone", sentences, labelled=True), Facet.METHOD))
    'On stone. We cut it.'
    """
    sentences = (aspect.paper.sentences[position].text for position in aspect.selected_positions())
    return _joined(aspect.paper.title, " ".join(sentences))


def paper_text(paper: Paper) -> str:
    """The text of a candidate: title and abstract."""
    return _joined(paper.title, paper.abstract)


def _joined(title: str, text: str) -> str:
    return f"{title.rstrip('. ')}. {text}" if title.strip() else text


def scoring_of(model: Any) -> Scoring | None:
    """The function that scores by a model of sentence-transformers, None for other objects.

    A cross-encoder (with ``predict``) reads `query_text` and `paper_text` as a pair. An encoder (with
    ``encode``) reads them one by one; the score is the cosine of their vectors.

    >>> class Overlap:
    ...     def predict(self, pairs):
    ...         return [len(set(query.split()) & set(paper.split())) for query, paper in pairs]
    >>> from qbe.types import Sentence
    >>> paper = Paper("1", "", (Sentence("We cut stone"),))
    >>> scoring_of(Overlap())(Aspect(paper), [paper, Paper("2", "", (Sentence("We cut"),))])
    [3.0, 2.0]
    """
    if callable(getattr(model, "predict", None)):

        def by_pairs(aspect: Aspect, papers: Sequence[Paper]) -> list[float]:
            query = query_text(aspect)
            return [float(score) for score in model.predict([(query, paper_text(each)) for each in papers])]

        return by_pairs
    if callable(getattr(model, "encode", None)):

        def by_vectors(aspect: Aspect, papers: Sequence[Paper]) -> list[float]:
            texts = [query_text(aspect), *map(paper_text, papers)]
            query, *candidates = model.encode(texts, normalize_embeddings=True)
            return [float(query @ candidate) for candidate in candidates]

        return by_vectors
    return None
