"""Text without LaTeX: accents, symbols, escapes, styles and macros become the characters they stand for."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_FORMULA = re.compile(r"(?<!\\)(\$\$[^$]++\$\$|\$(?:[^$\\]++|\\.)++\$)", re.DOTALL)
_RELATION = re.compile(r"\$\s*(?:([<>|])|\\sim)\s*\$")
_ENSURED = re.compile(r"\\ensuremath\s*\{((?:[^{}]++|\{[^{}]*+\})*+)\}")
_HIDE = str.maketrans("\\{}$~", "\1\2\3\4\5")
_SHOWN = tuple(zip("\1\2\3\4\5", "\\{}$~", strict=True))
_HIDDEN_FORMULA = "\6"
"""Control characters stand for what is to stay as it is, while the text around it is changed."""

_ACCENTS = dict(
    zip(
        "'`^\"~=.uvHckrdb",
        "\u0301\u0300\u0302\u0308\u0303\u0304\u0307\u0306\u030c\u030b\u0327\u0328\u030a\u0323\u0331",
        strict=True,
    )
)
_SYMBOLS = (
    {"textless": "<", "textgreater": ">", "textbar": "|", "textquotedbl": '"', "textunderscore": "_"}
    | {"textasciicircum": "^", "textbraceleft": "{", "textbraceright": "}", "textquotesingle": "'"}
    | {"copyright": "\u00a9", "S": "\u00a7", "TeX": "TeX", "LaTeX": "LaTeX", "lbrace": "{", "rbrace": "}"}
    | {"degree": "\u00b0", "sim": "~", "quad": " ", "qquad": " ", "par": " ", "newline": " ", "space": " "}
)
"""Symbols that pylatexenc does not know, or knows otherwise."""

_EATS_SPACE = re.compile("[aA][aAeE]|[oO][eE]?|[dDtT]h|D[HJ]|TH|dj|ss|ng|NG|[lLij]|text(?:quote|en|em).*")
"""Names of symbols that end with white space, which is not part of the text."""

_FONT = re.compile(
    "em|it|bf|sl|sc|tt|rm|sf|(?:it|sc|sl|up)shape|bfseries|(?:tt|rm|sf)family|normal(?:font|size)|small|"
    "footnotesize|scriptsize|tiny|[lL]arge|LARGE|huge|relax|protect|noindent|nobreak|allowbreak|xspace"
)
"""What changes the look of the text after it, or nothing."""

_STYLE = re.compile(
    "emph|text(?:it|bf|rm|sc|tt|sf|sl|up|md|normal|superscript|subscript)?|underline|[mh]box|url|path|mkbib.*"
)
_QUOTE = re.compile("enquote|mkbibquote|textquote")
_DROPPED = re.compile("(?i:noopsort|sortnoop)|[vh]?phantom|label|index|thanks|[vh]space|color")
_TWO = re.compile(r"\\(?:href|textcolor|foreignlanguage|texorpdfstring)\s*\{[^{}]*\}(?=\s*\{)")
_GROUP = re.compile(r"\\([A-Za-z]++|[^A-Za-z\s{}])\s*\{([^{}]*)\}|\{([^{}]*)\}")
_COMMAND = re.compile(
    r"""\\(?:(['`^~=.]|"(?!\s))\s*|([uvHckrdb])(?:\s+|(?=\\)))([^\W\d_]|\\[ij](?![A-Za-z])(?:\s+|\{\})?)"""
    r"|\\([A-Za-z]++)(\s*)|\\(.)",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([\\%&$#_{}])")
_SIGNS = "%&#_\4"
_SPACES = dict.fromkeys(", ;:\n", " ") | dict.fromkeys("-/@!", "")
_MOST_GROUPS = 25
"""Braces within more braces than these are not understood."""

_MARKS = ("\\", "{", "}", "$", "~", "--", "``", "''")
_IN_ADDRESS = re.compile(
    r"(?P<under>\\textunderscore)|(?P<tilde>\\textasciitilde|\\~\{\}|\$\s*\\sim\s*\$)|(?P<sign>\\[^A-Za-z\s])"
    r"|(?P<less>\\textless|\$<\$)|(?P<greater>\\textgreater|\$>\$)|(?P<none>\\url|\\path)"
)
_OF_ADDRESS = {"under": "_", "tilde": "~", "less": "<", "greater": ">", "none": ""}


def without_latex(text: str) -> str:
    r"""Text with characters in place of LaTeX's accents, symbols and escapes, and without its fonts.

    Formulas in dollars, macros that are not known, and braces that belong to none that is stay.

    >>> print(without_latex(r'G\"odel, Erd\H{o}s, \L{}ukasiewicz, Nguy{\~{\^e}}n, na\"{\i}ve, 5\% of $\'x$'))
    Gödel, Erdős, Łukasiewicz, Nguyễn, naïve, 5% of $\'x$
    >>> print(without_latex(r"\emph{In {\it vivo}}: a \textless b \& $\emph{c}$, see \cite{d}"))
    In vivo: a < b & $\emph{c}$, see \cite{d}
    """
    return _Decoder(is_bibtex=False).plain(text) if "\\" in text else text


def clean_bibtex(text: str) -> str:
    r"""A text of BibTeX without LaTeX and braces, with characters for its ties, dashes and quotation marks.

    Of macros that are not known the arguments stay; formulas stay as they are.

    >>> print(clean_bibtex(r"{\textquotedblleft}{BERT}'' for {\$}5--6, {\{}G{\"o}del{\}}~et~al.: $<$5{\%}"))
    “BERT” for $5–6, Gödel et al.: <5%
    >>> print(clean_bibtex(r"\enquote{{III}\textendash{V} \mkbibemph{Law}} of {\ensuremath{\gamma}}-rays"))
    “III–V Law” of γ-rays
    """
    return _Decoder(is_bibtex=True).plain(text) if any(map(text.__contains__, _MARKS)) else text


def clean_address(text: str) -> str:
    r"""An address or a number of BibTeX without escapes and braces.

    >>> print(clean_address(r"\url{http://x.org/\~lee/{\_}a{\textless}b\%20}"))
    http://x.org/~lee/_a<b%20
    """
    if "\\" in text or "$" in text:
        text = _IN_ADDRESS.sub(lambda sign: _OF_ADDRESS.get(sign.lastgroup or "", sign[0][1:]), text)
    return text.replace("{", "").replace("}", "").strip()


class _Decoder:
    """Reads LaTeX from the innermost braces outwards, as `clean_bibtex` or as `without_latex`."""

    def __init__(self, *, is_bibtex: bool) -> None:
        self._is_bibtex = is_bibtex

    def plain(self, text: str) -> str:
        """The text that LaTeX would show, formulas as they are."""
        formulas: list[str] = []
        for hidden in filter(text.__contains__, "\1\2\3\4\5\6"):
            text = text.replace(hidden, " ")
        if self._is_bibtex:
            text = _ENSURED.sub(_ensured, text) if "\\ensuremath" in text else text
            text = _RELATION.sub(lambda sign: sign[1] or "\5", text) if "$" in text else text
        if "$" in text:
            parts = _FORMULA.split(text)
            text, formulas = _HIDDEN_FORMULA.join(parts[::2]), parts[1::2]
        if self._is_bibtex:
            text = re.sub(r"(?<![\\/])~", " ", text).replace("---", "\u2014").replace("--", "\u2013")
            text = text.replace("``", "\u201c").replace("''", "\u201d")
        if "\\" in text:
            text = _TWO.sub(r"\\mbox", _ESCAPE.sub(self._escaped, text))
        for _ in range(_MOST_GROUPS if "{" in text else 0):
            text, count = _GROUP.subn(self._group, text)
            if not count:
                break
        text = self._decoded(text)
        if self._is_bibtex:
            text = text.replace("{", "").replace("}", "")
        for hidden, sign in _SHOWN:
            if hidden in text:
                text = text.replace(hidden, sign)
        rest = iter(formulas)
        return re.sub(_HIDDEN_FORMULA, lambda _: next(rest, ""), text) if formulas else text

    def _escaped(self, escape: re.Match[str]) -> str:
        if escape[1] == "\\":
            return " " if self._is_bibtex else "\1\1"
        return escape[1].translate(_HIDE)

    def _group(self, group: re.Match[str]) -> str:
        """The text of braces that hold no others, as the command before them has it."""
        name, written = group[1], group[group.lastindex or 0]
        content = self._decoded(written)
        if name is None:
            if self._is_bibtex:
                # Mendeley writes braces of titles, which protect capitals, as characters in groups.
                return "" if written in ("\2", "\3") else content
            is_command = written.startswith("\\") and not content.startswith("\1")
            is_sign = len(content) == 1 and (content in _SIGNS or not content.isascii())
            return content if is_command or is_sign else f"\2{content}\3"
        if name in _ACCENTS:
            return self._accented(name, content, f"\1{name}\2{content}\3", is_group=True)
        if _QUOTE.fullmatch(name):
            return f"\u201c{content}\u201d"
        if _STYLE.fullmatch(name) or _FONT.fullmatch(name):
            return content
        if _DROPPED.fullmatch(name):
            return ""
        symbol = _SPACES.get(name, symbol_of(name))
        if symbol is None and not self._is_bibtex:
            return f"\1{name}\2{content}\3"
        return (symbol or "").translate(_HIDE) + content

    def _decoded(self, text: str) -> str:
        return _COMMAND.sub(self._command, text) if "\\" in text else text

    def _command(self, command: re.Match[str]) -> str:
        """The text of a command that no braces follow."""
        sign, word, letter, name, space, other = command.groups()
        if letter:
            return self._accented(sign or word, letter.strip("\\ \t\r\n{}"), command[0], is_group=False)
        if other:
            kept = other if self._is_bibtex else command[0]
            return _SPACES.get(other, kept).translate(_HIDE)
        symbol = symbol_of(name)
        if symbol is not None:
            return symbol.translate(_HIDE) + ("" if _EATS_SPACE.fullmatch(name) else space)
        if _FONT.fullmatch(name):
            return ""
        return name + space if self._is_bibtex else f"\1{name}{space}"

    def _accented(self, accent: str, letters: str, written: str, *, is_group: bool) -> str:
        """Letters of which the first has an accent; as it is written where there is no such letter."""
        if not letters[:1].isalpha():
            is_kept = accent.isalpha() and not self._is_bibtex
            return written.translate(_HIDE) if is_kept else accent.translate(_HIDE) + letters
        letters = {"\u0131": "i", "\u0237": "j"}.get(letters, letters)
        composed = unicodedata.normalize("NFC", letters[0] + _ACCENTS[accent])
        is_quotation = accent == '"' and not is_group and letters[0] not in "aeiouyAEIOUY"
        if is_quotation or not (len(composed) == 1 or is_group or (self._is_bibtex and accent.isalpha())):
            return (written[1:] if self._is_bibtex else written).translate(_HIDE)
        return composed + letters[1:]


def _ensured(math: re.Match[str]) -> str:
    """What ``ensuremath`` holds: the name of one symbol, or a formula."""
    return f"{{{math[1]}}}" if re.fullmatch(r"\\?[A-Za-z]+|[^\\^_]*", math[1]) else f"${math[1]}$"


@lru_cache(maxsize=4096)
def symbol_of(name: str) -> str | None:
    """The character that a command without arguments stands for; None where it stands for none.

    >>> symbol_of("alpha"), symbol_of("frac")
    ('α', None)
    """
    if name in _SYMBOLS:
        return _SYMBOLS[name]
    from pylatexenc.latex2text import get_default_latex_context_db

    spec = get_default_latex_context_db().get_macro_spec(name)
    replacement = getattr(spec, "simplify_repl", None)
    character = replacement.strip() if isinstance(replacement, str) else ""
    return character if len(character) == 1 else None
