"""The facet rerankers: a candidate's tokens attend to the query's, by the ONNX model of the facet.

Query and candidate are scored by late interaction. Products are computed in double precision and rounded to
single, so that no digit of a score depends on the order of sums, which numpy's BLAS chooses by its number of
threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.encode.aspect import EncodedAspect
from qbe.encode.tokenizer import PaperTokenizer, Window
from qbe.errors import ModelError
from qbe.models.reranker_files import FACET_INPUTS, FACET_OUTPUTS, FacetRerankersMetadata, RerankerFiles
from qbe.models.session import open_session
from qbe.parallel import Memo, Workers
from qbe.rerank.reranker import Progress, RerankRequest, RerankScore
from qbe.types import Facet, Match, Paper

Floats = NDArray[np.float32]

FEATURES = ("sentences", "facet", "whole", "mean", "tokens")
"""The similarities that a score is made of, in the order of their weights."""


class Vectors(NamedTuple):
    """A paper as a facet's model encodes it; all rows are unit vectors, float32.

    ``sentences`` (sentences, dimension); ``mean`` (dimension,) of the facet's sentences together; ``whole``
    (dimension,) of the whole paper; ``tokens`` (tokens, dimension). ``shares`` (tokens,) says how much each
    token counts as a query's: they sum to 1 over the tokens of the facet's sentences and are 0 elsewhere.
    ``facet`` (sentences,) bool marks the facet's sentences.
    """

    sentences: Floats
    mean: Floats
    whole: Floats
    tokens: Floats
    shares: Floats
    facet: NDArray[np.bool_]


def similarities(query: Vectors, candidate: Vectors) -> Floats:
    """Cosines (query's sentences of the facet, candidate's sentences) float32.

    >>> axes = np.eye(2, dtype=np.float32)
    >>> paper = Vectors(axes, axes[0], axes[0], axes, np.float32([1, 0]), np.array([True, False]))
    >>> similarities(paper, paper).tolist()
    [[1.0, 0.0]]
    """
    return _products(query.sentences[query.facet], candidate.sentences)


def features(query: Vectors, candidate: Vectors) -> Floats:
    """The similarities of two papers, in the order of FEATURES, (5,) float32.

    ``sentences``: the mean over the query's sentences of the facet of each one's best cosine with a
    sentence of the candidate (mean-max; Khattab and Zaharia, 2020, eq. 3, over sentences). ``facet``: the
    same with the candidate's sentences of the facet alone. ``whole``: the cosine of the papers. ``mean``:
    the cosine of the facet's sentences, averaged. ``tokens``: each token of the query's facet's best cosine
    with a token of the candidate, averaged by the tokens' shares.

    >>> axes = np.eye(2, dtype=np.float32)
    >>> query = Vectors(axes, axes[0], axes[0], axes, np.float32([1, 0]), np.array([True, False]))
    >>> candidate = query._replace(mean=axes[1], facet=np.array([False, True]))
    >>> dict(zip(FEATURES, features(query, candidate).tolist()))
    {'sentences': 1.0, 'facet': 0.0, 'whole': 1.0, 'mean': 0.0, 'tokens': 1.0}
    """
    cosines = similarities(query, candidate)
    counted = query.shares > 0
    nearest = _products(query.tokens[counted], candidate.tokens).max(axis=1)
    return np.array(
        [
            cosines.max(axis=1).mean(dtype=np.float64),
            cosines[:, candidate.facet].max(axis=1).mean(dtype=np.float64),
            _products(query.whole, candidate.whole),
            _products(query.mean, candidate.mean),
            _products(nearest, query.shares[counted]),
        ],
        dtype=np.float32,
    )


def score(query: Vectors, candidate: Vectors, weights: Sequence[float]) -> float:
    """The sum of the features times ``weights``, which are in the order of FEATURES; in double precision.

    >>> axes = np.eye(2, dtype=np.float32)
    >>> query = Vectors(axes, axes[0], axes[0], axes, np.float32([1, 0]), np.array([True, False]))
    >>> candidate = query._replace(mean=axes[1], facet=np.array([False, True]))  # features 1, 0, 1, 0, 1
    >>> score(query, candidate, [0.5, 1.0, 2.0, 1.0, 0.25])
    2.75
    """
    return float(features(query, candidate).astype(np.float64) @ np.asarray(weights, np.float64))


def _products(left: Floats, right: Floats) -> Floats:
    """The inner products of the rows of two arrays."""
    products = left.astype(np.float64) @ right.astype(np.float64).T
    return products.astype(np.float32)


class FacetModel(NamedTuple):
    """One facet's model: its session, the weights of its score, and the shape of keys of no tokens."""

    session: Any
    weights: Sequence[float]
    no_past: tuple[int, int, int, int]


class Encoding(NamedTuple):
    """What a model computes of a paper: its vectors, and the keys and values that candidates attend to."""

    vectors: Vectors
    keys: Floats
    values: Floats


class FacetCrossEncoder:
    """A cross-encoder for each facet, with one-way attention.

    The query is encoded once; each candidate is encoded with the query's keys and values before its own in
    the upper layers, and scored by late interaction (`qbe.rerank.facet_cross_encoder`). One candidate is one
    call of a single-threaded session, so that no score depends on the others. It takes aspects that are a
    facet. Of each paper it reads the title and as many sentences as fit into the models' tokens.
    """

    needs_vectors = False
    takes_whole_abstracts = False

    def __init__(self, files: RerankerFiles, workers: Workers | None = None) -> None:
        """Load the tokenizer; models are loaded when their facet is first needed.

        Raises ModelError when a file is missing or damaged.
        """
        if not isinstance(files.metadata, FacetRerankersMetadata):
            raise ModelError(f"{files.folder}: expected facet rerankers, found a pair cross-encoder")
        self._files, self._metadata, self._workers = files, files.metadata, workers or Workers()
        self._tokenizer = PaperTokenizer(files.tokenizer)
        self._models: dict[Facet, FacetModel] = {}
        self._opening = threading.Lock()

    @property
    def name(self) -> str:
        """The name in the models' metadata."""
        return self._metadata.name

    def model(self, facet: Facet) -> FacetModel:
        """The model of a facet, loaded when first needed; raises ModelError where it cannot be."""
        with self._opening:
            if facet not in self._models:
                self._files.verify(facet.value)
                session = open_session(self._files.model(facet.value))
                shapes = {node.name: node.shape for node in session.get_inputs()}
                if set(shapes) != set(FACET_INPUTS):
                    raise ModelError(
                        f"{self._files.model(facet.value)}: expected a facet reranker's model, found one "
                        f"that takes {', '.join(sorted(shapes))}; install qbe again, or train the rerankers "
                        "again"
                    )
                layers, heads, _, size = shapes["past_keys"]
                weights = self._metadata.heads[facet.value]
                self._models[facet] = FacetModel(session, weights, (layers, heads, 0, size))
            return self._models[facet]

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.rerank.reranker.Reranker.batch_score`. The pair of sentences is the most similar one."""
        windows: Memo[Paper, Window] = Memo(
            lambda paper: self._tokenizer.first_window(paper, self._metadata.max_tokens)
        )

        def tasks() -> Iterator[tuple[Callable[[Paper], RerankScore], Paper]]:
            for request in requests:
                # A query is encoded while the workers score the candidates of the one before.
                scorer = self._scorer(request.query, windows)
                yield from ((scorer, paper) for paper in request.papers)

        computed = self._workers.map(lambda task: task[0](task[1]), tasks())
        results = []
        for request in requests:
            scores: list[RerankScore] = []
            for scored in islice(computed, len(request.papers)):
                scores.append(scored)
                if progress:
                    progress(1)
            results.append(scores)
        return results

    def _scorer(
        self, query: EncodedAspect, windows: Callable[[Paper], Window]
    ) -> Callable[[Paper], RerankScore]:
        """The function that scores a candidate by the facet's model, its tokens attending to the query's."""
        facet = query.aspect.facet
        assert facet is not None
        model = self.model(facet)
        window = self._tokenizer.first_window(query.aspect.paper, self._metadata.max_tokens)
        query_sentences = _selected(window, query.positions)
        query_encoding = self._encode(model, query_sentences, None)

        def score_paper(paper: Paper) -> RerankScore:
            sentences = _selected(windows(paper), paper.facet_positions(facet)[0])
            vectors = self._encode(model, sentences, query_encoding).vectors
            cosines = similarities(query_encoding.vectors, vectors)
            row, column = np.unravel_index(int(cosines.argmax()), cosines.shape)
            pair = Match(int(query_sentences.selected[row]), int(column), float(cosines[row, column]))
            return RerankScore(score(query_encoding.vectors, vectors, model.weights), pair)

        return score_paper

    def _encode(self, model: FacetModel, selected: _Selected, query: Encoding | None) -> Encoding:
        window, chosen = selected
        count, length = len(window.spans), len(window.ids)
        pooling = np.zeros((count + 2, length), np.float32)
        for row, (begin, end) in enumerate(window.spans):
            pooling[row, begin:end] = 1
        pooling[count] = pooling[chosen].sum(axis=0)
        pooling[count + 1] = 1
        inside = pooling[count] > 0
        pooling /= pooling.sum(axis=1, keepdims=True)
        empty = np.zeros(model.no_past, np.float32)
        feed = {
            "input_ids": np.array(window.ids, np.int64),
            "pooling": pooling,
            "past_keys": query.keys if query else empty,
            "past_values": query.values if query else empty,
        }
        keys, values, vectors, tokens, logits = model.session.run(FACET_OUTPUTS, feed)
        marked = np.zeros(count, np.bool_)
        marked[chosen] = True
        paper_vectors = Vectors(
            vectors[:count], vectors[count], vectors[count + 1], tokens, _shares(logits, inside), marked
        )
        return Encoding(paper_vectors, keys, values)


class _Selected(NamedTuple):
    window: Window
    selected: list[int]


def _selected(window: Window, positions: Sequence[int]) -> _Selected:
    """A window, and those of the positions that lie in it (all of it if none do)."""
    count = len(window.spans)
    return _Selected(window, sorted(i for i in positions if i < count) or list(range(count)))


def _shares(logits: Floats, inside: NDArray[np.bool_]) -> Floats:
    """Softmax over the tokens inside, 0 elsewhere."""
    powers = np.where(inside, np.exp(logits - logits[inside].max()), 0)
    shares: Floats = (powers / powers.sum()).astype(np.float32)
    return shares
