"""The sides of an index that shards hold, in the form that the stages of a search read."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.cluster.calls import ShardCalls
from qbe.cluster.placement import Placed, ShardRows, paper_rows, sentence_rows
from qbe.cluster.shard import Gathered, Selected
from qbe.errors import UsageError
from qbe.index.dense.contracts import Compared, Floats, SentenceBlock
from qbe.index.dense.stored import Quantized, Vectors
from qbe.index.rows import Rows, block_starts, starts_of
from qbe.index.rows import sentence_rows as rows_of_sentences
from qbe.index.segments.faiss import nearest_of
from qbe.search.contracts import Ranked
from qbe.search.lucene import break_ties
from qbe.search.shard_lucene import CorpusStatistics, QueryTerm

RECENT = 16
"""Answers of shards that are kept: the vectors of some thousands of papers."""

TEXTS = 1024
"""Texts whose terms are kept."""


class Shards(NamedTuple):
    """The shards of one commit of an index: how they are asked, what each holds, and which are left out."""

    calls: ShardCalls
    generation: int
    held: Sequence[Sequence[Placed]]
    without: frozenset[int] = frozenset()

    def to_all(self, method: str, *arguments: Any) -> list[Any]:
        """The answers of all shards, by number."""
        answers = self.calls.to_all(self.without, method, self.generation, *arguments)
        return [answers[shard] for shard in sorted(answers)]

    def to_each(self, method: str, requests: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """The answers of some shards."""
        return self.calls.to_each(
            method, {shard: (self.generation, *arguments) for shard, arguments in requests.items()}
        )

    def select(self, parts: Sequence[ShardRows], mask: NDArray[np.bool_]) -> dict[int, Selected]:
        """Some of all rows, as shards take them; those of a shard that has none are left out."""
        key, selected = uuid.uuid4().hex, {}
        for shard, rows in enumerate(parts):
            part = rows.part(mask) if len(rows) else np.zeros(0, np.bool_)
            if shard not in self.without and part.any():
                selected[shard] = Selected(key, np.packbits(part))
        return selected


class ClusterSentences:
    """Nearest sentences over all shards (a `qbe.index.dense.faiss_candidates.SentenceSearch`)."""

    def __init__(self, shards: Shards, min_candidates: int, nprobe: int | None) -> None:
        self._shards, self.min_candidates, self._nprobe = shards, min_candidates, nprobe
        self._rows = [sentence_rows(held) for held in shards.held]

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


class _Block(NamedTuple):
    """Vectors of some papers: their ``rows`` (n,), ascending, where each one's sentences begin (n + 1,), and
    the vectors of sentences and of whole papers.
    """

    rows: Rows
    starts: Rows
    sentences: Vectors
    whole: Vectors


class ClusterVectors:
    """The stored vectors of all shards (a `qbe.index.dense.contracts.VectorStore`).

    The stages of one search ask for nearly the same papers several times, and bringing a thousand papers'
    vectors takes longer than scoring them: what was brought last is kept.
    """

    def __init__(self, shards: Shards, starts: Rows, similarity: str) -> None:
        """The sentences of paper i are from ``starts[i]`` to ``starts[i + 1]``, (papers + 1,)."""
        self._shards, self._starts, self.similarity = shards, starts, similarity
        self._owners = _Owners(shards.held)
        self._recent: deque[_Block] = deque(maxlen=RECENT)

    def gather(self, rows: Rows) -> SentenceBlock:
        """See `qbe.index.dense.contracts.VectorStore.gather`."""
        parts = []
        for places, block, inside in self._blocks(rows):
            counts = np.diff(block.starts)[inside]
            parts.append((places, counts, block.sentences[rows_of_sentences(block.starts, inside)]))
        vectors = _at_places(self._starts[rows + 1] - self._starts[rows], parts)
        return SentenceBlock(vectors, block_starts(self._starts, rows), rows_of_sentences(self._starts, rows))

    def whole(self, rows: Rows) -> Vectors:
        """See `qbe.index.dense.contracts.VectorStore.whole`."""
        ones = np.ones(len(rows), np.int64)
        return _at_places(
            ones,
            [(places, ones[places], block.whole[inside]) for places, block, inside in self._blocks(rows)],
        )

    def _blocks(self, rows: Rows) -> list[tuple[Rows, _Block, Rows]]:
        """Where the vectors of papers are: places among ``rows`` (m,), a block, and places in it (m,)."""
        blocks = []
        missing = np.ones(len(rows), np.bool_)
        for block in list(self._recent):
            inside = np.minimum(np.searchsorted(block.rows, rows), len(block.rows) - 1)
            here = missing & (block.rows[inside] == rows)
            if here.any():
                places = np.flatnonzero(here)
                blocks.append((places, block, inside[places]))
                missing &= ~here
                if not missing.any():
                    return blocks
        if missing.any():
            places = np.flatnonzero(missing)
            block = self._brought(np.unique(rows[places]))
            blocks.append((places, block, np.searchsorted(block.rows, rows[places])))
            self._recent.appendleft(block)
        return blocks

    def _brought(self, rows: Rows) -> _Block:
        """The vectors of papers, ascending rows, each shard's from it."""
        owners = self._owners.of(rows)
        requests = {shard: (rows[owners == shard],) for shard in np.unique(owners).tolist()}
        answers: dict[int, tuple[Gathered, Gathered]] = self._shards.to_each("gather", requests)
        counts = self._starts[rows + 1] - self._starts[rows]
        ones = np.ones(len(rows), np.int64)
        sentences, whole = [], []
        for shard, (of_sentences, of_papers) in answers.items():
            places = np.flatnonzero(owners == shard)
            sentences.append((places, counts[places], _vectors(of_sentences)))
            whole.append((places, ones[places], _vectors(of_papers)))
        return _Block(
            rows, starts_of(counts.tolist()), _at_places(counts, sentences), _at_places(ones, whole)
        )


class ClusterComparer:
    """Comparisons of papers with queries, made where the vectors are (a
    `qbe.index.dense.contracts.Comparer`): similarities travel, which are fewer than the vectors' numbers.
    """

    def __init__(self, shards: Shards, starts: Rows) -> None:
        """The sentences of paper i are from ``starts[i]`` to ``starts[i + 1]``, (papers + 1,)."""
        self._shards, self._starts, self._owners = shards, starts, _Owners(shards.held)

    def compare(self, sentences: Floats, rows: Rows, whole: Floats | None = None) -> Compared:
        """See `qbe.index.dense.contracts.Comparer.compare`."""
        owners = self._owners.of(rows)
        of_sentences = np.repeat(owners, self._starts[rows + 1] - self._starts[rows])
        answers = self._shards.to_each(
            "compare",
            {shard: (sentences, rows[owners == shard], whole) for shard in np.unique(owners).tolist()},
        )
        similarities = np.empty((len(sentences), len(of_sentences)), np.float32)
        of_papers = None if whole is None else np.empty(len(rows), np.float32)
        for shard, (part, papers) in answers.items():
            similarities[:, of_sentences == shard] = part
            if of_papers is not None:
                of_papers[owners == shard] = papers
        positions = rows_of_sentences(self._starts, rows)
        return Compared(similarities, block_starts(self._starts, rows), positions, of_papers)


class ClusterText:
    """BM25 over all shards, with the statistics of all (a `qbe.search.contracts.TextSearch`)."""

    def __init__(self, shards: Shards, ids: Sequence[str], alive: int) -> None:
        """``ids`` are those of papers by row; ``alive`` is the number of papers that are not deleted."""
        self._shards, self._ids, self._alive = shards, ids, alive
        self._rows = [paper_rows(held) for held in shards.held]
        self._owners = _Owners(shards.held)
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
        among: Mapping[int, Selected] | None = None,
        *,
        only_key_terms: bool = False,
    ) -> Ranked:
        """See `qbe.search.contracts.TextSearch.search`; raises UsageError for ``only_key_terms``, for which
        Lucene would have to know all shards.
        """
        if only_key_terms:
            raise UsageError("expected another `bm25_query` on a cluster, found keyterms; choose abstract")
        requests: dict[int, tuple[Any, ...]]
        request = (self._corpus, *self._terms(text), min(k, self._alive))
        if pool is not None:
            owners = self._owners.of(pool)
            requests = {
                shard: (*request, pool[owners == shard], None) for shard in np.unique(owners).tolist()
            }
        elif among is not None:
            requests = {shard: (*request, None, selected) for shard, selected in among.items()}
        else:
            everywhere = set(range(len(self._shards.held))) - self._shards.without
            requests = dict.fromkeys(everywhere, (*request, None, None))
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


class ClusterPostings:
    """The postings of all shards (a `qbe.search.contracts.HasTextSearch`)."""

    def __init__(self, shards: Shards, alive: int) -> None:
        self._shards, self._alive = shards, alive

    def text_search(self, ids: Sequence[str]) -> ClusterText:
        """See `qbe.search.contracts.HasTextSearch.text_search`."""
        return ClusterText(self._shards, ids, self._alive)

    def close(self) -> None:
        """Nothing is open here."""


class _Owners:
    """Which shard holds each row of papers."""

    def __init__(self, held: Sequence[Sequence[Placed]]) -> None:
        pairs = sorted((each.first_paper, shard) for shard, all_of in enumerate(held) for each in all_of)
        self._firsts = np.array([first for first, _ in pairs], np.int64)
        self._shards = np.array([shard for _, shard in pairs], np.int64)

    def of(self, rows: Rows) -> Rows:
        owners: Rows = self._shards[np.searchsorted(self._firsts, rows, side="right") - 1]
        return owners


def _vectors(gathered: Gathered) -> Vectors:
    if gathered.scales is None:
        numbers: Vectors = gathered.numbers
        return numbers
    return Quantized(gathered.numbers, gathered.scales)


def _at_places(counts: Rows, parts: Sequence[tuple[Rows, Rows, Vectors]]) -> Vectors:
    """Vectors put together: paper i has ``counts[i]`` of them; each part has places of papers (m,), how many
    vectors each has (m,), and these, paper after paper.
    """
    if len(parts) == 1 and np.array_equal(parts[0][0], np.arange(len(counts))):
        return parts[0][2]
    starts = starts_of(counts.tolist())
    placed = [(rows_of_sentences(starts, places), vectors) for places, _, vectors in parts]
    total = int(starts[-1])
    quantized = [(rows, each) for rows, each in placed if isinstance(each, Quantized)]
    if len(quantized) == len(placed):
        codes = _put(total, [(rows, each.codes) for rows, each in quantized])
        return Quantized(codes, _put(total, [(rows, each.scales) for rows, each in quantized]))
    if quantized:
        placed = [(rows, np.asarray(each.astype(np.float32))) for rows, each in placed]
    together: Vectors = _put(total, placed)
    return together


def _put(count: int, parts: Sequence[tuple[Rows, Any]]) -> Any:
    """Arrays put together, each at its places."""
    first = parts[0][1]
    together = np.empty((count, *first.shape[1:]), first.dtype)
    for places, part in parts:
        together[places] = part
    return together
