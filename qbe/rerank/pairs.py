"""A query and a candidate as one row of token ids: ``[CLS] query [SEP] candidate [SEP]``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from qbe.encode.windows import SpecialTokens
from qbe.errors import UsageError

QUERY_TOKENS = CANDIDATE_TOKENS = 256
"""Tokens of each side, special tokens counted (Nogueira et al., 2020, section 4)."""


class Pair(NamedTuple):
    """Token ids, and for each its side: 0 up to the first [SEP], 1 behind it."""

    ids: list[int]
    types: list[int]


def closed(title: str) -> str:
    """A title that ends as a sentence does, so that the text behind it begins a new one.

    >>> closed("On stone"), closed("Why stone?")
    ('On stone.', 'Why stone?')
    """
    title = title.rstrip()
    return title if not title or title[-1] in ".?!:" else f"{title}."


def query_room(query_tokens: int) -> int:
    """Tokens of text that a query's budget holds beside [CLS] and [SEP].

    >>> query_room(256)
    254
    """
    return query_tokens - 2


def candidate_room(candidate_tokens: int) -> int:
    """Tokens of text that a candidate's budget holds beside [SEP].

    >>> candidate_room(256)
    255
    """
    return candidate_tokens - 1


def check_budgets(query_tokens: int, candidate_tokens: int, max_tokens: int) -> None:
    """Raise UsageError where a side has no room for a token, or both together exceed what a model reads.

    >>> check_budgets(2, 256, 512)
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected at least 3 query tokens and 2 candidate tokens, special tokens counted,
    found 2 and 256
    """
    if query_room(query_tokens) < 1 or candidate_room(candidate_tokens) < 1:
        raise UsageError(
            "expected at least 3 query tokens and 2 candidate tokens, special tokens counted, found "
            f"{query_tokens} and {candidate_tokens}"
        )
    if query_tokens + candidate_tokens > max_tokens:
        raise UsageError(
            f"expected query and candidate tokens that fit together into the {max_tokens} that the reranker "
            f"reads, found {query_tokens} and {candidate_tokens}; give smaller budgets"
        )


def side(title: Sequence[int], sentences: Sequence[Sequence[int]], room: int) -> list[int]:
    """Title and sentences, cut at the end to ``room`` tokens, so that the title is cut last.

    >>> side([11, 12], [[13, 14], [15, 16]], room=5)
    [11, 12, 13, 14, 15]
    """
    ids = list(title)
    for sentence in sentences:
        ids.extend(sentence)
    return ids[:room]


def pair(query: Sequence[int], candidate: Sequence[int], special: SpecialTokens) -> Pair:
    """Both sides in one row.

    >>> pair([11, 12], [13], SpecialTokens(cls=101, sep=102, unk=100))
    Pair(ids=[101, 11, 12, 102, 13, 102], types=[0, 0, 0, 0, 1, 1])
    """
    first, second = [special.cls, *query, special.sep], [*candidate, special.sep]
    return Pair(first + second, [0] * len(first) + [1] * len(second))
