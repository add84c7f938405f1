"""A cross-encoder that the processes of a cluster share the work of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from qbe.cluster.calls import ShardCalls
from qbe.rerank.reranker import Progress, RerankRequest, RerankScore


class ClusterReranker:
    """Scores candidates in the processes that hold the shards, each paper in one of them (a
    `qbe.rerank.reranker.Reranker`). A paper's score does not depend on the others, and so not on which
    process computes it.
    """

    def __init__(self, calls: ShardCalls, parameters: Mapping[str, Any]) -> None:
        """``parameters`` are those of `qbe.rerank.open.open_reranker`."""
        self._calls, self._parameters = calls, dict(parameters)

    @cached_property
    def _about(self) -> tuple[str, bool, bool]:
        answers = self._calls.to_each("about_reranker", {0: (self._parameters,)})
        about: tuple[str, bool, bool] = answers[0]
        return about

    @property
    def name(self) -> str:
        """The name in the model's metadata."""
        return self._about[0]

    @property
    def needs_vectors(self) -> bool:
        """Whether requests must bring the vectors of the aspect's sentences."""
        return self._about[1]

    @property
    def takes_whole_abstracts(self) -> bool:
        """Whether it scores aspects that are no facet."""
        return self._about[2]

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.rerank.reranker.Reranker.batch_score`."""
        papers = dict.fromkeys(paper.paper_id for request in requests for paper in request.papers)
        owner = {paper_id: place % len(self._calls) for place, paper_id in enumerate(papers)}
        shared: dict[int, list[RerankRequest]] = {}
        for shard in sorted(set(owner.values())):
            shared[shard] = [
                RerankRequest(
                    request.query, [paper for paper in request.papers if owner[paper.paper_id] == shard]
                )
                for request in requests
            ]
        answers = self._calls.to_each(
            "rerank", {shard: (self._parameters, part) for shard, part in shared.items()}
        )
        if progress is not None:
            progress(sum(len(request.papers) for request in requests))
        streams = {shard: [iter(scores) for scores in answer] for shard, answer in answers.items()}
        return [
            [next(streams[owner[paper.paper_id]][number]) for paper in request.papers]
            for number, request in enumerate(requests)
        ]
