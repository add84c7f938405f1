"""Alignment of one sentence of each of two co-cited papers, by an encoder that is not trained."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qbe.encode.encoder import Encoder
from qbe.encode.hooks import Floats
from qbe.files import atomic_file
from qbe.parallel import Memo
from qbe.train.artifacts import checked
from qbe.train.encoder.cocitations import Alignment, Cocitation
from qbe.types import Paper, Sentence

log = logging.getLogger(__name__)
_CHUNK = 2048
"""Pairs whose sentences are encoded together; a sentence that several pairs have is encoded once."""


def align(
    pairs: Sequence[Cocitation],
    by: str,
    encoder: Encoder,
    max_sentences: Callable[[Paper], int],
    *,
    use_given: bool = True,
    cache: Path | None = None,
) -> list[Alignment]:
    """For each pair the positions of two aligned sentences.

    ``by`` "contexts": of each paper the sentence nearest to any of the sentences that cite both (TSASPIRE,
    Mysore et al., 2022); "abstracts": the two sentences nearest to each other. Each sentence is encoded
    separately, as the mean of all its tokens, and compared by cosine. ``max_sentences`` returns how many
    sentences of a paper fit into its window; others are not considered. With ``use_given``, alignments in the
    data are used where both positions fit. The result is written to the file ``cache`` and read from there in
    the next call. Raises ModelError where that cannot be read.
    """
    if cache is not None and cache.exists():
        return _load(cache, len(pairs))
    window_size = Memo(max_sentences)
    alignments: list[Alignment] = []
    for chunk in _chunks(pairs):
        limits = [(window_size(pair.query), window_size(pair.positive)) for pair in chunk]
        given = [
            alignment if use_given and alignment and all(map(int.__lt__, alignment, sizes)) else None
            for alignment, sizes in zip((_given(pair, by) for pair in chunk), limits, strict=True)
        ]
        vectors = _encoded(
            (pair for pair, alignment in zip(chunk, given, strict=True) if alignment is None), by, encoder
        )
        alignments += [
            alignment or _nearest(pair, sizes, by, vectors)
            for pair, alignment, sizes in zip(chunk, given, limits, strict=True)
        ]
        log.info("sentences of %d of %d pairs aligned", len(alignments), len(pairs))
    if cache is not None:
        _save(cache, alignments)
    return alignments


def _given(pair: Cocitation, by: str) -> Alignment | None:
    return pair.by_contexts if by == "contexts" else pair.by_abstracts


def _chunks(pairs: Sequence[Cocitation]) -> Iterator[Sequence[Cocitation]]:
    for begin in range(0, len(pairs), _CHUNK):
        yield pairs[begin : begin + _CHUNK]


def _encoded(pairs: Iterable[Cocitation], by: str, encoder: Encoder) -> dict[str, Floats]:
    """Unit vectors of all sentences that are compared, by text."""
    texts = {
        text: None
        for pair in pairs
        for text in itertools.chain(
            (sentence.text for paper in (pair.query, pair.positive) for sentence in paper.sentences),
            pair.contexts if by == "contexts" else (),
        )
    }
    papers = (Paper("sentence", "", (Sentence(text),)) for text in texts)
    encoded = (vectors.whole for vectors in encoder.encode(papers))
    return {text: vector / np.linalg.norm(vector) for text, vector in zip(texts, encoded, strict=True)}


def _nearest(pair: Cocitation, sizes: tuple[int, int], by: str, vectors: Mapping[str, Floats]) -> Alignment:
    query, positive = (
        np.stack([vectors[sentence.text] for sentence in paper.sentences[:size]])
        for paper, size in zip((pair.query, pair.positive), sizes, strict=True)
    )
    if by == "contexts":
        contexts = np.stack([vectors[text] for text in pair.contexts]).T
        return int((query @ contexts).max(1).argmax()), int((positive @ contexts).max(1).argmax())
    first, second = divmod(int((query @ positive.T).argmax()), len(positive))
    return first, second


def _save(path: Path, alignments: Sequence[Alignment]) -> None:
    with atomic_file(path) as stream:
        np.save(stream, np.array(alignments, np.int32).reshape(-1, 2))


def _load(path: Path, count: int) -> list[Alignment]:
    with checked(path, f"the alignments of this training's {count} pairs"):
        positions: NDArray[np.int32] = np.load(path)
        if positions.shape != (count, 2):
            raise ValueError(f"an array {positions.shape}")
    return [(first, second) for first, second in positions.tolist()]
