"""A reranker that reads query and candidate as one text: any exported BERT-family pair classifier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import numpy as np

from qbe.encode.selection import selected_positions
from qbe.encode.tokenizer import PaperTokenizer
from qbe.errors import ModelError
from qbe.models.reranker_files import (
    PAIR_INPUTS,
    SCORE,
    CrossEncoderMetadata,
    RerankerFiles,
    open_reranker_session,
)
from qbe.parallel import Memo, ordered_map
from qbe.query import Query
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
from qbe.rerank.reranker import Asked, RerankScore
from qbe.types import Paper


class CrossEncoder:
    """Scores ``[CLS] query title. query sentences [SEP] candidate title. abstract [SEP]`` in one pass.

    The query's sentences are those that it is about, in the order of the abstract. One pair is one call of
    a single-threaded session, and ``threads`` pairs are under way at a time: see `qbe.encode.encoder` for
    why. It knows no sentences: its judgements have no match.
    """

    def __init__(
        self,
        files: RerankerFiles,
        threads: int = 1,
        query_tokens: int = QUERY_TOKENS,
        candidate_tokens: int = CANDIDATE_TOKENS,
    ) -> None:
        """Load model and tokenizer.

        Raises ModelError when a file is missing, damaged or foreign, UsageError for budgets of tokens that
        the model cannot read.
        """
        card = files.card
        if not isinstance(card, CrossEncoderMetadata):
            raise ModelError(f"{files.folder}: expected a pair cross-encoder, found {card.kind} rerankers")
        check_budgets(query_tokens, candidate_tokens, card.max_tokens)
        files.verify()
        self.name = card.name
        self.threads = threads
        self._query_room, self._candidate_room = query_room(query_tokens), candidate_room(candidate_tokens)
        self._inputs = PAIR_INPUTS if card.token_types else PAIR_INPUTS[:-1]
        self._session = open_reranker_session(files.model(), self._inputs, [SCORE])
        self._tokenizer = PaperTokenizer(files.tokenizer)

    def score(
        self, query: Query, papers: Sequence[Paper], progress: Callable[[int], None] | None = None
    ) -> list[RerankScore]:
        """See `qbe.rerank.reranker.Reranker`."""
        return self.batch_score([(query, papers)], progress)[0]

    def batch_score(
        self, asked: Asked, progress: Callable[[int], None] | None = None
    ) -> list[list[RerankScore]]:
        """See `qbe.rerank.reranker.Reranker`."""
        queries = [self._query(query) for query, _ in asked]
        pairs = [(number, paper) for number, (_, papers) in enumerate(asked) for paper in papers]
        # The longest first, so that no thread is left alone with a long one at the end.
        order = sorted(range(len(pairs)), key=lambda i: -len(pairs[i][1].title) - len(pairs[i][1].abstract))
        sides = Memo(self._candidate)
        found = ordered_map(
            lambda i: self._score(queries[pairs[i][0]], sides(pairs[i][1])), order, self.threads
        )
        scores = [0.0] * len(pairs)
        for i, score in zip(order, found, strict=True):
            scores[i] = score
            if progress:
                progress(1)
        judged = (RerankScore(score) for score in scores)
        return [list(islice(judged, len(papers))) for _, papers in asked]

    def _query(self, query: Query) -> list[int]:
        positions = sorted(selected_positions(query))
        about = (query.paper.sentences[position].text for position in positions)
        return self._side(query.paper.title, about, self._query_room)

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
