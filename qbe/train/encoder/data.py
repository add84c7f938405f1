"""What an encoder learns from, and what it is chosen on."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from qbe.corpus import read_jsonl
from qbe.encode.encoder import Encoder
from qbe.errors import CorpusError
from qbe.train.encoder.alignment import aligned
from qbe.train.encoder.batches import Pair, Reader
from qbe.train.encoder.cocitations import Cocitation, read_citing_sentences, read_cocitations
from qbe.train.encoder.recipe import Objective
from qbe.train.unlabelled import TitleIndex

log = logging.getLogger(__name__)
HELD_OUT, MOST_HELD_OUT = 0.05, 2000
"""The share of the sets that are chosen on, and their most, where no file is given for that."""


class Sources(NamedTuple):
    """Where the data lie: co-citations to learn from, those to choose on (None: a share of the former), and
    papers that are evaluated on, which nothing is learned from.
    """

    train: tuple[Path, ...]
    dev: Path | None
    leave_out: Path

    @property
    def files(self) -> tuple[Path, ...]:
        """All of them."""
        return (*self.train, *([] if self.dev is None else [self.dev]), self.leave_out)


class Parts(NamedTuple):
    """Pairs to learn from and pairs to choose on, of no common set."""

    train: list[Cocitation]
    dev: list[Cocitation]


def read_parts(sources: Sources, objective: Objective) -> Parts:
    """The pairs that an objective learns from; raises CorpusError where they are unfit or too few."""
    evaluated = TitleIndex(paper.title for paper in read_jsonl(sources.leave_out, lambda text: [text]))

    def read(path: Path) -> list[Cocitation]:
        if objective.sentences:
            return list(read_citing_sentences(path, evaluated))
        return list(read_cocitations(path, evaluated, contexts=objective.aligned == "contexts"))

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
                f"{names}: expected co-citations of papers that are not all related, to learn from and to "
                f"choose on, found {len(pairs):,} pairs of {len(shared):,} papers; give more of them"
            )
    log.info("%d pairs to learn from, %d to choose on", len(parts.train), len(parts.dev))
    return parts


def hold_out(pairs: Sequence[Cocitation]) -> Parts:
    """The pairs of some sets, drawn at random but always alike, and the others."""
    sets = sorted({pair.cited for pair in pairs}, key=sorted)
    count = min(max(2, round(HELD_OUT * len(sets))), MOST_HELD_OUT, len(sets))
    chosen = set(random.Random("held out").sample(sets, count))
    return Parts(
        [pair for pair in pairs if pair.cited not in chosen], [pair for pair in pairs if pair.cited in chosen]
    )


def told_pairs(
    cocitations: Sequence[Cocitation],
    by: str | None,
    reader: Reader,
    aligner: Encoder | None,
    kept: Path,
    *,
    given: bool,
) -> list[Pair]:
    """Pairs with the sentences that belong together, found as `qbe.train.encoder.alignment.aligned` has it.

    Without ``by`` none are told.
    """
    if by is None or aligner is None:
        return [Pair(*pair[:3]) for pair in cocitations]
    told = aligned(
        cocitations,
        by,
        aligner,
        lambda paper: len(reader.window(paper).spans),
        given=given,
        kept=kept,
    )
    return [Pair(*pair[:3], place) for pair, place in zip(cocitations, told, strict=True)]
