"""Texts of papers in LaTeX, for BibTeX."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qbe.corpus.markup import symbol_of

_FORMULA = re.compile(
    r"(?<![\\$])(?:\$\$(?:[^$\\]|\\[^$])+\$\$(?!\$)|\$(?=[^\s$])(?:[^$\\]|\\[^$])*(?<=\S)\$(?![\d$]))"
)
"""A formula: nothing but text stands between the amounts of "$5 and $10"."""

_NOT_IN_FORMULAS = re.compile(r"(?<!\\)[%#&]|\^\^")
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_MATHEMATICS = re.compile(
    r"[dtc]?frac|[dt]?binom|sqrt|hat|tilde|widehat|widetilde|bar|overline|underline|vec|d{0,3}dot|check|breve|acute|"
    r"grave|mathring|(?:over|under)(?:brace|set|(?:left|right|leftright)arrow)|x(?:left|right)arrow|stackrel|"
    r"substack|left|right|middle|[bB]igg?[lrm]?|math(?:rm|bf|bb|cal|frak|sf|it|tt|scr|op|bin|rel|ord|normal)|"
    r"boldsymbol|bm|pmb|text(?:rm|bf|it|sf|tt|normal|sc)?|mbox|emph|operatorname|rm|bf|it|sf|tt|cal|ensuremath|"
    r"a?(?:rc)?(?:sin|cos|tan)h?|cot|sec|csc|log|ln|lg|exp|max|min|sup|inf|lim(?:sup|inf)?|arg(?:max|min)?|det|dim|"
    r"ker|gcd|deg|hom|Pr|[bp]?mod|(?:no)?limits|q?quad|(?:display|text|script|scriptscript)style|[vh]?phantom|"
    r"not|choose|over|atop|prime|nonumber|thinspace"
)
"""Commands with arguments and names of functions that a formula may have, besides symbols."""
_ESCAPED_BRACE = re.compile(r"\\[{}]")

_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\textbraceleft{}",
        "}": r"\textbraceright{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{character: f"\\{character}" for character in "&%$#_"},
    }
)
"""What stands for characters with a meaning in LaTeX. Braces have names, since BibTeX counts escaped ones."""

_WORD = re.compile(r"[^\W_][\w&'\u2019]*")
_NEW_BEGIN = re.compile(r"[:.?!\u2013\u2014-]\s")


def with_formulas(text: str) -> Iterator[tuple[str, bool]]:
    """The parts of a text, each with whether it is a formula of LaTeX.

    A formula stands between dollars, with no space within the first or before the last of them, and its
    braces are balanced.

    >>> list(with_formulas("From $5 to $10 in $O(n^{2})$"))
    [('From $5 to $10 in ', False), ('$O(n^{2})$', True), ('', False)]
    """
    begin = 0
    for match in _FORMULA.finditer(text):
        if _is_safe(match[0]):
            yield text[begin : match.start()], False
            yield match[0], True
            begin = match.end()
    yield text[begin:], False


def to_latex(text: str) -> str:
    r"""A text in LaTeX: characters with a meaning are escaped, formulas and all other characters stay.

    >>> print(to_latex("50% of Gödel & {co}: $x_1$ is x_1"))
    50\% of Gödel \& \textbraceleft{}co\textbraceright{}: $x_1$ is x\_1
    """
    return "".join(part if formula else escaped(part) for part, formula in with_formulas(text))


def escaped(text: str) -> str:
    r"""A text in LaTeX, dollars and all.

    >>> print(escaped("AT&T, $5"))
    AT\&T, \$5
    """
    return text.translate(_ESCAPES)


def to_latex_title(title: str) -> str:
    r"""A title in LaTeX, with braces around what has to keep its capital letters, and around formulas.

    Styles of bibliographies change the case of letters. Braces protect words with capitals after their first
    letter, or with a capital and digits, single capitals but "A", and, where at most half of the words of
    more than four letters begin with a capital, all capitals but those that begin a sentence or a subtitle.
    Where there are nothing but capitals, none is protected.

    >>> print(to_latex_title("From BERT to X-Rays: A Bayesian Model of AT&T in $O(N)$"))
    From {BERT} to {X}-Rays: A Bayesian Model of {AT\&T} in {$O(N)$}
    >>> print(to_latex_title("From {left} to right: A model of the Bayesian reader"))
    From \textbraceleft{}left\textbraceright{} to right: A model of the {Bayesian} reader
    """
    in_capitals, every_capital = title.isupper(), _has_few_capitals(title)
    parts = []
    is_first = True
    for part, formula in with_formulas(title):
        if formula:
            parts.append(f"{{{part}}}")
            is_first = False
            continue
        begin = 0
        for word in _WORD.finditer(part):
            between = part[begin : word.start()]
            may_change = is_first or _NEW_BEGIN.search(between) is not None or not every_capital
            keeps = not in_capitals and _keeps_capitals(word[0], may_change)
            parts += [escaped(between), f"{{{escaped(word[0])}}}" if keeps else escaped(word[0])]
            begin, is_first = word.end(), False
        parts.append(escaped(part[begin:]))
    return "".join(parts)


def _is_safe(formula: str) -> bool:
    """Whether a formula may stay: nothing in it ends a line or a cell, and its braces are balanced, for
    BibTeX, which counts escaped ones, and for readers that do not, no command takes its last dollar for
    an argument, and no command does anything but write mathematics.
    """
    names = _COMMAND.findall(formula)
    if not all(_MATHEMATICS.fullmatch(name) or symbol_of(name) for name in names):
        return False
    if _NOT_IN_FORMULAS.search(formula) or not _is_closed(formula):
        return False
    return _is_balanced(formula) and _is_balanced(_ESCAPED_BRACE.sub("", formula))


def _is_closed(formula: str) -> bool:
    r"""Whether a formula ends with its last dollar, as in ``$\hat x$`` and not in ``$\hat$``."""
    if "\\" not in formula:
        return True
    from pylatexenc.latexwalker import LatexMathNode, LatexWalker, LatexWalkerError

    try:
        nodes, _, length = LatexWalker(formula, tolerant_parsing=False).get_latex_nodes()
    except LatexWalkerError:
        return False
    return len(nodes) == 1 and isinstance(nodes[0], LatexMathNode) and length == len(formula)


def _is_balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


def _has_few_capitals(title: str) -> bool:
    longer = [word for word in _WORD.findall(title)[1:] if len(word) > 4 and word[1:].islower()]
    return bool(longer) and 2 * sum(word[0].isupper() for word in longer) <= len(longer)


def _keeps_capitals(word: str, may_change: bool) -> bool:
    """Whether a word is to be protected; ``may_change`` says that its first letter need not be."""
    if not word[0].isupper() or may_change:
        is_symbol = len(word) == 1 and word.isupper() and word != "A"
        is_code = word[0].isupper() and any(letter.isdigit() for letter in word)
        return is_symbol or is_code or any(letter.isupper() for letter in word[1:])
    return True
