"""Text without LaTeX: accents, symbols, escapes, styles and macros become the characters they stand for."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_TOKEN = re.compile(
    r"(?P<formula>\$\$[^$]++\$\$|\$(?:[^$\\]++|\\.)++\$)"
    r"|\\(?P<name>[A-Za-z]++)(?P<space>\s*+)|\\(?P<sign>.)|(?P<brace>[{}])|(?P<text>[^\\{}$]++|[\\$])",
    re.DOTALL,
)
_ACCENTS = dict(
    zip(
        "'`^\"~=.uvHckrdb",
        "\u0301\u0300\u0302\u0308\u0303\u0304\u0307\u0306\u030c\u030b\u0327\u0328\u030a\u0323\u0331",
        strict=True,
    )
)
_DOTLESS = {"\u0131": "i", "\u0237": "j"}
_LETTERS = frozenset("ss ae AE oe OE aa AA dh DH dj DJ th TH o O l L i j ng NG".split())
"""Letters with a name: unlike after other symbols, white space after the name is none of the text."""

_SYMBOLS = {
    **{"textless": "<", "textgreater": ">", "textbar": "|", "textquotedbl": '"', "textunderscore": "_"},
    **{"textasciicircum": "^", "textbraceleft": "{", "textbraceright": "}", "textquotesingle": "'"},
    **{"copyright": "\u00a9", "S": "\u00a7", "TeX": "TeX", "LaTeX": "LaTeX", "BibTeX": "BibTeX"},
    **{"lbrace": "{", "rbrace": "}", "degree": "\u00b0", "sim": "~", "quad": " ", "qquad": " ", "par": " "},
    **{"newline": " ", "linebreak": " ", "space": " "},
}
"""Symbols that pylatexenc does not know, or knows otherwise."""

_FONTS = frozenset(
    "em it bf sl sc tt rm sf itshape bfseries scshape slshape upshape ttfamily rmfamily sffamily normalfont "
    "relax protect noindent normalsize small footnotesize scriptsize tiny large Large LARGE huge nobreak "
    "allowbreak xspace ignorespaces unskip displaystyle textstyle".split()
)
"""What changes the look of the text after it, or nothing."""

_STYLES = frozenset(
    "emph textit textbf textrm textsc texttt textsf textsl textup textmd textnormal textsuperscript "
    "textsubscript underline mbox hbox url path mkbibemph mkbibbold mkbibitalic mkbibsuperscript "
    "mkbibparens text".split()
)
_QUOTES = frozenset(("enquote", "mkbibquote", "textquote"))
_FIRST_DROPPED = frozenset(("href", "textcolor", "foreignlanguage", "texorpdfstring"))
_DROPPED = frozenset("noopsort SortNoop vphantom hphantom phantom label index thanks vspace hspace color".split())
_MATH = "ensuremath"
_KNOWN = _STYLES | _QUOTES | _FIRST_DROPPED | _DROPPED | {_MATH}
"""Macros with an argument."""

_SIGNS = {**{each: each for each in "%&$#_{}"}, **dict.fromkeys(", ;:\n\t", " "), **dict.fromkeys("-/@!", "")}
_BIBTEX_SIGNS = {**_SIGNS, "\\": " ", "(": "$", ")": "$", "[": "$$", "]": "$$"}
_DEEPEST = 100
"""Braces within more braces than these are left out."""

_IN_FORMULAS = re.compile(r"[\\^_]")
_RELATION = re.compile(r"\$\s*(?:([<>|])|\\(?:sim|textasciitilde))\s*\$")
_MARKED = re.compile(r"[\\{}$~]|--|``|''")
_ESCAPED = re.compile(
    r"\{?\\text(?:asciitilde|underscore|backslash|less|greater)(?![A-Za-z])\s*(?:\{\})?\}?|\{\\~\{\}\}"
    r"|\\~\{\}|\$\s*\\sim\s*\$|\$\s*[<>]\s*\$"
)
_VERBATIM_SYMBOLS = {"tilde": "~", "under": "_", "slash": "\\", "less": "<", "greater": ">", "<": "<", ">": ">"}


def without_latex(text: str) -> str:
    r"""Text with characters in place of LaTeX's accents, symbols and escapes, and without its fonts.

    Formulas in dollars, macros that are not known, and braces that belong to none that is stay.

    >>> print(without_latex(r'G\"odel, Erd\H{o}s, \L{}ukasiewicz, Nguy{\~{\^e}}n, na\"{\i}ve, 5\% of $\'x$'))
    Gödel, Erdős, Łukasiewicz, Nguyễn, naïve, 5% of $\'x$
    >>> print(without_latex(r"\emph{In {\it vivo}}: a \textless b \& $\emph{c}$, see \cite{d}"))
    In vivo: a < b & $\emph{c}$, see \cite{d}
    """
    return _Text(text, is_bibtex=False).plain() if "\\" in text else text


def clean_bibtex(text: str) -> str:
    r"""A text of BibTeX without LaTeX and braces, with characters for its ties, dashes and quotation marks.

    Of macros that are not known the arguments stay; formulas stay as they are.

    >>> print(clean_bibtex(r"{\textquotedblleft}{BERT}'' for {\$}5--6, {\{}G{\"o}del{\}}~et~al.: $<$5{\%}"))
    “BERT” for $5–6, Gödel et al.: <5%
    >>> print(clean_bibtex(r"\enquote{The {III}\textendash{V} \mkbibemph{Law}} of {\ensuremath{\gamma}}-rays"))
    “The III–V Law” of γ-rays
    """
    if not _MARKED.search(text):
        return text
    if "\\" in text or "$" in text:
        return _Text(text, is_bibtex=True).plain()
    return _typeset(text.replace("{", "").replace("}", ""))


def clean_address(text: str) -> str:
    r"""An address or a number of BibTeX without escapes and braces.

    >>> print(clean_address(r"\url{http://x.org/\~lee/{\_}a{\textless}b\%20}"))
    http://x.org/~lee/_a<b%20
    """
    if "\\" in text or "$" in text:
        text = re.sub(r"\\(?:url|path)(?![A-Za-z])", "", text)
        text = _ESCAPED.sub(_escaped_character, text)
        text = re.sub(r"\\([^A-Za-z\s])", r"\1", text)
    return text.replace("{", "").replace("}", "").strip()


def _escaped_character(match: re.Match[str]) -> str:
    return next((sign for name, sign in _VERBATIM_SYMBOLS.items() if name in match[0]), "~")


def _typeset(text: str) -> str:
    """Text with characters for BibTeX's ties, dashes and quotation marks."""
    if "~" in text:
        text = re.sub(r"(?<!/)~", " ", text)
    if "--" in text:
        text = text.replace("---", "\u2014").replace("--", "\u2013")
    return text.replace("``", "\u201c").replace("''", "\u201d")


class _Group:
    """What stands between braces, or the whole text: its characters, and macros that await an argument."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.parts: list[str] = []
        self.pending: list[tuple[str, str]] = []  # name or accent, and how it is written
        self.is_bare = False  # its braces belong to the command that it begins with


class _Text:
    """A text of LaTeX, read once from its beginning to its end."""

    def __init__(self, text: str, *, is_bibtex: bool) -> None:
        self._text = text
        self._is_bibtex = is_bibtex
        self._signs = _BIBTEX_SIGNS if is_bibtex else _SIGNS
        self._group = _Group(0)
        self._outer: list[_Group] = []
        self._too_deep = 0

    def plain(self) -> str:
        """The text that LaTeX would show, formulas as they are."""
        place = 0
        while token := _TOKEN.match(self._text, place):
            place = token.end()
            kind, value = token.lastgroup, token[0]
            if kind == "text":
                self._add_text(value)
            elif kind == "brace":
                self._open(place) if value == "{" else self._close(place)
            elif kind == "formula":
                relation = _RELATION.fullmatch(value) if self._is_bibtex else None
                self._add((relation[1] or "~") if relation else value)
            else:
                place = self._command(token)
        while self._outer:
            self._close(len(self._text), is_there=False)
        self._flush()
        return "".join(self._group.parts)

    def _command(self, token: re.Match[str]) -> int:
        """Read a command; the place after it."""
        name, written, place = token["name"] or token["sign"], token[0], token.end()
        is_first = token.start() == self._group.begin
        symbol = self._signs.get(name) if token["sign"] else _symbol(name)
        if name == '"' and self._text[place : place + 1].isspace():
            self._add(name if self._is_bibtex else written)
        elif name in _ACCENTS:
            self._group.pending.append((name, written))
        elif symbol is not None:
            self._add(symbol)
            if token["name"]:
                if self._text.startswith("{}", place):
                    place += 2
                elif name not in _LETTERS and not name.startswith(("textquote", "texten", "textem")):
                    self._add_text(token["space"])
        elif name in _FONTS:
            pass
        elif token["name"] and (self._is_bibtex or (name in _KNOWN and self._text.startswith("{", place))):
            self._group.pending.append((name, written))
        else:
            self._add(name if self._is_bibtex else written)
            return place
        self._group.is_bare |= is_first
        return place

    def _add_text(self, text: str) -> None:
        group = self._group
        if group.pending:
            if not (text := text.lstrip()):
                return
            self._add(text[0])
            text = text[1:]
        group.parts.append(_typeset(text) if self._is_bibtex else text)

    def _open(self, place: int) -> None:
        if len(self._outer) == _DEEPEST:
            self._too_deep += 1
            return
        self._outer.append(self._group)
        self._group = _Group(place)

    def _close(self, place: int, *, is_there: bool = True) -> None:
        """End a group; a brace that ends none is left out of a text of BibTeX."""
        if self._too_deep and is_there:
            self._too_deep -= 1
            return
        if not self._outer:
            if not self._is_bibtex:
                self._add("}")
            return
        self._flush()
        group, self._group = self._group, self._outer.pop()
        content = "".join(group.parts)
        if self._group.pending:
            self._add(content, (group.begin, place - is_there))
        elif self._is_bibtex:
            # Mendeley writes braces of titles, which protect capitals, as characters in groups.
            self._group.parts.append("" if content in ("{", "}") else content)
        else:
            self._group.parts.append(content if group.is_bare and is_there else f"{{{content}{'}' * is_there}")

    def _flush(self) -> None:
        """Write the macros that await an argument and have none."""
        if self._group.pending:
            self._add("")

    def _add(self, item: str, group: tuple[int, int] | None = None) -> None:
        """Give an item to the macros that await one; ``group`` says from where to where it stands, if it is one."""
        pending = self._group.pending
        while pending:
            name, written = pending.pop()
            if name in _ACCENTS:
                item = self._accented(name, written, item, is_group=group is not None)
            elif group is None:
                item = (name + written[1 + len(name) :] if self._is_bibtex else written) + item
            elif name in _FIRST_DROPPED:
                pending.append(("mbox", ""))
                return
            elif name in _QUOTES:
                item = f"\u201c{item}\u201d"
            elif name in _DROPPED:
                item = ""
            elif name == _MATH and len(item) > 1 and _IN_FORMULAS.search(item := self._text[slice(*group)]):
                item = f"${item}$"
        self._group.parts.append(item)

    def _accented(self, accent: str, written: str, item: str, *, is_group: bool) -> str:
        letter = _DOTLESS.get(item[:1], item[:1])
        if not letter.isalpha():
            bare = accent if not accent.isalpha() else "" if self._is_bibtex else written
            return (bare if is_group or self._is_bibtex else written) + (item if item or not is_group else "")
        is_word = accent == '"' and not is_group and letter not in "aeiouyAEIOUY" and item not in _DOTLESS
        composed = unicodedata.normalize("NFC", letter + _ACCENTS[accent])
        if not is_word and (len(composed) == 1 or is_group or (self._is_bibtex and accent.isalpha())):
            return composed + item[1:]
        return (accent if self._is_bibtex else written) + item


@lru_cache(maxsize=4096)
def _symbol(name: str) -> str | None:
    """The character that a command without arguments stands for; None where it stands for none."""
    if name in _SYMBOLS:
        return _SYMBOLS[name]
    from pylatexenc.latex2text import get_default_latex_context_db

    spec = get_default_latex_context_db().get_macro_spec(name)
    replacement = getattr(spec, "simplify_repl", None)
    character = replacement.strip() if isinstance(replacement, str) else ""
    return character if len(character) == 1 else None
