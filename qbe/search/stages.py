"""The stages that a configuration names, opened over an index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qbe.errors import UsageError
from qbe.index.index import Index
from qbe.index.reader import IndexReader
from qbe.index.segments.views import rows_of
from qbe.parallel import Workers
from qbe.rerank.reranker import Reranker
from qbe.search.budget import BudgetedStage
from qbe.search.cascade import Cascade
from qbe.search.config import (
    BY_FACET,
    CASCADE,
    CROSS_ENCODED,
    CROSS_ENCODER,
    GRADES,
    PROJECTIONS,
    RERANK_DEPTH,
    Z_SCORES,
    RerankSettings,
    SearchConfig,
)
from qbe.search.contracts import FirstStage
from qbe.search.reranking import RerankStage, SecondStage
from qbe.types import Paper

if TYPE_CHECKING:
    from qbe.grade.model import GradeModel
    from qbe.search.exploring import ExploreStage


def open_first_stage(config: SearchConfig, reader: IndexReader, workers: Workers) -> FirstStage:
    """The first stage; raises IndexFormatError when the index was built without what it needs.

    That is checked before the Java virtual machine starts.

    >>> with index.reading() as reader:
    ...     open_first_stage(SearchConfig(first_stage="dense"), reader, Workers()).needs_vectors
    True
    """
    settings = config.first_stage_settings
    if settings.name == "bm25":
        from qbe.search.bm25 import BM25Stage

        return BM25Stage(reader, workers, settings.bm25_query)
    from qbe.search.dense import DenseStage

    reader.require_vectors()
    dense = DenseStage(reader, workers, settings.match, settings.nprobe)
    if settings.name == "dense":
        return dense
    from qbe.search.bm25 import BM25Stage
    from qbe.search.fused import FusedStage

    bm25 = BM25Stage(reader, workers, settings.bm25_query)
    return FusedStage(
        reader,
        workers,
        [bm25, dense],
        settings.weights,
        fusion=settings.fusion,
        depth=settings.depth,
        separate=settings.separate,
    )


def open_rerank_stage(
    config: SearchConfig, index: Index, workers: Workers, reranker: Reranker | None = None
) -> SecondStage | None:
    """The second stage, None where nothing is reranked; its cross-encoder is the ``reranker``, by default the
    one that the configuration names.

    Raises what `qbe.rerank.open.open_reranker` does, IndexFormatError where the vectors to be matched are not
    in the index.

    >>> stage = open_rerank_stage(SearchConfig(rerank="transport"), index, Workers())
    >>> stage.depth, stage.needs_vectors
    (100, True)
    """
    settings = config.rerank_settings
    if settings is None:
        return None
    if settings.name in (BY_FACET, CROSS_ENCODER):
        return _cross_encoder_stage(settings, workers, reranker)
    if settings.name == PROJECTIONS:
        return RerankStage(_projected_matching(settings, index, workers), settings)
    if settings.name == CASCADE:
        projections = settings._replace(name=PROJECTIONS, reranker=None)
        first = RerankStage(_projected_matching(projections, index, workers), projections, "projections")
        last = settings._replace(name=BY_FACET, depth=settings.cascade_depth)
        return _cross_encoder_stage(last, workers, reranker, first)
    from qbe.rerank.vector_matching import VectorMatching

    index.require_vectors()
    parameters = {"temperature": settings.temperature, "regularization": settings.regularization}
    matching = VectorMatching(
        settings.name,
        lambda paper: index.vectors(paper).sentences,
        similarity=index.similarity,
        workers=workers,
        **_stated(parameters),
    )
    return RerankStage(matching, settings)


def open_explore_stage(
    config: SearchConfig,
    reader: IndexReader,
    stage: FirstStage,
    second: SecondStage | None,
    workers: Workers,
) -> ExploreStage | None:
    """What ranks queries of several facets by grades; None where `combine` is z-scores, and by default where
    the grade model does not read what the configuration names.

    Raises UsageError where grades are asked for and cannot be had.

    >>> config = SearchConfig(first_stage="dense", rerank="none")
    >>> with index.reading() as reader:
    ...     stage = open_first_stage(config, reader, Workers())
    ...     open_explore_stage(config, reader, stage, None, Workers()).pair_count(1, 20)
    0
    """
    if config.combine == Z_SCORES:
        return None
    problem = "without vectors" if reader.manifest.dense is None or config.first_stage == "bm25" else None
    if problem is None:
        from qbe.grade.model import default_model, read_model

        model = read_model(default_model())
        problem = _not_read(config, reader, model)
    if problem is not None:
        if config.combine == GRADES:
            raise UsageError(f"expected `combine` z-scores {problem}, found grades; choose z-scores")
        return None
    from qbe.search.exploring import ExploreStage
    from qbe.search.grading import GradeFeatures, Grader

    # Projections have no part in the grades, and a cascade's cross-encoders are meant for few papers.
    reranker = second.reranker if isinstance(second, RerankStage) and config.rerank != PROJECTIONS else None
    features = GradeFeatures(reader, workers, reranker)
    grader = Grader(features, model)
    return ExploreStage(reader, stage, grader, RERANK_DEPTH if second is None else second.depth)


def _not_read(config: SearchConfig, reader: IndexReader, model: GradeModel) -> str | None:
    """What the grade model does not read of an index with vectors and its second stage; None if nothing."""
    dense, second = reader.manifest.dense, config.rerank_settings
    assert dense is not None
    if dense["encoder"]["weights_sha256"] != model.encoder["weights_sha256"]:
        return f"with vectors of {dense['encoder']['name']}, which the grade model does not read"
    if second is None or second.name in (PROJECTIONS, CASCADE):
        return None
    if second.name not in (BY_FACET, CROSS_ENCODER):
        return f"with `rerank` {second.name}"
    from qbe.rerank.open import describe_reranker

    stated = _stated({"name": second.reranker, "precision": second.precision})
    if describe_reranker(**stated) != dict(model.reranker):
        name = "that is the default" if second.reranker is None else second.reranker
        return f"with the reranker {name}, which the grade model does not read"
    return None


def shared_reranker(
    configs: Sequence[SearchConfig],
    workers: Workers,
    open_elsewhere: Callable[..., Reranker] | None = None,
) -> Reranker | None:
    """One cross-encoder for several configurations that differ in their first stages alone, which scores no
    pair twice; None where there is one configuration, nothing reads candidates anew, or a budget of time
    decides how many are read.

    ``open_elsewhere`` opens it in place of `qbe.rerank.open.open_reranker`, whose errors are raised, for one
    configuration too.

    >>> configs = [SearchConfig(first_stage=stage) for stage in ("dense", "fused")]
    >>> shared_reranker(configs, Workers()).name, shared_reranker(configs[:1], Workers())
    ('facet-rerankers', None)
    """
    settings = configs[0].rerank_settings
    if (
        (len(configs) < 2 and open_elsewhere is None)
        or settings is None
        or settings.name not in CROSS_ENCODED
        or settings.budget is not None
    ):
        return None
    from qbe.rerank.cached import CachedReranker

    return CachedReranker(_cross_encoder(settings, workers, open_elsewhere))


def _cross_encoder_stage(
    settings: RerankSettings,
    workers: Workers,
    reranker: Reranker | None,
    before: RerankStage | None = None,
) -> SecondStage:
    """A cross-encoder that reranks after the stage ``before`` it, within a budget if there is one."""
    opened = _cross_encoder(settings, workers) if reranker is None else reranker
    if settings.budget is not None:
        return BudgetedStage(
            lambda depth: RerankStage(opened, settings._replace(depth=depth)),
            settings.depth,
            settings.budget,
            before,
        )
    stage = RerankStage(opened, settings)
    return stage if before is None else Cascade([before, stage])


def _cross_encoder(
    settings: RerankSettings, workers: Workers, open_elsewhere: Callable[..., Reranker] | None = None
) -> Reranker:
    from qbe.rerank.open import open_reranker

    parameters = {
        "name": settings.reranker,
        "precision": settings.precision,
        "query_tokens": settings.query_tokens,
        "candidate_tokens": settings.candidate_tokens,
    }
    return (open_elsewhere or open_reranker)(workers=workers, **_stated(parameters))


def _projected_matching(settings: RerankSettings, index: Index, workers: Workers) -> Reranker:
    from qbe.rerank.projected_matching import ProjectedMatching
    from qbe.rerank.projection_model import find_model, read_model
    from qbe.rerank.projections import StoredPapers

    index.require_vectors()
    assert index.manifest.dense is not None
    given = None if settings.reranker is None else Path(settings.reranker)
    model = read_model(find_model(index.manifest.dense["encoder"], given))

    def stored(papers: Sequence[Paper]) -> StoredPapers:
        with index.reading() as reader:
            rows = rows_of(reader.papers, (paper.paper_id for paper in papers))
            block, whole = reader.vector_store.gather(rows), reader.vector_store.whole(rows)
            return StoredPapers(block.vectors.astype(np.float64), block.starts, whole.astype(np.float64))

    return ProjectedMatching(model.projections, stored, workers)


def _stated(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters that are not left to their defaults."""
    return {name: value for name, value in parameters.items() if value is not None}
