"""A reranker that reads query and candidate as one text: any exported BERT-family pair classifier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from qbe.encode.aspect import EncodedAspect
from qbe.encode.tokenizer import PaperTokenizer
from qbe.errors import ModelError
from qbe.models.reranker_files import (
    PAIR_INPUTS,
    SCORE,
    CrossEncoderMetadata,
    RerankerFiles,
    open_reranker_session,
)
from qbe.parallel import Memo, Workers
from qbe.rerank.pairs import (
    CANDIDATE_TOKENS,
    QUERY_TOKENS,
    candidate_room,
    check_budgets,
    closed,
    pair,
    query_room,
    side,
)
from qbe.rerank.reranker import Progress, RerankRequest, RerankScore
from qbe.types import Paper


class CrossEncoder:
    """Scores ``[CLS] query title. query sentences [SEP] candidate title. abstract [SEP]`` in one pass
    (Nogueira et al., 2020, section 4).

    The query's sentences are those of its aspect, in the order of the abstract. One pair is one call of a
    single-threaded session, and the workers score several pairs at a time: see `qbe.encode.encoder` for
    why. It compares no sentences: its scores have no match.
    """

    needs_vectors = False

    def __init__(
        self,
        files: RerankerFiles,
        workers: Workers | None = None,
        query_tokens: int = QUERY_TOKENS,
        candidate_tokens: int = CANDIDATE_TOKENS,
    ) -> None:
        """Load model and tokenizer.

        Raises ModelError when a file is missing, damaged or of another kind, UsageError for budgets of tokens
        that the model cannot read.
        """
        metadata = files.metadata
        if not isinstance(metadata, CrossEncoderMetadata):
            raise ModelError(
                f"{files.folder}: expected a pair cross-encoder, found {metadata.kind} rerankers"
            )
        check_budgets(query_tokens, candidate_tokens, metadata.max_tokens)
        files.verify()
        self.name = metadata.name
        self._workers = workers or Workers()
        self._query_room, self._candidate_room = query_room(query_tokens), candidate_room(candidate_tokens)
        self._inputs = PAIR_INPUTS if metadata.token_types else PAIR_INPUTS[:-1]
        self._session = open_reranker_session(files.model(), self._inputs, [SCORE])
        self._tokenizer = PaperTokenizer(files.tokenizer)

    def batch_score(
        self, requests: Sequence[RerankRequest], progress: Progress | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.rerank.reranker.Reranker.batch_score`."""
        queries = [self._query(request.query) for request in requests]
        pairs = [(number, paper) for number, request in enumerate(requests) for paper in request.papers]
        # The longest first, so that no thread is left alone with a long one at the end.
        order = sorted(range(len(pairs)), key=lambda i: -len(pairs[i][1].title) - len(pairs[i][1].abstract))
        candidates = Memo(self._candidate)
        computed = self._workers.map(
            lambda i: self._score(queries[pairs[i][0]], candidates(pairs[i][1])), order
        )
        scores = [0.0] * len(pairs)
        for i, score in zip(order, computed, strict=True):
            scores[i] = score
            if progress:
                progress(1)
        in_order = (RerankScore(score) for score in scores)
        return [list(islice(in_order, len(request.papers))) for request in requests]

    def _query(self, query: EncodedAspect) -> list[int]:
        paper = query.aspect.paper
        texts = (paper.sentences[position].text for position in sorted(query.positions))
        return self._side(paper.title, texts, self._query_room)

    def _candidate(self, paper: Paper) -> list[int]:
        texts = (sentence.text for sentence in paper.sentences)
        return self._side(paper.title, texts, self._candidate_room)

    def _score(self, query: Sequence[int], candidate: Sequence[int]) -> float:
        ids, types = pair(query, candidate, self._tokenizer.special)
        arrays = {
            "input_ids": np.array([ids], np.int64),
            "attention_mask": np.ones((1, len(ids)), np.int64),
            "token_type_ids": np.array([types], np.int64),
        }
        (scores,) = self._session.run([SCORE], {name: arrays[name] for name in self._inputs})
        return float(scores[0])

    def _side(self, title: str, sentences: Iterable[str], room: int) -> list[int]:
        ids = self._tokenizer.ids
        return side(ids(closed(title)), [ids(text) for text in sentences], room)
