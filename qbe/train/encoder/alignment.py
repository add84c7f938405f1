"""Which sentences of two co-cited papers belong together, found by a sentence encoder that stays as it is."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qbe.encode.encoder import Encoder
from qbe.encode.hooks import Floats
from qbe.errors import ModelError
from qbe.train.encoder.cocitations import Alignment, Cocitation
from qbe.types import Paper, Sentence

log = logging.getLogger(__name__)
Vector = Mapping[str, Floats]
_CHUNK = 2048
"""Pairs whose sentences are encoded together, each sentence once."""


def aligned(
    pairs: Sequence[Cocitation],
    by: str,
    encoder: Encoder,
    room: Callable[[Paper], int],
    *,
    given: bool = True,
    kept: Path | None = None,
) -> list[Alignment]:
    """For each pair the positions of two sentences that belong together.

    ``by`` "contexts": of each paper the sentence nearest to any of the sentences that cite both (TSASPIRE,
    Mysore et al., 2022); "abstracts": the two nearest to each other. Each sentence is encoded by itself, as
    the mean of all its tokens, and compared by cosine. ``room`` says how many sentences of a paper are
    read; others are not considered. With ``given``, alignments that came along are taken where they lie
    within. What is found stands in the file ``kept`` for the next call. Raises ModelError where that cannot
    be read.
    """
    if kept is not None and kept.exists():
        return _load(kept, len(pairs))
    rooms: dict[int, int] = {}

    def reach(paper: Paper) -> int:
        if id(paper) not in rooms:
            rooms[id(paper)] = room(paper)
        return rooms[id(paper)]

    found: list[Alignment] = []
    for chunk in _chunks(pairs):
        told = [_told(pair, by) if given else None for pair in chunk]
        reaches = [(reach(pair.query), reach(pair.positive)) for pair in chunk]
        told = [
            place if place and all(map(int.__lt__, place, limits)) else None
            for place, limits in zip(told, reaches, strict=True)
        ]
        vectors = _encoded(
            (pair for pair, place in zip(chunk, told, strict=True) if place is None), by, encoder
        )
        found += [
            place or _nearest(pair, limits, by, vectors)
            for pair, place, limits in zip(chunk, told, reaches, strict=True)
        ]
        log.info("sentences of %d of %d pairs aligned", len(found), len(pairs))
    if kept is not None:
        _save(kept, found)
    return found


def _told(pair: Cocitation, by: str) -> Alignment | None:
    return pair.by_contexts if by == "contexts" else pair.by_abstracts


def _chunks(pairs: Sequence[Cocitation]) -> Iterator[Sequence[Cocitation]]:
    for begin in range(0, len(pairs), _CHUNK):
        yield pairs[begin : begin + _CHUNK]


def _encoded(pairs: Iterable[Cocitation], by: str, encoder: Encoder) -> Vector:
    """Unit vectors of all sentences that are compared."""
    texts = {
        text: None
        for pair in pairs
        for text in itertools.chain(
            (sentence.text for paper in (pair.query, pair.positive) for sentence in paper.sentences),
            pair.contexts if by == "contexts" else (),
        )
    }
    alone = (Paper("sentence", "", (Sentence(text),)) for text in texts)
    found = (vectors.whole for vectors in encoder.encode(alone))
    return {text: whole / np.linalg.norm(whole) for text, whole in zip(texts, found, strict=True)}


def _nearest(pair: Cocitation, limits: tuple[int, int], by: str, vectors: Vector) -> Alignment:
    query, positive = (
        np.stack([vectors[sentence.text] for sentence in paper.sentences[:limit]])
        for paper, limit in zip((pair.query, pair.positive), limits, strict=True)
    )
    if by == "contexts":
        contexts = np.stack([vectors[text] for text in pair.contexts]).T
        return int((query @ contexts).max(1).argmax()), int((positive @ contexts).max(1).argmax())
    first, second = divmod(int((query @ positive.T).argmax()), len(positive))
    return first, second


def _save(path: Path, found: Sequence[Alignment]) -> None:
    partial = path.with_suffix(".partial.npy")
    np.save(partial, np.array(found, np.int32).reshape(-1, 2))
    partial.replace(path)


def _load(path: Path, count: int) -> list[Alignment]:
    try:
        found: NDArray[np.int32] = np.load(path)
        if found.shape != (count, 2):
            raise ValueError(f"an array {found.shape}")
    except Exception as error:
        raise ModelError(
            f"{path}: expected the alignments of this training's {count} pairs, found: {error}; delete it"
        ) from error
    return [(first, second) for first, second in found.tolist()]
