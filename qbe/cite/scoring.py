"""Candidates for the bibliography of a paper: who cites whom, late interaction, and features of them.

The cosine of W q and W c is the inner product of (W^T W q) and c over the lengths of both projections, so
only the query is multiplied; of a stored vector one number is kept. All is in double precision.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.index.reader import IndexReader
from qbe.index.vectors import Rows, Selection
from qbe.models.encoding import EncodedAspect
from qbe.search.filters import FilterCache, year_of
from qbe.search.first_stages import BM25Stage, DenseStage, FusedStage, Known, Scores, best_hits, z_normalize
from qbe.types import Hit, Pools
from qbe.util.work import Workers, pause

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Doubles = NDArray[np.float64]


class Neighbours(NamedTuple):
    """Hold papers near a query, by row, with weights (n,) that sum to 1."""

    rows: Ints
    weights: Doubles


class Evidence:
    """Hold years (papers,), NaN where unknown, and who cites whom, ``count`` pairs by row, of one commit."""

    def __init__(self, reader: IndexReader) -> None:
        """Read them from metadata (``cites``: ids of papers)."""
        metadata, cites = list(reader.papers.read_metadata()), list[list[int]]()
        self.years: Doubles = np.array([year_of(each) or np.nan for each in metadata], np.float64)
        for row, each in enumerate(metadata):
            named = each.get("cites")
            ids = named if isinstance(named, list) else []
            rows = {reader.papers.find(paper_id) for paper_id in ids if isinstance(paper_id, str)}
            cites.append(sorted(cited for cited in rows if cited is not None and cited != row))
        counts = np.array([len(rows) for rows in cites], np.int64)
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self._cited = np.array([row for rows in cites for row in rows], np.int64)
        self._by, self.count = np.repeat(np.arange(len(cites)), counts), len(self._cited)
        order = np.argsort(self._cited, kind="stable")
        self._citing = self._by[order]
        self._citing_starts = np.searchsorted(self._cited[order], np.arange(len(cites) + 1))

    def ages(self, rows: NDArray[np.int64], year: int | None) -> Doubles:
        """Return the years (n,) from each paper to ``year``; NaN where either is unknown."""
        return np.asarray((np.nan if year is None else float(year)) - self.years[rows])

    def citing_papers(self, year: int | None, row: int | None) -> NDArray[np.bool_]:
        """Mask the papers whose citations may count: only those before a known ``year``, without ``row``."""
        citing = np.ones(len(self.years), np.bool_) if year is None else self.years < year
        if row is not None:
            citing[row] = False
        return citing

    def cited_by(self, rows: Ints) -> Ints:
        """Return the rows of all papers that these cite, with repetitions."""
        return np.concatenate([np.zeros(0, np.int64), *(self._cites(row) for row in rows.tolist())])

    def citing(self, rows: Ints, earlier: Mask) -> Ints:
        """Return the rows of all ``earlier`` papers that cite these, with repetitions."""
        parts = (self._citing[slice(*self._citing_starts[row : row + 2])] for row in rows.tolist())
        citing = np.concatenate([np.zeros(0, np.int64), *parts])
        return np.asarray(citing[earlier[citing]])

    def popularity(self, rows: Ints, earlier: Mask) -> Doubles:
        """Count the ``earlier`` papers (mask over all) that cite each of the rows (n,)."""
        counts = np.bincount(self._cited[earlier[self._by]], minlength=len(self._starts) - 1)
        return counts[rows].astype(np.float64)

    def share_citing(self, near: Neighbours, rows: Ints) -> Doubles:
        """Return for each of the rows (n,) the weight of the neighbours that cite it."""
        return self._sums(rows, zip(near.rows.tolist(), near.weights.tolist(), strict=True))

    def share_cited(self, near: Neighbours, rows: Ints) -> Doubles:
        """Return for each of the rows (n,) the weight of the neighbours that it cites."""
        weight = np.zeros(len(self._starts) - 1)
        weight[near.rows] = near.weights
        return np.array([weight[self._cites(row)].sum() for row in rows.tolist()])

    def cocited(self, seeds: Ints, rows: Ints, earlier: Mask) -> Doubles:
        """Count for each of the rows (n,) how often ``earlier`` papers cite it together with a seed."""
        return self._sums(rows, ((row, 1.0) for row in self.citing(seeds, earlier).tolist()))

    def cocitation_cosines(self, seeds: Ints, rows: Ints, earlier: Mask) -> Doubles:
        """Sum for each of the rows (n,) its cosines with the seeds, by which ``earlier`` papers cite them."""
        citing = (self.citing(np.array([seed]), earlier).tolist() for seed in seeds.tolist())
        shares = ((row, 1 / np.sqrt(len(papers))) for papers in citing for row in papers)
        return np.asarray(self._sums(rows, shares) / np.sqrt(np.maximum(self.popularity(rows, earlier), 1)))

    def walks(self, seeds: Ints, rows: Ints, earlier: Mask) -> Doubles:
        """Return for each of the rows (n,) the probability of two random steps, from a seed to an ``earlier``
        paper that cites it and on to what that cites, summed over seeds and first steps (as P3 of Cooper et
        al., 2014).
        """
        papers, seeds_of_each = np.unique(self.citing(seeds, earlier), return_counts=True)
        steps = zip(papers.tolist(), seeds_of_each.tolist(), strict=True)
        return self._sums(rows, ((row, count / len(self._cites(row))) for row, count in steps))

    def _sums(self, rows: Ints, citing: Iterable[tuple[int, float]]) -> Doubles:
        total = np.zeros(len(self._starts) - 1)
        for row, weight in citing:
            total[self._cites(row)] += weight
        return np.asarray(total[rows])

    def _cites(self, row: int) -> Ints:
        cited: Ints = self._cited[self._starts[row] : self._starts[row + 1]]
        return cited


NAME = "citation"
TERMS = ("forward", "whole", "backward")


class CitationSource:
    """Propose and score papers by late interaction of projected vectors, as a source of `FusedStage`.

    Lengths of projections are computed when a paper is first scored, and kept: 8 bytes a vector.
    """

    def __init__(self, reader: IndexReader, workers: Workers, projection: "Projection") -> None:
        self._reader, self._workers, self._projection = reader, workers, projection
        self._sentence_lengths = np.full(len(reader.sentence_vectors), np.nan)
        self._whole_lengths = np.full(len(reader.whole_vectors), np.nan)

    def batch_search(
        self, queries: Sequence[EncodedAspect], k: int, _: Pools, allowed: Selection | None = None
    ) -> list[list[Hit]]:
        # The nearest of these at unit length; lengths of stored vectors' projections are neglected.
        matrix = self._projection.sentences
        turned = [transformed(query.sentence_vectors, matrix) for query in queries]
        vectors = [(each / np.linalg.norm(each, axis=1, keepdims=True)).astype(np.float32) for each in turned]
        nearest = self._reader.nearest(vectors, k, allowed)

        def best(number: int) -> list[Hit]:
            rows = nearest[number]
            ids = [self._reader.papers.ids[row] for row in rows.tolist()]
            return best_hits(ids, self.scores(queries[number], rows, {})[NAME], k)

        return list(self._workers.map(best, range(len(queries))))

    def scores(self, query: EncodedAspect, rows: Rows, known: Known) -> dict[str, Scores]:
        missing = np.array([row for row in rows.tolist() if row not in known], np.int64)
        if len(missing):
            vectors = query.sentence_vectors, query.whole_vector
            found = self._projection.weights @ terms(self._projection, *vectors, self._stored(missing))
            known = {**known, **dict(zip(missing.tolist(), found.tolist(), strict=True))}
        return {NAME: np.array([known[row] for row in rows.tolist()])}

    def whole_cosines(self, rows: Rows, others: Rows) -> Doubles:
        """Return cosines (rows, others) of the projections of whole papers."""
        left = transformed(self._reader.whole(others).astype(np.float32), self._projection.whole)
        right = self._reader.whole(rows).astype(np.float64)
        right_lengths = self._lengths(self._whole_lengths, rows, right, self._projection.whole)
        return np.asarray((right @ left.T) / right_lengths[:, None])

    def likeness(self, papers: Rows, rows: Rows) -> Doubles:
        """Return scores (papers, rows) by late interaction, each of the papers as a query."""
        ascending, places = np.unique(rows, return_inverse=True)
        stored = self._stored(ascending)
        whole = self._reader.whole(papers).astype(np.float64)
        scores = np.empty((len(papers), len(ascending)))
        for number, row in enumerate(papers.tolist()):
            pause()
            sentences = self._reader.gather(np.array([row], np.int64)).vectors.astype(np.float64)
            found = terms(self._projection, sentences, whole[number], stored)
            scores[number] = self._projection.weights @ found
        return np.asarray(scores[:, places])

    def _stored(self, rows: Rows) -> "MeasuredPapers":
        block, matrices = self._reader.gather(rows), self._projection
        sentences, whole = block.vectors.astype(np.float64), self._reader.whole(rows).astype(np.float64)
        sentence_lengths = self._lengths(self._sentence_lengths, block.rows, sentences, matrices.sentences)
        whole_lengths = self._lengths(self._whole_lengths, rows, whole, matrices.whole)
        return MeasuredPapers(sentences, sentence_lengths, whole, whole_lengths, block.starts)

    def _lengths(self, known: Doubles, rows: Rows, vectors: Doubles, matrix: Doubles) -> Doubles:
        unknown = np.isnan(known[rows])
        known[rows[unknown]] = lengths(vectors[unknown], matrix)
        return known[rows]


class Projection(NamedTuple):
    """Matrices (dimension, dimension) for sentences and for whole papers, and weights of the TERMS."""

    sentences: Doubles
    whole: Doubles
    weights: Doubles


class MeasuredPapers(NamedTuple):
    """Hold stored vectors with lengths of their projections; sentences of paper i begin at ``starts[i]``."""

    sentences: Doubles
    sentence_lengths: Doubles
    whole: Doubles
    whole_lengths: Doubles
    starts: Ints


def lengths(vectors: NDArray[np.floating], matrix: Doubles) -> Doubles:
    """Return the lengths (n,) of the projections of vectors (n, dimension)."""
    projected: Doubles = np.linalg.norm(np.asarray(vectors, np.float64) @ matrix.T, axis=1)
    return np.maximum(projected, 1e-12)


def transformed(vectors: NDArray[np.floating], matrix: Doubles) -> Doubles:
    """Return W^T W v (n, dimension) of vectors v, over the lengths of W v, where W is the matrix."""
    vectors = np.asarray(vectors, np.float64)
    return np.asarray((vectors @ matrix.T @ matrix) / lengths(vectors, matrix)[:, None])


def terms(
    projection: Projection,
    sentences: NDArray[np.floating],
    whole: NDArray[np.floating],
    papers: MeasuredPapers,
) -> Doubles:
    """Return the similarities (3, papers) of a query and papers, in the order of TERMS; vectors of the query
    are those of its sentences (n, dimension) and of the ``whole`` (dimension,).

    ``forward``: the mean over the query's sentences of each one's best cosine with a sentence of the paper
    (mean-max; Khattab and Zaharia, 2020, eq. 3, over sentences). ``whole``: the cosine of the whole papers.
    ``backward``: as forward, over the paper's sentences.
    """
    cosines = (transformed(sentences, projection.sentences) @ papers.sentences.T) / papers.sentence_lengths
    counts = np.diff(np.append(papers.starts, cosines.shape[1]))
    forward = np.maximum.reduceat(cosines, papers.starts, axis=1).mean(axis=0)
    backward = np.add.reduceat(cosines.max(axis=0), papers.starts) / counts
    alike = (papers.whole @ transformed(whole[None], projection.whole)[0]) / papers.whole_lengths
    return np.stack([forward, alike, backward])


# Scores of the first stage, and features by what they need: papers alone, citations in the index, papers that
# the query cites, both.
SCORES = ("bm25", "sentences", "whole", "citation")

TEXT = (*SCORES, "age", "recency", "new")
LINKS = ("citations", "neighbours", "cited_neighbours")
SEEDS = ("seed_mean", "seed_best", "seed_sentences_mean", "seed_sentences_best", "seed_sentences_two")
SEED_LINKS: tuple[str, ...] = ("cocitations", "cocitation_cosines", "cited_by_seeds", "citing_seeds")
SEED_LINKS += ("seed_walks", "rare_seed_walks")

NEW_YEARS, LONGEST_AGE = 1, 20
WEIGHTS: Mapping[str, float] = {"bm25": 1.0, "citation": 2.0}  # chosen on dev of `citations`
NEAR, NEAREST = 50, 20  # best candidates that count by what they cite, and by who cites them
LINKED = 300  # papers that citations propose besides those of the first stage


class FeatureSet(NamedTuple):
    """Select features besides those of texts: by citations in the index, by papers that the query cites."""

    links: bool
    seeds: bool

    @property
    def names(self) -> tuple[str, ...]:
        both = SEED_LINKS if self.links and self.seeds else ()
        return (*TEXT, *(LINKS if self.links else ()), *(SEEDS if self.seeds else ()), *both)

    @property
    def key(self) -> str:
        """Return ``text``, ``links``, ``seeds`` or ``links+seeds``."""
        return "+".join(name for name in self._fields if getattr(self, name)) or "text"


FEATURE_SETS = tuple(FeatureSet(links, seeds) for seeds in (False, True) for links in (False, True))


class CiteQuery(NamedTuple):
    """Hold a paper whose bibliography is to be found."""

    encoded: EncodedAspect
    year: int | None
    row: int | None  # in the index, if there
    seeds: Ints  # rows of papers that it cites
    excluded: frozenset[int]  # rows that are no candidates

    @property
    def left_out(self) -> frozenset[int]:
        query_rows = frozenset() if self.row is None else frozenset((self.row,))
        return self.excluded | query_rows | frozenset(self.seeds.tolist())


class CitationCandidates(NamedTuple):
    """Hold candidates by row, best first, with scores and components of the first stage, each (n,)."""

    rows: Ints
    scores: Doubles
    components: Mapping[str, Doubles]

    def without(self, rows: frozenset[int], count: int | None = None) -> "CitationCandidates":
        """Leave out some rows, and all but the first ``count`` of the others."""
        kept = np.flatnonzero([row not in rows for row in self.rows.tolist()])[:count]
        components = {name: part[kept] for name, part in self.components.items()}
        return CitationCandidates(self.rows[kept], self.scores[kept], components)


NO_CANDIDATES = CitationCandidates(np.zeros(0, np.int64), np.zeros(0), {name: np.zeros(0) for name in SCORES})


class ScoredCandidates(NamedTuple):
    """Hold candidates by row in the order of the first stage, with features, each (candidates,)."""

    rows: Ints
    features: Mapping[str, Doubles]
    feature_set: FeatureSet


class CitationScorer:
    """Find candidates by their texts and by citations, and compute their features.

    The first stage fuses BM25 and projected vectors. Where papers of the index cite each other, what the best
    candidates cite is added; where seeds are known, what they cite or is cited together with them.
    """

    def __init__(
        self,
        reader: IndexReader,
        workers: Workers,
        projection: Projection,
        depth: int,
        query: str = "abstract",
    ) -> None:
        """Take ``depth`` candidates of the first stage; raises IndexFormatError without vectors or BM25."""
        self.reader, self.filters, self._depth = reader, FilterCache(reader), depth
        self._projected = CitationSource(reader, workers, projection)
        self.evidence = Evidence(reader)
        bm25, dense = BM25Stage(reader, workers, query), DenseStage(reader, workers)
        self._sources: list[Any] = [bm25, dense, self._projected]
        self._stage = FusedStage(reader, workers, self._sources, WEIGHTS, depth=depth)

    def first_stage(
        self, queries: Sequence[CiteQuery], allowed: Sequence[Selection | None]
    ) -> list[CitationCandidates]:
        """Return the candidates of each query by text, out of ``allowed`` (None: all), best first."""
        candidates = [NO_CANDIDATES] * len(queries)
        left_out = [len(query.left_out) for query in queries]
        for papers, count in dict.fromkeys(zip(allowed, left_out, strict=True)):
            if papers is not None and not len(papers):
                continue
            pairs = enumerate(zip(allowed, left_out, strict=True))
            places = [place for place, pair in pairs if pair[0] is papers and pair[1] == count]
            encoded = [queries[place].encoded for place in places]
            # What is left out takes no candidate's place.
            depth = min(self._depth + count, len(self.reader.papers))
            ranked = self._stage.batch_search(encoded, depth, [None] * len(places), papers, explain=True)
            for place, hits in zip(places, ranked, strict=True):
                parts = [hit.component_scores or {} for hit in hits]
                all_candidates = CitationCandidates(
                    np.array([self.reader.papers.row(hit.paper_id) for hit in hits], np.int64),
                    np.array([hit.score for hit in hits], np.float64),
                    {name: np.array([each[name] for each in parts], np.float64) for name in SCORES},
                )
                candidates[place] = all_candidates.without(queries[place].left_out, self._depth)
        return candidates

    def score(
        self,
        query: CiteQuery,
        candidates: CitationCandidates,
        allowed: Selection | None = None,
        *,
        links: bool = True,
    ) -> ScoredCandidates:
        """Compute the features of candidates and, with ``links``, of those that citations propose."""
        candidates = candidates.without(query.left_out)
        rows, components, evidence = candidates.rows, candidates.components, self.evidence
        earlier = evidence.citing_papers(query.year, query.row)
        feature_set = FeatureSet(links=links and evidence.count > 0, seeds=len(query.seeds) > 0)
        near = _near(candidates, earlier, NEAR)
        if feature_set.links:
            linked = self._linked(query, rows, near, earlier, allowed)
            nearest, rows = _near(candidates, earlier, NEAREST), np.concatenate([rows, linked])
            if len(linked):
                scores: dict[str, Doubles] = {}
                for source in self._sources:
                    scores |= source.scores(query.encoded, linked, {})
                components = {name: np.concatenate([part, scores[name]]) for name, part in components.items()}
        years = np.clip(evidence.ages(rows, query.year), 0, LONGEST_AGE)
        features = {name: z_normalize(components[name]) for name in SCORES}
        features |= {"age": years / 10, "recency": -np.log1p(years)}
        features["new"] = np.where(np.isnan(years), np.nan, years <= NEW_YEARS)
        if feature_set.links:
            features["citations"] = np.log1p(evidence.popularity(rows, earlier))
            features["neighbours"] = np.sqrt(evidence.share_citing(near, rows))
            features["cited_neighbours"] = np.sqrt(evidence.share_cited(nearest, rows))
        if feature_set.seeds:
            features |= self._by_seeds(query.seeds, rows, earlier if feature_set.links else None)
        return ScoredCandidates(rows, features, feature_set)

    def _linked(
        self, query: CiteQuery, rows: Ints, near: Neighbours, earlier: Mask, allowed: Selection | None
    ) -> Ints:
        links = self.evidence
        citing = np.unique(links.citing(query.seeds, earlier))
        proposed = np.concatenate(
            [links.cited_by(near.rows), links.cited_by(query.seeds), links.cited_by(citing), citing]
        )
        proposed = np.setdiff1d(proposed, np.concatenate([rows, np.array(sorted(query.left_out), np.int64)]))
        if allowed is not None:
            proposed = proposed[allowed.mask[proposed]]
        value = links.share_citing(near, proposed) + links.cocited(query.seeds, proposed, earlier)
        return np.sort(proposed[np.argsort(-value, kind="stable")[:LINKED]])

    def _by_seeds(self, seeds: Ints, rows: Ints, earlier: Mask | None) -> dict[str, Doubles]:
        cosines = self._projected.whole_cosines(rows, seeds)
        by_sentences = np.sort(self._projected.likeness(seeds, rows), axis=0)
        features = {
            "seed_mean": z_normalize(cosines.mean(axis=1)),
            "seed_best": z_normalize(cosines.max(axis=1)),
            "seed_sentences_mean": z_normalize(by_sentences.mean(axis=0)),
            "seed_sentences_best": z_normalize(by_sentences[-1]),
            "seed_sentences_two": z_normalize(by_sentences[-2:].mean(axis=0)),
        }
        if earlier is not None:
            links, equal = self.evidence, Neighbours(seeds, np.full(len(seeds), 1 / len(seeds)))
            walks = links.walks(seeds, rows, earlier)
            popularity = np.maximum(links.popularity(rows, earlier), 1)
            features |= {
                "cocitations": np.log1p(links.cocited(seeds, rows, earlier)),
                "cocitation_cosines": np.sqrt(links.cocitation_cosines(seeds, rows, earlier)),
                "cited_by_seeds": np.sqrt(links.share_citing(equal, rows)),
                "citing_seeds": np.sqrt(links.share_cited(equal, rows)),
                "seed_walks": np.sqrt(walks),
                "rare_seed_walks": np.sqrt(walks / np.sqrt(popularity)),
            }
        return features


def _near(candidates: CitationCandidates, earlier: Mask, count: int) -> Neighbours:
    """Weight the best ``earlier`` candidates by their lead over the next one."""
    may = earlier[candidates.rows]
    rows, scores = candidates.rows[may][: count + 1], candidates.scores[may][: count + 1]
    weights = scores - scores.min(initial=np.inf) if len(scores) else scores
    total = weights.sum()
    return Neighbours(rows, weights / total if total > 0 else weights)
