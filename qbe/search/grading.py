"""Grades of candidates in each facet, from 0 to 3, by stored vectors and words, and a reranker by them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.index.papers import rows_of
from qbe.index.reader import IndexReader
from qbe.models.cards import Estimates, GradeModel, read_model, shipped_model
from qbe.models.words import NAMES as WORD_FEATURES
from qbe.models.words import PapersTerms, TechniqueWords, facet_shares, shipped_words, terms_of
from qbe.query import HIGHEST, Query
from qbe.search import projections
from qbe.search.projections import Bools, Doubles, FacetProjection, Space, StoredPapers, VectorSource
from qbe.search.queries import ASKED
from qbe.search.rank import GradedQuery, Progress, Requests, RequestScores, RerankRequest, RerankScore
from qbe.types import Facet, Hit, Paper, Sentence
from qbe.util.work import Workers, pause

_OTHERS = tuple(permutations(range(len(Facet)), 2))
_NAMES = tuple(facet.value for facet in Facet)

# The names of the features of a candidate, in their order.
FEATURES = (
    *(
        f"{facet}.{space}.{term}"
        for facet in _NAMES
        for space in ("projected", "plain")
        for term in (*projections.TERMS, "best", "by probability", "all by probability")
    ),
    *(f"{_NAMES[first]}.with {_NAMES[second]}" for first, second in _OTHERS),
    *(f"{facet}.of candidate" for facet in _NAMES),
    "sentences of query",
    "sentences of candidate",
    *WORD_FEATURES,
)


class FacetView(NamedTuple):
    """Candidates seen by a facet: sentences ``marked`` as of it, ``shares`` of it, sums of marked vectors."""

    marked: Bools
    shares: Doubles
    projected: StoredPapers
    sums: tuple[Doubles, Doubles]


class Candidates(NamedTuple):
    """Papers to be graded, with all that does not depend on the query; ``plain`` vectors have unit length."""

    plain: StoredPapers
    views: Sequence[FacetView]
    words: PapersTerms


class Compared(NamedTuple):
    """Candidates compared with a paper."""

    values: Doubles  # (candidates, FEATURES), NaN where the paper has no sentence of a facet
    cosines: Sequence[Doubles]  # of projected sentences, by facet
    places: Sequence[slice]  # of each candidate's sentences among these


@dataclass(frozen=True)
class Features:
    """Compares candidates with a paper by projected and plain vectors of each facet, and by words."""

    projections: Mapping[Facet, FacetProjection]
    words: TechniqueWords
    vectors: VectorSource

    def candidates(self, papers: Sequence[Paper]) -> Candidates:
        """Prepare at least one paper for comparison with several queries."""
        stored = self.vectors(papers)
        plain, views = stored.projected(None), []
        for facet, shares in zip(Facet, _shares(papers), strict=True):
            pause()
            marked = projections.mark_facet(papers, facet, stored)
            space = stored.projected(self.projections[facet].matrix)
            views.append(FacetView(marked, shares, space, (space.sums(marked), plain.sums(marked))))
        pause()
        return Candidates(plain, views, self.words.of_papers(papers))

    def compare(self, query: GradedQuery, candidates: Sequence[Paper] | Candidates) -> Compared:
        if not candidates:
            return Compared(np.empty((0, len(FEATURES))), [], [])
        if not isinstance(candidates, Candidates):
            candidates = self.candidates(candidates)
        starts, count, mine = candidates.plain.starts, candidates.words.papers, _shares([query.paper])
        sentences, whole = query.vectors.sentences, query.vectors.whole
        plain = Space.of(sentences, whole, candidates.plain, None)
        roots = [np.sqrt(view.shares) for view in candidates.views]
        columns: list[Doubles] = []
        cosines: list[Doubles] = []
        for facet, share, view, root in zip(Facet, mine, candidates.views, roots, strict=True):
            pause()
            positions = list(query.paper.facet_positions(facet)[0])
            space = Space.of(sentences, whole, view.projected, self.projections[facet].matrix)
            cosines.append(space.cosines)
            for each, sums in zip((space, plain), view.sums, strict=True):
                if not positions:
                    columns += [np.full(count, np.nan)] * (len(projections.TERMS) + 3)
                    continue
                by_share = np.maximum.reduceat(each.cosines * root, starts, axis=1)
                columns += each.terms(positions, view.marked, sums, starts)
                columns += [each.best[positions].max(axis=0), _mean(by_share, share), _mean(each.best, share)]
        for first, second in _OTHERS:
            by_share = np.maximum.reduceat(plain.cosines * roots[second], starts, axis=1)
            columns.append(_mean(by_share, mine[first]))
        nearest = plain.cosines.max(axis=0)
        for view in candidates.views:
            of_facet = np.add.reduceat(view.shares, starts) + _LEAST
            columns.append(np.add.reduceat(nearest * view.shares, starts) / of_facet)
        sizes = np.diff([*starts.tolist(), len(candidates.plain.sentences)])
        columns += [np.full(count, np.log(len(query.paper.sentences))), np.log(sizes)]
        pause()
        by_words = self.words.compare(query.paper, candidates.words)
        values = np.concatenate([np.stack(columns, axis=1), by_words], axis=1)
        return Compared(values, cosines, candidates.plain.places())

    def similarities(self, papers: Sequence[Paper]) -> Doubles:
        """The cosines (papers, papers) of the sums of papers' projected sentences, the means over facets."""
        if not papers:
            return np.empty((0, 0))
        stored = self.vectors(papers)
        by_facet = []
        for facet in Facet:
            space = stored.projected(self.projections[facet].matrix)
            sums = space.sums(projections.mark_facet(papers, facet, stored))
            by_facet.append(sums @ sums.T)
        return np.asarray(np.mean(by_facet, axis=0))


_LEAST = 1e-6


def _mean(values: Doubles, weights: Doubles) -> Doubles:
    return np.asarray(weights @ values / (weights.sum() + _LEAST))


def _shares(papers: Sequence[Paper]) -> Doubles:
    """The shares of background, method and result in each sentence of papers, (3, sentences)."""
    return np.array([facet_shares(each) for paper in papers for each in paper.sentences], np.float64).T


class Grader(NamedTuple):
    """Grades candidates by their features, of which ``model`` was trained."""

    features: Features
    model: GradeModel

    def grade(
        self, query: GradedQuery, candidates: Sequence[Paper] | Candidates
    ) -> tuple[Estimates, Compared]:
        compared = self.features.compare(query, candidates)
        # The model has seen no shorter query: a phrase would be graded 3 where one word is shared.
        is_short = len(query.paper.sentences) < 3
        return self.model.estimates(compared.values, cut_off=is_short), compared


def facet_places(paper: Paper) -> list[int]:
    """Return the places, among the facets, of those that a paper has sentences of."""
    return [place for place, facet in enumerate(Facet) if paper.facet_positions(facet)[0]]


def named_grades(paper: Paper, estimates: Estimates) -> list[dict[str, float]]:
    """Return the grades of each candidate, from 0 to 3, by the facets that a paper has sentences of."""
    places = facet_places(paper)
    shown = np.clip(estimates.grades[:, places], 0.0, HIGHEST).round(4)
    return [dict(zip([_NAMES[place] for place in places], row, strict=True)) for row in shown.tolist()]


@dataclass(frozen=True)
class Regrader:
    """Grades the ``count`` best candidates again: the mean of the stored vectors' and the joint grade."""

    grader: Any  # a `qbe.search.rerankers.JointGrader`, as ``joint`` below
    count: int

    def regraded(
        self,
        paper: Paper,
        candidates: Sequence[Paper],
        estimates: Estimates,
        scores: Doubles,
        progress: Progress | None = None,
    ) -> Estimates:
        """Grade the best by ``scores`` (candidates,) again, of equal ones the first."""
        best = np.argsort(-scores, kind="stable")[: self.count]
        joint = self.grader.grade(paper, [candidates[place] for place in best], progress)
        replaced = Estimates(*(part.copy() for part in estimates))
        grades = (estimates.grades[best] + joint) / 2
        intercepts, slopes = np.array(self.grader.card.chances, np.float64).T
        similar = 1 / (1 + np.exp(-(intercepts + slopes * grades)))
        # True grades are multiples of 0.5: what is not at least 1.5 is at most 1.
        for part, better in zip(replaced, (grades, similar, 1 - similar), strict=True):
            part[best] = better.round(6)
        return replaced


NONE_LIKELY = "no paper is likely to be what you ask for"
# Of lists whose first five hits have no better grade users are told so (`python -m benchmarks.fits`).
NOTHING_FITS, FIRST_HITS = 0.6, 5


def nothing_fits(hits: Sequence[Hit], facet: Facet | None) -> str | None:
    """Say where none of the first hits is likely to be similar: in ``facet``, or else in any."""
    grades = [hit.grades for hit in hits[:FIRST_HITS] if hit.grades]
    names = _NAMES if facet is None else [str(facet)]
    columns = {name: [each[name] for each in grades if name in each] for name in names}
    best = {name: max(column) for name, column in columns.items() if column}
    if not best or max(best.values()) > NOTHING_FITS:
        return None
    shown = ", ".join(f"{name} {grade:.1f}" for name, grade in best.items())
    return f"{NONE_LIKELY}; these are the nearest (best grade: {shown} of 3)"


# Lists of questions with a lower `answer` are told so (`python -m benchmarks.fits --questions`). Bound and
# weights: a logistic model of the 180 lists of dev and dev-2 in data/questions, half of the weight on lists
# without an answer; the usual gap is their mean, for scores that are not the default's.
UNANSWERED, _WEIGHTS, _USUAL_GAP = 5.5, (4.0, 6.3, 4.4, 0.5), 1.1
_SAID = {
    Facet.METHOD: "We propose a method based on {0}. We use {0}.",
    Facet.BACKGROUND: "We consider the problem of {0}. An important problem is {0}.",
    None: "We study {0}. This paper is about {0}.",
}


def answer(paper: Paper, hits: Sequence[Hit], papers: Sequence[Paper], joint: Any) -> float:
    """Estimate how well hits answer a question, of which the first are these papers, the next tells the gap.

    A weighted sum: the best share of the question's terms times cosine, of the parts least like a paper; the
    best joint grade of sentences about the parts; the best share of words in a title; the gap of scores.
    """
    parts = [shipped_words().weights_of(each.text) for each in paper.sentences]
    words = [{term: weight for term, weight in part.items() if " " not in term} for part in parts]
    texts = [" ".join([each.title, *(sentence.text for sentence in each.sentences)]) for each in papers]
    close = np.zeros((len(papers), len(parts)))
    for row, hit in enumerate(hits[: len(papers)]):
        for match in hit.matches:
            close[row, match.query_position] = max(close[row, match.query_position], match.score)
    said = tuple(Sentence(_SAID[each.facet].format(each.text)) for each in paper.sentences)
    asked = replace(paper, title=paper.metadata[ASKED]["text"], sentences=said)
    best = (
        (_covered(parts, texts).min(axis=1) * close.min(axis=1)).max(),
        joint.grade(asked, papers)[:, :2].mean(axis=1).max() / HIGHEST,
        _covered(words, [each.title for each in papers]).mean(axis=1).max(),
        hits[0].score - hits[len(papers)].score if len(hits) > len(papers) else _USUAL_GAP,
    )
    return float(np.dot(_WEIGHTS, best))


def _covered(parts: Sequence[Mapping[str, float]], texts: Sequence[str]) -> Doubles:
    """Compute the shares of the weights of parts' terms that texts have, (texts, parts)."""
    found, weights = [set(terms_of(text)) for text in texts], [sum(part.values()) + 1e-9 for part in parts]
    shared = [[sum(part[term] for term in part.keys() & terms) for part in parts] for terms in found]
    return np.array(shared, np.float64) / weights


def unanswered(query: Query, hits: Sequence[Hit], lookup: Callable[[str], Paper], joint: Any) -> str | None:
    """Say where no hit of a question is likely to answer it."""
    papers = [lookup(hit.paper_id) for hit in hits[:FIRST_HITS]]
    if not papers or answer(query.papers[0], hits, papers, joint) > UNANSWERED:
        return None
    return f"{NONE_LIKELY}; these are the nearest"


@dataclass(frozen=True)
class GradedReranker:
    """Scores by the grade in a facet, or by the mean of those that a paper read whole has sentences of."""

    grader: Grader
    workers: Workers
    regrader: Regrader | None = None

    name = "grades"
    needs_vectors = True
    takes_whole_abstracts = needs_labels = True

    def batch_score(self, requests: Requests, progress: Progress | None = None) -> RequestScores:
        # A regrader takes all threads for one request.
        workers = self.workers if self.regrader is None else Workers()
        return projections.scored_in_threads(self._score, requests, workers, progress)

    def _score(self, request: RerankRequest) -> list[RerankScore]:
        query, papers = request
        paper, facet, vectors = query.aspect.paper, query.aspect.facet, query.vectors
        assert vectors is not None
        places = [list(Facet).index(facet)] if facet else facet_places(paper)
        if not places:  # no sentence of any facet: all are equal, so that the first stage's order stays
            return [RerankScore(0.0)] * len(papers)
        estimates, compared = self.grader.grade(GradedQuery(paper, vectors), papers)
        if self.regrader is not None:
            means = estimates.grades[:, places].mean(axis=1)
            estimates = self.regrader.regraded(paper, papers, estimates, means)
        scores = []
        means, named = estimates.grades[:, places].mean(axis=1).tolist(), named_grades(paper, estimates)
        for grade, sentences, grades in zip(means, compared.places, named, strict=True):
            match = None
            if facet:
                cosines = compared.cosines[places[0]][list(query.positions), sentences]
                match = projections.closest_pair(cosines, query.positions)
            scores.append(RerankScore(grade, match, grades=grades))
        return scores


def stored_vectors(index: Index, reader: IndexReader | None = None) -> VectorSource:
    """Return a function that reads the stored vectors of papers, by a ``reader`` or the index's newest."""

    def stored(papers: Sequence[Paper]) -> StoredPapers:
        current = reader or index.reader
        rows = rows_of(current.papers, (paper.paper_id for paper in papers))
        block, whole = current.gather(rows), current.whole(rows)
        return StoredPapers(block.vectors.astype(np.float64), block.starts, whole.astype(np.float64))

    return stored


def open_grader(index: Index, reader: IndexReader | None = None) -> Grader:
    """Open the grader of an index's papers; raises UsageError where no grade model reads its vectors."""
    dense = index.manifest.dense
    folder = None if dense is None else shipped_model(dense["encoder"])
    if dense is None or folder is None:
        raise no_grades()
    model = projections.read_model(projections.find_model(dense["encoder"]))
    features = Features(model.projections, shipped_words(), stored_vectors(index, reader))
    return Grader(features, read_model(folder, FEATURES))


def no_grades() -> UsageError:
    """The error where grades are asked for over an index whose vectors no grade model reads."""
    encoders = " or ".join(projections.ENCODERS)
    return UsageError(
        f"expected an index with vectors of {encoders} for grades, found one without; build it with one of "
        "these"
    )
