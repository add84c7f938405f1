"""The parts of an index that shards hold, in the form that the stages of a search read."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.cluster.bm25 import CorpusStatistics, QueryTerm
from qbe.cluster.calls import ShardCalls
from qbe.cluster.placement import Placed, ShardRows
from qbe.cluster.shard import Selected
from qbe.index.dense.faiss_segment import nearest_of
from qbe.index.dense.stored import Quantized, Vectors
from qbe.index.dense.vectors import Compared, Floats, SentenceBlock
from qbe.index.rows import Rows, block_starts, sentence_rows
from qbe.index.text_search import Ranked, break_ties
from qbe.search.rank import Progress, RerankRequest, RerankScore

TEXTS = 1024
"""Texts whose terms are kept."""


class Shards(NamedTuple):
    """The shards of one commit of an index: how they are asked, and what each holds."""

    calls: ShardCalls
    generation: int
    held: Sequence[Sequence[Placed]]

    def to_all(self, method: str, *arguments: Any) -> list[Any]:
        """The answers of all shards, by number."""
        return self.calls.to_all(method, self.generation, *arguments)

    def to_each(self, method: str, requests: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """The answers of some shards."""
        return self.calls.to_each(
            method, {shard: (self.generation, *arguments) for shard, arguments in requests.items()}
        )

    def to_owners(self, method: str, rows: Rows, *arguments: Any) -> tuple[Rows, dict[int, Any]]:
        """The shards that hold papers (n,), (n,), and of each of them its answer about its papers."""
        owners = self.owners(rows)
        shards = np.unique(owners).tolist()
        return owners, self.to_each(method, {shard: (rows[owners == shard], *arguments) for shard in shards})

    def owners(self, rows: Rows) -> Rows:
        """Which shard holds each of some papers (n,)."""
        pairs = sorted((each.first_paper, shard) for shard, held in enumerate(self.held) for each in held)
        firsts, shards = np.array(pairs, np.int64).T
        owners: Rows = shards[np.searchsorted(firsts, rows, side="right") - 1]
        return owners

    def select(self, parts: Sequence[ShardRows], mask: NDArray[np.bool_]) -> dict[int, Selected]:
        """Some of all rows, as shards take them; those of a shard that has none are left out."""
        key, selected = uuid.uuid4().hex, {}
        for shard, rows in enumerate(parts):
            part = rows.part(mask) if len(rows) else np.zeros(0, np.bool_)
            if part.any():
                selected[shard] = Selected(key, np.packbits(part))
        return selected


class ClusterSentences:
    """Nearest sentences over all shards (a `qbe.index.dense.faiss_candidates.SentenceSearch`)."""

    def __init__(self, shards: Shards, min_candidates: int, nprobe: int | None) -> None:
        self._shards, self.min_candidates, self._nprobe = shards, min_candidates, nprobe
        self._rows = [ShardRows.of_sentences(held) for held in shards.held]

    def nearest_scored(self, queries: Floats, count: int) -> None:
        """See `qbe.index.dense.faiss_candidates.SentenceSearch.nearest_scored`: kinds may differ."""

    def nearest(
        self,
        queries: Floats,
        count: int,
        among: Mapping[int, Selected] | None = None,
        breadth: int = 1,
    ) -> Rows:
        """See `qbe.index.dense.faiss_candidates.SentenceSearch.nearest`."""
        if among is None:
            results = self._shards.to_all("nearest", queries, count, None, breadth, self._nprobe)
        else:
            requests = {shard: (queries, count, each, breadth, self._nprobe) for shard, each in among.items()}
            results = list(self._shards.to_each("nearest", requests).values())
        nearest = [each for result in results for each in result]
        return nearest_of(nearest, count) if nearest else np.zeros((len(queries), 0), np.int64)

    def select(self, mask: NDArray[np.bool_]) -> dict[int, Selected]:
        """Some sentences (sentences,), as `nearest` takes them."""
        return self._shards.select(self._rows, mask)


class ClusterVectors:
    """The stored vectors of all shards (a `qbe.index.dense.vectors.VectorStore`)."""

    def __init__(self, shards: Shards, starts: Rows, similarity: str) -> None:
        """The sentences of paper i are from ``starts[i]`` to ``starts[i + 1]``, (papers + 1,)."""
        self._shards, self._starts, self.similarity = shards, starts, similarity

    def gather(self, rows: Rows) -> SentenceBlock:
        """See `qbe.index.dense.vectors.VectorStore.gather`."""
        owners, answers = self._shards.to_owners("gather", rows)
        of_sentences = np.repeat(owners, self._starts[rows + 1] - self._starts[rows])
        positions = sentence_rows(self._starts, rows)
        return SentenceBlock(_together(of_sentences, answers), block_starts(self._starts, rows), positions)

    def whole(self, rows: Rows) -> Vectors:
        """See `qbe.index.dense.vectors.VectorStore.whole`."""
        return _together(*self._shards.to_owners("whole", rows))

    def compare(self, sentences: Floats, rows: Rows, whole: Floats | None = None) -> Compared:
        """See `qbe.index.dense.vectors.VectorStore.compare`: made where the vectors are, since similarities
        are fewer than the vectors' numbers.
        """
        owners, answers = self._shards.to_owners("compare", rows, sentences, whole)
        of_sentences = np.repeat(owners, self._starts[rows + 1] - self._starts[rows])
        similarities = np.empty((len(sentences), len(of_sentences)), np.float32)
        of_papers = None if whole is None else np.empty(len(rows), np.float32)
        for shard, (part, papers) in answers.items():
            similarities[:, of_sentences == shard] = part
            if of_papers is not None:
                of_papers[owners == shard] = papers
        positions = sentence_rows(self._starts, rows)
        return Compared(similarities, block_starts(self._starts, rows), positions, of_papers)


class ClusterText:
    """BM25 over all shards, with the statistics of all (a `qbe.index.text_search.TextSearch`)."""

    def __init__(self, shards: Shards, ids: Sequence[str], alive: int) -> None:
        """``ids`` are those of papers by row; ``alive`` is the number of papers that are not deleted."""
        self._shards, self._ids, self._alive = shards, ids, alive
        self._rows = [ShardRows.of_papers(held) for held in shards.held]
        self._terms = lru_cache(TEXTS)(self._count)

    @cached_property
    def _corpus(self) -> CorpusStatistics:
        """The statistics of the corpus, out of those of its shards."""
        each: list[CorpusStatistics] = self._shards.to_all("statistics")
        return CorpusStatistics(sum(s.documents for s in each), sum(s.tokens for s in each))

    def search(
        self,
        text: str,
        k: int,
        pool: Rows | None = None,
        allowed: Mapping[int, Selected] | None = None,
    ) -> Ranked:
        """See `qbe.index.text_search.TextSearch.search`."""
        requests: dict[int, tuple[Any, ...]]
        request = (self._corpus, *self._terms(text), min(k, self._alive))
        if pool is not None:
            owners = self._shards.owners(pool)
            requests = {
                shard: (*request, pool[owners == shard], None) for shard in np.unique(owners).tolist()
            }
        elif allowed is not None:
            requests = {shard: (*request, None, selected) for shard, selected in allowed.items()}
        else:
            requests = dict.fromkeys(range(len(self._shards.held)), (*request, None, None))
        answers: list[Ranked] = list(self._shards.to_each("best", requests).values())
        return self._merged(answers, k)

    def _count(self, text: str) -> tuple[list[QueryTerm], dict[str, int]]:
        """The terms of a text, and in how many papers of the corpus each is."""
        counted: list[list[QueryTerm]] = self._shards.to_all("terms", self._corpus, text)
        frequencies = {
            word.text: sum(shard[place].documents for shard in counted)
            for place, word in enumerate(counted[0])
        }
        return counted[0], frequencies

    def filtering(self, rows: Rows) -> dict[int, Selected]:
        """Some papers, as `search` takes them."""
        mask = np.zeros(len(self._ids), np.bool_)
        mask[rows] = True
        return self._shards.select(self._rows, mask)

    def _merged(self, answers: Sequence[Ranked], k: int) -> Ranked:
        """The best of all shards, ties by id and then broken, as in one index."""
        if not answers:
            return Ranked(np.zeros(0, np.int64), np.zeros(0))
        rows = np.concatenate([each.rows for each in answers])
        scores = np.concatenate([each.scores for each in answers])
        pairs = zip((-scores).tolist(), rows.tolist(), strict=True)
        best = sorted((score, self._ids[row], row) for score, row in pairs)[:k]
        ordered = np.array([-score for score, _, _ in best])
        return Ranked(np.array([row for _, _, row in best], np.int64), break_ties(ordered))


class ClusterReranker:
    """Scores candidates in the processes that hold the shards, each paper in one of them (a
    `qbe.search.rank.Reranker`). A paper's score does not depend on the others, and so not on which
    process computes it.
    """

    def __init__(self, calls: ShardCalls, parameters: Mapping[str, Any]) -> None:
        """``parameters`` are those of `qbe.search.rerankers.open_reranker`."""
        self._calls, self._parameters = calls, dict(parameters)

    @cached_property
    def _about(self) -> tuple[str, bool, bool]:
        answers = self._calls.to_each("about_reranker", {0: (self._parameters,)})
        about: tuple[str, bool, bool] = answers[0]
        return about

    @property
    def name(self) -> str:
        """The name in the model's metadata."""
        return self._about[0]

    @property
    def needs_vectors(self) -> bool:
        """Whether requests must bring the vectors of the aspect's sentences."""
        return self._about[1]

    @property
    def takes_whole_abstracts(self) -> bool:
        """Whether it scores aspects that are no facet."""
        return self._about[2]

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.search.rank.Reranker.batch_score`."""
        papers = dict.fromkeys(paper.paper_id for request in requests for paper in request.papers)
        owner = {paper_id: place % len(self._calls) for place, paper_id in enumerate(papers)}
        shared: dict[int, list[RerankRequest]] = {}
        for shard in sorted(set(owner.values())):
            shared[shard] = [
                RerankRequest(
                    request.query, [paper for paper in request.papers if owner[paper.paper_id] == shard]
                )
                for request in requests
            ]
        answers = self._calls.to_each(
            "rerank", {shard: (self._parameters, part) for shard, part in shared.items()}
        )
        if progress is not None:
            progress(sum(len(request.papers) for request in requests))
        streams = {shard: [iter(scores) for scores in answer] for shard, answer in answers.items()}
        return [
            [next(streams[owner[paper.paper_id]][number]) for paper in request.papers]
            for number, request in enumerate(requests)
        ]


def _together(owners: Rows, parts: Mapping[int, Any]) -> Vectors:
    """Vectors (n, dimension) put together, row i out of the part of shard ``owners[i]``."""
    if all(isinstance(part, Quantized) for part in parts.values()):
        codes = _in_order(owners, {shard: part.codes for shard, part in parts.items()})
        return Quantized(codes, _in_order(owners, {shard: part.scales for shard, part in parts.items()}))
    if len({part.dtype for part in parts.values()}) > 1:
        parts = {shard: part.astype(np.float32) for shard, part in parts.items()}
    merged: Vectors = _in_order(owners, parts)
    return merged


def _in_order(owners: Rows, parts: Mapping[int, Any]) -> Any:
    """Arrays put together, row i out of that of ``owners[i]``."""
    first = next(iter(parts.values()))
    merged = np.empty((len(owners), *first.shape[1:]), first.dtype)
    for shard, part in parts.items():
        merged[owners == shard] = part
    return merged
