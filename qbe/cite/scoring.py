"""Candidates for the bibliography of a paper, and their features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.cite.links import Doubles, Evidence, Ints, Neighbours
from qbe.cite.projected import CitationSource, Projection
from qbe.index.reader import IndexReader
from qbe.index.rows import Selection
from qbe.models.pooling import EncodedAspect
from qbe.search.first_stages import BM25Stage, DenseStage, FusedStage, ScoreSource
from qbe.search.fusion import z_normalize
from qbe.util.parallel import Workers

SCORES = ("bm25", "sentences", "whole", "citation")
"""Scores of the first stage, z-normalized over the candidates."""

TEXT = (*SCORES, "age", "recency", "new")
"""Features that need nothing but the papers."""

LINKS = ("citations", "neighbours", "cited_neighbours")
"""Features that need the citations among papers of the index."""

SEEDS = ("seed_mean", "seed_best", "seed_sentences_mean", "seed_sentences_best", "seed_sentences_two")
"""Features that need papers which the query is known to cite."""

SEED_LINKS = (
    *("cocitations", "cocitation_cosines", "cited_by_seeds", "citing_seeds"),
    *("seed_walks", "rare_seed_walks"),
)
"""Features that need both."""

NEW_YEARS = 1
LONGEST_AGE = 20


WEIGHTS: Mapping[str, float] = {"bm25": 1.0, "citation": 2.0}
"""What the first stage ranks by; chosen on dev of `citations`."""

NEAR, NEAREST = 50, 20
"""How many of the best candidates count by what they cite, and by who cites them."""

LINKED = 300
"""Papers that citations propose besides those of the first stage."""


class FeatureSet(NamedTuple):
    """Which features there are besides those of texts: by citations in the index, by papers that the query
    cites.

    >>> FeatureSet(links=True, seeds=False).names[-3:], FeatureSet(links=True, seeds=False).key
    (('citations', 'neighbours', 'cited_neighbours'), 'links')
    """

    links: bool
    seeds: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The features that there are."""
        both = SEED_LINKS if self.links and self.seeds else ()
        return (*TEXT, *(LINKS if self.links else ()), *(SEEDS if self.seeds else ()), *both)

    @property
    def key(self) -> str:
        """A name: ``text``, ``links``, ``seeds`` or ``links+seeds``."""
        return "+".join(name for name in self._fields if getattr(self, name)) or "text"


FEATURE_SETS = tuple(FeatureSet(links, seeds) for seeds in (False, True) for links in (False, True))


def text_features(scores: Mapping[str, Doubles], ages: Doubles) -> dict[str, Doubles]:
    """The features of TEXT, each (candidates,).

    ``scores`` has those of SCORES; ``ages`` (candidates,) are the years from a candidate to the query, NaN
    where either year is not known.

    >>> scores = dict.fromkeys(SCORES, np.array([1.0, 3.0]))
    >>> features = text_features(scores, np.array([0.0, 40.0]))
    >>> features["bm25"].tolist(), features["age"].tolist(), features["new"].tolist()
    ([-1.0, 1.0], [0.0, 2.0], [1.0, 0.0])
    """
    years = np.clip(ages, 0, LONGEST_AGE)
    new = np.where(np.isnan(years), np.nan, years <= NEW_YEARS)
    normalized = {name: z_normalize(scores[name]) for name in SCORES}
    return {**normalized, "age": years / 10, "recency": -np.log1p(years), "new": new}


def columns(features: Mapping[str, Doubles], names: Sequence[str]) -> Doubles:
    """Features as a matrix (candidates, names).

    >>> columns({"age": np.array([0.5]), "new": np.array([0.0])}, ["new", "age"]).tolist()
    [[0.0, 0.5]]
    """
    return np.stack([features[name] for name in names], axis=1)


class CiteQuery(NamedTuple):
    """A paper whose bibliography is to be found: its whole abstract, encoded; its ``year`` and its ``row``
    in the index, if it has them; the rows of papers that it is known to cite, ``seeds``; and of those that
    are ``excluded``, which are never candidates.
    """

    encoded: EncodedAspect
    year: int | None
    row: int | None
    seeds: Ints
    excluded: frozenset[int]

    @property
    def left_out(self) -> frozenset[int]:
        """The rows of papers that are never candidates."""
        query_rows = frozenset() if self.row is None else frozenset((self.row,))
        return self.excluded | query_rows | frozenset(self.seeds.tolist())


class CitationCandidates(NamedTuple):
    """Candidates by row, best first, with their scores by the first stage and its components, each (n,)."""

    rows: Ints
    scores: Doubles
    components: Mapping[str, Doubles]

    def without(self, rows: frozenset[int]) -> CitationCandidates:
        """All but those at some rows."""
        return self._at(np.array([row not in rows for row in self.rows.tolist()], np.bool_))

    def first(self, count: int) -> CitationCandidates:
        """The best so many."""
        return self._at(np.arange(len(self.rows)) < count)

    def joined(self, others: CitationCandidates) -> CitationCandidates:
        """These and others after them."""
        components = {
            name: np.concatenate([part, others.components[name]]) for name, part in self.components.items()
        }
        rows, scores = (np.concatenate(pair) for pair in zip(self[:2], others[:2], strict=True))
        return CitationCandidates(rows, scores, components)

    def _at(self, mask: NDArray[np.bool_]) -> CitationCandidates:
        components = {name: part[mask] for name, part in self.components.items()}
        return CitationCandidates(self.rows[mask], self.scores[mask], components)


NO_CANDIDATES = CitationCandidates(np.zeros(0, np.int64), np.zeros(0), {name: np.zeros(0) for name in SCORES})


class ScoredCandidates(NamedTuple):
    """Candidates in the order of the first stage, by row, with their features, each (candidates,)."""

    rows: Ints
    features: Mapping[str, Doubles]
    feature_set: FeatureSet


class CitationScorer:
    """Finds candidates by their texts and by citations, and computes the features that score them.

    The first stage is the fusion of BM25 and of projected vectors. Where papers of the index cite each
    other, what the best candidates cite is added, and where seeds are known, what they cite or is
    cited together with them.
    """

    def __init__(self, reader: IndexReader, workers: Workers, projection: Projection, depth: int) -> None:
        """``depth`` is the number of candidates of the first stage. Raises IndexFormatError where the index
        lacks vectors or postings.
        """
        self._papers, self._depth = reader.papers, depth
        self._projected = CitationSource(reader, workers, projection)
        self.evidence = Evidence(reader)
        self._sources: list[ScoreSource] = [
            BM25Stage(reader, workers, "abstract"),
            DenseStage(reader, workers),
            self._projected,
        ]
        self._stage = FusedStage(reader, workers, self._sources, WEIGHTS, depth=depth)

    def first_stage(
        self, queries: Sequence[CiteQuery], allowed: Sequence[Selection | None]
    ) -> list[CitationCandidates]:
        """The candidates of each query by text, out of ``allowed`` (None: all papers), best first."""
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
                candidates[place] = all_candidates.without(queries[place].left_out).first(self._depth)
        return candidates

    def score(
        self,
        query: CiteQuery,
        candidates: CitationCandidates,
        allowed: Selection | None = None,
        *,
        links: bool = True,
    ) -> ScoredCandidates:
        """Candidates and those that citations propose, with their features; ``links`` says whether citations
        among the papers of the index count.
        """
        candidates = candidates.without(query.left_out)
        feature_set = FeatureSet(links=links and len(self.evidence.links) > 0, seeds=len(query.seeds) > 0)
        near = self._near(query, candidates, NEAR)
        if feature_set.links:
            linked = self._linked(query, candidates.rows, near, allowed)
            proposed = CitationCandidates(linked, np.zeros(len(linked)), self._components(query, linked))
            nearest = self._near(query, candidates, NEAREST)
            candidates = candidates.joined(proposed)
        rows = candidates.rows
        features = text_features(candidates.components, self.evidence.ages(rows, query.year))
        if feature_set.links:
            features |= self._by_links(query, rows, near, nearest)
        if feature_set.seeds:
            features |= self._by_seeds(query, rows, feature_set)
        return ScoredCandidates(rows, features, feature_set)

    def _components(self, query: CiteQuery, rows: Ints) -> dict[str, Doubles]:
        """The scores of SCORES, each (n,), of papers at some rows."""
        if not len(rows):
            return {name: np.zeros(0) for name in SCORES}
        ascending, places = np.unique(rows, return_inverse=True)
        scores: dict[str, Doubles] = {}
        for source in self._sources:
            scores |= source.scores(query.encoded, ascending, None)
        return {name: scores[name][places] for name in SCORES}

    def _near(self, query: CiteQuery, candidates: CitationCandidates, count: int) -> Neighbours:
        """The best candidates whose bibliographies may count, by how far they are above the next one."""
        may = self.evidence.citing_papers(query.year, query.row)[candidates.rows]
        rows, scores = candidates.rows[may][: count + 1], candidates.scores[may][: count + 1]
        weights = scores - scores.min(initial=np.inf) if len(scores) else scores
        total = weights.sum()
        return Neighbours(rows, weights / total if total > 0 else weights)

    def _linked(self, query: CiteQuery, rows: Ints, near: Neighbours, allowed: Selection | None) -> Ints:
        """At most LINKED papers that the nearest ones cite, or that are linked to the seeds, besides those at
        ``rows``.
        """
        links, earlier = self.evidence.links, self.evidence.citing_papers(query.year, query.row)
        citing = np.unique(links.citing(query.seeds))
        citing = citing[earlier[citing]]
        proposed = np.concatenate(
            [links.cited_by(near.rows), links.cited_by(query.seeds), links.cited_by(citing), citing]
        )
        proposed = np.setdiff1d(proposed, np.concatenate([rows, np.array(sorted(query.left_out), np.int64)]))
        if allowed is not None:
            proposed = proposed[allowed.mask[proposed]]
        value = links.share_citing(near, proposed) + links.cocited(query.seeds, proposed, earlier)
        return np.sort(proposed[np.argsort(-value, kind="stable")[:LINKED]])

    def _by_links(
        self, query: CiteQuery, rows: Ints, near: Neighbours, nearest: Neighbours
    ) -> dict[str, Doubles]:
        links = self.evidence.links
        earlier = self.evidence.citing_papers(query.year, query.row)
        return {
            "citations": np.log1p(links.popularity(rows, earlier)),
            "neighbours": np.sqrt(links.share_citing(near, rows)),
            "cited_neighbours": np.sqrt(links.share_cited(nearest, rows)),
        }

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
            links, earlier = self.evidence.links, self.evidence.citing_papers(query.year, query.row)
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
