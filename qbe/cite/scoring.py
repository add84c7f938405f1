"""Candidates for the bibliography of a paper, and their features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from qbe.cite.links import Doubles, Evidence, Ints, Neighbours
from qbe.cite.projected import CitationSource, Projection
from qbe.index.reader import IndexReader
from qbe.index.scoring import Selection
from qbe.models.pooling import EncodedAspect
from qbe.search.first_stages import BM25Stage, DenseStage, FusedStage
from qbe.search.fusion import z_normalize
from qbe.util.work import Workers

# Scores of the first stage, and features by what they need: papers alone, citations in the index, papers that
# the query cites, both.
SCORES = ("bm25", "sentences", "whole", "citation")

TEXT = (*SCORES, "age", "recency", "new")
LINKS = ("citations", "neighbours", "cited_neighbours")
SEEDS = ("seed_mean", "seed_best", "seed_sentences_mean", "seed_sentences_best", "seed_sentences_two")
SEED_LINKS = (
    *("cocitations", "cocitation_cosines", "cited_by_seeds", "citing_seeds"),
    *("seed_walks", "rare_seed_walks"),
)

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


def text_features(scores: Mapping[str, Doubles], ages: Doubles) -> dict[str, Doubles]:
    """Return the features of TEXT, each (candidates,); ``ages`` are in years, NaN where unknown."""
    years = np.clip(ages, 0, LONGEST_AGE)
    new = np.where(np.isnan(years), np.nan, years <= NEW_YEARS)
    normalized = {name: z_normalize(scores[name]) for name in SCORES}
    return {**normalized, "age": years / 10, "recency": -np.log1p(years), "new": new}


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

    def without(self, rows: frozenset[int], count: int | None = None) -> CitationCandidates:
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
        self._papers, self._depth = reader.papers, depth
        self._projected = CitationSource(reader, workers, projection)
        self.evidence = Evidence(reader)
        self._sources: list[Any] = [
            BM25Stage(reader, workers, query),
            DenseStage(reader, workers),
            self._projected,
        ]
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
            depth = min(self._depth + count, len(self._papers))
            ranked = self._stage.batch_search(encoded, depth, [None] * len(places), papers, explain=True)
            for place, hits in zip(places, ranked, strict=True):
                rows = [self._papers.row(hit.paper_id) for hit in hits]
                parts = {name: [(hit.component_scores or {})[name] for hit in hits] for name in SCORES}
                all_candidates = CitationCandidates(
                    np.array(rows, np.int64),
                    np.array([hit.score for hit in hits], np.float64),
                    {name: np.array(scores, np.float64) for name, scores in parts.items()},
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
        rows, components = candidates.rows, candidates.components
        feature_set = FeatureSet(links=links and self.evidence.count > 0, seeds=len(query.seeds) > 0)
        near = self._near(query, candidates, NEAR)
        if feature_set.links:
            linked = self._linked(query, candidates.rows, near, allowed)
            nearest, rows = self._near(query, candidates, NEAREST), np.concatenate([rows, linked])
            if len(linked):
                scores: dict[str, Doubles] = {}
                for source in self._sources:
                    scores |= source.scores(query.encoded, linked, None)
                components = {name: np.concatenate([part, scores[name]]) for name, part in components.items()}
        features = text_features(components, self.evidence.ages(rows, query.year))
        if feature_set.links:
            citations, earlier = self.evidence, self.evidence.citing_papers(query.year, query.row)
            features["citations"] = np.log1p(citations.popularity(rows, earlier))
            features["neighbours"] = np.sqrt(citations.share_citing(near, rows))
            features["cited_neighbours"] = np.sqrt(citations.share_cited(nearest, rows))
        if feature_set.seeds:
            features |= self._by_seeds(query, rows, feature_set)
        return ScoredCandidates(rows, features, feature_set)

    def _near(self, query: CiteQuery, candidates: CitationCandidates, count: int) -> Neighbours:
        """Weight the best candidates whose bibliographies may count by their lead over the next one."""
        may = self.evidence.citing_papers(query.year, query.row)[candidates.rows]
        rows, scores = candidates.rows[may][: count + 1], candidates.scores[may][: count + 1]
        weights = scores - scores.min(initial=np.inf) if len(scores) else scores
        total = weights.sum()
        return Neighbours(rows, weights / total if total > 0 else weights)

    def _linked(self, query: CiteQuery, rows: Ints, near: Neighbours, allowed: Selection | None) -> Ints:
        links, earlier = self.evidence, self.evidence.citing_papers(query.year, query.row)
        citing = np.unique(links.citing(query.seeds, earlier))
        proposed = np.concatenate(
            [links.cited_by(near.rows), links.cited_by(query.seeds), links.cited_by(citing), citing]
        )
        proposed = np.setdiff1d(proposed, np.concatenate([rows, np.array(sorted(query.left_out), np.int64)]))
        if allowed is not None:
            proposed = proposed[allowed.mask[proposed]]
        value = links.share_citing(near, proposed) + links.cocited(query.seeds, proposed, earlier)
        return np.sort(proposed[np.argsort(-value, kind="stable")[:LINKED]])

    def _by_seeds(self, query: CiteQuery, rows: Ints, feature_set: FeatureSet) -> dict[str, Doubles]:
        cosines = self._projected.whole_cosines(rows, query.seeds)
        by_sentences = np.sort(self._projected.likeness(query.seeds, rows), axis=0)
        features = {
            "seed_mean": z_normalize(cosines.mean(axis=1)),
            "seed_best": z_normalize(cosines.max(axis=1)),
            "seed_sentences_mean": z_normalize(by_sentences.mean(axis=0)),
            "seed_sentences_best": z_normalize(by_sentences[-1]),
            "seed_sentences_two": z_normalize(by_sentences[-2:].mean(axis=0)),
        }
        if feature_set.links:
            links, earlier = self.evidence, self.evidence.citing_papers(query.year, query.row)
            equal = Neighbours(query.seeds, np.full(len(query.seeds), 1 / len(query.seeds)))
            walks = links.walks(query.seeds, rows, earlier)
            popularity = np.maximum(links.popularity(rows, earlier), 1)
            features |= {
                "cocitations": np.log1p(links.cocited(query.seeds, rows, earlier)),
                "cocitation_cosines": np.sqrt(links.cocitation_cosines(query.seeds, rows, earlier)),
                "cited_by_seeds": np.sqrt(links.share_citing(equal, rows)),
                "citing_seeds": np.sqrt(links.share_cited(equal, rows)),
                "seed_walks": np.sqrt(walks),
                "rare_seed_walks": np.sqrt(walks / np.sqrt(popularity)),
            }
        return features
