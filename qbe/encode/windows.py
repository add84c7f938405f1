"""A paper's tokens as windows that fit the encoder, with the span of each sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Window(NamedTuple):
    """One pass through the encoder.

    ``ids`` are token ids with [CLS] and [SEP]; ``spans`` gives (begin, end) of each sentence in it,
    sentences being consecutive; spans are never empty.
    """

    ids: list[int]
    spans: list[tuple[int, int]]


class SpecialTokens(NamedTuple):
    """Ids of the tokenizer's own tokens."""

    cls: int
    sep: int
    unk: int


def title_room(max_tokens: int) -> int:
    """How many tokens of a title a window takes."""
    return max_tokens // 4


def sentence_room(title: Sequence[int], max_tokens: int) -> int:
    """How many tokens of one sentence a window takes beside the title, [CLS] and [SEP]."""
    return max_tokens - min(len(title), title_room(max_tokens)) - 2


def windows(
    title: Sequence[int], sentences: Sequence[Sequence[int]], special: SpecialTokens, max_tokens: int
) -> Iterator[Window]:
    """Lay out ``[CLS] title sentence sentence ... [SEP]`` in as few windows as hold all sentences.

    An abstract longer than one window is continued in the next behind the title again, so that every
    sentence keeps its topic as context. The title is cut to a quarter of a window, a sentence to what
    a window has left beside the title. A sentence without tokens gets one [UNK].
    """
    head = [special.cls, *title[: title_room(max_tokens)]]
    room = sentence_room(title, max_tokens)
    ids, spans = list(head), list[tuple[int, int]]()
    for sentence in sentences:
        tokens = list(sentence[:room]) or [special.unk]
        if spans and len(ids) + len(tokens) + 1 > max_tokens:
            yield Window([*ids, special.sep], spans)
            ids, spans = list(head), []
        spans.append((len(ids), len(ids) + len(tokens)))
        ids += tokens
    yield Window([*ids, special.sep], spans)
