"""The first stages: BM25 by Lucene, sentence vectors, and any named scores of both, fused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbe.errors import UsageError
from qbe.index import jvm as _jvm
from qbe.index.candidates import CandidateSource
from qbe.index.lucene import Ranked, contents
from qbe.index.reader import IndexReader
from qbe.index.rows import PerSelection, Selection, distinct
from qbe.index.scoring import Compared, best_per_paper, mean_max, restrict
from qbe.index.views import rows_of
from qbe.models.pooling import EncodedAspect
from qbe.search.contracts import Candidates, Rows, Scores, ScoreSource, in_order
from qbe.search.fusion import best_hits, weighted_sum
from qbe.search.matches import penalize_background
from qbe.search.stages import FUSED_DEPTH
from qbe.types import Facet, Hit, Pools
from qbe.util.parallel import Workers


def query_text(query: EncodedAspect, form: str = "title+facet") -> str:
    """The words of a BM25 query, in one of `qbe.search.stages.BM25_QUERIES`: the title of the paper and the
    aspect's sentences (``title+facet``), title and whole abstract (``abstract``), or the words that tell the
    aspect's facet (``words``; for an aspect that is no facet as ``title+facet``).

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

    >>> from qbe.query import Aspect
    >>> query = EncodedAspect.of(Aspect(index.paper("s036")))
    >>> with index.reading() as reader:
    ...     (hits,) = BM25Stage(reader, Workers()).batch_search([query], 3, [["s001", "s051"]])
    >>> [hit.paper_id for hit in hits]
    ['s051', 's001']
    """

    needs_vectors = False

    def __init__(self, reader: IndexReader, workers: Workers, form: str = "title+facet") -> None:
        """``form`` is one of `qbe.search.stages.BM25_QUERIES`."""
        self._form, self._workers = form, workers
        self._papers = reader.papers
        _jvm.leave_at_exit(workers)  # one of them may open the postings
        self._lucene = reader.text_search()
        self._filters = PerSelection(self._filter)

    def batch_search(
        self,
        queries: Sequence[EncodedAspect],
        k: int,
        pools: Pools,
        allowed: Selection | None = None,
        *,
        explain: bool = False,
    ) -> list[list[Hit]]:
        """See `qbe.search.contracts.FirstStage`; of a pool every paper is ranked, those without a common
        word with a score of 0; of the whole index, or of selected papers, those with one.
        """

        def search(request: tuple[EncodedAspect, Sequence[str] | None]) -> list[Hit]:
            query, pool = request
            rows, scores = self._ranked(
                query, k, None if pool is None else rows_of(self._papers, pool), allowed
            )
            pairs = zip(rows[:k].tolist(), scores[:k].tolist(), strict=True)
            hits = [Hit(self._papers.ids[row], score) for row, score in pairs]
            return [hit._replace(component_scores={"bm25": hit.score}) for hit in hits] if explain else hits

        return _jvm.map_in_threads(search, list(zip(queries, pools, strict=True)), self._workers)

    def batch_candidates(
        self, queries: Sequence[EncodedAspect], k: int, allowed: Selection | None = None
    ) -> list[Candidates]:
        """See `qbe.search.contracts.ScoreSource`: the best ``k`` papers."""

        def search(query: EncodedAspect) -> Candidates:
            return in_order(*self._ranked(query, k, None, allowed))

        return _jvm.map_in_threads(search, list(queries), self._workers)

    def scores(self, query: EncodedAspect, rows: Rows, known: Candidates | None) -> dict[str, Scores]:
        """See `qbe.search.contracts.ScoreSource`: papers without a known score are searched for as a pool."""
        scores = np.full(len(rows), np.nan) if known is None else known.scores_of(rows)
        missing = np.flatnonzero(np.isnan(scores))
        if len(missing):
            pool = rows[missing]
            scores[missing] = in_order(*self._ranked(query, len(pool), pool)).scores_of(pool)
        return {"bm25": scores}

    def _ranked(
        self, query: EncodedAspect, k: int, pool: Rows | None, allowed: Selection | None = None
    ) -> Ranked:
        selected = self._filters(allowed) if pool is None and allowed is not None else None
        text = query_text(query, self._form)
        rows, scores = self._lucene.search(text, k if pool is None else len(pool), pool, selected)
        # Anserini lowers equal scores by a millionth each; it must not make a score of 0 negative.
        return Ranked(rows, np.maximum(scores, 0.0))

    def _filter(self, selection: Selection) -> Any:
        return self._lucene.filtering(selection.rows)


Floats = NDArray[np.float32]


class DenseStage:
    """Ranks papers by how well their sentences match those of the query.

    Candidates come from a `CandidateSource`, their scores from a `VectorStore`.

    >>> from qbe.query import Aspect
    >>> paper = index.paper("s036")
    >>> query = EncodedAspect.of(Aspect(paper, Facet.METHOD), index.vectors(paper))
    >>> with index.reading() as reader:
    ...     ((itself, best),) = DenseStage(reader, Workers()).batch_search([query], 2, [None])
    >>> itself.paper_id, round(itself.score, 2), best.paper_id
    ('s036', 1.0, 's051')
    """

    needs_vectors = True

    def __init__(
        self,
        reader: IndexReader,
        workers: Workers,
        nprobe: int | None = None,
    ) -> None:
        """``nprobe`` None: as the index was built.

        Raises IndexFormatError where the index has no vectors, UsageError for an ``nprobe`` of an index
        without lists.
        """
        self._papers, self._facet_mask, self._workers = reader.papers, reader.facet_mask, workers
        self._comparer = reader.vector_store
        self._source: Callable[[], CandidateSource] = lambda: reader.candidate_source(nprobe)
        if nprobe is not None:
            self._source()  # what does not fit the index is refused before anything is searched

    def batch_search(
        self,
        queries: Sequence[EncodedAspect],
        k: int,
        pools: Pools,
        allowed: Selection | None = None,
        *,
        explain: bool = False,
    ) -> list[list[Hit]]:
        """See `qbe.search.contracts.FirstStage`: out of a pool, or of the papers of the nearest sentences."""
        without_pool = [
            query.sentence_vectors for query, pool in zip(queries, pools, strict=True) if pool is None
        ]
        nearest = self._source().nearest(without_pool, k, allowed, by_mean=True) if without_pool else iter(())
        rows = [next(nearest) if pool is None else self._rows(pool) for pool in pools]

        def best(number: int) -> list[Hit]:
            paper_ids = [self._papers.ids[row] for row in rows[number].tolist()]
            scores = self._scores(queries[number], rows[number])
            hits = best_hits(paper_ids, scores, k)
            return [hit._replace(component_scores={"dense": hit.score}) for hit in hits] if explain else hits

        return list(self._workers.map(best, range(len(queries))))

    def batch_candidates(
        self, queries: Sequence[EncodedAspect], k: int, allowed: Selection | None = None
    ) -> list[Candidates]:
        """See `qbe.search.contracts.ScoreSource`: the best ``k`` papers by all their sentences."""
        vectors = [query.sentence_vectors for query in queries]
        nearest = list(self._source().nearest(vectors, k, allowed, by_mean=True))

        def best(number: int) -> Candidates:
            scores = self._scores(queries[number], nearest[number])
            order = np.argsort(-scores, kind="stable")[:k]
            return Candidates(np.sort(nearest[number][order]))

        return list(self._workers.map(best, range(len(queries))))

    def scores(self, query: EncodedAspect, rows: Rows, known: Candidates | None) -> dict[str, Scores]:  # noqa: ARG002
        """See `qbe.search.contracts.ScoreSource`: ``whole`` is the similarity of the whole papers,
        ``sentences`` the match with all sentences of a candidate, ``facet`` with those of the query's facet.
        """
        if not len(rows):
            return {name: np.zeros(0) for name in ("whole", "sentences", "facet")}
        compared = self._comparer.compare(query.sentence_vectors, rows, query.whole)
        scores = {"whole": compared.whole, "sentences": self._matched(compared, None)}
        if query.aspect.facet is not None:
            scores["facet"] = self._matched(compared, query.aspect.facet)
        return {name: each.astype(np.float64) for name, each in scores.items() if each is not None}

    def _scores(self, query: EncodedAspect, rows: Rows) -> Floats:
        """Exact scores (papers,) by all sentences of the papers at these rows."""
        if not len(rows):
            return np.zeros(0, np.float32)
        return self._matched(self._comparer.compare(query.sentence_vectors, rows), None)

    def _matched(self, compared: Compared, facet: Facet | None) -> Floats:
        """Scores (papers,): of a facet only the candidates' sentences of that facet count (or the best guess,
        where the facets were predicted), except in papers that have none, whose sentences all count; for None
        they all do.
        """
        counted = compared.similarities
        if facet is not None:
            counted = restrict(counted, compared.starts, self._facet_mask(facet)[compared.rows])
        return mean_max(best_per_paper(counted, compared.starts))

    def _rows(self, paper_ids: Sequence[str]) -> Rows:
        """Rows of papers, ascending, each once."""
        return distinct(rows_of(self._papers, paper_ids))


class FusedStage:
    """Gathers the candidates of its sources, scores each candidate by every source, and fuses the scores.

    Every component is computed for every candidate, also where its source did not propose the candidate.

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
        """``weights`` names scores of the ``sources``; ``depth`` is the number of papers each source brings;
        ``background_penalty`` is that of `qbe.search.matches.penalize_background`.
        """
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
        """See `qbe.search.contracts.FirstStage`; scores are normalized over the candidates that are left.

        Raises UsageError where only the component ``facet`` has a weight and an aspect is no facet.
        """
        only_facet = not any(weight for name, weight in self._weights.items() if name != "facet")
        if only_facet and any(query.aspect.facet is None for query in queries):
            raise UsageError("expected a facet, since only the component facet has a weight, found none")
        candidates = self._candidates(queries, k, pools, allowed)

        def best(number: int) -> list[Hit]:
            rows, known = candidates[number]
            query = queries[number]
            components = self._components(query, rows, known)
            scores = weighted_sum(components, self._weights)
            fused, background = penalize_background(self._reader, query, rows, scores, self._penalty)
            if background is not None:
                components["background"] = background
            paper_ids = [self._papers.ids[row] for row in rows.tolist()]
            hits = best_hits(paper_ids, fused.astype(np.float32), k)
            return _explained(hits, paper_ids, components) if explain else hits

        return list(self._workers.map(best, range(len(queries))))

    def _candidates(
        self, queries: Sequence[EncodedAspect], k: int, pools: Pools, allowed: Selection | None
    ) -> list[tuple[Rows, Sequence[Candidates | None]]]:
        """The rows to be scored for each aspect, ascending, and what each source knows of them."""
        # One more than needed: the query paper is among them, and left out in the end.
        depth = min(max(k, self._depth + 1), len(self._papers))
        without_pool = [query for query, pool in zip(queries, pools, strict=True) if pool is None]

        def propose(source: ScoreSource) -> list[Candidates]:
            return source.batch_candidates(without_pool, depth, allowed)

        # A source spreads several queries over all threads by itself. Where all have pools none is asked: it
        # would open what it finds candidates by.
        side_by_side = map if len(without_pool) > 1 else self._workers.map
        by_source = list(side_by_side(propose, self._sources)) if without_pool else []
        proposed = zip(*by_source, strict=True)
        chosen: list[tuple[Rows, Sequence[Candidates | None]]] = []
        for pool in pools:
            if pool is not None:
                rows = rows_of(self._papers, pool)
                chosen.append((distinct(rows), [None] * len(self._sources)))
                continue
            known = next(proposed)
            chosen.append((distinct(np.concatenate([source.rows for source in known])), known))
        return chosen

    def _components(
        self, query: EncodedAspect, rows: Rows, known: Sequence[Candidates | None]
    ) -> dict[str, Scores]:
        """All scores (papers,) by name."""
        pairs = list(zip(self._sources, known, strict=True))
        scored = self._workers.map(lambda pair: pair[0].scores(query, rows, pair[1]), pairs)
        return {name: scores for each in scored for name, scores in each.items()}


def _explained(hits: Sequence[Hit], paper_ids: Sequence[str], components: Mapping[str, Scores]) -> list[Hit]:
    """Hits with the scores that each component, as it is before fusion, gave the paper."""
    place = {paper_id: i for i, paper_id in enumerate(paper_ids)}
    return [
        hit._replace(
            component_scores={name: float(scores[place[hit.paper_id]]) for name, scores in components.items()}
        )
        for hit in hits
    ]
