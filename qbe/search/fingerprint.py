"""All that the results of a run of topics depend on: only with the same is an interrupted one continued."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from qbe.files import sha256
from qbe.grade.model import WEIGHTS, default_model
from qbe.index.index import Index
from qbe.rerank import projection_model
from qbe.rerank.open import describe_reranker
from qbe.search import output
from qbe.search.filters import PaperFilter
from qbe.search.output import Inputs
from qbe.search.stages import CrossEncoder, Projections, Stages


class RunInputs(NamedTuple):
    """What a run depends on besides index and stages: the files of topics and pools, the facet that selects
    topics, or weights of facets by name, the filter, whose labels are used, hits a query, and how results are
    written (``width`` of tables, in columns).
    """

    topics: Path
    pool: Path | None
    facet: str | Mapping[str, float] | None
    filter: PaperFilter | None
    labels: str
    k: int
    run_tag: str
    format: str
    width: int
    explain: bool


def fingerprint(index: Index, stages: Stages, tagger: str | None, run: RunInputs) -> Inputs:
    """All that a run depends on, as JSON holds it; errors are those of opening the models.

    ``tagger`` is the name or folder of one that was asked for in place of the index's.

    >>> from qbe.search.stages import Fused
    >>> topics = Path("sample/topics.tsv")
    >>> run = RunInputs(topics, None, "method", None, "given", 10, "qbe", "trec", 80, explain=False)
    >>> fingerprint(index, Stages(Fused()), None, run)["options"]["hits"]
    10
    """
    described = {
        "index": index.manifest.digest,
        "topics": sha256(run.topics),
        "pool": sha256(run.pool) if run.pool else None,
        "options": {
            **stages.to_json(),
            "filter": run.filter and run.filter.record(),
            "labels": run.labels,
            "facet": run.facet,
            "hits": run.k,
            "run_tag": run.run_tag,
            "explain": run.explain,
            "format": run.format,
            "width": run.width if run.format == "table" else None,
        },
        "models": _models(index, stages, tagger, predicted=run.labels == "predicted"),
        "version": [version("qbe"), output.BLOCK],
    }
    inputs: Inputs = json.loads(json.dumps(described))
    return inputs


def _models(index: Index, stages: Stages, tagger: str | None, *, predicted: bool) -> dict[str, Any]:
    """The identities of the grade model, of the reranker, and of a tagger that labels queries."""
    models: dict[str, Any] = {"grades": sha256(default_model() / WEIGHTS)}
    reranker = stages.reranker
    if isinstance(reranker, CrossEncoder):
        models["reranker"] = describe_reranker(**({} if reranker.model is None else {"name": reranker.model}))
    if isinstance(reranker, Projections):
        assert index.manifest.dense is not None
        given = None if reranker.model is None else Path(reranker.model)
        folder = projection_model.find_model(index.manifest.dense["encoder"], given)
        models["projections"] = sha256(folder / projection_model.WEIGHTS)
    if tagger is not None or predicted:
        from qbe.tag.tagger import Tagger

        models["tagger"] = Tagger.open(tagger or index.manifest.settings["tagger"]).identity
    return models
