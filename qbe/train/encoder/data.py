"""Training and dev pairs of an encoder, with the positions of aligned sentences."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from qbe.corpus.titles import TitleIndex
from qbe.encode.encoder import Encoder
from qbe.encode.pooling import Floats
from qbe.errors import CorpusError
from qbe.parallel import Memo
from qbe.train.artifacts import checked, load_arrays, save_arrays
from qbe.train.encoder.cocitations import Alignment, Cocitation, read_citing_sentences, read_cocitations
from qbe.train.encoder.recipe import Objective
from qbe.types import Paper, Sentence

log = logging.getLogger(__name__)
HELD_OUT, MOST_HELD_OUT = 0.05, 2000
"""The share of the sets that become dev, and the most, where no dev file is given."""
CHUNK = 2048
"""Pairs whose sentences are encoded together; a sentence that several pairs have is encoded once."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Files of co-citations to train on, of dev (None: a share of the former), and of papers to leave out.

    Papers in ``leave_out`` are those that models are evaluated on.
    """

    train: tuple[Path, ...]
    dev: Path | None
    leave_out: Path

    @property
    def files(self) -> tuple[Path, ...]:
        """All files."""
        return (*self.train, *([] if self.dev is None else [self.dev]), self.leave_out)


class Parts(NamedTuple):
    """Pairs to train on and pairs of dev; no set of cited papers is in both."""

    train: list[Cocitation]
    dev: list[Cocitation]


def read_parts(sources: Sources, objective: Objective) -> Parts:
    """The pairs for an objective; raises CorpusError where they are malformed or too few."""
    evaluated = TitleIndex.of_corpus(sources.leave_out)

    def read(path: Path) -> list[Cocitation]:
        if objective.sentences:
            return list(read_citing_sentences(path, evaluated))
        return list(read_cocitations(path, evaluated, contexts=objective.alignment == "contexts"))

    train = [pair for path in sources.train for pair in read(path)]
    if sources.dev is None:
        parts = hold_out(train)
    else:
        dev = read(sources.dev)
        sets = {pair.cited for pair in dev}
        parts = Parts([pair for pair in train if pair.cited not in sets], dev)
    for pairs, paths in ((parts.train, sources.train), (parts.dev, [sources.dev or sources.train[0]])):
        names = ", ".join(map(str, paths))
        shared = frozenset[str]().union(*(pair.cited for pair in pairs))
        if not any(pair.cited.isdisjoint(pairs[0].cited) for pair in pairs):
            raise CorpusError(
                f"{names}: expected co-citations of papers that are not all related, to train on and as "
                f"dev, found {len(pairs):,} pairs of {len(shared):,} papers; give more of them"
            )
    log.info("%d pairs to train on, %d of dev", len(parts.train), len(parts.dev))
    return parts


def hold_out(pairs: Sequence[Cocitation]) -> Parts:
    """Split pairs by their sets; dev is a random sample of the sets that depends on nothing else.

    It has a share HELD_OUT of the sets, at least 2 and at most MOST_HELD_OUT.

    >>> from qbe.types import Paper
    >>> paper = Paper("", "", ())
    >>> pairs = [Cocitation(frozenset((f"{i}", f"{i + 1}")), paper, paper) for i in range(60)]
    >>> parts = hold_out(pairs)
    >>> len(parts.train), len(parts.dev)
    (57, 3)
    """
    sets = sorted({pair.cited for pair in pairs}, key=sorted)
    count = min(max(2, round(HELD_OUT * len(sets))), MOST_HELD_OUT, len(sets))
    dev_sets = set(random.Random("held out").sample(sets, count))
    return Parts(
        [pair for pair in pairs if pair.cited not in dev_sets],
        [pair for pair in pairs if pair.cited in dev_sets],
    )


class Pair(NamedTuple):
    """Two co-cited papers, the ids of the set that was cited, and the positions of two aligned sentences."""

    cited: frozenset[str]
    query: Paper
    positive: Paper
    alignment: Alignment = (0, 0)


def align(
    pairs: Sequence[Cocitation], by: str, encoder: Encoder, max_sentences: Callable[[Paper], int], cache: Path
) -> list[Pair]:
    """Pairs with the positions of two aligned sentences.

    ``by`` "contexts": of each paper the sentence nearest to any of the sentences that cite both (TSASPIRE,
    Mysore et al., 2022); "abstracts": the two sentences nearest to each other. Alignments in the data are
    used where both positions fit; otherwise each sentence is encoded separately, as the mean of all its
    tokens, and compared by cosine. ``max_sentences`` returns how many sentences of a paper fit into its
    window; others are not considered. The positions are written to the file ``cache`` (.npz) and read from
    there in the next call. Raises ModelError where that cannot be read.
    """
    if not cache.exists():
        save_arrays(cache, {"positions": _positions(pairs, by, encoder, max_sentences)})
    what = f"the alignments of {len(pairs)} pairs"
    positions = load_arrays(cache, what, "positions")["positions"]
    with checked(cache, what):
        if positions.shape != (len(pairs), 2):
            raise ValueError(f"an array {positions.shape}")
    return [
        Pair(*pair[:3], (first, second))
        for pair, (first, second) in zip(pairs, positions.tolist(), strict=True)
    ]


def _positions(
    pairs: Sequence[Cocitation], by: str, encoder: Encoder, max_sentences: Callable[[Paper], int]
) -> list[Alignment]:
    window_size = Memo(max_sentences)
    positions: list[Alignment] = []
    for begin in range(0, len(pairs), CHUNK):
        chunk = pairs[begin : begin + CHUNK]
        limits = [(window_size(pair.query), window_size(pair.positive)) for pair in chunk]
        given = [_given(pair, sizes, by) for pair, sizes in zip(chunk, limits, strict=True)]
        missing = (pair for pair, alignment in zip(chunk, given, strict=True) if alignment is None)
        vectors = _encoded(missing, by, encoder)
        positions += [
            alignment or _nearest(pair, sizes, by, vectors)
            for pair, alignment, sizes in zip(chunk, given, limits, strict=True)
        ]
        log.info("sentences of %d of %d pairs aligned", len(positions), len(pairs))
    return positions


def _given(pair: Cocitation, sizes: tuple[int, int], by: str) -> Alignment | None:
    alignment = pair.by_contexts if by == "contexts" else pair.by_abstracts
    return alignment if alignment and all(map(int.__lt__, alignment, sizes)) else None


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
