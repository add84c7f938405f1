"""Pipelines as transformers of PyTerrier, and transformers of PyTerrier as stages of a pipeline."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qbe.errors import UsageError, check_package
from qbe.evaluate.run import COLUMNS, Run
from qbe.query import Aspect, Query
from qbe.search.first_stages import Aspects
from qbe.search.queries import paper_named
from qbe.search.rerankers import paper_text, query_text
from qbe.types import Facet, Hit, Paper, Pools

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("qbe.search")

QUERY_COLUMNS = ("qid", "query")


def as_transformer(pipeline: Any, k: int = 1000, facet: Facet | str | None = None) -> Any:
    """Make a ``pyterrier.Transformer`` that searches with a pipeline.

    It takes a data frame with the columns ``qid`` and ``query``: the id of a paper of the index, or an
    abstract. A column ``facet`` takes the place of ``facet``; with ``docno``, only these papers are ranked.
    """
    check_package("pyterrier")
    import pyterrier as pt

    class QbeTransformer(pt.Transformer):
        def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
            pt.validate.columns(inp, includes=list(QUERY_COLUMNS))
            return _searched(pipeline, inp, k, facet)

    made: Any = QbeTransformer
    return made()


def _searched(pipeline: Any, frame: pd.DataFrame, k: int, facet: Facet | str | None) -> pd.DataFrame:
    asked = [name for name in ("qid", "query", "facet") if name in frame.columns]
    if frame[asked[:2]].isna().any(axis=None):
        raise UsageError("expected a qid and a query in each row, found none in some; leave these out")
    rows = frame.drop_duplicates("qid")
    if len(frame.drop_duplicates(asked)) > len(rows):
        raise UsageError("expected one query and facet for each qid, found several for some; give other qids")
    facets = list(rows["facet"]) if "facet" in frame.columns else [facet] * len(rows)
    queries = []
    for text, value in zip(map(str, rows["query"]), facets, strict=True):
        try:
            of_row = None if value is None or value != value or value == "" else Facet(value)
        except ValueError:
            raise UsageError(
                f"expected background, method or result in the column facet, found {value!r}"
            ) from None
        queries.append(Query(paper_named(pipeline.index, text), of_row))
    pools: Pools | None = None
    if "docno" in frame.columns:
        by_query = {query_id: list(map(str, docnos)) for query_id, docnos in frame.groupby("qid")["docno"]}
        pools = [by_query[query_id] for query_id in rows["qid"]]
    hits = pipeline.batch_search(queries, k, pools, matches=False) if queries else []
    results = Run("qbe", dict(zip(rows["qid"], hits, strict=True))).to_dataframe()
    of_queries = [name for name in rows.columns if name not in COLUMNS[1:]]
    merged: pd.DataFrame = results.astype({"qid": rows["qid"].dtype}).merge(rows[of_queries], on="qid")
    return merged[[*of_queries, *COLUMNS[1:]]]


def from_transformer(transformer: Any) -> TransformerStage:
    """Make a first stage or a reranker of a `qbe.Pipeline` of a transformer of PyTerrier."""
    if isinstance(transformer, type) or not callable(getattr(transformer, "transform", None)):
        raise TypeError(f"expected a transformer with a method transform, found {transformer!r:.60}")
    return TransformerStage(transformer)


@dataclass(frozen=True)
class TransformerStage:
    """A transformer as a stage; papers that it leaves out come last."""

    transformer: Any
    needs_vectors = False

    def __call__(self, aspect: Aspect, papers: Sequence[Paper]) -> list[float]:
        texts = {paper.paper_id: paper_text(paper) for paper in papers}
        scores = self._completed(self._scores([aspect], texts).get("0", {}), texts)
        return [scores[paper.paper_id] for paper in papers]

    def batch_search(
        self, queries: Aspects, k: int, pools: Pools, allowed: object = None, *, explain: bool = False
    ) -> list[list[Hit]]:
        if allowed is not None:
            raise UsageError("a `filter` needs a first stage of qbe's own, found a transformer; leave it out")
        by_query = self._scores([query.aspect for query in queries])
        ranked = []
        for number, pool in enumerate(pools):
            scores = by_query.get(str(number), {})
            if pool is not None:
                scores = self._completed(scores, pool)
            hits = [
                Hit(name, score, (), {"transformer": score} if explain else None)
                for name, score in scores.items()
            ]
            ranked.append(sorted(hits, key=lambda hit: (-hit.score, hit.paper_id))[:k])
        return ranked

    def _scores(
        self, aspects: Sequence[Aspect], papers: Mapping[str, str] | None = None
    ) -> dict[str, dict[str, float]]:
        """Scores by number of the aspect and id, of ``papers`` (texts by id) or of those that it finds."""
        import pandas as pd

        asked = [(str(i), query_text(each), str(each.facet or "")) for i, each in enumerate(aspects)]
        rows = asked if papers is None else [(*each, *paper) for each in asked for paper in papers.items()]
        names = [*QUERY_COLUMNS, "facet", *(() if papers is None else ("docno", "text"))]
        run = Run.from_dataframe(self.transformer.transform(pd.DataFrame(rows, columns=names)))
        return {number: {hit.paper_id: hit.score for hit in hits} for number, hits in run.items()}

    def _completed(
        self, scores: Mapping[str, float], pool: Sequence[str] | Mapping[str, str]
    ) -> dict[str, float]:
        """The scores of a pool; papers without one come last, and a warning counts them."""
        if missing := [paper_id for paper_id in pool if paper_id not in scores]:
            log.warning(
                "a transformer gives no score to %d of the %d papers of a pool, such as %s: they come last",
                *(len(missing), len(pool), missing[0]),
            )
        lowest = min(scores.values(), default=0.0) - 1
        return {paper_id: scores.get(paper_id, lowest) for paper_id in pool}
