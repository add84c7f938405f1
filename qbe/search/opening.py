"""The stages of a search, opened over an index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qbe.index.index import Index
from qbe.index.reader import IndexReader
from qbe.index.views import rows_of
from qbe.parallel import Workers
from qbe.rerank.reranker import FunctionReranker, Reranker, scoring_of
from qbe.search.contracts import FirstStage
from qbe.search.ranking import RerankStage
from qbe.search.stages import (
    BM25,
    EQUAL_WEIGHTS,
    CrossEncoder,
    Dense,
    Fused,
    Matching,
    Projections,
    Stages,
)
from qbe.types import Paper

if TYPE_CHECKING:
    from qbe.search.grading import ExploreStage

RerankerOpener = Callable[..., Reranker]
"""Opens a cross-encoder: parameters and errors are those of `qbe.rerank.open.open_reranker`."""


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
    stage: Projections | CrossEncoder | Matching | None,
    index: Index,
    workers: Workers,
    open_cross_encoder: Callable[[Any], Reranker],
) -> RerankStage | None:
    """What reranks, None where nothing does; ``open_cross_encoder`` opens one of a name or folder.

    Raises what `qbe.rerank.open.open_reranker` does, IndexFormatError where the vectors to be matched are
    not in the index, UsageError where there are no projections of its encoder's vectors.

    >>> stage = open_rerank_stage(Matching("transport"), index, Workers(), open_cross_encoder)
    >>> stage.depth, stage.needs_vectors
    (100, True)
    """
    if stage is None:
        return None
    penalty = 0.0
    if isinstance(stage, Projections):
        reranker, penalty = _projected_matching(stage, index, workers), stage.background_penalty
    elif isinstance(stage, CrossEncoder):
        reranker, penalty = _cross_encoder(stage.model, open_cross_encoder), stage.background_penalty
    else:
        reranker = _matching(stage, index, workers)
    penalty = 0.0 if index.manifest.dense is None else penalty
    return RerankStage(reranker, stage.depth, stage.weight, penalty)


def open_cross_encoder(
    model: str | Path | None, workers: Workers | None = None, open_reranker: RerankerOpener | None = None
) -> Reranker:
    """The cross-encoder of a name or folder (None: the facet rerankers that ship), whose model is loaded when
    it first scores; ``open_reranker`` opens it in another place.
    """
    named = {} if model is None else {"name": str(model)}
    if open_reranker is not None:
        return open_reranker(workers=workers, **named)
    from qbe.rerank.open import defer_reranker

    return defer_reranker(workers=workers, **named)


def _cross_encoder(model: Any, open_named: Callable[[Any], Reranker]) -> Reranker:
    if model is None or isinstance(model, str | Path):
        return open_named(model)
    if callable(getattr(model, "batch_score", None)):
        reranker: Reranker = model
        return reranker
    return FunctionReranker(scoring_of(model) or model)


def _matching(stage: Matching, index: Index, workers: Workers) -> Reranker:
    from qbe.rerank.matching import VectorMatching

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
    from qbe.rerank.projections import ProjectedMatching, StoredPapers, find_model, read_model

    index.require_vectors()
    assert index.manifest.dense is not None
    given = None if stage.model is None else Path(stage.model)
    model = read_model(find_model(index.manifest.dense["encoder"], given))

    def stored(papers: Sequence[Paper]) -> StoredPapers:
        with index.reading() as reader:
            rows = rows_of(reader.papers, (paper.paper_id for paper in papers))
            block, whole = reader.vector_store.gather(rows), reader.vector_store.whole(rows)
            return StoredPapers(block.vectors.astype(np.float64), block.starts, whole.astype(np.float64))

    return ProjectedMatching(model.projections, stored, workers)


def open_explore_stage(
    stages: Stages,
    reader: IndexReader,
    first_stage: FirstStage,
    workers: Workers,
    facet_rerankers: Callable[[], Reranker],
) -> ExploreStage | None:
    """What ranks queries of several facets by grades; None where the grade model does not read the vectors of
    the index.

    The ``facet_rerankers``, which the model reads, are opened when they first grade.

    >>> with index.reading() as reader:
    ...     stage = open_first_stage(Dense(), reader, Workers())
    ...     explore = open_explore_stage(Stages(Dense()), reader, stage, Workers(), lambda: None)
    >>> explore.reranks, explore.pair_count(1, 20)
    (False, 0)
    """
    dense = reader.manifest.dense
    if dense is None:
        return None
    from qbe.grade.model import default_model, read_model

    model = read_model(default_model())
    if dense["encoder"]["weights_sha256"] != model.encoder["weights_sha256"]:
        return None
    from qbe.search.grading import ExploreStage, GradeFeatures

    features = GradeFeatures(reader, workers, None if stages.reranker is None else facet_rerankers)
    return ExploreStage(reader, first_stage, features, model, stages.grades.depth)
