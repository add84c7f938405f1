"""Titles and abstracts without markup: tags, entities, LaTeX, prefixes and copyright lines."""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from qbe.corpus.names import WORDS, alternatives, rows

_END_CHARS = 700  # searched for a statement of rights
_MAX_CHARS = 200  # of a placeholder; longer texts are abstracts
_MOST_ESCAPES = 4
_MOST_GROUPS = 25  # braces within more braces than these are not understood

# A statement of rights: its mark, words of a holder's name (few begin in lower case), what lawyers add.
_MARK = (
    r"(?:crown\s+)?(?:(?:copyright\b[\s:]*)?(?:\u00a9|\(c\)(?=\s*(?:copyright|\d{4}|the author)))"
    r"(?:\s*copyright\b)?|copyright\s+(?:(?=\d{4})|by\b))"
)
_WORD = (
    r"(?:(?:[A-Z0-9\u00c0-\u00dd(&|\u2013-]|[a-z][A-Z])[^\s.,;:]*"
    rf"|(?:{alternatives('holder words')})(?:\(s\)+)?(?![^\s.,;:)]))"
)
_LEGAL = rf"\s*(?:{alternatives('legal')})(?:[^.]|\.(?=(?-i:[a-z0-9/]))){{0,250}}(?:\.|$)"
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
_OF_EBSCO = re.compile(alternatives("ebsco"))
_TAG = re.compile(rf"(?i)</?(?:{alternatives('elements')})(?:\s+[\w:-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'))*\s*/?>")
_BLOCK = re.compile(rf"(?i)</?(?:jats:)?(?:{alternatives('blocks')})\b")
_LABEL = re.compile(alternatives("label"), re.DOTALL)
_RESIDUE = re.compile(rf"(?<![\s#])[\s#]*(?:{alternatives('residue')})\Z", re.DOTALL)
_RESIDUES = ("nterest", "runcated", "RUNCATED", "see text", "Graphical", "PUBLICATION")
_HEADING = re.compile(r"<(?:(?:jats:)?title|h[1-6])>([^<]{1,200})</(?:(?:jats:)?title|h[1-6])>")
_RIGHTS = re.compile(r"<CopyrightInformation\b[^<>]*>[^<>]*</CopyrightInformation>", re.IGNORECASE)

# Words of texts that stand for an absent abstract: alone, or a negation and a subject among a few others.
_NAMED = ("no value", "alone", "negations", "subjects", "others")
NO_VALUE, _ALONE, _NEGATIONS, _SUBJECTS, _OTHERS = map(WORDS.__getitem__, _NAMED)
_LANGUAGES = ("function words", "spanish", "portuguese", "french", "german", "italian")
_FORMULA = re.compile(r"(?<!\\)(\$\$[^$]++\$\$|\$(?:[^$\\]++|\\.)++\$)", re.DOTALL)
_MATHEMATICS = re.compile(r"(?<!\\)\\(?:\(((?:[^\\]|\\[^()])++)\\\)|\[((?:[^\\]|\\[^\[\]])++)\\\])")
_RELATION = re.compile(r"\$\s*(?:([<>|])|\\sim)\s*\$")
_PLAIN = re.compile(r"\\?[A-Za-z]+|[^\\^_]*")  # in \ensuremath: one symbol, or no mathematics
_ENSURED = re.compile(r"\\ensuremath\s*\{((?:[^{}]++|\{[^{}]*+\})*+)\}")
# Control characters hide literals from the changes of the text around them.
_HIDE = str.maketrans("\\{}$~", "\1\2\3\4\5")
_SHOWN = tuple(zip("\1\2\3\4\5", "\\{}$~", strict=True))
_HIDDEN_FORMULA = "\6"
_COMBINING = "\u0301\u0300\u0302\u0308\u0303\u0304\u0307\u0306\u030c\u030b\u0327\u0328\u030a\u0323\u0331"
_ACCENTS = dict(zip("'`^\"~=.uvHckrdb", _COMBINING, strict=True))
# Symbols that pylatexenc does not know, or knows otherwise.
_SYMBOLS = dict(rows("symbols"))
# Names of symbols that end with white space, which is not part of the text.
_EATS_SPACE = re.compile("[aA][aAeE]|[oO][eE]?|[dDtT]h|D[HJ]|TH|dj|ss|ng|NG|[lLij]|text(?:quote|en|em).*")
# Commands that change the look of the text after them, or nothing.
_FONT, _STYLE = map(re.compile, map(alternatives, ("fonts", "styles")))
_QUOTE = re.compile("enquote|mkbibquote|textquote")
_DROPPED = re.compile("(?i:noopsort|sortnoop)|[vh]?phantom|label|index|thanks|[vh]space|color")
_TWO = re.compile(r"\\(?:href|textcolor|foreignlanguage|texorpdfstring)\s*\{[^{}]*\}(?=\s*\{)")
_GROUP = re.compile(r"\\([A-Za-z]++|[^A-Za-z\s{}])\s*\{([^{}]*)\}|\{([^{}]*)\}")
_COMMAND = re.compile(alternatives("command"), re.DOTALL)
_ESCAPE = re.compile(r"\\([\\%&$#_{}])")
_SIGNS = "%&#_\4"
_SPACES = dict.fromkeys(", ;:\n", " ") | dict.fromkeys("-/@!", "")
_MARKS = ("\\", "{", "}", "$", "~", "--", "``", "''")
_IN_ADDRESS = re.compile(alternatives("in address"))
_OF_ADDRESS = {"under": "_", "tilde": "~", "less": "<", "greater": ">", "none": ""}


def is_placeholder(sentences: Sequence[str]) -> bool:
    """Return True if sentences are no abstract: nothing, signs alone, or a text for an absent one."""
    if sum(map(len, sentences)) > _MAX_CHARS:
        return False
    text = " ".join(sentences).casefold().replace("\u2019", "'")
    if not any(map(str.isalpha, text)):
        return True
    signs = ".,:;!?*\"'\u201c\u201d\u00ab\u00bb()[]{}<>-\u2013\u2014_"
    words = [word for each in text.split() if (word := each.strip(signs))]
    if len(words) == 1 and words[0] in _ALONE:
        return True
    negations, subjects = _NEGATIONS.intersection(words), _SUBJECTS.intersection(words)
    return bool(negations and subjects) and _OTHERS.issuperset({*words} - negations - subjects)


def language(text: str) -> str:
    """Return the name of a text's script, or of its language where that is Latin; '' where none is known."""
    letters = [each for each in text[:200] if each.isalpha()]
    scripts = Counter(unicodedata.name(each, "").partition(" ")[0] for each in letters)
    if scripts and (script := scripts.most_common(1)[0][0]) != "LATIN":
        return script
    words = text.lower().split()
    count, best = max((sum(word in WORDS[name] for word in words), name) for name in _LANGUAGES)
    return best if count > max(1, len(words) // 10) else ""


def plain(text: str) -> str:
    """Return text without tags of HTML and JATS and without entities, in single spaces; other ``<`` stay."""
    for _ in range(_MOST_ESCAPES if "&" in text else 0):
        text = html.unescape(text)
    if "<" in text:
        text = _TAG.sub(lambda tag: " " if _BLOCK.match(tag[0]) else "", text)
    # Of white space isprintable() lets only the space pass; it is much faster than to split and join.
    return text.strip() if text.isprintable() and "  " not in text else " ".join(text.split())


def clean_title(text: str) -> str:
    return without_latex(plain(text))


def clean_abstract(text: str) -> str:
    """Return an abstract without markup, "Abstract" before it and statements of rights."""
    if "<" in text:
        headed = _HEADING.sub(lambda it: f" {words}: " if (words := it[1].strip(" \t\n\r.:")) else " ", text)
        text = _RIGHTS.sub("", headed)
    text = _without_rights(without_latex(plain(text)))
    if label := _LABEL.match(text):
        text = _without_rights(text[label.end() :])
    if "Statement" in text or any(map(text[-_END_CHARS:].__contains__, _RESIDUES)):
        text = _RESIDUE.sub("", text)
    half = text[: len(text) // 2].rstrip()
    return half if half.endswith((".", "!", "?")) and text.endswith(f"{half} {half}") else text


def _without_rights(text: str) -> str:
    end = text[-_END_CHARS:].lower()
    if "right" in end or "\u00a9" in end or "(c)" in end or "abstract from" in end or "published by" in end:
        for pattern in (_OF_EBSCO, _AT_END):
            if statement := pattern.search(text, max(0, len(text) - _END_CHARS)):
                text = text[: statement.start()].rstrip()
    begin = text[:30].lower()
    if "\u00a9" in begin or "(c)" in begin or "copyright" in begin:
        statement = _AT_BEGIN.match(text)
        text = text[statement.end() :] if statement else text
    return text


def without_latex(text: str) -> str:
    """Return text with characters for LaTeX's accents, symbols and escapes, and without its fonts.

    Formulas in dollars, macros that are not known, and braces that belong to none that is stay.
    """
    return _Decoder(is_bibtex=False).plain(text) if "\\" in text else text


def clean_bibtex(text: str) -> str:
    """Return a text of BibTeX without LaTeX and braces, with characters for ties, dashes and quotes.

    Of macros that are not known the arguments stay; formulas stay as they are.
    """
    return _Decoder(is_bibtex=True).plain(text) if any(map(text.__contains__, _MARKS)) else text


def clean_address(text: str) -> str:
    """Return an address or a number of BibTeX without escapes and braces."""
    if "\\" in text or "$" in text:
        text = _IN_ADDRESS.sub(lambda sign: _OF_ADDRESS.get(sign.lastgroup or "", sign[0][1:]), text)
    return text.replace("{", "").replace("}", "").strip()


class _Decoder(NamedTuple):
    """Reads LaTeX from the innermost braces outwards, for `clean_bibtex` or `without_latex`."""

    is_bibtex: bool

    def plain(self, text: str) -> str:
        formulas: list[str] = []
        for hidden in filter(text.__contains__, "\1\2\3\4\5\6"):
            text = text.replace(hidden, " ")
        if self.is_bibtex:
            text = _MATHEMATICS.sub(lambda math: f"${(math[1] or math[2]).strip()}$", text)
            text = _ENSURED.sub(lambda it: f"{{{it[1]}}}" if _PLAIN.fullmatch(it[1]) else f"${it[1]}$", text)
            text = _RELATION.sub(lambda sign: sign[1] or "\5", text) if "$" in text else text
        if "$" in text:
            parts = _FORMULA.split(text)
            text, formulas = _HIDDEN_FORMULA.join(parts[::2]), parts[1::2]
        if self.is_bibtex:
            text = re.sub(r"(?<![\\/])~", " ", text).replace("---", "\u2014").replace("--", "\u2013")
            text = text.replace("``", "\u201c").replace("''", "\u201d")
        if "\\" in text:
            line_end = " " if self.is_bibtex else "\1\1"
            text = _ESCAPE.sub(lambda it: line_end if it[1] == "\\" else it[1].translate(_HIDE), text)
            text = _TWO.sub(r"\\mbox", text)
        for _ in range(_MOST_GROUPS if "{" in text else 0):
            text, count = _GROUP.subn(self._group, text)
            if not count:
                break
        text = _COMMAND.sub(self._command, text)
        if self.is_bibtex:
            text = text.replace("{", "").replace("}", "")
        for hidden, sign in _SHOWN:
            if hidden in text:
                text = text.replace(hidden, sign)
        rest = iter(formulas)
        return re.sub(_HIDDEN_FORMULA, lambda _: next(rest, ""), text) if formulas else text

    def _group(self, group: re.Match[str]) -> str:
        name, written = group[1], group[group.lastindex or 0]
        content = _COMMAND.sub(self._command, written)
        if name is None:
            if self.is_bibtex:
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
        if symbol is None and not self.is_bibtex:
            return f"\1{name}\2{content}\3"
        return (symbol or "").translate(_HIDE) + content

    def _command(self, command: re.Match[str]) -> str:
        sign, word, letter, name, space, other = command.groups()
        if letter:
            return self._accented(sign or word, letter.strip("\\ \t\r\n{}"), command[0], is_group=False)
        if other:
            return _SPACES.get(other, other if self.is_bibtex else command[0]).translate(_HIDE)
        if (symbol := symbol_of(name)) is not None:
            return symbol.translate(_HIDE) + ("" if _EATS_SPACE.fullmatch(name) else space)
        if _FONT.fullmatch(name):
            return ""
        return name + space if self.is_bibtex else f"\1{name}{space}"

    def _accented(self, accent: str, letters: str, written: str, *, is_group: bool) -> str:
        if not letters[:1].isalpha():
            is_kept = accent.isalpha() and not self.is_bibtex
            return written.translate(_HIDE) if is_kept else accent.translate(_HIDE) + letters
        letters = {"\u0131": "i", "\u0237": "j"}.get(letters, letters)
        composed = unicodedata.normalize("NFC", letters[0] + _ACCENTS[accent])
        is_quotation = accent == '"' and not is_group and letters[0] not in "aeiouyAEIOUY"
        if is_quotation or not (len(composed) == 1 or is_group or (self.is_bibtex and accent.isalpha())):
            return (written[1:] if self.is_bibtex else written).translate(_HIDE)
        return composed + letters[1:]


@lru_cache(maxsize=4096)
def symbol_of(name: str) -> str | None:
    """Return the character that a command without arguments stands for, or None."""
    if name in _SYMBOLS:
        return _SYMBOLS[name]
    from pylatexenc.latex2text import get_default_latex_context_db

    spec = get_default_latex_context_db().get_macro_spec(name)
    replacement = getattr(spec, "simplify_repl", None)
    character = replacement.strip() if isinstance(replacement, str) else ""
    return character if len(character) == 1 else None
