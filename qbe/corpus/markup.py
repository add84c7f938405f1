"""Titles and abstracts without markup: tags, entities, LaTeX, prefixes and copyright lines."""

from __future__ import annotations

import html
import re

from qbe.corpus.latex import without_latex
from qbe.corpus.rights import without_rights

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
