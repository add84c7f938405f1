"""Parameters chosen by measurement: the cheapest whose best papers are those of exhaustive search."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qbe.index.dense.ann import BY_PRODUCT, AnnParams, AnnSettings, check_pq, resolve
from qbe.index.dense.exhaustive import DrawnQueries, best_papers, draw_queries
from qbe.index.dense.faiss_build import build_faiss, metric_of
from qbe.index.dense.faiss_segment import nearer
from qbe.index.dense.stored import Quantized, Vectors
from qbe.index.papers import PaperLayout

log = logging.getLogger(__name__)

TOP = 20
"""Papers of each query that are to be those of exhaustive search, each in its place."""

QUERIES = 200
"""Queries drawn from the index."""

REFERENCE = 5 * TOP
"""Papers of exhaustive search that are known; a place that none of them takes is lost."""

MIN_CANDIDATES = (100, 200, 500, 1000, 2000)
"""Sentences looked up for each sentence of a query."""

GATHERED = 10
"""A byte gathered from scattered places costs as much as this many read in order."""

MANY_SENTENCES = 1_000_000
"""Above, an index is built with the usual number of lists only: it would take minutes for each."""


class Trial(NamedTuple):
    """What was tried: ``recall`` is the share of exhaustive search's TOP papers that were found, ``same`` the
    share of places that hold the same paper, ``cost`` the bytes read a query (those gathered, to score
    candidates exactly, weighed by GATHERED): unlike seconds the same each time.
    """

    nlist: int
    pq: int | None
    nprobe: int
    min_candidates: int
    recall: float
    same: float
    cost: int


COLUMNS = ("nlist", "pq", "nprobe", "depth", "recall", "same", "cost")
"""What a manifest calls the fields of a trial."""


class Tuned(NamedTuple):
    """The parameters chosen, their index, and all trials."""

    params: AnnParams
    index: Any
    trials: list[Trial]


def tune(
    vectors: Vectors,
    layout: PaperLayout,
    similarity: str,
    settings: AnnSettings,
    folder: Path | None = None,
) -> Tuned:
    """Try parameters, from short codes to long ones; the first length that reaches ``settings.tune_recall``
    (as the share of places of the best papers) is taken, with the cheapest of its parameters. Where none
    does, the best ones are taken, with a warning. Lists go to a file in ``folder``, if one is given.

    Call it within `qbe.index.dense.faiss_settings.building`.
    """
    target = settings.tune_recall
    assert target is not None
    metric = metric_of(similarity)
    queries = draw_queries(layout, QUERIES, seed=0)
    reference = best_papers(vectors, layout.starts, queries, REFERENCE, similarity)
    trials: list[Trial] = []
    chosen: tuple[tuple[Any, ...], AnnParams, Any] | None = None
    for pq, same_length in _ladder(settings, *vectors.shape):
        for params in same_length:
            index = build_faiss(vectors, metric, params)
            its_trials = list(_trials(index, params, vectors, layout.starts, queries, reference))
            trials += its_trials
            best = min(its_trials, key=lambda trial: _rank(trial, target))
            if chosen is None or _rank(best, target) < chosen[0]:
                fitted = dataclasses.replace(params, nprobe=best.nprobe, min_candidates=best.min_candidates)
                chosen = _rank(best, target), fitted, index
        if chosen is not None and not chosen[0][0]:
            break
        log.info("codes of %s bytes do not reach %g", pq, target)
    assert chosen is not None
    rank, fitted, index = chosen
    if rank[0]:
        log.warning(
            "expected the best %d papers of exhaustive search for %g of places, found %.4f at best; give "
            "a pq of more bytes, or the kind ivf-sq or flat",
            *(TOP, target, -rank[1]),
        )
    if folder is not None:
        index = build_faiss(vectors, metric, fitted, folder)
    return Tuned(fitted, index, trials)


def _rank(trial: Trial, target: float) -> tuple[Any, ...]:
    """Lower is better: of trials that reach the target the cheapest, of others the best."""
    missed = trial.same < target
    return (missed, -trial.same if missed else trial.cost, trial.cost)


def _ladder(
    settings: AnnSettings, sentences: int, dimension: int
) -> Iterator[tuple[int | None, list[AnnParams]]]:
    """Parameters to build with, by lengths of codes, the shortest first."""
    usual = resolve(dataclasses.replace(settings, nprobe=1, tune_recall=None), sentences, dimension)
    assert usual.nlist is not None
    lists = [usual.nlist]
    if settings.nlist is None and sentences <= MANY_SENTENCES:
        lists = [n for n in (usual.nlist // 2, usual.nlist, usual.nlist * 2) if 1 <= n <= sentences]
    codes: list[int | None] = [usual.pq]
    if usual.kind in BY_PRODUCT and settings.pq is None:
        codes = [dimension // (2 * size) for size in (4, 3, 2) if dimension % (2 * size) == 0] or codes
    for pq in codes:
        same_length = [dataclasses.replace(usual, nlist=nlist, pq=pq) for nlist in lists]
        if pq is not None:
            check_pq(same_length[0], sentences, dimension)
        yield pq, same_length


def _trials(
    index: Any,
    params: AnnParams,
    vectors: Vectors,
    starts: NDArray[np.int64],
    queries: DrawnQueries,
    reference: Any,
) -> Iterator[Trial]:
    """Every number of lists read, in powers of two, with every number of candidates."""
    import faiss

    ivf = faiss.extract_index_ivf(index)
    query_vectors = np.concatenate([vectors[rows].astype(np.float32) for rows in queries.sentences])
    bounds = np.append(queries.starts, len(query_vectors))
    width = vectors.shape[1] * (1 if isinstance(vectors, Quantized) else 2)
    assert params.nlist is not None
    nprobe = 1
    while True:
        ivf.nprobe = nprobe
        distances, positions = index.search(query_vectors, min(max(MIN_CANDIDATES) + 1, index.ntotal))
        scanned = nprobe * index.ntotal / params.nlist * ivf.code_size + params.nlist * ivf.d * 4
        for count in MIN_CANDIDATES:
            nearest = nearer(distances, positions, count)
            papers = np.where(nearest < 0, -1, np.searchsorted(starts, nearest, side="right") - 1)
            candidates = [np.unique(papers[a:b]) for a, b in pairwise(bounds.tolist())]
            gathered = sum(map(len, candidates)) * index.ntotal / (len(starts) - 1) * width
            cost = (scanned * len(query_vectors) + GATHERED * gathered) / len(candidates)
            shares = agreement(candidates, reference)
            yield Trial(params.nlist, params.pq, nprobe, count, *shares, round(cost))
        if nprobe == params.nlist:
            return
        nprobe = min(2 * nprobe, params.nlist)


def agreement(candidates: list[NDArray[np.int64]], reference: NDArray[np.int64]) -> tuple[float, float]:
    """Recall of the TOP reference papers among the candidates of each query, and the share of places of the
    TOP that hold the same paper once the candidates are in the reference's order.

    ``reference`` (queries, more than TOP) has the best papers, -1 where there are fewer.

    >>> agreement([np.array([2, 9])], np.array([[2, 4, 9, 7]]))
    (0.5, 0.25)
    """
    recalled = same = places = 0
    for papers, best in zip(candidates, reference, strict=True):
        best = best[best >= 0]
        top = best[:TOP]
        kept = best[np.isin(best, papers)][: len(top)]
        places += len(top)
        recalled += int(np.isin(top, papers).sum())
        same += int((kept == top[: len(kept)]).sum())
    return recalled / max(places, 1), same / max(places, 1)
