"""Sentence splitting of scientific English, with offsets into the text; headings of structured abstracts.

Rules for the places where a sentence may end, made for abstracts: abbreviations, initials, formulas,
lists, headings, and full stops without a space after them. A rule only uses the words beside
such a place, so the time is linear in the length of any text.
"""

# ruff: noqa: RUF001 (the typographic characters below are meant)
import re
from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

from qbe.corpus.names import WORDS, alternatives
from qbe.errors import UsageError

# Abbreviations without their last full stop ("e.g" stands for "e.g."). The sentence goes on whatever follows,
# before a number, command or formula ("Fig. 3"), or, as written, unless a common way to begin one follows:
# words that begin sentences of abstracts (of CSAbstruct's training part) far more often than they are names.
_NAMES = ("leading", "numbered", "often inner", "beginnings")
LEADING, NUMBERED, OFTEN_INNER, BEGINNINGS = map(WORDS.__getitem__, _NAMES)
_ABBREVIATED = LEADING | NUMBERED | OFTEN_INNER
EXCLAIMED = frozenset(("Jeopardy", "Yahoo"))  # names that end in an exclamation mark
# In lower case: words of structured abstracts' headings by the label of what follows; those that count where
# a heading has none of these; and words that stand beside them.
_LABELS = ("background", "objective", "method", "result", "other")
_HEADINGS = {label: WORDS[f"{label} headings"] for label in _LABELS}
_WEAK_HEADINGS = {label: WORDS[f"weak {label} headings"] for label in ("method", "other")}
HEADINGS = WORDS["beside headings"].union(*_HEADINGS.values(), *_WEAK_HEADINGS.values())
FORMULA_ENDS = ("$", "$$", "\\)", "\\]")

_FORMULA = re.compile(
    r"""[$\\](?:(?<=\$)(?:\$[^$]++\$\$ | (?<!\\.)[^$]++\$(?!\d))   # two prices are no formula
    | (?<=\\)(?<!\\.)(?:\((?:[^\\]|\\[^()])*+\\\) | \[(?:[^\\]|\\[^\[\]])*+\\\]))
    """,
    re.VERBOSE | re.DOTALL,
)
_NEW_SENTENCE = re.compile(r"[.!?]\s+[A-Z][a-z]*+\s+[a-z]{2}")
_WORDS = re.compile(r"\s(?:[a-z]{2,}+\s){3}")


def formulas(text: str) -> Iterator[tuple[int, int]]:
    r"""Yield the offsets (start, end) of formulas in dollars, ``\(...\)`` and ``\[...\]``, in linear time."""
    formula = _FORMULA.search(text) if "$" in text or "\\" in text else None
    while formula:
        start, end = formula.span()
        inner = text[start:end]
        if _NEW_SENTENCE.search(inner) or ("\\" not in inner and _WORDS.search(inner)):  # it is prose
            end -= 1  # the signs are no pair: the last one may open the next formula
        else:
            yield start, end
        formula = _FORMULA.search(text, end)


_CLOSERS = r"""["'”’»)\]}」』）】]"""

# A set of characters stands first, for which Python searches in a tenth of the time of an alternation.
_STOP = re.compile(
    rf"""(?P<marks>[.!?…؟۔।。！？｡](?:(?<=[。！？｡])(?P<full>)[。！？｡]*+|(?<=[.!?…؟۔।])(?<![.!?…؟۔।].)[.!?…؟۔।]*+))
    {_CLOSERS}*+(?(full)|                        # full stops of Chinese and Japanese: no space follows
      (?:\s[”’»]++(?=\s))?                       # a quotation mark set apart
      (?:\[\d[\d,\ –-]{{0,30}}+\])?               # a citation set behind the full stop
      (?=\s|\$|\\[)\]]|[A-Z]))                    # white space, the end of a formula, or no space at all
    """,
    re.VERBOSE | re.DOTALL,
)

_NEXT = re.compile(
    r"""\s*+
    (?P<item>\(?(?:[ivx]{1,4}|[a-z]|\d{1,2})\))?  # (a), ii), 3)
    ["'“‘«»(\[{*•·–—\s-]*+
    (?P<word>(?:\S\w{0,15})?)(?P<after>.?)
    """,
    re.VERBOSE | re.DOTALL,
)
_BEFORE_CAPITAL = re.compile(" [A-Z]")
_ATTACHED = re.compile(r"[A-Z][a-z]*+(?=[\s,])")
_CONTINUED = frozenset(",;:.!?)]}")
# Words that stay in lower case where a sentence begins: iOS, eBay, k-means.
_LOWER_NAME = re.compile(r"[a-z]{1,3}[A-Z]|[a-z]-\w")
# A word too long for most abbreviations: a full stop after it ends a sentence, even before lower case.
_PLAIN = re.compile(r"(?<![\w.-])[a-z]{5,}\Z")

_TOKEN = re.compile(r"[\w.-]*\Z")
_DOTTED = re.compile(r"[^\W\d_](?:\.-?[^\W\d_])+\Z")
_ENUMERATOR = re.compile(r"(?:\d{1,2}|[ivx]{1,4}|[a-zA-Z])\Z")
# Numbers that do not begin with a digit: Sec. IV, App. B, Table A1.
_NUMBER = re.compile(r"[IVX]+\Z|[B-Z]\d*\Z|A\d+\Z")
# An address, a path or a dotted name; a single letter.
_NO_WORD = re.compile(r"[./@\\:#]|^\w\Z")
# Characters examined before a full stop (more than the longest abbreviation has), and of the longest heading.
_WINDOW, _HEADING = 24, 40

_HEADING_END = re.compile(r"\s?[:.](?=\s)|\n|(?<=[A-Z]{3})(?=\s(?:[A-Z][a-z]|A\s|\d))")
_IN_HEADING = re.compile(r"[^\W\d_]+|[^\s/&,]")
_TELLING = sorted(map(str.capitalize, HEADINGS - {"the", "and"}))
# By first letters, which takes half as long to search for as words side by side.
_RESTS = {first: "|".join(word[1:] for word in words) for first, words in groupby(_TELLING, itemgetter(0))}
_CAPITALIZED = re.compile("|".join(f"{first}(?:{its}|{its.upper()})" for first, its in _RESTS.items()))

TITLE = re.compile(r"[ \t#*]*title[ \t*]*:[\s*]*(\S.*)", re.IGNORECASE)
# No word of a line that begins within a sentence, such as "abstract-level".
ABSTRACT = re.compile(alternatives("abstract in text"))
_WRAPPED = 0.75  # of the next line's length: a first line as long may belong to a wrapped paragraph


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences, without the white space around them."""
    return [text[start:end] for start, end in split_spans(text)]


def split_spans(text: str) -> list[tuple[int, int]]:
    """Return the offsets (start, end) of the sentences of a text, end exclusive, in linear time.

    Spans ascend, do not overlap, neither begin nor end with white space, and hold every other character.
    """
    spans = []
    for start, end in pairwise((0, *_ends(text), len(text))):
        sentence = text[start:end]
        begin = end - len(sentence.lstrip())
        if begin < end:
            spans.append((begin, start + len(sentence.rstrip())))
    return spans


def _ends(text: str) -> Iterator[int]:
    spans = formulas(text)
    formula = next(spans, None)
    start = 0
    for stop in _STOP.finditer(text):
        end = stop.end()
        while formula and formula[1] <= stop.start():
            formula = next(spans, None)
        if formula and formula[0] < end:
            # A formula holds no end, but a full stop as its last character ends a sentence behind it.
            if text[end : formula[1]].lstrip() not in FORMULA_ENDS:
                continue
            end = formula[1]
        if stop["full"] is not None or _is_end(text, start, stop.start(), stop["marks"], end):
            yield end
            start = end


def _is_end(text: str, start: int, stop: int, marks: str, end: int) -> bool:
    window = text[max(start, stop - _WINDOW) : stop]
    # As most ends are: a full stop between a plain word and a capital, told in a third of the time.
    if marks == "." and stop - start > _HEADING and _BEFORE_CAPITAL.match(text, end):
        word = window[window.rfind(" ") + 1 :]
        if len(word) > 4 and word.isalpha() and word.islower() and word not in _ABBREVIATED:
            return True
    if not window.strip():
        return False  # marks alone are no sentence
    if not text[end : end + 1].isspace():
        attached, chunk = _ATTACHED.match(text, end), window.rpartition(" ")[2].lstrip("(\"'")
        if not attached or _NO_WORD.search(chunk):
            return False
        if attached[0] in BEGINNINGS:
            return not chunk.isdecimal()
        # Otherwise a plain word on either side: no file name ("notes.Txt"), no product ("Node.JS").
        return len(attached[0]) > 3 and len(chunk) > 2 and chunk.isalpha() and chunk.islower()
    following = _NEXT.match(text, end)
    assert following is not None
    word, after = following["word"], following["after"]
    if not word or word[0] in _CONTINUED:
        return False
    if word[0].islower() and not following["item"] and not _LOWER_NAME.match(text, following.start("word")):
        plain = _PLAIN.search(window)
        return text[stop:end] == "." and plain is not None and plain[0] not in LEADING
    begins = (word in BEGINNINGS and after != ".") or (word.endswith("ly") and after == ",")
    if marks == ".":
        return _is_full_stop(text, start, stop, window, word, begins)
    if marks == "!":
        return begins or window.rpartition(" ")[2] not in EXCLAIMED
    if not marks.strip(".…"):
        return begins or not window.endswith((" ", ","))  # "1, 2, ..., n" goes on
    return True


def _is_full_stop(text: str, start: int, stop: int, window: str, word: str, begins: bool) -> bool:
    last_token = _TOKEN.search(window)
    token = last_token[0].lstrip(".-") if last_token else ""
    lower = token[:1].lower() + token[1:]
    if lower in LEADING or window.endswith(("i. e", "e. g")):
        return False
    if lower in NUMBERED and (not word[0].isalpha() or _NUMBER.match(word)):
        return False
    if token in OFTEN_INNER or _DOTTED.match(token) or (len(token) == 1 and token.isupper()):
        return begins
    if token == "etc":  # noqa: S105
        return not word[0].isdigit()
    if _ENUMERATOR.match(token):
        before = window[: -len(token)].rstrip()
        return bool(before) and before[-1] not in ":;,"
    if stop - start > _HEADING:
        return True
    words = text[start:stop].lower().replace("/", " ").replace("&", " ").split()
    return not words or any(word not in HEADINGS and word != "and" for word in words)


def unsplit(abstract: str) -> list[str]:
    """Leave an abstract as it is, its headings too."""
    return [abstract]


class Part(NamedTuple):
    """A part of an abstract (offsets), and the label that its heading gives."""

    begin: int
    end: int
    label: str | None = None


def headed_parts(text: str) -> list[Part]:
    """Return the parts of a structured abstract without their headings, in linear time.

    The headings give at least two labels, one of them method or result; other texts are one part.

    >>> text = "AIM: To count cod. MATERIALS AND METHODS: A net. RESULTS: Two."
    >>> [(part.label, text[part.begin : part.end]) for part in headed_parts(text)]
    [('objective', ' To count cod. '), ('method', ' A net. '), ('result', ' Two.')]
    """
    parts, begin, label = list[Part](), 0, None
    if len(_CAPITALIZED.findall(text)) < 2:  # a fast test for most
        return [Part(0, len(text))]
    for stop in _HEADING_END.finditer(text):
        if heading := _heading(text, begin, stop):
            parts.append(Part(begin, heading.begin, label))
            _, begin, label = heading
    parts.append(Part(begin, len(text), label))
    labels = {part.label for part in parts} - {None}
    if len(labels) < 2 or labels.isdisjoint(("method", "result")):
        return [Part(0, len(text))]
    if "method" not in labels:  # "Motivation", "Results", "Availability": results are methods, too
        parts = [part._replace(label=None) if part.label == "result" else part for part in parts]
    return [part for part in parts if text[part.begin : part.end].strip()]


def _heading(text: str, start: int, stop: re.Match[str]) -> Part | None:
    begin, end, words, passed = -1, stop.start(), set[str](), set[str]()
    last = _TOKEN.search(text, max(start, end - _WINDOW), end)
    window = 2 * _HEADING if last and last[0].lower() in HEADINGS else 0  # most stops are ends of sentences
    for word in reversed(list(_IN_HEADING.finditer(text, max(start, end - window), end))):
        if word[0].lower() not in HEADINGS:
            break
        passed.add(word[0].lower())
        if word[0][0].isupper():
            begin, words = word.start(), set(passed)
    if begin < 0:
        return None
    in_capitals, opens = text[begin:end].isupper(), begin == 0 or text[begin - 1] == "\n"
    if stop[0] != "\n":
        before = text[max(0, begin - 4) : begin]
        opens = "\n" in before or before.rstrip()[-1:] in ("", *".?!:;)]")
    if not (in_capitals and ":" in stop[0]) and not (opens and (stop[0] or in_capitals)):
        return None
    by_word = ([name for name, its in of.items() if words & its] for of in (_HEADINGS, _WEAK_HEADINGS))
    labels = next(filter(None, by_word), [])
    # "Background and aims", "Results and discussion"; of "Methods and results" the tagger decides.
    is_clear = len(labels) == 1 or labels in (["background", "objective"], ["result", "other"])
    return Part(begin, stop.end(), labels[0] if is_clear else None)


def title_and_abstract(text: str, name: str) -> tuple[str, str]:
    """Split a text into title ('' for none) and abstract, by headings or a first line that is no sentence."""
    text = text.strip()
    first, _, rest = text.partition("\n")
    first, named = first.strip().lstrip("# "), TITLE.match(text)
    title = named[1].strip() if named else first
    if heading := ABSTRACT.search(text):
        return (title if text[: heading.start()].strip() else ""), text[heading.end() :].strip()
    if named:
        return title, text[named.end() :].strip()
    following = rest.split("\n")[0].strip()
    if not rest.strip() or first.endswith((".", ",", ";")) or ". " in first or following[:1].islower():
        return "", text
    if following and len(rest.split("\n")) > 1 and len(first) >= _WRAPPED * len(following):
        expected, found = "a title with an empty line behind it, or none", "a first line that may be one"
        advice = "add the empty line, or write Title: and Abstract: before them"
        raise UsageError(f"{name}: expected {expected}, found {found}; {advice}")
    return first, rest.strip()
