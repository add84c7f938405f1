"""Titles and abstracts without markup: tags, entities, LaTeX, prefixes and copyright lines."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from qbe.corpus.latex import without_latex

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


_MAX_CHARS = 200
"""Longer texts are abstracts."""

_TAG = re.compile(
    r"<(/?)(?:(?:jats|mml|ns\d*):[\w-]+|p|br|i|b|u|em|strong|sup|sub|span|div|sec|title|italic|bold|sc|"
    r"underline|list|list-item|abstract|abstracttext|copyrightinformation|articletitle|inf|fixed-case|scp|tex-math|url|a|inline-formula|h[1-6]|ul|"
    r"ol|li|tt|code)(?:\s+[\w:-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'))*\s*/?>",
    re.IGNORECASE,
)
_BLOCK = re.compile(
    r"<(/?)(?:(?:jats:)?(?:p|br|sec|title|list|list-item|div|abstracttext|h[1-6]|ul|ol|li))\b", re.IGNORECASE
)
_LABEL = re.compile(
    r"^(?i:abstract|summary)\b\s*(?:[.:\u2014\u2013]+\s*|-+\s+|(?=(?:We|In|This|The|An?|Background|Objectives?)\b))"
)
_RIGHTS = re.compile(r"<CopyrightInformation\b[^<>]*>[^<>]*</CopyrightInformation>", re.IGNORECASE)
_MOST_ESCAPES = 4


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


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ALONE = _words(
    "na nan nil nat n/a n.a n/d n.d #n/a unknown undefined empty tba tbd pending abstract summary none null "
    "missing unavailable absent omitted"
)
_NEGATIONS = _words(
    "no not none null without lacks lacking missing unavailable absent omitted isn't doesn't hasn't cannot"
)
_SUBJECTS = _words("abstract abstracts summary available unavailable provided supplied submitted displayed")
_OTHERS = _words(
    "a an any are article at author authors be been book but by chapter content contain contains "
    "currently data database description do document does editorial english entry exist exists for "
    "found from full given has have here in included information is issue it item journal language of "
    "on online paper present preview publication publisher record recorded see so sorry source specified "
    "text that the there this time title to was website with work yet"
)


def is_placeholder(sentences: Sequence[str]) -> bool:
    """Whether sentences are no abstract: nothing, signs alone, or a text that stands for an absent one.

    Such a text is a word of _ALONE, or says of a subject that it is absent, in few words.

    >>> is_placeholder(["[No abstract available]"]), is_placeholder(["n/a"]), is_placeholder(["--", "?"])
    (True, True, True)
    >>> is_placeholder(["No abstract algebra is needed."]), is_placeholder(["No."])
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
    negations, subjects = _NEGATIONS.intersection(words), _SUBJECTS.intersection(words)
    return bool(negations and subjects) and _OTHERS.issuperset({*words} - negations - subjects)


def plain(text: str) -> str:
    """Text without tags of HTML and JATS, without entities, in single spaces.

    A ``<`` that begins no tag of these stays, as in formulas.

    >>> plain("<jats:p>Fish &amp;amp; <i>chips</i>, if a<b and b>c.</jats:p>")
    'Fish & chips, if a<b and b>c.'
    """
    for _ in range(_MOST_ESCAPES if "&" in text else 0):
        text = html.unescape(text)
    if "<" in text:
        text = _TAG.sub(lambda tag: " " if _BLOCK.match(tag[0]) else "", text)
    return single_spaced(text)


def single_spaced(text: str) -> str:
    r"""Text with one space for all white space between words, and none at its ends.

    >>> single_spaced(" On\n  fish")
    'On fish'
    """
    # Of white space isprintable() lets only the space pass; it is much faster than to split and join.
    return text.strip() if text.isprintable() and "  " not in text else " ".join(text.split())


def clean_title(text: str) -> str:
    r"""A title without markup.

    >>> print(clean_title("On <i>fish</i> &amp; G\\\"odel"))
    On fish & Gödel
    """
    return without_latex(plain(text))


def clean_abstract(text: str) -> str:
    """An abstract without markup, without the word Abstract before it and statements of rights.

    >>> clean_abstract("<p>Abstract: Fish swim.</p> (c) 2019 Elsevier B.V. All rights reserved.")
    'Fish swim.'
    """
    text = without_rights(without_latex(plain(_RIGHTS.sub("", text) if "<" in text else text)))
    label = _LABEL.match(text)
    return without_rights(text[label.end() :]) if label else text
