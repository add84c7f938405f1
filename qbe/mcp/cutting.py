"""Answers of limited length: what does not fit is left out, and the answer says so."""

from __future__ import annotations

from itertools import accumulate
from typing import TypeVar

from pydantic import BaseModel

from qbe.mcp.answers import Answer, Hits, Sentences

LIMIT = 20_000
"""Bytes of an answer, as JSON."""

_SENTENCE = 300
"""Bytes for the sentence that says what was left out."""

HitsT = TypeVar("HitsT", bound=Hits)
SentencesT = TypeVar("SentencesT", bound=Sentences)


def size_of(model: BaseModel) -> int:
    """The bytes of a model as JSON."""
    return len(model.model_dump_json().encode())


def fits(answer: Answer) -> bool:
    """Whether an answer is within the limit."""
    return size_of(answer) <= LIMIT


def fitting_hits(answer: HitsT, start: int) -> HitsT:
    """A page of a ranking within the limit: without the abstracts of the last hits, then without these hits.

    One hit always stays. ``start`` is the one that was asked for.

    >>> from qbe.mcp.answers import Hit
    >>> hit = Hit(paper_id="7", title="On fish", year=None, authors=[], author_count=0, venue=None, links={},
    ...           rank=1, score=1.0, grades=None, why=None, abstract="Fish swim. " * 1000)
    >>> two = Hits(heading="", notes=[], hits=[hit, hit], has_more=False, next_start=None)
    >>> fitting_hits(two, 0).cut
    'To stay below 20 kB, the abstract of hit 2 was left out (get_paper gives it).'
    """
    if fits(answer):
        return answer
    bare = [hit.model_copy(update={"abstract": None}) for hit in answer.hits]
    room = LIMIT - _SENTENCE - size_of(answer.model_copy(update={"hits": []}))
    short = list(accumulate(size_of(hit) + 1 for hit in bare))
    kept = max(1, sum(size <= room for size in short))
    is_short = kept < len(answer.hits)
    long = [0, *accumulate(size_of(hit) + 1 for hit in answer.hits)]
    most = 0 if is_short else kept
    whole = max(n for n in range(most + 1) if n == 0 or long[n] + short[kept - 1] - short[n - 1] <= room)
    return answer.model_copy(
        update={
            "hits": answer.hits[:whole] + bare[whole:kept],
            "has_more": answer.has_more or is_short,
            "next_start": start + kept if is_short else answer.next_start,
            "cut": _cut(start, whole, kept, len(answer.hits)),
        }
    )


def _cut(start: int, whole: int, kept: int, total: int) -> str:
    left_out = []
    if whole < kept:
        several = kept - whole > 1
        left_out.append(
            f"the abstract{'s' * several} of {_places(start + whole, start + kept)} "
            f"{'were' if several else 'was'} left out (get_paper gives {'them' if several else 'it'})"
        )
    if kept < total:
        several = total - kept > 1
        left_out.append(
            f"{_places(start + kept, start + total)} {'were' if several else 'was'} left out (call again "
            f"with start={start + kept})"
        )
    return f"To stay below {LIMIT // 1000} kB, {' and '.join(left_out)}."


def _places(begin: int, end: int) -> str:
    """The ranks of a range of hits, counted from 1."""
    return f"hit {end}" if end == begin + 1 else f"hits {begin + 1} to {end}"


def fitting_sentences(answer: SentencesT, start: int) -> SentencesT:
    """The sentences from ``start`` on, as many as fit, one at least."""
    answer = answer.model_copy(update={"sentences": answer.sentences[start:]})
    if fits(answer):
        return answer
    room = LIMIT - _SENTENCE - size_of(answer.model_copy(update={"sentences": []}))
    sizes = accumulate(size_of(sentence) + 1 for sentence in answer.sentences)
    kept = max(1, sum(size <= room for size in sizes))
    end = start + kept
    return answer.model_copy(
        update={
            "sentences": answer.sentences[:kept],
            "has_more": True,
            "next_start": end,
            "cut": f"To stay below {LIMIT // 1000} kB, the sentences from {end} on were left out (call again "
            f"with start={end}).",
        }
    )
