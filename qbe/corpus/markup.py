"""Titles and abstracts without markup: tags, entities, LaTeX, prefixes and copyright lines."""

from __future__ import annotations

import html
import re

from qbe.corpus.latex import without_latex

_TAG = re.compile(
    r"<(/?)(?:(?:jats|mml|ns\d*):[\w-]+|p|br|i|b|u|em|strong|sup|sub|span|div|sec|title|italic|bold|sc|"
    r"underline|list|list-item|abstract|abstracttext|inf|fixed-case|tex-math|url|a|inline-formula|h[1-6]|ul|"
    r"ol|li|tt|code)(?:\s+[\w:-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'))*\s*/?>",
    re.IGNORECASE,
)
_BLOCK = re.compile(
    r"<(/?)(?:(?:jats:)?(?:p|br|sec|title|list|list-item|div|abstracttext|h[1-6]|ul|ol|li))\b", re.IGNORECASE
)
_LABEL = re.compile(
    r"^(?i:abstract|summary)\b\s*(?:[.:\u2014\u2013]+\s*|-+\s+|(?=(?:We|In|This|The|An?|Background|Objectives?)\b))"
)
_COPYRIGHT = re.compile(
    r"\s*(?:(?:copyright\s*)?(?:\(c\)\s*(?:copyright\s*)?\d{4}|\u00a9\s*(?:copyright\s*)?(?:\d{4}|the author|"
    r"elsevier|springer|ieee|acm))|copyright\s+(?:\d{4}\b(?!\s+(?-i:[a-z]))|\u00a9)|all rights reserved)"
    r"[^\n]{0,200}$",
    re.IGNORECASE,
)
_COPYRIGHT_CHARS = 300
"""Where a copyright line is looked for: in as many characters at the end of the text."""


def plain(text: str) -> str:
    """Text without tags of HTML and JATS, without entities, in single spaces.

    A ``<`` that begins no tag of these stays, as in formulas.

    >>> plain("<jats:p>Fish &amp;amp; <i>chips</i>, if a<b and b>c.</jats:p>")
    'Fish & chips, if a<b and b>c.'
    """
    if "&" in text:
        text = html.unescape(html.unescape(text))
    if "<" in text:
        text = _TAG.sub(lambda tag: " " if _BLOCK.match(tag[0]) else "", text)
    return " ".join(text.split())


def clean_title(text: str) -> str:
    r"""A title without markup.

    >>> print(clean_title("On <i>fish</i> &amp; G\\\"odel"))
    On fish & Gödel
    """
    return without_latex(plain(text))


def clean_abstract(text: str) -> str:
    """An abstract without markup, without the word Abstract before it and a copyright line behind it.

    >>> clean_abstract("<p>Abstract: Fish swim.</p> (c) 2019 Elsevier B.V. All rights reserved.")
    'Fish swim.'
    """
    text = _LABEL.sub("", without_latex(plain(text)), count=1)
    tail = text[-_COPYRIGHT_CHARS:].lower()
    if not ("right" in tail or "\u00a9" in tail or "(c)" in tail):  # finding none takes longest
        return text
    line = _COPYRIGHT.search(text, max(0, len(text) - _COPYRIGHT_CHARS))
    return text[: line.start()] if line else text
