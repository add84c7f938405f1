"""The first stages of a search: BM25 by Lucene, sentence vectors, and any named scores of both, fused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from qbe.errors import UsageError
from qbe.index import jvm
from qbe.index.candidates import CandidateSource
from qbe.index.index import IndexReader
from qbe.index.lucene import contents
from qbe.index.papers import rows_of
from qbe.index.rows import PerSelection, Selection, distinct
from qbe.index.scoring import Compared, best_per_paper, mean_max, restrict
from qbe.models.pooling import EncodedAspect
from qbe.search.fusion import best_hits, penalized, weighted_sum
from qbe.search.stages import BM25, EQUAL_WEIGHTS, FUSED_DEPTH, Dense, Fused
from qbe.types import Facet, Hit, Pools
from qbe.util.work import Workers

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Scores = NDArray[np.float64]


class FirstStage(Protocol):
    """Ranks the papers of an index, or of a pool, for aspects of queries."""

    @property
    def needs_vectors(self) -> bool:
        """True if aspects must bring the vectors of their sentences."""

    def batch_search(
        self,
        queries: Sequence[EncodedAspect],
        k: int,
        pools: Pools,
        allowed: Selection | None = None,
        *,
        explain: bool = False,
    ) -> list[list[Hit]]:
        """Rank the best ``k`` papers of the index or of a pool for each aspect, best first, ties by id.

        A result must not depend on the other aspects. ``allowed`` restricts a search of the whole index to
        some papers, at least one; pools hold allowed papers only. The aspect's own paper is ranked like any
        other. ``explain`` adds component scores to hits.
        """


class Candidates(NamedTuple):
    """Papers proposed by a source: ``rows`` (n,), ascending, and the ``scores`` (n,) it has for them."""

    rows: Rows
    scores: Scores | None = None

    def scores_of(self, rows: Rows) -> Scores:
        """Look up the scores (m,) of other ``rows``; NaN where unknown.

        >>> Candidates(np.array([3, 7]), np.array([0.5, 0.25])).scores_of(np.array([7, 8])).tolist()
        [0.25, nan]
        """
        scores = np.full(len(rows), np.nan)
        if self.scores is not None and len(self.rows):
            places = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
            known = self.rows[places] == rows
            scores[known] = self.scores[places[known]]
        return scores


def in_order(rows: Rows, scores: Scores) -> Candidates:
    """Sort papers and their scores (n,) by row."""
    order = np.argsort(rows)
    return Candidates(rows[order], scores[order])


class ScoreSource(Protocol):
    """Proposes candidates, and scores any papers by one or several named scores, for `FusedStage`."""

    def batch_candidates(
        self, queries: Sequence[EncodedAspect], k: int, allowed: Selection | None = None
    ) -> list[Candidates]:
        """Propose about ``k`` papers of the index, or of ``allowed``, for each aspect."""

    def scores(self, query: EncodedAspect, rows: Rows, known: Candidates | None) -> dict[str, Scores]:
        """Score the papers at ``rows``, ascending, by name, (papers,) each; leave out what does not apply.

        ``known`` is what `batch_candidates` returned for the aspect, None for a pool. Must be thread-safe.
        """


def query_text(query: EncodedAspect, form: str = "title+facet") -> str:
    """Make the BM25 query of an aspect, in one of the forms of `qbe.search.stages.BM25`.

    >>> from qbe import Facet, Paper, Sentence
    >>> from qbe.query import Aspect
    >>> paper = Paper("1", "On stone", (Sentence("Stone is hard."), Sentence("We cut it.", Facet.METHOD)))
    >>> query_text(EncodedAspect.of(Aspect(paper, Facet.METHOD)))
    'On stone We cut it.'
    """
    paper = query.aspect.paper
    if form == "abstract":
        return contents(paper)
    if form == "words" and query.aspect.facet is not None:
        from qbe.models.words import shipped_words

        return shipped_words().query_text(paper, query.aspect.facet)
    return f"{paper.title} {' '.join(paper.texts(query.positions))}"


class BM25Stage:
    """Ranks by BM25 (k1 and b from the manifest), exactly as Pyserini's LuceneSearcher does.

    Of a pool every paper is ranked, those without a common word with a score of 0.

    >>> from qbe.query import Aspect
    >>> query = EncodedAspect.of(Aspect(index.paper("s036")))
    >>> with index.reading() as reader:
    ...     (hits,) = BM25Stage(reader, Workers()).batch_search([query], 3, [["s001", "s051"]])
    >>> [hit.paper_id for hit in hits]
    ['s051', 's001']
    """

    needs_vectors = False

    def __init__(self, reader: IndexReader, workers: Workers, form: str = "title+facet") -> None:
        self._form, self._workers = form, workers
        self._papers = reader.papers
        jvm.leave_at_exit(workers)  # one of them may open the postings
        self._lucene = reader.text_search()
        self._filters = PerSelection(lambda selection: self._lucene.filtering(selection.rows))

    def batch_search(
        self,
        queries: Sequence[EncodedAspect],
        k: int,
        pools: Pools,
        allowed: Selection | None = None,
        *,
        explain: bool = False,
    ) -> list[list[Hit]]:
        def search(request: tuple[EncodedAspect, Sequence[str] | None]) -> list[Hit]:
            query, pool = request
            rows, scores = self._ranked(
                query, k, None if pool is None else rows_of(self._papers, pool), allowed
            )
            pairs = zip(rows[:k].tolist(), scores[:k].tolist(), strict=True)
            hits = [Hit(self._papers.ids[row], score) for row, score in pairs]
            return [hit._replace(component_scores={"bm25": hit.score}) for hit in hits] if explain else hits

        return jvm.map_in_threads(search, list(zip(queries, pools, strict=True)), self._workers)

    def batch_candidates(
        self, queries: Sequence[EncodedAspect], k: int, allowed: Selection | None = None
    ) -> list[Candidates]:
        def search(query: EncodedAspect) -> Candidates:
            return in_order(*self._ranked(query, k, None, allowed))

        return jvm.map_in_threads(search, list(queries), self._workers)

    def scores(self, query: EncodedAspect, rows: Rows, known: Candidates | None) -> dict[str, Scores]:
        scores = np.full(len(rows), np.nan) if known is None else known.scores_of(rows)
        missing = np.flatnonzero(np.isnan(scores))
        if len(missing):
            pool = rows[missing]
            scores[missing] = in_order(*self._ranked(query, len(pool), pool)).scores_of(pool)
        return {"bm25": scores}

    def _ranked(
        self, query: EncodedAspect, k: int, pool: Rows | None, allowed: Selection | None = None
    ) -> tuple[Rows, Scores]:
        selected = self._filters(allowed) if pool is None and allowed is not None else None
        text = query_text(query, self._form)
        rows, scores = self._lucene.search(text, k if pool is None else len(pool), pool, selected)
        # Anserini lowers equal scores by a millionth each; that must not make a score of 0 negative.
        return rows, np.maximum(scores, 0.0)


class DenseStage:
    """Ranks papers by how well their sentences match those of the query (mean-max of cosines or distances).

    >>> from qbe.query import Aspect
    >>> paper = index.paper("s036")
    >>> query = EncodedAspect.of(Aspect(paper, Facet.METHOD), index.vectors(paper))
    >>> with index.reading() as reader:
    ...     ((itself, best),) = DenseStage(reader, Workers()).batch_search([query], 2, [None])
    >>> itself.paper_id, round(itself.score, 2), best.paper_id
    ('s036', 1.0, 's051')
    """

    needs_vectors = True

    def __init__(self, reader: IndexReader, workers: Workers, nprobe: int | None = None) -> None:
        """Raise IndexFormatError for an index without vectors, UsageError for ``nprobe`` without lists."""
        self._papers, self._facet_mask, self._workers = reader.papers, reader.facet_mask, workers
        self._comparer = reader.vector_store
        self._source: Callable[[], CandidateSource] = lambda: reader.candidate_source(nprobe)
        if nprobe is not None:
            self._source()

    def batch_search(
        self,
        queries: Sequence[EncodedAspect],
        k: int,
        pools: Pools,
        allowed: Selection | None = None,
        *,
        explain: bool = False,
    ) -> list[list[Hit]]:
        without_pool = [
            query.sentence_vectors for query, pool in zip(queries, pools, strict=True) if pool is None
        ]
        nearest = self._source().nearest(without_pool, k, allowed, by_mean=True) if without_pool else iter(())
        rows = [next(nearest) if pool is None else distinct(rows_of(self._papers, pool)) for pool in pools]

        def best(number: int) -> list[Hit]:
            paper_ids = [self._papers.ids[row] for row in rows[number].tolist()]
            scores = self._scores(queries[number], rows[number])
            hits = best_hits(paper_ids, scores, k)
            return [hit._replace(component_scores={"dense": hit.score}) for hit in hits] if explain else hits

        return list(self._workers.map(best, range(len(queries))))

    def batch_candidates(
        self, queries: Sequence[EncodedAspect], k: int, allowed: Selection | None = None
    ) -> list[Candidates]:
        vectors = [query.sentence_vectors for query in queries]
        nearest = list(self._source().nearest(vectors, k, allowed, by_mean=True))

        def best(number: int) -> Candidates:
            scores = self._scores(queries[number], nearest[number])
            order = np.argsort(-scores, kind="stable")[:k]
            return Candidates(np.sort(nearest[number][order]))

        return list(self._workers.map(best, range(len(queries))))

    def scores(self, query: EncodedAspect, rows: Rows, known: Candidates | None) -> dict[str, Scores]:  # noqa: ARG002
        """Score by ``whole`` papers, by all ``sentences``, and by sentences of the query's ``facet``."""
        if not len(rows):
            return {name: np.zeros(0) for name in ("whole", "sentences", "facet")}
        compared = self._comparer.compare(query.sentence_vectors, rows, query.whole)
        scores = {"whole": compared.whole, "sentences": self._matched(compared, None)}
        if query.aspect.facet is not None:
            scores["facet"] = self._matched(compared, query.aspect.facet)
        return {name: each.astype(np.float64) for name, each in scores.items() if each is not None}

    def _scores(self, query: EncodedAspect, rows: Rows) -> Floats:
        if not len(rows):
            return np.zeros(0, np.float32)
        return self._matched(self._comparer.compare(query.sentence_vectors, rows), None)

    def _matched(self, compared: Compared, facet: Facet | None) -> Floats:
        """Scores (papers,). Of a facet only the candidates' sentences of it count (the best guess where
        facets were predicted), except in papers that have none, whose sentences all count.
        """
        counted = compared.similarities
        if facet is not None:
            counted = restrict(counted, compared.starts, self._facet_mask(facet)[compared.rows])
        return mean_max(best_per_paper(counted, compared.starts))


class FusedStage:
    """Gathers the candidates of its sources, scores each candidate by every source, and fuses the scores.

    >>> from qbe.query import Aspect
    >>> paper = index.paper("s036")
    >>> query = EncodedAspect.of(Aspect(paper), index.vectors(paper))
    >>> with index.reading() as reader:
    ...     dense = DenseStage(reader, Workers())
    ...     stage = FusedStage(reader, Workers(), [dense], {"sentences": 1.0, "whole": 1.0})
    ...     (hits,) = stage.batch_search([query], 3, [["s001", "s051"]], explain=True)
    >>> [hit.score for hit in hits], sorted(hits[0].component_scores)
    ([1.0, -1.0], ['sentences', 'whole'])
    """

    needs_vectors = True

    def __init__(
        self,
        reader: IndexReader,
        workers: Workers,
        sources: Sequence[ScoreSource],
        weights: Mapping[str, float],
        *,
        depth: int = FUSED_DEPTH,
        background_penalty: float = 0.0,
    ) -> None:
        """``weights`` names scores of the ``sources``, each of which brings ``depth`` papers."""
        self._papers, self._workers, self._sources = reader.papers, workers, sources
        self._weights, self._depth = weights, depth
        self._reader, self._penalty = reader, background_penalty

    def batch_search(
        self,
        queries: Sequence[EncodedAspect],
        k: int,
        pools: Pools,
        allowed: Selection | None = None,
        *,
        explain: bool = False,
    ) -> list[list[Hit]]:
        """Raises UsageError where only the component ``facet`` has a weight and an aspect is no facet."""
        only_facet = not any(weight for name, weight in self._weights.items() if name != "facet")
        if only_facet and any(query.aspect.facet is None for query in queries):
            raise UsageError("expected a facet, since only the component facet has a weight, found none")
        candidates = self._candidates(queries, k, pools, allowed)

        def best(number: int) -> list[Hit]:
            rows, known = candidates[number]
            query = queries[number]
            pairs = list(zip(self._sources, known, strict=True))
            scored = self._workers.map(lambda pair: pair[0].scores(query, rows, pair[1]), pairs)
            components = {name: scores for each in scored for name, scores in each.items()}
            scores = weighted_sum(components, self._weights)
            fused, background = penalize_background(self._reader, query, rows, scores, self._penalty)
            if background is not None:
                components["background"] = background
            paper_ids = [self._papers.ids[row] for row in rows.tolist()]
            hits = best_hits(paper_ids, fused.astype(np.float32), k)
            if not explain:
                return hits
            place = {paper_id: i for i, paper_id in enumerate(paper_ids)}
            return [
                hit._replace(
                    component_scores={
                        name: float(scores[place[hit.paper_id]]) for name, scores in components.items()
                    }
                )
                for hit in hits
            ]

        return list(self._workers.map(best, range(len(queries))))

    def _candidates(
        self, queries: Sequence[EncodedAspect], k: int, pools: Pools, allowed: Selection | None
    ) -> list[tuple[Rows, Sequence[Candidates | None]]]:
        """The rows to score for each aspect, ascending, and what each source knows of them."""
        # One more than needed: the query paper is among them, and left out in the end.
        depth = min(max(k, self._depth + 1), len(self._papers))
        without_pool = [query for query, pool in zip(queries, pools, strict=True) if pool is None]

        def propose(source: ScoreSource) -> list[Candidates]:
            return source.batch_candidates(without_pool, depth, allowed)

        # A source spreads several queries over all threads by itself. Without open queries none is asked, so
        # that FAISS's index is not read for pools.
        side_by_side = map if len(without_pool) > 1 else self._workers.map
        by_source = list(side_by_side(propose, self._sources)) if without_pool else []
        proposed = zip(*by_source, strict=True)
        chosen: list[tuple[Rows, Sequence[Candidates | None]]] = []
        for pool in pools:
            if pool is not None:
                chosen.append((distinct(rows_of(self._papers, pool)), [None] * len(self._sources)))
            else:
                known = next(proposed)
                chosen.append((distinct(np.concatenate([source.rows for source in known])), known))
        return chosen


EXPONENTS: Mapping[Facet, int] = {Facet.METHOD: 1, Facet.RESULT: 3}
"""The power of the background penalty for each facet: results depend on the problem more than methods do, so
the default penalty is close to 0 for them; a penalty of 1 is the same for both."""


class Penalized(NamedTuple):
    """Scores (papers,), and the similarity to the query's ``background`` (papers,) subtracted from them."""

    scores: Scores
    background: Scores | None


def penalize_background(
    reader: IndexReader, query: EncodedAspect, rows: Rows, scores: Scores, penalty: float
) -> Penalized:
    """Subtract the similarity to the query's background from the ``scores`` (papers,) of the papers at
    ``rows`` (negative feedback on scores, after Rocchio, 1971); ``penalty`` is from 0 (no change) to 1.

    Papers similar in method or result are mostly similar in their problem too, and so are sentence vectors in
    the context of their abstracts; without the penalty scores follow the problem where the two disagree. A
    score becomes ``z(score) - strength * z(background)`` over the papers scored, where ``background`` is the
    mean-max match of the query's background sentences, and ``strength`` the penalty to the power of
    EXPONENTS. Scores of other aspects, and of papers without other background sentences, stay.

    >>> from qbe.query import Aspect
    >>> paper = index.paper("s036")
    >>> query = EncodedAspect.of(Aspect(paper, Facet.METHOD), index.vectors(paper))
    >>> with index.reading() as reader:
    ...     rows = np.array([reader.papers.row("s031"), reader.papers.row("s051")])
    ...     scores, background = penalize_background(reader, query, rows, np.array([0.5, 0.75]), 0.25)
    >>> np.allclose(background, [0.52, 0.27], atol=0.015)  # int8 differs between processors
    True
    >>> scores.tolist()
    [-1.25, 1.25]
    """
    exponent = None if query.aspect.facet is None else EXPONENTS.get(query.aspect.facet)
    strength = 0.0 if exponent is None else float(penalty**exponent)
    if not strength or query.background is None:
        return Penalized(scores, None)
    background = np.zeros(0)
    if len(rows):
        compared = reader.vector_store.compare(query.background, rows)
        best = best_per_paper(compared.similarities, compared.starts)
        background = mean_max(best).astype(np.float64)
    return Penalized(penalized(scores, background, strength), background)


def open_first_stage(stage: Any, reader: IndexReader, workers: Workers) -> FirstStage:
    """Open the first stage of a search; raises IndexFormatError when the index lacks what it needs.

    That is checked before the Java virtual machine starts.
    """
    if isinstance(stage, BM25):
        return BM25Stage(reader, workers, stage.query)
    if not isinstance(stage, Dense | Fused):
        opened: FirstStage = stage
        return opened
    reader.require_vectors()
    dense = DenseStage(reader, workers, stage.nprobe)
    if isinstance(stage, Dense):
        return dense
    sources: list[ScoreSource] = [BM25Stage(reader, workers, stage.bm25_query), dense]
    weights = EQUAL_WEIGHTS if stage.weights is None else stage.weights
    return FusedStage(
        reader, workers, sources, weights, depth=stage.depth, background_penalty=stage.background_penalty
    )
