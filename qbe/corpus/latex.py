r"""A paper as its LaTeX source: title and abstract as plain text, and what it cites."""

import re
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from qbe.corpus import fields
from qbe.corpus.markup import clean_bibtex
from qbe.corpus.names import alternatives
from qbe.corpus.streams import from_western, open_source
from qbe.errors import CorpusError

SUFFIXES = (".tex", ".ltx")
FEWEST_WORDS = 20  # of a paragraph that stands for an abstract
MOST_FILES, MOST_CHARACTERS = 200, 8 << 20  # that a source may include; as many are read to find missing ends
MOST_TRIED = 50  # titles, abstracts and paragraphs: macros may make all of them long and empty
MOST_NAMED = 3  # unreadable files in a message

_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)%[^\n]*(?:\n[ \t]*(?!\s*\n))?")
_UNSEEN = re.compile(r"\\begin\{comment\}|\\iffalse\b|\\end\{document\}")
_END_OF_UNSEEN = {r"\begin{comment}": r"\\end\{comment\}", r"\iffalse": r"\\fi\b", r"\end{document}": r"\Z"}
_INPUT = re.compile(r"\\(?:input|include|subfile)(?![A-Za-z])\s*(?:\{\s*([^{}]+?)\s*\}|([^\s{}\\]+))")
_TITLE = re.compile(r"\\(?:[a-z]*title|Title)\*?\s*(?:\[[^\[\]]*\]\s*)?(?=\{)")
_OTHER_TITLE = re.compile(alternatives("other title"))
_ABSTRACT = re.compile(r"\\begin\{(\w*abstract\*?)\}(?:\[[^\[\]]*\])?", re.IGNORECASE)
_ABSTRACT_COMMAND = re.compile(r"\\(?:abstracts?|Abstract|abst)\s*(?=\{)")
_SECTION = re.compile(alternatives("section"))
_INTRODUCTION = re.compile(alternatives("introduction"), re.DOTALL)
_MACRO = re.compile(rf"\\(?:{alternatives('macro')})\*?\s*+\{{?\s*+\\([A-Za-z]+)\s*+\}}?\s*+(?=\{{)")
_USE = re.compile(r"\\([A-Za-z]+)(?:\s*\{\}|\\xspace\b|(?![A-Za-z]))")
_CITATION = re.compile(r"\\[A-Za-z]*cite[A-Za-z]*\*?\s*(?:\[[^\[\]]*\]\s*)*\{([^{}]*)\}")
_CITED = re.compile(r"(?<![~\s])[~\s]*" + _CITATION.pattern)
_NO_CITATION = re.compile(r"\\(?:(?:set)?cite(?:style|text)|newcites)\b")
_OF_TEX = re.compile(r"glyphtounicode|pdftex-dvi|binhex|ifpdf\.sty|epsf|insbox|xy|tikz")  # come with TeX
_BIBLIOGRAPHY = re.compile(alternatives("bibliography"))
_DROPPED = re.compile(rf"\\(?:{alternatives('dropped')})\*?\s*(?:\[[^\[\]]*\]\s*)*(?=\{{)")
_LAYOUT = re.compile(alternatives("layout"))


def source_of(text: str, folder: Path | None, lacking: list[str] | None = None) -> str:
    """Return a source without comments, with the files in ``folder`` or below that it inputs in their places.

    The command for a file that cannot be read stays, and its name is added to ``lacking``.
    """
    left = [MOST_FILES, MOST_CHARACTERS - len(text)]
    text = _included(text, folder, left, [] if lacking is None else lacking)
    parts, place = list[str](), 0
    for begin, end in _enclosed(text, _UNSEEN, lambda match: _END_OF_UNSEEN[match[0]]):
        parts.append(text[place : begin.start()])
        place = end.end()
    return "".join([*parts, text[place:]])


def _included(text: str, folder: Path | None, left: list[int], lacking: list[str]) -> str:
    text = _COMMENT.sub(r"\1", text)

    def content(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        try:
            path = None if folder is None else _inside(folder, name)
            if path is not None and left[0] > 0 and path.stat().st_size <= left[1]:
                with open_source(path) as stream:
                    more = from_western(stream, name)[0].read(left[1]).decode(errors="replace")
                left[:] = left[0] - 1, left[1] - len(more)
                return _included(more, folder, left, lacking)
        # A name too long, with a NUL; a loop of links.
        except (CorpusError, OSError, ValueError, RuntimeError):
            pass
        if "#" in name or _OF_TEX.fullmatch(name):
            return " "
        lacking.append(name)
        return match[0]

    return _INPUT.sub(content, text)


def _inside(folder: Path, name: str) -> Path | None:
    """Find a file in a folder or below it: somebody else's source must not show files from elsewhere."""
    for each in (name, f"{name}.tex"):
        path = (folder / each).resolve()
        if path.is_relative_to(folder.resolve()) and path.suffix.lower() in SUFFIXES and path.is_file():
            return path
    return None


def paper_of(source: str, where: str) -> dict[str, Any]:
    """Return the record of a paper from a source (`source_of`), without an id.

    Without an abstract, the first paragraph of the introduction stands for it, and ``abstract_from`` says so;
    ``not_read`` names files that cannot be read. Raises RecordError where there is neither.
    """
    macros = {match[1]: text.replace("\\xspace", "") for match, text in _arguments(source, _MACRO)}
    lacking = list[str]()
    titles = (text for match, text in _arguments(source, _TITLE) if not _OTHER_TITLE.match(match[0]))
    ends = _enclosed(source, _ABSTRACT, lambda match: rf"(?i)\\end\{{{re.escape(match[1])}\}}")
    abstracts = chain(
        (source[begin.end() : end.start()] for begin, end in ends),
        (text for _, text in _arguments(source, _ABSTRACT_COMMAND)),
        (match[1] for match in _SECTION.finditer(source)),
    )
    title, abstract = (
        next((plain for each in islice(texts, MOST_TRIED) if (plain := _plain(each, macros, lacking))), "")
        for texts in (titles, abstracts)
    )
    stands_in = "" if abstract else fields.INTRODUCTION
    if not abstract:
        lacking = [(match[1] or match[2]) for match in _INPUT.finditer(source)]
        texts = (text for each in _INTRODUCTION.finditer(source) for text in re.split(r"\n\s*\n", each[1]))
        paragraphs = (_plain(each, macros, []) for each in islice(texts, MOST_TRIED))
        abstract = next((each for each in paragraphs if len(each.split()) >= FEWEST_WORDS), "")
    not_read = ", ".join(f"{each:.60}" for each in islice(dict.fromkeys(lacking), MOST_NAMED))
    if not abstract:
        but = f" (but for those that cannot be read: {not_read})" if not_read else ""
        found = f"neither, nor an introduction, in it and in the files that it inputs{but}"
        advice = "give title and abstract as text"
        raise fields.unfit("\\begin{abstract} or \\abstract{...}", found, advice, "no abstract", where)
    metadata = {fields.ABSTRACT_FROM: stands_in, fields.NOT_READ: not_read}
    return {"paper_id": None, "title": title, "abstract": abstract, "metadata": fields.present(metadata)}


def cited_in(source: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the names of a source's bibliographies, and the keys that it cites; ``*`` stands for all."""
    names = (name.strip() for match in _BIBLIOGRAPHY.finditer(source) for name in match[1].split(","))
    files = dict.fromkeys(name if name.lower().endswith(".bib") else f"{name}.bib" for name in names if name)
    cited = (match[1] for match in _CITATION.finditer(source) if not _NO_CITATION.match(match[0]))
    keys = frozenset(key.strip() for each in cited if "#" not in each for key in each.split(","))
    return tuple(files), keys - {""}


def _enclosed(
    text: str, begins: re.Pattern[str], end_of: Callable[[re.Match[str]], str]
) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """Yield what begins and what ends each part of a text; a missing end is looked for once."""
    place, missing, left = 0, set[str](), MOST_CHARACTERS
    for begin in begins.finditer(text):
        if begin.start() < place or (pattern := end_of(begin)) in missing:
            continue
        if (end := re.compile(pattern).search(text, begin.end())) is not None:
            place = end.end()
            yield begin, end
        elif (left := left - len(text)) > 0:
            missing.add(pattern)
        else:
            return


def _arguments(text: str, commands: re.Pattern[str]) -> Iterator[tuple[re.Match[str], str]]:
    place, left = 0, MOST_CHARACTERS
    for match in commands.finditer(text):
        if match.start() < place:
            continue
        argument, end = _argument(text, match.end())
        if argument or text.startswith("{}", match.end()):
            place = end
        elif (left := left - len(text)) <= 0:
            return
        yield match, argument


def _argument(text: str, begin: int) -> tuple[str, int]:
    depth, place = 0, begin
    for match in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, begin):
        depth += (match[0] == "{") - (match[0] == "}")
        place = match.end()
        if depth == 0:
            return text[begin + 1 : place - 1], place
    return "", place


def _plain(text: str, macros: dict[str, str], lacking: list[str]) -> str:
    for _ in range(5):
        more = sum(len(macros.get(match[1], match[0])) - len(match[0]) for match in _USE.finditer(text))
        if len(text) + more > MOST_CHARACTERS >> 4:  # before they are substituted: they may fill the memory
            break
        expanded = _USE.sub(lambda match: macros.get(match[1], match[0]), text)
        if expanded == text:
            break
        text = expanded
    lacking += [(match[1] or match[2]) for match in _INPUT.finditer(text)]
    text = _CITED.sub("", _INPUT.sub(" ", text))
    parts, begin = list[str](), 0
    for match in _DROPPED.finditer(text):
        if match.start() >= begin:
            parts.append(text[begin : match.start()])
            begin = _argument(text, match.end())[1]
    text = "".join([*parts, text[begin:]])
    return " ".join(clean_bibtex(_LAYOUT.sub(" ", text)).split())
