"""Joint grades: a cross-encoder that reads two papers as one text and grades them in each facet."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qbe.models.cards import (
    DEFAULT_ENCODER,
    DEFAULT_RERANKER,
    JOINT_GRADER,
    JOINT_GRADES,
    JOINT_INPUTS,
    JOINT_MODEL,
    JOINT_OUTPUT,
    read_card,
    verify_digest,
)
from qbe.models.folders import resolve_encoder
from qbe.models.session import open_session
from qbe.models.tokenizer import PaperTokenizer, pair_input
from qbe.search.rerank.cross_encoder import side
from qbe.search.rerank.reranker import Progress, RerankRequest, RerankScore
from qbe.types import Facet, Paper
from qbe.util.parallel import Workers

TITLE_TOKENS, PAPER_TOKENS = 96, 208
"""How many tokens of a title, and of a title and an abstract together, are read."""
KEPT = 4096
"""Pairs whose grades are kept."""


def paper_ids(tokenizer: PaperTokenizer, paper: Paper) -> list[int]:
    """The token ids of a paper's title and sentences, as many as are read."""
    sentences = [tokenizer.ids(sentence.text) for sentence in paper.sentences]
    return side(tokenizer.ids(paper.title)[:TITLE_TOKENS], sentences, PAPER_TOKENS)


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
        self.card = read_card(folder, JOINT_GRADER)
        tokenizer = resolve_encoder(DEFAULT_ENCODER).tokenizer
        for path in (folder / JOINT_MODEL, tokenizer):
            verify_digest(path, self.card.files.get(path.name), "install qbe again, or train it again")
        self._session = open_session(folder / JOINT_MODEL, inputs=JOINT_INPUTS, outputs=[JOINT_OUTPUT])
        self._tokenizer, self._workers = PaperTokenizer(tokenizer), workers or Workers()
        self._kept: OrderedDict[Hashable, NDArray[np.float64]] = OrderedDict()
        self._keeping = threading.Lock()

    def grade(
        self, paper: Paper, candidates: Sequence[Paper], progress: Progress | None = None
    ) -> NDArray[np.float64]:
        """The grades of candidates by a paper, (candidates, 3); ``progress`` is told how many have theirs."""
        query, keys = _content(paper), [_content(each) for each in candidates]
        with self._keeping:
            missing = {
                key: each for key, each in zip(keys, candidates, strict=True) if not self._take(query, key)
            }
            found = {key: self._kept[query, key] for key in keys if key not in missing}
        first = paper_ids(self._tokenizer, paper) if missing else []
        graded = self._workers.map(lambda each: self._pair(first, each), missing.values())
        if progress and len(keys) > len(missing):
            progress(len(keys) - len(missing))
        for key, grades in zip(missing, graded, strict=True):
            found[key] = grades
            if progress:
                progress(1)
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

    def _pair(self, first: Sequence[int], candidate: Paper) -> NDArray[np.float64]:
        special = self._tokenizer.special
        pair = pair_input(first, paper_ids(self._tokenizer, candidate), special.cls, special.sep)
        (grades,) = self._session.run([JOINT_OUTPUT], dict(zip(JOINT_INPUTS, pair, strict=True)))
        # Rounded, so that kinds of processors seldom rank differently.
        rounded: NDArray[np.float64] = grades[0].astype(np.float64).round(4)
        return rounded


def _content(paper: Paper) -> Hashable:
    return paper.title, tuple(each.text for each in paper.sentences)


class JointReranker:
    """Scores a candidate by its joint grade in the facet of the query, without a match of sentences."""

    name = DEFAULT_RERANKER
    needs_vectors = False
    takes_whole_abstracts = False

    def __init__(self, folder: Path = JOINT_GRADES, workers: Workers | None = None) -> None:
        """Errors are those of `JointGrader`."""
        self._grader = JointGrader(folder, workers)

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.search.rerank.reranker.Reranker.batch_score`."""
        scores = []
        for request in requests:
            aspect = request.query.aspect
            assert aspect.facet is not None
            grades = self._grader.grade(aspect.paper, request.papers, progress)
            column = grades[:, list(Facet).index(aspect.facet)]
            scores.append([RerankScore(float(grade)) for grade in column])
        return scores
