"""Statements of rights, as publishers and databases put them before or after abstracts."""

from __future__ import annotations

import re

_END_CHARS = 700
"""As many characters at the end of a text are looked through."""

_MARK = (
    r"(?:crown\s+)?(?:(?:copyright\b[\s:]*)?(?:\u00a9|\(c\)(?=\s*(?:copyright|\d{4}|the author)))"
    r"(?:\s*copyright\b)?|copyright\s+(?:(?=\d{4})|by\b))"
)
_WORD = (
    r"(?:(?:[A-Z0-9\u00c0-\u00dd(&|\u2013-]|[a-z][A-Z])[^\s.,;:]*"
    r"|(?:an?|and|as|authors?|behalf|by|de|der|employers?|et|exclusive|for|in|its?|la|licen[cs]ee?|of|on|or|part|published"
    r"|the|their|to|trading|und|under|und|with)(?:\(s\)+)?(?![^\s.,;:)]))"
)
"""A word of a holder's name, and of what is said of it: few begin in lower case."""

_LEGAL = (
    r"\s*(?:all\s+rights\s+reserved|published\s+by|this\s+is\s+an\s+open[\s-]access|this\s+(?:article|work)\s+is"
    r"\s+(?:protected|licensed|distributed|an\s+open)|open[\s-]access|peer[\s-]?review|distributed\s+under|no\s+claim"
    r"|see\s+rights|re-?use\s+permitted|no\s+commercial|for\s+permissions?|licensee)"
    r"(?:[^.]|\.(?=(?-i:[a-z0-9/]))){0,250}(?:\.|$)"
)
_STATEMENT = rf"(?:{_MARK})[\s.,;:]*(?-i:{_WORD})"
_AT_BEGIN = re.compile(
    rf"\s*{_STATEMENT}(?:[\s.,;:]+(?-i:{_WORD})){{0,30}}?(?:(?<=\w\w)|(?<=\.(?-i:[A-Z]))|(?<=\)))\.(?!\s*,)(?:{_LEGAL})*\s*",
    re.IGNORECASE,
)
_AT_END = re.compile(
    rf"(?:\s*[(\[][^()\[\]]{{0,60}})?(?:(?<!\w){_STATEMENT}(?:[\s.,;:]+(?-i:{_WORD})){{0,50}}"
    rf"|(?:(?<=[.!?)])\s+|\A)(?-i:Published\s+by(?:[\s.,;:]+{_WORD}){{1,9}}|(?=All rights|This article is)))"
    rf"[\s.,;:]*(?:{_LEGAL})*[\s.)\]]*$",
    re.IGNORECASE,
)
_OF_EBSCO = re.compile(
    r"\s*(?:\[?ABSTRACT\s+FROM\s+(?:AUTHORS?|PUBLISHER)\b|Copyright\s+of\s.{1,300}?\sis\s+the\s+property\s+of\b).*$",
    re.DOTALL,
)


def without_rights(text: str) -> str:
    """An abstract without a statement of rights at its beginning and its end.

    >>> without_rights("\u00a9 2019 Elsevier B.V.We count (c) 2019 fish. Copyright 2019 The Authors.")
    'We count (c) 2019 fish.'
    >>> without_rights("Fish swim. (PsycINFO Database Record (c) 2019 APA, all rights reserved)")
    'Fish swim.'
    """
    end = text[-_END_CHARS:].lower()
    if "right" in end or "\u00a9" in end or "(c)" in end or "abstract from" in end or "published by" in end:
        for pattern in (_OF_EBSCO, _AT_END):
            if statement := pattern.search(text, max(0, len(text) - _END_CHARS)):
                text = text[: statement.start()].rstrip()
    begin = text[:30].lower()
    if "\u00a9" in begin or "(c)" in begin or "copyright" in begin:
        text = _AT_BEGIN.sub("", text, count=1) if _AT_BEGIN.match(text) else text
    return text
