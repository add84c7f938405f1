"""What reranks, opened from its dataclass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbe.index.index import Index
from qbe.search.rank import Reranker, RerankStage
from qbe.search.stages import CrossEncoder, Grades, LanguageModel, Matching, Projections
from qbe.types import Facet
from qbe.util.work import Workers

if TYPE_CHECKING:
    from qbe.search.grading import Regrader

RerankerOpener = Callable[..., Reranker]  # as `qbe.search.rerankers.open_reranker`


def open_rerank_stage(
    stage: Any,
    index: Index,
    workers: Workers,
    regrader: Regrader | None = None,
    open_reranker: RerankerOpener | None = None,
) -> RerankStage | None:
    """Open what a stage of `qbe.search.stages` reranks by, None for None.

    ``regrader`` grades the best papers again; ``open_reranker`` opens cross-encoders elsewhere.
    """
    if stage is None:
        return None
    reranker: Reranker
    penalty = getattr(stage, "background_penalty", 0.0)
    if isinstance(stage, Grades):
        from qbe.search.grading import GradedReranker, open_grader

        reranker = GradedReranker(open_grader(index), workers, regrader)
    elif isinstance(stage, Projections):
        from qbe.search.grading import stored_vectors
        from qbe.search.projections import ProjectedMatching, find_model, read_model

        index.require_vectors()
        assert index.manifest.dense is not None
        given = None if stage.model is None else Path(stage.model)
        model = read_model(find_model(index.manifest.dense["encoder"], given))
        reranker = ProjectedMatching(model.projections, stored_vectors(index), workers)
    elif isinstance(stage, CrossEncoder):
        from qbe.search import rerankers

        def opened(scorer: Any, device: str | None = stage.device) -> Reranker:
            if scorer is None or isinstance(scorer, str | Path):
                parameters = {"name": None if scorer is None else str(scorer), "device": device}
                named: Any = {name: value for name, value in parameters.items() if value is not None}
                return (open_reranker or rerankers.open_reranker)(workers=workers, **named)
            if callable(getattr(scorer, "batch_score", None)):
                model: Reranker = scorer
                return model
            return rerankers.FunctionReranker(rerankers.scoring_of(scorer) or scorer)

        models = {facet: getattr(stage, facet.value) for facet in Facet}
        by_facet = {facet: opened(model) for facet, model in models.items() if model is not None}
        if not by_facet:
            reranker = opened(stage.model)
        else:  # joint grades, which other facets have by default, know no device
            others = opened(stage.model, stage.device if stage.model else None)
            reranker = rerankers.ByFacet(by_facet, others)
    elif isinstance(stage, LanguageModel):
        from qbe.models.language_model import Client, Endpoint, Grader
        from qbe.search.rerankers import LanguageModelReranker

        assert stage.model is not None
        client = Client(Endpoint(stage.endpoint, stage.model, timeout=60), retries=2)
        reranker = LanguageModelReranker(Grader(client, parallel=stage.parallel))
    else:
        assert isinstance(stage, Matching)
        from qbe.search.matching import VectorMatching

        index.require_vectors()
        reranker = VectorMatching(
            stage.kind,
            lambda paper: index.vectors(paper).sentences,
            similarity=index.similarity,
            temperature=stage.temperature,
            regularization=stage.regularization,
            workers=workers,
        )
    return RerankStage(reranker, stage.depth, stage.weight, penalty if index.manifest.dense else 0.0)
