"""The first stages of a search: BM25 by Lucene, sentence vectors, and any named scores of both, fused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from qbe.errors import UsageError
from qbe.index import jvm
from qbe.index.lucene import break_ties, contents
from qbe.index.papers import rows_of
from qbe.index.reader import Allowed, IndexReader
from qbe.index.vectors import Rows, best_per_paper, distinct, kept_or_all, mean_max
from qbe.models.encoding import EncodedAspect
from qbe.models.words import shipped_words
from qbe.search import stages
from qbe.types import Facet, Hit, Pools
from qbe.util.work import Workers

Floats = NDArray[np.float32]
Scores = NDArray[np.float64]
Aspects = Sequence[EncodedAspect]
Known = Mapping[int, float]  # scores by row


def z_normalize(scores: Scores, count: int | None = None) -> Scores:
    """Normalize scores (n,) to mean 0 and deviation 1 of the first ``count``; all 0 where these are equal."""
    known = scores[:count]
    deviation = known.std() if len(known) else 0.0
    differ = deviation > 1e-9 * max(1.0, float(np.abs(known).max(initial=0.0)))
    return np.asarray((scores - known.mean()) / deviation) if differ else np.zeros_like(scores)


def weighted_sum(components: Mapping[str, Scores], weights: Mapping[str, float]) -> Scores:
    """Return the weighted mean of z-normalized components (n,); those without weight do not count."""
    used = [name for name in components if weights.get(name, 0.0)]
    total = sum(weights[name] for name in used)
    length = len(next(iter(components.values())))
    fused = sum((weights[name] * z_normalize(components[name]) for name in used), np.zeros(length))
    return np.asarray(fused / total if total else fused, dtype=np.float64)


def best_hits(paper_ids: Sequence[str], scores: NDArray[np.floating], k: int) -> list[Hit]:
    """Select the best ``k`` papers by score, ties by id."""
    chosen = np.arange(len(scores))
    if k < len(scores):  # only those that reach the last place are worth sorting, ties with it included
        chosen = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    hits = [Hit(paper_ids[place], float(scores[place])) for place in chosen.tolist()]
    return sorted(hits, key=lambda hit: (-hit.score, hit.paper_id))[:k]


def explained(hits: Sequence[Hit], paper_ids: Sequence[str], components: Mapping[str, Scores]) -> list[Hit]:
    """Add to hits their scores by component, each of which has those of all papers (n,)."""
    places = {paper_id: place for place, paper_id in enumerate(paper_ids)}
    of_hits = [places[hit.paper_id] for hit in hits]
    scores = ({name: float(each[place]) for name, each in components.items()} for place in of_hits)
    return [hit._replace(component_scores=each) for hit, each in zip(hits, scores, strict=True)]


class FirstStage(Protocol):
    """Ranks the papers of an index, or of a pool, for aspects of queries."""

    needs_vectors: bool  # whether aspects must bring the vectors of their sentences

    def batch_search(
        self, queries: Aspects, k: int, pools: Pools, allowed: Allowed = None, *, explain: bool = False
    ) -> list[list[Hit]]:
        """Rank the ``k`` best papers of each pool (None: of all ``allowed``) by each aspect, ties by id."""


def query_text(
    query: EncodedAspect, form: str = stages.TITLE_FACET, reader: IndexReader | None = None
) -> str:
    """Make the BM25 query of an aspect, in one of the forms of `qbe.search.stages.BM25`."""
    paper = query.aspect.paper
    if form in (stages.TITLE, stages.TITLE_ABSTRACT):
        return paper.title if form == stages.TITLE else contents(paper)
    if form == stages.KEY_TERMS and reader is not None:
        return " ".join(reader.key_terms(paper.title) + reader.key_terms(paper.abstract))
    if form == stages.TELLING_WORDS and query.aspect.facet is not None:
        return shipped_words().query_text(paper, query.aspect.facet)
    sentences = " ".join(paper.texts(query.positions))
    return sentences if form == stages.FACET else f"{paper.title} {sentences}"


class BM25Stage:
    """Ranks by BM25, exactly as Pyserini does; papers of a pool without a common word get 0."""

    needs_vectors = False

    def __init__(
        self, reader: IndexReader, workers: Workers, form: str = stages.TITLE_FACET, similarity: str = "bm25"
    ) -> None:
        self._form, self._workers, self._similarity = form, workers, similarity
        self._reader, self._papers = reader, reader.papers
        workers.at_exit(jvm.detach)  # one of them may open the postings
        reader.text_search(similarity)  # opened now

    def batch_search(
        self, queries: Aspects, k: int, pools: Pools, allowed: Allowed = None, *, explain: bool = False
    ) -> list[list[Hit]]:
        within = [None if pool is None else rows_of(self._papers, pool) for pool in pools]
        ids, ranked = self._papers.ids, self._ranked(queries, k, within, allowed)
        return [
            [
                Hit(ids[row], score, (), {"bm25": score} if explain else None)
                for row, score in zip(rows[:k].tolist(), scores[:k].tolist(), strict=True)
            ]
            for rows, scores in ranked
        ]

    def scores(self, query: EncodedAspect, rows: Rows, known: Known) -> dict[str, Scores]:
        missing = np.array([row for row in rows.tolist() if row not in known], np.int64)
        if len(missing):
            ((found, scores),) = self._ranked([query], len(missing), [missing])
            known = {**known, **dict(zip(found.tolist(), scores.tolist(), strict=True))}
        return {"bm25": np.array([known[row] for row in rows.tolist()])}

    def _ranked(
        self, queries: Aspects, k: int, pools: Sequence[Rows | None], allowed: Allowed = None
    ) -> list[tuple[Rows, Scores]]:
        def search(work: tuple[EncodedAspect, Rows | None]) -> tuple[Rows, Scores]:
            query, pool = work
            text, most = query_text(query, self._form, self._reader), k if pool is None else len(pool)
            rows, scores = self._reader.search(text, most, pool, allowed, self._similarity)
            # Equal scores are lowered by a millionth each; that must not make a score of 0 negative.
            return rows, np.maximum(break_ties(scores), 0.0)

        return list(self._workers.map(search, list(zip(queries, pools, strict=True))))


@dataclass
class DenseStage:
    """Ranks papers by how well their sentences match the query's: by the mean over the query's of the best
    cosine or distance, or (``single``) by the best of any. Raises UsageError for ``nprobe`` without lists.
    """

    reader: IndexReader
    workers: Workers
    nprobe: int | None = None
    single: bool = False

    needs_vectors = True

    def __post_init__(self) -> None:
        if self.nprobe is not None:
            self.reader.nearest((), 1, nprobe=self.nprobe)  # refused now

    def batch_search(
        self, queries: Aspects, k: int, pools: Pools, allowed: Allowed = None, *, explain: bool = False
    ) -> list[list[Hit]]:
        vectors = [query.sentence_vectors for query, pool in zip(queries, pools, strict=True) if pool is None]
        found = self.reader.nearest(vectors, k, allowed, not self.single, self.nprobe) if vectors else ()
        nearest, papers = iter(found), self.reader.papers
        rows = [next(nearest) if pool is None else distinct(rows_of(papers, pool)) for pool in pools]

        def best(number: int) -> list[Hit]:
            compared = self.reader.compare(queries[number].sentence_vectors, rows[number])
            closest = best_per_paper(compared.similarities, compared.starts)
            scores: Floats = closest.max(axis=0) if self.single else mean_max(closest)
            hits = best_hits([papers.ids[row] for row in rows[number].tolist()], scores, k)
            return [hit._replace(component_scores={"dense": hit.score}) for hit in hits] if explain else hits

        return list(self.workers.map(best, range(len(queries))))

    def scores(self, query: EncodedAspect, rows: Rows, known: Known) -> dict[str, Scores]:  # noqa: ARG002
        """Score by ``whole`` papers, all ``sentences``, and those of the ``facet`` (all if absent)."""
        compared = self.reader.compare(query.sentence_vectors, rows, query.whole_vector)
        scores = {"sentences": mean_max(best_per_paper(compared.similarities, compared.starts))}
        if compared.whole is not None:
            scores = {"whole": compared.whole, **scores}
        if query.aspect.facet is not None:
            marked = self.reader.facet_mask(query.aspect.facet)[compared.rows]
            of_facet = np.where(kept_or_all(marked, compared.starts), compared.similarities, -np.inf)
            scores["facet"] = mean_max(best_per_paper(of_facet, compared.starts))
        return {name: each.astype(np.float64) for name, each in scores.items()}


@dataclass
class FusedStage:
    """Gathers the candidates of its sources, scores each candidate by every source, and fuses the scores."""

    reader: IndexReader
    workers: Workers
    # First stages with a thread-safe `BM25Stage.scores` of any papers; ``known`` are those of their own ones.
    sources: Sequence[Any]
    weights: Mapping[str, float]  # of scores by name
    depth: int = stages.FUSED_DEPTH  # papers that each source brings
    background_penalty: float = 0.0

    needs_vectors = True

    def batch_search(
        self, queries: Aspects, k: int, pools: Pools, allowed: Allowed = None, *, explain: bool = False
    ) -> list[list[Hit]]:
        """Raises UsageError where only the component ``facet`` has a weight and an aspect is no facet."""
        only_facet = not any(weight for name, weight in self.weights.items() if name != "facet")
        if only_facet and any(query.aspect.facet is None for query in queries):
            raise UsageError("expected a facet, since only the component facet has a weight, found none")
        # One more than needed: the query paper is among them, and left out in the end.
        depth, papers = min(max(k, self.depth + 1), len(self.reader)), self.reader.papers
        without_pool = [query for query, pool in zip(queries, pools, strict=True) if pool is None]
        # A source spreads several queries over all threads by itself. Without open queries none is asked, so
        # that FAISS's index is not read for pools.
        side_by_side = map if len(without_pool) > 1 else self.workers.map
        asked, no_pools = self.sources if without_pool else (), [None] * len(without_pool)
        by_source = side_by_side(
            lambda each: each.batch_search(without_pool, depth, no_pools, allowed), asked
        )
        proposed = zip(*by_source, strict=True)
        found = [next(proposed) if pool is None else [()] * len(self.sources) for pool in pools]

        def best(number: int) -> list[Hit]:
            query = queries[number]
            known = [{papers.row(hit.paper_id): hit.score for hit in hits} for hits in found[number]]
            of_pool = [papers.row(paper_id) for paper_id in pools[number] or ()]
            rows = np.array(sorted({*of_pool, *chain(*known)}), np.int64)
            pairs = list(zip(self.sources, known, strict=True))
            scored = self.workers.map(lambda pair: pair[0].scores(query, rows, pair[1]), pairs)
            components = {name: scores for each in scored for name, scores in each.items()}
            scores, penalty = weighted_sum(components, self.weights), self.background_penalty
            fused, background = penalize_background(self.reader, query, rows, scores, penalty)
            if background is not None:
                components["background"] = background
            paper_ids = [papers.ids[row] for row in rows.tolist()]
            hits = best_hits(paper_ids, fused.astype(np.float32), k)
            return explained(hits, paper_ids, components) if explain else hits

        return list(self.workers.map(best, range(len(queries))))


# The power of the background penalty for each facet: results depend on the problem more than methods do, so
# the default penalty is close to 0 for them; a penalty of 1 is the same for both.
EXPONENTS: Mapping[Facet, int] = {Facet.METHOD: 1, Facet.RESULT: 3}


def penalize_background(
    reader: IndexReader, query: EncodedAspect, rows: Rows, scores: Scores, penalty: float
) -> tuple[Scores, Scores | None]:
    """Subtract the similarity to the query's background from the ``scores`` (papers,) of the papers at
    ``rows`` (negative feedback on scores, after Rocchio, 1971), and return it (papers,) too.

    A score becomes ``z(score) - strength * z(background)``, where ``background`` is the mean-max match of the
    query's background sentences, and ``strength`` the ``penalty``, from 0 to 1, to the power of EXPONENTS.
    Scores of other aspects, and of papers without other background sentences, stay.
    """
    exponent = None if query.aspect.facet is None else EXPONENTS.get(query.aspect.facet)
    if exponent is None or not penalty or query.background is None:
        return scores, None
    compared = reader.compare(query.background, rows)
    background = mean_max(best_per_paper(compared.similarities, compared.starts)).astype(np.float64)
    return z_normalize(scores) - float(penalty**exponent) * z_normalize(background), background


def open_first_stage(stage: Any, reader: IndexReader, workers: Workers) -> FirstStage:
    """Open a first stage; raise IndexFormatError, before Java starts, where the index lacks what it needs."""
    if isinstance(stage, stages.BM25):
        return BM25Stage(reader, workers, stage.query, stage.similarity)
    if not isinstance(stage, stages.Dense | stages.Fused):
        opened: FirstStage = stage
        return opened
    reader.require_vectors()
    if isinstance(stage, stages.Dense):
        return DenseStage(reader, workers, stage.nprobe, single=stage.match == "single")
    dense = DenseStage(reader, workers, stage.nprobe)
    sources = [BM25Stage(reader, workers, stage.bm25_query), dense]
    weights = dict.fromkeys(stages.COMPONENTS, 1.0) if stage.weights is None else stage.weights
    return FusedStage(reader, workers, sources, weights, stage.depth, stage.background_penalty)
