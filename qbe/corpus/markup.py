"""Titles and abstracts without markup: tags, entities, LaTeX accents, prefixes and copyright lines."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

from qbe.corpus.rights import without_rights

_TAG = re.compile(
    r"<(/?)(?:(?:jats|mml|ns\d*):[\w-]+|p|br|i|b|u|em|strong|sup|sub|span|div|sec|title|italic|bold|sc|"
    r"underline|list|list-item|abstract|abstracttext|copyrightinformation|articletitle|inf|fixed-case|tex-math|url|a|inline-formula|h[1-6]|ul|"
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

_FORMULA = re.compile(r"(?<!\\)(\$\$[^$]++\$\$|\$(?:[^$\\]|\\.)++\$)", re.DOTALL)
_HIDDEN = "\0"
"""Stands for a formula while the text around it is changed; papers have no such character."""

_ACCENTS = dict(
    zip(
        "'`^\"~=.uvHckrdb",
        "\u0301\u0300\u0302\u0308\u0303\u0304\u0307\u0306\u030c\u030b\u0327\u0328\u030a\u0323\u0331",
        strict=True,
    )
)
_SYMBOLS = {
    "textless": "<",
    "textgreater": ">",
    "textbar": "|",
    "textquotedbl": '"',
    "textunderscore": "_",
    "textasciicircum": "^",
    "copyright": "\u00a9",
    "S": "\u00a7",
    "TeX": "TeX",
    "LaTeX": "LaTeX",
}
"""Commands that pylatexenc does not know, or knows otherwise."""

_COMMAND = re.compile(
    r"""(\{)?\\(?:"""
    r"""(['"`^~=.]\s*|[uvHckrdb](?:\s+|(?=\{)))"""
    r"""(\{\s*(?:\\[ij]|[A-Za-z])?\s*\}|\\[ij](?![A-Za-z])(?:\{\}|\s+)?|[A-Za-z])"""
    r"""|(ss|ae|AE|oe|OE|aa|AA|dh|DH|dj|DJ|th|TH|o|O|l|L|i|j)(?![A-Za-z])(?:\{\}|\s+)?"""
    r"""|([A-Za-z]{1,24})(?![A-Za-z])(?:\{\})?(?![\[{])"""
    r""")(?(1)\s*\})"""
)
"""A letter with an accent, a letter that is a command, or a command without arguments; perhaps in braces."""

_FONT = "em|it|bf|sl|sc|tt|rm|sf|itshape|bfseries|scshape|ttfamily"
_STYLED = re.compile(
    r"\\(?:emph|text(?:it|bf|rm|sc|tt|sf|sl|up|md|normal|superscript|subscript)|underline|mbox|url)"
    r"\s*\{([^{}]*)\}"
    rf"|\{{\\(?:{_FONT})(?:\s+|(?=\\))([^{{}}]*)\}}"
    rf"|\\href\s*\{{[^{{}}{_HIDDEN}]*\}}\s*\{{([^{{}}]*)\}}"
)
_NESTED_STYLES = 4
_ESCAPE = re.compile(
    r"\{\\([%&$#_{}])\}|\\([%&$#_{}])"
    r"|\\([,;])(?=\S)|\\( )"
    rf"|\\-|\\(?:{_FONT})(?![A-Za-z])\s*"
)
"""A character with a meaning in LaTeX, a space, and what is to vanish: hyphenation and fonts."""
_RELATION = re.compile(r"\$\s*([<>|])\s*\$")


def plain(text: str) -> str:
    """Text without tags of HTML and JATS, without entities, in single spaces.

    A ``<`` that begins no tag of these stays, as in formulas.

    >>> plain("<jats:p>Fish &amp;amp; <i>chips</i>, if a<b and b>c.</jats:p>")
    'Fish & chips, if a<b and b>c.'
    """
    for _ in range(_MOST_ESCAPES):
        escaped, text = text, html.unescape(text) if "&" in text else text
        if text == escaped:
            break
    if "<" in text:
        text = _TAG.sub(lambda tag: " " if _BLOCK.match(tag[0]) else "", text)
    return " ".join(text.split())


def without_latex(text: str) -> str:
    r"""Text with characters in place of LaTeX's accents, symbols and escapes, and without its fonts.

    Formulas in dollars and other commands stay.

    >>> print(without_latex(r'G\"odel, Erd\H{o}s, \L{}ukasiewicz, {\'E}va, na\"{\i}ve caf\'e, 5\% of $\'x$'))
    Gödel, Erdős, Łukasiewicz, Éva, naïve café, 5% of $\'x$
    >>> print(without_latex(r"\emph{In {\it vivo}}: a \textless b \& $\emph{c}$, see \cite{d}"))
    In vivo: a < b & $\emph{c}$, see \cite{d}
    """
    return _outside_formulas(text, _decoded) if "\\" in text else text


def without_braces(text: str) -> str:
    r"""Text without the braces that keep letters as they are in BibTeX; those of formulas stay.

    >>> without_braces("{BERT}: Pre-training of {D}eep models with $x_{i}$")
    'BERT: Pre-training of Deep models with $x_{i}$'
    """
    return _outside_formulas(text, _unbraced) if "{" in text or "}" in text else text


def clean_bibtex(text: str) -> str:
    r"""A text of BibTeX without LaTeX and braces, with characters for its ties, dashes and quotation marks.

    >>> print(clean_bibtex(r"{\textquotedblleft}{BERT}'' for {\$}5--6, {\{}G{\"o}del{\}}~et~al.: $<$5{\%}"))
    “BERT” for $5–6, Gödel et al.: <5%
    """
    if "$" in text:
        text = _RELATION.sub(r"\1", text)
    return _outside_formulas(text, _typeset)


def _outside_formulas(text: str, change: Callable[[str], str]) -> str:
    """The text, changed except for its formulas."""
    if "$" not in text:
        return change(text)
    if _HIDDEN in text:
        return text
    parts = _FORMULA.split(text)
    formulas = iter(parts[1::2])
    return re.sub(_HIDDEN, lambda _: next(formulas), change(_HIDDEN.join(parts[::2])))


def _typeset(text: str) -> str:
    if "~" in text:
        text = re.sub(r"(?<![\\/])~", " ", text)
    text = _unbraced(_decoded(text))
    if "--" in text:
        text = text.replace("---", "\u2014").replace("--", "\u2013")
    return text.replace("``", "\u201c").replace("''", "\u201d")


def _unbraced(text: str) -> str:
    return text.replace("{", "").replace("}", "")


def _decoded(text: str) -> str:
    if "\\" not in text:
        return text
    text = _COMMAND.sub(lambda command: _character(command[0]), text)
    for _ in range(_NESTED_STYLES):
        text, count = _STYLED.subn(lambda styled: styled[styled.lastindex or 0], text)
        if not count:
            break
    return _ESCAPE.sub(_plain_character, text)


def _plain_character(escape: re.Match[str]) -> str:
    if escape[3] or escape[4]:
        return " "
    return escape[1] or escape[2] or ""


@lru_cache(maxsize=4096)
def _character(command: str) -> str:
    """The character that a LaTeX command stands for; the command where it stands for none."""
    match = _COMMAND.fullmatch(command)
    if match is None:
        return command
    _, accent, base, letter, name = match.groups()
    if not accent:
        return _symbol(letter or name) or command
    accent, letter = accent.strip(), base.strip("{}\\ \t\r\n")
    if not letter:
        return command if accent.isalpha() else accent
    if accent == '"' and base[0] not in "{\\aeiouyAEIOUY":
        return command  # a quotation mark
    composed = unicodedata.normalize("NFC", letter + _ACCENTS[accent])
    return composed if len(composed) == 1 or base[0] == "{" else command


def _symbol(name: str) -> str:
    """The character that a command without arguments stands for, or ''."""
    if name in _SYMBOLS:
        return _SYMBOLS[name]
    from pylatexenc.latex2text import get_default_latex_context_db

    spec = get_default_latex_context_db().get_macro_spec(name)
    replacement = getattr(spec, "simplify_repl", None)
    character = replacement.strip() if isinstance(replacement, str) else ""
    return character if len(character) == 1 else ""


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
    text = without_latex(plain(_RIGHTS.sub("", text) if "<" in text else text))
    return without_rights(_LABEL.sub("", without_rights(text), count=1))
