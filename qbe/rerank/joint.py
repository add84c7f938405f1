"""Grades of a few candidates by a cross-encoder that reads query and candidate as one text.

It sees which words of one answer which of the other, which no comparison of stored vectors does, and takes
some 50 to 100 milliseconds a pair and processor. So it grades again only the candidates that other grades put
first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np

from qbe.encode.tokenizer import PaperTokenizer
from qbe.grade.model import Estimates
from qbe.models.encoder_files import resolve_encoder
from qbe.models.kinds import verify_digest
from qbe.models.registry import DEFAULT_ENCODER
from qbe.models.reranker_files import (
    JOINT_GRADES,
    JOINT_INPUTS,
    JOINT_MODEL,
    JOINT_OUTPUT,
    pair_input,
    read_joint_card,
)
from qbe.models.session import open_session
from qbe.parallel import Workers
from qbe.rerank.projections import Doubles, Ints
from qbe.types import Paper

TITLE_TOKENS, PAPER_TOKENS = 96, 208
"""How many tokens of a title, and of a title and an abstract together, are read."""
KEPT = 4096
"""Pairs whose grades are kept."""


def paper_ids(tokenizer: PaperTokenizer, paper: Paper) -> list[int]:
    """The token ids of a paper's title and sentences, as many as are read."""
    ids = tokenizer.ids(paper.title)[:TITLE_TOKENS]
    for sentence in paper.sentences:
        if len(ids) >= PAPER_TOKENS:
            break
        ids += tokenizer.ids(sentence.text)
    return ids[:PAPER_TOKENS]


class JointGrader:
    """Grades pairs of papers in background, method and result, each from 0 (unrelated) to 3 (near identical).

    A call of a single-threaded session grades one pair, and the workers make several calls at a time, so that
    no grade depends on other pairs or on the number of threads. Grades of the KEPT pairs that were asked for
    last are kept. Threads may share it.

    >>> with Workers(2) as workers:
    ...     grader = JointGrader(workers=workers)
    ...     near, far = grader.grade(index.paper("s036"), [index.paper("s036"), index.paper("s051")])
    >>> bool((near > far).all()), bool((near > 2).all())
    (True, True)
    """

    def __init__(self, folder: Path = JOINT_GRADES, workers: Workers | None = None) -> None:
        """Raise ModelError where a file is missing or damaged."""
        self.card = read_joint_card(folder)
        tokenizer = resolve_encoder(DEFAULT_ENCODER).tokenizer
        for path in (folder / JOINT_MODEL, tokenizer):
            verify_digest(path, self.card.files.get(path.name), "install qbe again, or train it again")
        self._session = open_session(folder / JOINT_MODEL)
        self._tokenizer, self._workers = PaperTokenizer(tokenizer), workers or Workers()
        self._kept: OrderedDict[Hashable, Doubles] = OrderedDict()
        self._keeping = threading.Lock()

    def grade(self, paper: Paper, candidates: Sequence[Paper]) -> Doubles:
        """The grades of candidates by a paper, (candidates, 3)."""
        query, keys = _content(paper), [_content(each) for each in candidates]
        with self._keeping:
            missing = {
                key: each for key, each in zip(keys, candidates, strict=True) if not self._take(query, key)
            }
            found = {key: self._kept[query, key] for key in keys if key not in missing}
        first = paper_ids(self._tokenizer, paper) if missing else []
        graded = self._workers.map(lambda each: self._pair(first, each), missing.values())
        found.update(zip(missing, graded, strict=True))
        with self._keeping:
            for key in missing:
                self._kept[query, key] = found[key]
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return np.array([found[key] for key in keys], np.float64).reshape(-1, 3)

    def _take(self, query: Hashable, key: Hashable) -> bool:
        """Whether the grades of a pair are kept, which makes it the last that was asked for."""
        if (query, key) not in self._kept:
            return False
        self._kept.move_to_end((query, key))
        return True

    def _pair(self, first: Sequence[int], candidate: Paper) -> Doubles:
        special = self._tokenizer.special
        pair = pair_input(first, paper_ids(self._tokenizer, candidate), special.cls, special.sep)
        (grades,) = self._session.run([JOINT_OUTPUT], dict(zip(JOINT_INPUTS, pair, strict=True)))
        # Rounded, so that kinds of processors seldom rank differently.
        rounded: Doubles = grades[0].astype(np.float64).round(4)
        return rounded


def _content(paper: Paper) -> Hashable:
    return paper.title, tuple(each.text for each in paper.sentences)


class Regrader:
    """Grades the best of graded candidates again: their grade becomes the mean of the one by stored vectors
    and the joint one.
    """

    def __init__(self, grader: JointGrader, count: int) -> None:
        """``count`` candidates are graded again."""
        self._grader, self._count = grader, count
        self._lines = np.array(grader.card.chances, np.float64)

    def best(self, scores: Doubles) -> Ints:
        """The places of the candidates to be graded again, out of scores (candidates,); of equal ones the
        first.
        """
        return np.argsort(-scores, kind="stable")[: self._count]

    def regraded(
        self, paper: Paper, candidates: Sequence[Paper], estimates: Estimates, best: Ints
    ) -> Estimates:
        """The estimates of candidates by a paper, with those of the ``best`` made again."""
        joint = self._grader.grade(paper, [candidates[place] for place in best])
        replaced = Estimates(*(part.copy() for part in estimates))
        grades = (estimates.grades[best] + joint) / 2
        intercepts, slopes = self._lines.T
        similar = 1 / (1 + np.exp(-(intercepts + slopes * grades)))
        # Grades are halves: what is not at least 1.5 is at most 1.
        for part, better in zip(replaced, (grades, similar, 1 - similar), strict=True):
            part[best] = better.round(6)
        return replaced
