"""Texts that databases and programs print in place of an abstract that they do not have."""

from __future__ import annotations

from collections.abc import Sequence

_MAX_CHARS = 200
"""Longer texts are abstracts."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ALONE = _words(
    "na nan nil nat n/a n.a n/d n.d #n/a unknown undefined empty tba tbd pending abstract summary 无 無 "
    "无摘要 無摘要 暂无摘要 暂无 摘要なし 抄録なし 초록없음"
)
_NEGATIONS = _words(
    "no not none null without lacks lacking missing unavailable absent omitted isn't doesn't hasn't "
    "cannot kein keine nicht ohne pas sans aucun aucune sin sem não nao non nessun нет"
)
_OTHERS = _words(
    "a abstract abstracts an any are article at author authors available be been book but by chapter "
    "content contain contains currently data database description displayed do document does editorial "
    "english entry exist exists for found from full given has have here in included information is "
    "issue it item journal language of on online paper present preview provided publication publisher "
    "recorded record see so sorry source specified submitted summary supplied text that the there this "
    "time title to was website with work yet zusammenfassung kurzfassung verfügbar vorhanden de "
    "disponible résumé resumé résumés resume resumen resumo disponível disponivel riassunto disponibile "
    "аннотация аннотации"
)


def is_placeholder(sentences: Sequence[str]) -> bool:
    """Whether sentences are no abstract: nothing, signs alone, or a text that stands for an absent one.

    Such a text is a word of _ALONE, or has a negation and but for the few words that go with it no others.

    >>> is_placeholder(["[No abstract available]"]), is_placeholder(["n/a"]), is_placeholder(["--", "?"])
    (True, True, True)
    >>> is_placeholder(["No abstract algebra is needed."]), is_placeholder(["None of them swim."])
    (False, False)
    """
    if sum(map(len, sentences)) > _MAX_CHARS:
        return False
    text = " ".join(sentences).casefold().replace("\u2019", "'")
    if not any(map(str.isalpha, text)):
        return True
    words = [
        word
        for word in (
            each.strip(".,:;!?*\"'\u201c\u201d\u00ab\u00bb()[]{}<>-\u2013\u2014_") for each in text.split()
        )
        if word
    ]
    if len(words) == 1 and words[0] in _ALONE:
        return True
    return not _NEGATIONS.isdisjoint(words) and all(word in _NEGATIONS or word in _OTHERS for word in words)
