"""Training and dev pairs of an encoder."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from qbe.corpus.titles import TitleIndex
from qbe.encode.encoder import Encoder
from qbe.errors import CorpusError
from qbe.train.encoder.alignment import align
from qbe.train.encoder.batches import Pair, WindowTokenizer
from qbe.train.encoder.cocitations import Cocitation, read_citing_sentences, read_cocitations
from qbe.train.encoder.recipe import Objective

log = logging.getLogger(__name__)
HELD_OUT, MOST_HELD_OUT = 0.05, 2000
"""The share of the sets that become dev, and the most, where no dev file is given."""


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


def aligned_pairs(
    cocitations: Sequence[Cocitation],
    by: str | None,
    tokenizer: WindowTokenizer,
    aligner: Encoder | None,
    cache: Path,
    *,
    use_given: bool,
) -> list[Pair]:
    """Pairs with the positions of aligned sentences (see `qbe.train.encoder.alignment.align`).

    With ``by`` None no sentences are aligned.
    """
    if by is None or aligner is None:
        return [Pair(*pair[:3]) for pair in cocitations]
    alignments = align(
        cocitations,
        by,
        aligner,
        lambda paper: len(tokenizer.window(paper).spans),
        use_given=use_given,
        cache=cache,
    )
    return [Pair(*pair[:3], alignment) for pair, alignment in zip(cocitations, alignments, strict=True)]
