"""Titles and abstracts without markup: tags, entities, LaTeX accents, prefixes and copyright lines."""

from __future__ import annotations

import html
import re
import unicodedata
from functools import cache

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
    r"^(?i:abstract|summary)\b\s*(?:[.:\u2014\u2013-]+\s*|(?=(?:We|In|This|The|An?|Background|Objectives?)\b))"
)
_COPYRIGHT = re.compile(
    r"\s*(?:(?:copyright\s*)?(?:\u00a9|\(c\))\s*(?:copyright\s*)?(?:\d{4}|the author|elsevier|springer|"
    r"ieee|acm)|copyright\s+(?:\d{4}|\u00a9)|all rights reserved)[^\n]{0,200}$",
    re.IGNORECASE,
)

_DOLLAR = re.compile(r"(?<!\\)\$")
_LETTERS = "ss|ae|AE|oe|OE|aa|AA|dh|DH|dj|DJ|th|TH|o|O|l|L|i|j"
_LATEX = re.compile(
    r"""\\[%&$#_{}]|\{?\\(?:['"`^~=.]\s*|[uvHckrdb](?:\s+|(?=\{)))(?:\{\s*)?(?:\\[ij]\b|[A-Za-z])\s*\}?\}?"""
    rf"""|\{{?\\(?:{_LETTERS})(?![A-Za-z])(?:\{{\}}|\s)?\}}?"""
)
"""An escaped character, a letter with an accent, or a letter that has a command."""


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


def without_latex(text: str) -> str:
    r"""Text with letters in place of LaTeX's accents and escapes; formulas and other commands stay.

    >>> print(without_latex(r'G\"odel, Erd\H{o}s, \L{}ukasiewicz, {\'E}va, na\"{\i}ve, 5\% of $\alpha$'))
    Gödel, Erdős, Łukasiewicz, Éva, naïve, 5% of $\alpha$
    """
    if "\\" not in text:
        return text
    outside = _split_formulas(text)
    for place in range(0, len(outside), 2):
        outside[place] = _LATEX.sub(lambda match: _letter(match[0]), outside[place])
    return "$".join(outside)


def _split_formulas(text: str) -> list[str]:
    """The text cut at the dollars that begin and end formulas: every second part is a formula."""
    parts = _DOLLAR.split(text)
    return parts if len(parts) % 2 else [*parts[:-2], f"{parts[-2]}${parts[-1]}"]


@cache
def _letter(command: str) -> str:
    """The character that a short LaTeX command stands for; the command where it stands for none."""
    from pylatexenc.latex2text import LatexNodes2Text

    balanced = command + "}" * (command.count("{") - command.count("}"))
    text: str = LatexNodes2Text(strict_latex_spaces=True).latex_to_text(balanced).strip()
    return unicodedata.normalize("NFC", text) if len(text) <= 2 and text else command


def without_braces(text: str) -> str:
    r"""BibTeX's text without the braces that keep letters as they are; those of formulas stay.

    >>> without_braces("{BERT}: Pre-training of {D}eep models with $x_{i}$")
    'BERT: Pre-training of Deep models with $x_{i}$'
    """
    parts = _split_formulas(text)
    return "$".join(
        part.replace("{", "").replace("}", "") if place % 2 == 0 else part for place, part in enumerate(parts)
    )


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
    text = without_latex(plain(text))
    return _COPYRIGHT.sub("", _LABEL.sub("", text, count=1))
