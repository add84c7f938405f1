"""Regular expressions take linear time for what they match, any part of it repeated."""

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import qbe
from qbe.search.queries import _FORMS, _SLOTS

pytestmark = pytest.mark.slow

LENGTHS = (16, 20, 24, 28, 4_000)  # short ones first: exponential time would not end
MOST_SECONDS = 0.01  # for the longest; a quadratic search of so much takes ten times as long
MOST_CHARACTERS = {
    "markup._AT_END": 700,
    "markup._OF_EBSCO": 700,
    "names._OTHERS": 40,
    "sentences._TOKEN": 24,
}
"""Of the texts that some are given: the ends of abstracts, of lists of names, and of what stands before."""
MOST_CHARACTERS |= dict.fromkeys((f"questions form {place}" for place in range(40)), 200)
ENDS = ("", "\0")
CALLS = {
    f"re.{each}" for each in ("match", "fullmatch", "search", "sub", "subn", "finditer", "findall", "split")
}
FLAGS = ("IGNORECASE", "MULTILINE", "DOTALL", "VERBOSE")


def patterns() -> Iterator[tuple[str, re.Pattern[Any], set[str]]]:
    """The patterns of all modules by name, with the methods by which they are asked."""
    for module in pkgutil.walk_packages(qbe.__path__, "qbe."):
        if module.name.endswith("__main__"):
            continue
        try:
            loaded = importlib.import_module(module.name)
        except ImportError:  # of a package that is not installed
            continue
        short, source = module.name.removeprefix("qbe.corpus."), Path(str(loaded.__file__)).read_text()
        for name, value in vars(loaded).items():
            if isinstance(value, re.Pattern):
                asked = set(
                    re.findall(rf"\b{name}\.(match|fullmatch|search|sub|subn|finditer|findall|split)", source)
                )
                yield f"{short}.{name}", value, asked or {"search"}
        for node in ast.walk(ast.parse(source)):  # those that are not kept
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in CALLS
                and isinstance(node.args[0], ast.Constant)
            ):
                flags = sum(
                    re.NOFLAG | getattr(re, each) for each in FLAGS if f"re.{each}" in ast.unparse(node)
                )
                name = f"{short}:{node.lineno}"
                yield name, re.compile(node.args[0].value, flags), {ast.unparse(node.func)[3:]}
    for place, form in enumerate((*_FORMS, *(slot[0] for slot in _SLOTS))):
        yield f"questions form {place}", re.compile(form, re.IGNORECASE), {"fullmatch"}


def texts(parsed: Any, parts: set[tuple[str, str]]) -> str:
    """Make a text that a parsed pattern matches; ``parts`` get those of what it repeats, and of branches."""
    made = ""
    for kind, value in parsed:
        name = str(kind)
        if name in ("LITERAL", "NOT_LITERAL"):
            made += chr(value) if name == "LITERAL" else "a"
        elif name == "IN":
            made += one_of(value)
        elif name == "ANY":
            made += "a"
        elif "REPEAT" in name:
            part = texts(value[2], parts)
            parts.update(((made, part), ("", made + part)))
            made += part * max(1, min(value[0], 50))
        elif name == "BRANCH":
            found = [texts(each, parts) for each in value[1]]
            parts.update(("", each) for each in found)
            made += max(found, key=len)
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            made += texts(value[-1] if name == "SUBPATTERN" else value, parts)
    parts.add(("", made))
    return made


def one_of(values: Any) -> str:
    categories = {"CATEGORY_SPACE": " ", "CATEGORY_DIGIT": "7", "CATEGORY_WORD": "a"}
    if str(values[0][0]) == "NEGATE":
        inside = re.compile(f"[{''.join(map(re.escape, ' a7A.-~'))}]")
        literals = {chr(each) for kind, each in values[1:] if str(kind) == "LITERAL"}
        kinds = {str(each) for kind, each in values[1:] if str(kind) == "CATEGORY"}
        others = [each for each in inside.pattern[1:-1].replace("\\", "") if each not in literals]
        others = [each for each in others if not ("CATEGORY_SPACE" in kinds and each == " ")]
        others = [each for each in others if not ("CATEGORY_WORD" in kinds and each.isalnum())]
        return next(iter(others), "\u00e9")
    kind, value = values[0]
    if str(kind) == "CATEGORY":
        return categories.get(str(value), "-")
    return chr(value if str(kind) == "LITERAL" else value[0])


def seconds(pattern: re.Pattern[Any], asked: set[str], text: str) -> float:
    subject: Any = text.encode("utf-8", "ignore") if isinstance(pattern.pattern, bytes) else text
    begin = time.process_time()
    if asked <= {"match", "fullmatch"}:
        pattern.match(subject), pattern.fullmatch(subject)
    else:
        sum(1 for _ in pattern.finditer(subject))
    return time.process_time() - begin


@pytest.mark.parametrize(
    ("name", "pattern", "asked"), [pytest.param(*each, id=each[0]) for each in patterns()]
)
def test_no_pattern_takes_more_than_linear_time(name, pattern, asked):
    source, flags = pattern.pattern, pattern.flags
    if isinstance(source, bytes):
        source, flags = source.decode("latin-1"), flags & ~re.UNICODE
    parts = {("", each) for each in (" ", "~", "\n", "a", "A", "(", "{", "\\", "\\[", "<")}
    whole = texts(re._parser.parse(source, flags), parts)  # type: ignore[attr-defined]
    parts |= {(before, part) for _, part in parts for before in (whole,)}
    for before, part in sorted(each for each in parts if each[1]):
        for end in ENDS:
            for length in LENGTHS:
                if length > MOST_CHARACTERS.get(name, length):
                    break
                times = [seconds(pattern, asked, before + part * (length // len(part) + 1) + end)]
                if times[0] < MOST_SECONDS:
                    continue
                for share in (1, 2):
                    text = before + part * (length // share // len(part) + 1) + end
                    times.append(min(seconds(pattern, asked, text) for _ in range(3)))
                assert times[1] < 3 * times[2], (before[:60], part[:60], end, length, times)


def goes_on(parsed: Any) -> bool:
    """Whether a group that is no alternation repeats possessively, anywhere in a parsed pattern."""
    for kind, value in parsed:
        if str(kind) == "POSSESSIVE_REPEAT":
            inner = value[2]
            while len(inner) == 1 and str(inner[0][0]) == "SUBPATTERN":
                inner = inner[0][1][3]
            if len(inner) > 1:
                return True
        for part in value if isinstance(value, tuple) else (value,):
            branches = part if isinstance(part, list) else [part]
            if any(goes_on(each) for each in branches if type(each).__name__ == "SubPattern"):
                return True
    return False


def test_no_pattern_depends_on_the_release_of_python():
    """Before 3.11.5 a possessive group that fails does not give back what it has read."""
    parse = re._parser.parse  # type: ignore[attr-defined]
    assert goes_on(parse(r"(?:\s[x]++)?+"))
    assert not goes_on(parse(r"(?:a|b++c)*+[d]++"))
    assert not [name for name, each, _ in patterns() if goes_on(parse(each.pattern, each.flags & re.VERBOSE))]
