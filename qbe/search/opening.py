"""The stages of a search, opened over an index."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.index.reader import IndexReader
from qbe.index.views import rows_of
from qbe.search.contracts import FirstStage
from qbe.search.ranking import RerankStage
from qbe.search.rerank.reranker import FunctionReranker, Reranker, scoring_of
from qbe.search.stages import (
    BM25,
    EQUAL_WEIGHTS,
    TELLING_WORDS,
    CrossEncoder,
    Dense,
    Fused,
    Grades,
    LanguageModel,
    Matching,
    Projections,
)
from qbe.types import Paper
from qbe.util.parallel import Workers

if TYPE_CHECKING:
    from qbe.search.grading import ExploreStage
    from qbe.search.rerank.graded import Grader, Regrader
    from qbe.search.rerank.projections import VectorSource

RerankerOpener = Callable[..., Reranker]
"""Opens a cross-encoder: parameters and errors are those of `qbe.search.rerank.open.open_reranker`."""


def open_first_stage(stage: Any, reader: IndexReader, workers: Workers) -> FirstStage:
    """The first stage of a search over a reader; raises IndexFormatError when the index was built without
    what it needs.

    That is checked before the Java virtual machine starts.

    >>> with index.reading() as reader:
    ...     open_first_stage(Dense(), reader, Workers()).needs_vectors
    True
    """
    if isinstance(stage, BM25):
        from qbe.search.first_stages import BM25Stage

        return BM25Stage(reader, workers, stage.query)
    if not isinstance(stage, Dense | Fused):
        opened: FirstStage = stage
        return opened
    from qbe.search.first_stages import DenseStage

    reader.require_vectors()
    dense = DenseStage(reader, workers, stage.nprobe)
    if isinstance(stage, Dense):
        return dense
    from qbe.search.first_stages import BM25Stage, FusedStage

    weights = EQUAL_WEIGHTS if stage.weights is None else stage.weights
    return FusedStage(
        reader,
        workers,
        [BM25Stage(reader, workers, stage.bm25_query), dense],
        weights,
        depth=stage.depth,
        background_penalty=stage.background_penalty,
    )


def open_rerank_stage(
    stage: Grades | Projections | CrossEncoder | Matching | LanguageModel | None,
    index: Index,
    workers: Workers,
    open_regrader: Callable[[], Regrader | None] = lambda: None,
    open_reranker: RerankerOpener | None = None,
) -> RerankStage | None:
    """What reranks, None where nothing does; ``open_regrader`` is that of `regrader_opener`. The model of a
    cross-encoder is loaded when it first scores; ``open_reranker`` opens it in another place.

    Raises what `qbe.search.rerank.open.open_reranker` does, IndexFormatError where the vectors to be matched are
    not in the index, UsageError where there are no projections of its encoder's vectors.

    >>> stage = open_rerank_stage(Matching("transport"), index, Workers())
    >>> stage.depth, stage.needs_vectors
    (100, True)
    """
    if stage is None:
        return None
    penalty = 0.0
    if isinstance(stage, Grades):
        from qbe.search.rerank.graded import GradedReranker

        reranker: Reranker = GradedReranker(open_grader(index), workers, open_regrader)
    elif isinstance(stage, Projections):
        reranker, penalty = _projected_matching(stage, index, workers), stage.background_penalty
    elif isinstance(stage, CrossEncoder):
        reranker, penalty = _cross_encoder(stage, workers, open_reranker), stage.background_penalty
    elif isinstance(stage, LanguageModel):
        reranker = _language_model(stage)
    else:
        reranker = _matching(stage, index, workers)
    penalty = 0.0 if index.manifest.dense is None else penalty
    return RerankStage(reranker, stage.depth, stage.weight, penalty)


def _cross_encoder(stage: CrossEncoder, workers: Workers, open_reranker: RerankerOpener | None) -> Reranker:
    model = stage.model
    if model is None or isinstance(model, str | Path):
        from qbe.search.rerank.open import defer_reranker

        named = {} if model is None else {"name": str(model)}
        if stage.device is not None:
            named["device"] = stage.device
        return (open_reranker or defer_reranker)(workers=workers, **named)
    if callable(getattr(model, "batch_score", None)):
        reranker: Reranker = model
        return reranker
    return FunctionReranker(scoring_of(model) or model)


def _language_model(stage: LanguageModel) -> Reranker:
    from qbe.models.language_model import Client, Endpoint, Grader
    from qbe.search.rerank.language_model import LanguageModelReranker

    assert stage.model is not None
    client = Client(Endpoint.of(stage.endpoint, stage.model, timeout=60), retries=2)
    return LanguageModelReranker(Grader(client, parallel=stage.parallel))


def regraded_count(stage: Any) -> int:
    """How many of the best papers a stage grades again.

    >>> regraded_count(Grades()), regraded_count(Grades(joint=30))
    (0, 30)
    """
    return (stage.joint or 0) if isinstance(stage, Grades) else 0


def regrader_opener(stage: Any, workers: Workers) -> Callable[[], Regrader | None]:
    """What opens, once, that which grades the best papers of a stage again; gives None where nothing does.

    >>> regrader_opener(Grades(), Workers())() is None
    True
    """
    count, opening = regraded_count(stage), threading.Lock()
    opened: list[Regrader] = []

    def open_once() -> Regrader:
        from qbe.search.rerank.graded import Regrader
        from qbe.search.rerank.joint import JointGrader

        with opening:
            if not opened:
                opened.append(Regrader(JointGrader(workers=workers), count))
            return opened[0]

    return open_once if count else lambda: None


def _matching(stage: Matching, index: Index, workers: Workers) -> Reranker:
    from qbe.search.rerank.matching import VectorMatching

    index.require_vectors()
    parameters = {"temperature": stage.temperature, "regularization": stage.regularization}
    return VectorMatching(
        stage.kind,
        lambda paper: index.vectors(paper).sentences,
        similarity=index.similarity,
        workers=workers,
        **{name: value for name, value in parameters.items() if value is not None},
    )


def _projected_matching(stage: Projections, index: Index, workers: Workers) -> Reranker:
    from qbe.search.rerank.projections import ProjectedMatching, find_model, read_model

    index.require_vectors()
    assert index.manifest.dense is not None
    given = None if stage.model is None else Path(stage.model)
    model = read_model(find_model(index.manifest.dense["encoder"], given))

    return ProjectedMatching(model.projections, stored_vectors(index), workers)


def stored_vectors(index: Index, reader: IndexReader | None = None) -> VectorSource:
    """The stored vectors of papers of an index, as a function; of a ``reader``, else of the newest commit.

    >>> stored_vectors(index)([index.paper("s036")]).whole.shape
    (1, 384)
    """
    from qbe.search.rerank.projections import StoredPapers

    def stored(papers: Sequence[Paper]) -> StoredPapers:
        with index.reading() if reader is None else nullcontext(reader) as current:
            rows = rows_of(current.papers, (paper.paper_id for paper in papers))
            block, whole = current.vector_store.gather(rows), current.vector_store.whole(rows)
            return StoredPapers(block.vectors.astype(np.float64), block.starts, whole.astype(np.float64))

    return stored


def open_grader(index: Index, reader: IndexReader | None = None) -> Grader:
    """What grades the papers of an index (of which commit: `stored_vectors`); raises UsageError where the
    grade model does not read its vectors.

    >>> from qbe.search.rerank.graded import GradedQuery
    >>> paper = index.paper("s036")
    >>> open_grader(index).grade(GradedQuery(paper, index.vectors(paper)), [paper])[0].grades.shape
    (1, 3)
    """
    dense = index.manifest.dense
    if dense is None:
        raise no_grades()
    from qbe.models.grades import read_model, shipped_model
    from qbe.models.words import shipped_words
    from qbe.search.rerank.graded import FEATURES, Features, Grader
    from qbe.search.rerank.projections import find_model
    from qbe.search.rerank.projections import read_model as read_projections

    encoder = dense["encoder"]
    folder = shipped_model(encoder)
    if folder is None:
        raise no_grades()
    projections = read_projections(find_model(encoder)).projections
    features = Features(projections, shipped_words(), stored_vectors(index, reader))
    return Grader(features, read_model(folder, FEATURES))


def no_grades() -> UsageError:
    """What is raised where grades are asked for over an index whose vectors no grade model reads."""
    from qbe.search.rerank.projections import ENCODERS

    return UsageError(
        f"expected an index with vectors of {' or '.join(ENCODERS)} for grades, found one without; build it "
        "with one of these"
    )


def open_explore_stage(
    index: Index,
    reader: IndexReader,
    first_stage: FirstStage,
    workers: Workers,
    open_regrader: Callable[[], Regrader | None] = lambda: None,
) -> ExploreStage | None:
    """What ranks queries of several facets by grades; None where the grade model does not read the vectors of
    the index. ``open_regrader`` is that of `regrader_opener`.

    >>> with index.reading() as reader:
    ...     stage = open_first_stage(Dense(), reader, Workers())
    ...     open_explore_stage(index, reader, stage, Workers()) is None
    False
    """
    from qbe.models.grades import shipped_model

    dense = reader.manifest.dense
    if dense is None or shipped_model(dense["encoder"]) is None:
        return None
    from qbe.search.first_stages import BM25Stage, FusedStage
    from qbe.search.grading import ExploreStage

    stages = [first_stage]
    if isinstance(first_stage, BM25Stage | FusedStage):  # dense search needs no Java
        stages.append(BM25Stage(reader, workers, TELLING_WORDS))
    return ExploreStage(reader, stages, cache(lambda: open_grader(index, reader)), open_regrader)
