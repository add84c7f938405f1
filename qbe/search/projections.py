"""Late interaction of stored sentence vectors, projected for each facet, in double precision."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from qbe.errors import UsageError
from qbe.models.cards import Arrays, Doubles, Storage
from qbe.search.rank import Progress, Requests, RequestScores, RerankRequest, RerankScore
from qbe.types import Facet, Match, Paper
from qbe.util.work import Workers

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.floating]

# The similarities that make a score, in the order of their weights.
TERMS = ("sentences", "facet", "whole", "mean")


class FacetProjection(NamedTuple):
    """A facet's ``matrix`` (dimension, dimension) and the ``weights`` (4,) of the TERMS; float64."""

    matrix: Doubles
    weights: Doubles


class StoredPapers(NamedTuple):
    """The vectors of papers: ``sentences``, paper i's from ``starts[i]``, and ``whole``."""

    sentences: Doubles
    starts: Ints
    whole: Doubles

    def places(self) -> list[slice]:
        ends = [*self.starts[1:].tolist(), len(self.sentences)]
        return [slice(begin, end) for begin, end in zip(self.starts.tolist(), ends, strict=True)]

    def projected(self, matrix: Doubles | None) -> "StoredPapers":
        return StoredPapers(projected(self.sentences, matrix), self.starts, projected(self.whole, matrix))

    def sums(self, marked: Bools) -> Doubles:
        """Sum each paper's ``marked`` sentences to vectors of unit length, (papers, dimension)."""
        return unit(np.add.reduceat(np.where(marked[:, None], self.sentences, 0.0), self.starts, axis=0))


def unit(vectors: Doubles) -> Doubles:
    """Scale vectors (..., dimension) to unit length."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12))


def projected(vectors: Floats, matrix: Doubles | None) -> Doubles:
    """Project vectors (n, dimension) by a ``matrix``, if any, and scale them to unit length."""
    double = np.asarray(vectors, np.float64)
    return unit(double if matrix is None else double @ matrix.T)


class Space(NamedTuple):
    """A ``query`` and papers of unit length: cosines with all sentences, each paper's best, and whole."""

    query: Doubles
    cosines: Doubles
    best: Doubles
    whole: Doubles

    @classmethod
    def of(cls, sentences: Floats, whole: Floats, papers: StoredPapers, matrix: Doubles | None) -> Self:
        """Compare a query, which is projected by the ``matrix``, with ``papers`` that are projected."""
        query = projected(sentences, matrix)
        cosines = query @ papers.sentences.T
        by_whole = papers.whole @ projected(whole[None], matrix)[0]
        return cls(query, cosines, np.maximum.reduceat(cosines, papers.starts, axis=1), by_whole)

    def terms(
        self, positions: Sequence[int] | slice, facet: Bools, sums: Doubles, starts: Ints
    ) -> list[Doubles]:
        """The TERMS (papers,) of sentences at ``positions``; ``sums`` of the sentences of the facet."""
        of_facet = np.where(facet, self.cosines[positions], -np.inf)
        return [
            self.best[positions].mean(axis=0),
            np.maximum.reduceat(of_facet, starts, axis=1).mean(axis=0),
            self.whole,
            sums @ unit(self.query[positions].sum(axis=0)),
        ]


def closest_pair(cosines: Doubles, positions: Sequence[int]) -> Match:
    """The closest pair out of cosines (positions, a paper's sentences), in single precision."""
    row, column = np.unravel_index(int(cosines.argmax()), cosines.shape)
    return Match(positions[int(row)], int(column), float(np.float32(cosines[row, column])))


VectorSource = Callable[[Sequence[Paper]], StoredPapers]  # the stored vectors of papers, in their order


def scored_in_threads(
    score: Callable[[RerankRequest], list[RerankScore]],
    requests: Requests,
    workers: Workers,
    progress: Progress | None,
) -> RequestScores:
    """Score requests one by one, as many at a time as ``workers`` have threads."""
    scored = []
    for scores in workers.map(score, requests):
        scored.append(scores)
        if progress and scores:
            progress(len(scores))
    return scored


@dataclass(frozen=True)
class ProjectedMatching:
    """Scores aspects that are a facet by TERMS; ``match`` is the closest pair of sentences."""

    projections: Mapping[Facet, FacetProjection]
    vectors: VectorSource
    workers: Workers | None = None

    name = "facet-projections"
    needs_vectors, takes_whole_abstracts = True, False

    def batch_score(self, requests: Requests, progress: Progress | None = None) -> RequestScores:
        return scored_in_threads(self._score, requests, self.workers or Workers(), progress)

    def _score(self, request: RerankRequest) -> list[RerankScore]:
        query, papers = request
        if not papers:
            return []
        stored, facet = self.vectors(papers), query.aspect.facet
        assert facet is not None
        matrix, weights = self.projections[facet]
        marked = mark_facet(papers, facet, stored)
        there = stored.projected(matrix)
        space = Space.of(query.sentence_vectors, query.whole_vector, there, matrix)
        terms = np.stack(space.terms(slice(None), marked, there.sums(marked), stored.starts))
        # In single precision, so that no score depends on the order in which products are summed.
        terms = terms.astype(np.float32).astype(np.float64)
        scores = []
        for place, sentences in enumerate(stored.places()):
            closest = closest_pair(space.cosines[:, sentences], query.positions)
            scores.append(RerankScore(float(weights @ terms[:, place]), closest))
        return scores


def mark_facet(papers: Sequence[Paper], facet: Facet, stored: StoredPapers) -> Bools:
    """Mark the sentences (sentences,) of a facet; all those of a paper that has none of it."""
    marked = np.zeros(len(stored.sentences), np.bool_)
    for paper, sentences in zip(papers, stored.places(), strict=True):
        marked[sentences][list(paper.facet_positions(facet)[0]) or slice(None)] = True
    return marked


_STORAGE = Storage("projection", "facet-projections")
WEIGHTS = _STORAGE.weights
shipped_model = _STORAGE.shipped_for

ENCODERS = ("facet-encoder", "facet-encoder-large")  # for whose vectors a model ships


@dataclass(frozen=True, slots=True)
class ProjectionModel:
    """A projection for each facet, the identity of the encoder whose vectors it reads, and its training."""

    projections: Mapping[Facet, FacetProjection]
    encoder: Mapping[str, Any]
    training: Mapping[str, Any]


def find_model(encoder: Mapping[str, Any], folder: Path | None = None) -> Path:
    """Find the model that reads the vectors of an ``encoder``: the one given, else one that ships."""
    model_folder = shipped_model(encoder) if folder is None else folder
    if model_folder is None:
        problem = "choose another `rerank`, or train projections for them (qbe train facet-projections)"
        found = encoder["name"]
        if found in ENCODERS:
            problem = "build the index again, or choose another `rerank`"
            found += f" with other weights ({encoder['weights_sha256'][:12]}) than this version's"
        raise UsageError(
            f"expected vectors of {' or '.join(ENCODERS)} for `rerank` projections, found those of {found}; "
            f"{problem}"
        )
    read = read_model(model_folder).encoder
    if read["weights_sha256"] != encoder["weights_sha256"]:
        raise UsageError(
            f"expected projections of the vectors of {encoder['name']}, found {model_folder}, which reads "
            f"those of {read['name']}; leave out `rerank`, or train it over an index of these vectors"
        )
    return model_folder


def write_model(folder: Path, model: ProjectionModel) -> None:
    """Write a model into an existing folder; matrices in half precision, weights in single precision."""
    arrays: dict[str, Any] = {}
    for facet, projection in model.projections.items():
        arrays[f"{facet}.matrix"] = projection.matrix.astype(np.float16)
        arrays[f"{facet}.weights"] = projection.weights.astype(np.float32)
    _STORAGE.write(folder, arrays, list(TERMS), model)


def read_model(folder: Path) -> ProjectionModel:
    def model_of(arrays: Arrays, *card: Any) -> ProjectionModel:
        projections = {
            facet: FacetProjection(arrays[f"{facet}.matrix"], arrays[f"{facet}.weights"]) for facet in Facet
        }
        return ProjectionModel(projections, *card)

    return _STORAGE.read(folder, list(TERMS), model_of)
