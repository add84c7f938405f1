"""Rerankers by name."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from qbe.errors import UsageError
from qbe.models.cards import DEFAULT_RERANKER, JOINT_GRADER, read_card
from qbe.models.folders import joint_folder, resolve_reranker
from qbe.models.session import AUTO, CPU, chosen_device, usual_precision

if TYPE_CHECKING:
    from qbe.search.rerank.reranker import Progress, Reranker, RerankRequest, RerankScore
    from qbe.util.parallel import Workers


def open_reranker(
    name: str = DEFAULT_RERANKER,
    *,
    precision: str | None = None,
    workers: Workers | None = None,
    device: str = CPU,
) -> Reranker:
    """The reranker of that registry name, folder or hub name; see `qbe.models.cards`.

    ``workers`` score as many candidates at a time as they have threads (by default one). ``device``, one of
    `qbe.models.session.DEVICES`, runs a pair cross-encoder, on a GPU by default in fp16 and in batches; joint
    grades run on the CPU, in int8. Raises UsageError for a precision or device that the reranker does not
    have; ModelError when it cannot be found, verified or loaded; MissingDependencyError for a device that
    cannot be used.
    """
    joint = joint_folder(name)
    device = CPU if joint and device == AUTO else chosen_device(device)
    if joint is None:
        from qbe.search.rerank.cross_encoder import CrossEncoder

        return CrossEncoder(resolve_reranker(name, precision or usual_precision(device)), workers, device)
    if device != CPU or precision not in (None, "int8"):
        raise UsageError(
            f"{name}: expected `device` {CPU} and `precision` int8, in which joint grades run, found "
            f"{device} and {precision or 'int8'}; drop it, or give a pair cross-encoder"
        )
    from qbe.search.rerank.joint import JointReranker

    return JointReranker(joint, workers)


def describe_reranker(name: str = DEFAULT_RERANKER, precision: str = "int8") -> dict[str, str]:
    """What distinguishes a reranker from another: the SHA-256 of its files by name; errors are those of
    `open_reranker`.

    >>> sorted(describe_reranker())
    ['model.int8.onnx', 'tokenizer.json']
    """
    joint = joint_folder(name)
    card = resolve_reranker(name, precision).metadata if joint is None else read_card(joint, JOINT_GRADER)
    return dict(card.files)


def defer_reranker(
    name: str = DEFAULT_RERANKER, *, workers: Workers | None = None, device: str = CPU
) -> Reranker:
    """The same, its model loaded when it first scores: not at all where no query of a search has a facet.

    >>> deferred = defer_reranker()
    >>> deferred.name, deferred.takes_whole_abstracts
    ('joint-grades', False)
    """
    return _DeferredReranker(name, workers, device)


class _DeferredReranker:
    needs_vectors = False

    def __init__(self, name: str, workers: Workers | None, device: str) -> None:
        self.takes_whole_abstracts = joint_folder(name) is None
        self.name = resolve_reranker(name).metadata.name if self.takes_whole_abstracts else DEFAULT_RERANKER
        self._model, self._workers, self._device = name, workers, device
        self._opening = threading.Lock()
        self._opened: Reranker | None = None

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.search.rerank.reranker.Reranker.batch_score`; raises what `open_reranker` does."""
        with self._opening:
            if self._opened is None:
                self._opened = open_reranker(self._model, workers=self._workers, device=self._device)
        return self._opened.batch_score(requests, progress)
