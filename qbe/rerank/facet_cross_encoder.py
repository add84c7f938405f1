"""The facet rerankers: a candidate is read with the query before its eyes, by its facet's ONNX model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.encode.selection import selected_positions
from qbe.encode.tokenizer import PaperTokenizer
from qbe.encode.windows import Window
from qbe.errors import ModelError
from qbe.models.reranker_files import FACET_INPUTS, FACET_OUTPUTS, FacetRerankersMetadata, RerankerFiles
from qbe.models.session import open_session
from qbe.parallel import Memo, ordered_map
from qbe.query import Query
from qbe.rerank.late_interaction import Floats, Vectors, score, similarities
from qbe.rerank.reranker import Asked, RerankScore
from qbe.types import Facet, Match, Paper


class Reader(NamedTuple):
    """One facet's model: its session, the weights of its score, and the shape of keys with no tokens."""

    session: Any
    weights: Sequence[float]
    no_past: tuple[int, int, int, int]


class Reading(NamedTuple):
    """What a model makes of a paper: its vectors, and the keys and values that candidates attend to."""

    vectors: Vectors
    keys: Floats
    values: Floats


class FacetCrossEncoder:
    """A cross-encoder for each facet, with one-way attention.

    The query is read once; each candidate is read with the query's keys and values before its own in the
    upper layers, and scored by late interaction (`qbe.rerank.late_interaction`). One candidate is one call
    of a single-threaded session, so that no score depends on the others. A query without a facet is judged
    by all three models, about its picked sentences or its whole abstract, and the scores are averaged.
    """

    def __init__(
        self, files: RerankerFiles, threads: int = 1, query_tokens: int = 384, candidate_tokens: int = 384
    ) -> None:
        """Load the tokenizer; models are loaded when their facet is first asked for.

        Of each side at most so many tokens are read, [CLS] and [SEP] included: the title and as many
        sentences as fit. Raises ModelError when a file is missing or damaged.
        """
        if not isinstance(files.card, FacetRerankersMetadata):
            raise ModelError(f"{files.folder}: expected facet rerankers, found a pair cross-encoder")
        self._files, self._card, self._threads = files, files.card, threads
        self._limits = min(query_tokens, self._card.max_tokens), min(candidate_tokens, self._card.max_tokens)
        self._tokenizer = PaperTokenizer(files.tokenizer)
        self._readers: dict[Facet, Reader] = {}
        self._opening = threading.Lock()

    @property
    def name(self) -> str:
        """The name that the models' card gives."""
        return self._card.name

    def reader(self, facet: Facet) -> Reader:
        """The model of a facet, loaded when first asked for; raises ModelError where it cannot be."""
        with self._opening:
            if facet not in self._readers:
                self._files.verify(facet)
                session = open_session(self._files.model(facet))
                found = {part.name: part.shape for part in session.get_inputs()}
                if set(found) != set(FACET_INPUTS):
                    raise ModelError(
                        f"{self._files.model(facet)}: expected the model of a facet reranker, found one that "
                        f"takes {', '.join(sorted(found))}; install qbe again, or train the rerankers again"
                    )
                layers, heads, _, size = found["past_keys"]
                weights = self._card.heads[facet.value]
                self._readers[facet] = Reader(session, weights, (layers, heads, 0, size))
            return self._readers[facet]

    def score(
        self, query: Query, papers: Sequence[Paper], progress: Callable[[int], None] | None = None
    ) -> list[RerankScore]:
        """See `qbe.rerank.reranker.Reranker.score`. The pair of sentences is the most similar one."""
        return self.batch_score([(query, papers)], progress)[0]

    def batch_score(
        self, asked: Asked, progress: Callable[[int], None] | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.rerank.reranker.Reranker.batch_score`."""
        windows: Memo[Paper, Window] = Memo(
            lambda paper: self._tokenizer.first_window(paper, self._limits[1])
        )

        def tasks() -> Iterator[tuple[Callable[[Paper], RerankScore], Paper]]:
            for query, papers in asked:
                for facet in _facets(query):
                    # A query is read while the threads judge the candidates of the one before.
                    judge = self._judge(query, facet, windows)
                    yield from ((judge, paper) for paper in papers)

        found = ordered_map(lambda task: task[0](task[1]), tasks(), self._threads)
        together = []
        for query, papers in asked:
            before = [list(islice(found, len(papers))) for _ in _facets(query)[:-1]]
            judgements: list[RerankScore] = []
            for i, last in enumerate(islice(found, len(papers))):
                judgements.append(_averaged([*(judged[i] for judged in before), last]))
                if progress:
                    progress(1)
            together.append(judgements)
        return together

    def _judge(
        self, query: Query, facet: Facet, windows: Callable[[Paper], Window]
    ) -> Callable[[Paper], RerankScore]:
        """What judges a candidate by a facet's model, with the query before its eyes."""
        reader = self.reader(facet)
        window = self._tokenizer.first_window(query.paper, self._limits[0])
        selected = _selected(window, selected_positions(query))
        asked = self._read(reader, selected, None)

        def judge(paper: Paper) -> RerankScore:
            own = _selected(windows(paper), paper.facet_positions(facet)[0])
            found = self._read(reader, own, asked).vectors
            cosines = similarities(asked.vectors, found)
            row, column = np.unravel_index(int(cosines.argmax()), cosines.shape)
            pair = Match(int(selected.selected[row]), int(column), float(cosines[row, column]))
            return RerankScore(score(asked.vectors, found, reader.weights), pair)

        return judge

    def _read(self, reader: Reader, selected: _Selected, query: Reading | None) -> Reading:
        window, chosen = selected
        count, length = len(window.spans), len(window.ids)
        pooling = np.zeros((count + 2, length), np.float32)
        for row, (begin, end) in enumerate(window.spans):
            pooling[row, begin:end] = 1
        pooling[count] = pooling[chosen].sum(axis=0)
        pooling[count + 1] = 1
        inside = pooling[count] > 0
        pooling /= pooling.sum(axis=1, keepdims=True)
        empty = np.zeros(reader.no_past, np.float32)
        feed = {
            "input_ids": np.array(window.ids, np.int64),
            "pooling": pooling,
            "past_keys": query.keys if query else empty,
            "past_values": query.values if query else empty,
        }
        keys, values, vectors, tokens, logits = reader.session.run(FACET_OUTPUTS, feed)
        marked = np.zeros(count, np.bool_)
        marked[chosen] = True
        read = Vectors(
            vectors[:count], vectors[count], vectors[count + 1], tokens, _shares(logits, inside), marked
        )
        return Reading(read, keys, values)


class _Selected(NamedTuple):
    window: Window
    selected: list[int]


def _selected(window: Window, positions: Sequence[int]) -> _Selected:
    """A window, and those of the positions that lie in it (all of it if none do)."""
    count = len(window.spans)
    return _Selected(window, sorted(i for i in positions if i < count) or list(range(count)))


def _facets(query: Query) -> list[Facet]:
    """Whose models judge for a query: its facet's, or all."""
    return [query.facet] if query.facet else list(Facet)


def _averaged(row: Sequence[RerankScore]) -> RerankScore:
    """The judgements of several models as one: the mean score, and the closest pair of sentences."""
    closest = max(row, key=lambda judged: judged.match.score if judged.match else 0.0)
    return RerankScore(sum(judged.score for judged in row) / len(row), closest.match)


def _shares(logits: Floats, inside: NDArray[np.bool_]) -> Floats:
    """Softmax over the tokens inside, 0 elsewhere."""
    powers = np.where(inside, np.exp(logits - logits[inside].max()), 0)
    shares: Floats = (powers / powers.sum()).astype(np.float32)
    return shares
