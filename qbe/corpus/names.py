"""Names of authors: lists of them as people and databases write them, and the parts of a name.

A reader keeps a name as "Given Family" where `split_name` tells the family name from that again, else as
"Family, Given", such as "Hernández Núñez, José": so no family name loses a part.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any, NamedTuple

ET_AL = "et al."  # stands for authors that are not named


def rows(table: str) -> list[list[str]]:
    text = resources.files("qbe.corpus").joinpath(f"{table}.tsv").read_text("utf-8")
    return [line.split("\t") for line in text.splitlines()]


WORDS = {name: frozenset(words.split()) for name, words in rows("words")}
PATTERNS, KINDS = rows("patterns"), rows("kinds")


def alternatives(name: str) -> str:
    """Return a pattern of those that patterns.tsv has by a name."""
    return "|".join(pattern for of, pattern in PATTERNS if of == name)


# Frequent first names tell one person, "García Márquez, Gabriel José", from two, "Eva Lund, Per Moe".
_GIVEN, _ORGANIZATIONS = WORDS["given"], WORDS["organizations"]
_SUFFIXES = {"jr", "sr", "ii", "iii", "iv", "2nd", "3rd", "4th", "phd"}
# Names of Chinese, Japanese and Korean people that have both parts.
_WHOLE = rf"(?:[{''.join(WORDS['family'])}][\u4e00-\u9fff\uac00-\ud7a3]{{1,3}}|[\u4e00-\u9fff]{{4,6}})"
_EASTERN = re.compile(rf"(?<!\w)({_WHOLE})(?:\s*+,\s*|\s+)(?={_WHOLE}(?!\w))")
_IN_NAMES = ".'\u2019-\u2010"  # besides letters
_OTHERS_CHARS = 40  # at the end of a list, where it may say that there are others
_OTHERS = re.compile(alternatives("others"))
_ELLIPSIS = re.compile(r"[.\u2026](?:(?<=\u2026)|(?<=\.)\s?\.\s?\.)")  # a set first: faster
_SEPARATOR = re.compile(r"[;|\n\r\uff1b\u3001\uff0c]")
_WORDS = re.compile(r"[^\s,.()]+")
_AND = re.compile(r"((?:^\s*+|(?<!\s)\s*+,\s*+|(?<!\s)\s++)(?:and|&)(?:\s+|$))", re.IGNORECASE)
# The kinds of parts that are family and given names in turn.
_PAIRS = re.compile(r"(?:[SFRI]I|S[SRF])+|FR|FS")
_LIST = re.compile(r"R[FR]+|[FR]{2}[FRS]+|SSF+")  # of at least two people
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.-?)+[^\W\d_]?")
_UNDOTTED = re.compile(r"[^\W\d_]{1,2}(?:-[^\W\d_])?")
_USUAL = re.compile(alternatives("usual name"))
IDENTIFIER = re.compile(r"(?<!\s)\s*[(\[](?:[\d\s-]++X?|[^\s()\[\]@]+@[^\s()\[\]@]+)[)\]]\s*$")


class Name(NamedTuple):
    """The parts of a person's name; ``family`` has particles such as "van der" as well."""

    family: str
    given: str
    suffix: str


def credits(names: str | Iterable[str]) -> dict[str, Any]:
    """Return the metadata ``authors``, and ``et_al`` (True) where others are not named."""
    text = names if isinstance(names, str) else "".join(f"{name}\n" for name in names)
    return {"authors": split_authors(text), "et_al": has_others(text) or None}


def split_authors(text: str) -> list[str]:
    """Split a list of names, each as `person_name` has it; "et al." is no name (see `has_others`)."""
    if not text.isascii():
        text = _EASTERN.sub(r"\1;", text)
    if has_others(text):
        text = _ELLIPSIS.sub(",", text[:-_OTHERS_CHARS] + _OTHERS.sub("", text[-_OTHERS_CHARS:]))
    parts = [part for part in _SEPARATOR.split(text) if part.strip()]
    names: list[str] = []
    is_only = sum("," in part for part in parts) == 1
    for part in parts:
        if (usual := _USUAL.fullmatch(part)) and not _is_organization(part):
            names.append(f"{usual[2]} {usual[1]}")  # as below, in a fifth of the time
            continue
        several = _between_and(IDENTIFIER.sub("", part))
        commas = 0 if part == text else 2  # within a name
        if len(several) > 1 and all("," in each for each in several):
            commas = 1
        elif len(several) > 1 and several[0] and not any(" " in each.replace(", ", ",") for each in several):
            several = [family for each in several for family in each.split(",")]  # without given names
        is_alone = is_only and sum("," in each for each in several) == 1
        for each in several:
            is_one = each.count(",") <= commas and not are_several(each, is_only=is_alone)
            names += map(read_name, [each] if is_one else _between_commas(each))
    return list(filter(None, names))


def has_others(text: str) -> bool:
    """Return True if a list of names says that there are other authors."""
    return _OTHERS.search(text[-_OTHERS_CHARS:]) is not None or _ELLIPSIS.search(text) is not None


def read_name(text: str) -> str:
    """Read one name ("Family, Given", the natural order or "Family I.") as `person_name` has it."""
    parts = [part for each in text.split(",") if (part := each.strip())]
    if not parts or len(parts) > 3 or _is_organization(text):
        return ", ".join(parts)
    suffix = next((part for part in parts[1:] if _is_suffix(part)), "")
    words = [part.split() for part in parts if part is not suffix]
    for each in () if suffix else words:
        if len(each) > 1 and _is_suffix(each[-1]):
            suffix = each.pop()
            break
    family = words[0]
    given = [word for each in words[1:] for word in each]
    if len(words) == 1 and not all(map(_is_initials, family)):
        while _is_initials(family[-1]):
            given.insert(0, family.pop())
    return person_name(" ".join(family), " ".join(given), suffix)


def person_name(family: str, given: str, suffix: str = "") -> str:
    """Return a person's name for metadata: in the natural order where that tells the family name."""
    family, given, suffix = (" ".join(part.split()) for part in (family, given, suffix))
    if family and given and _family_words([*given.split(), *family.split()]) != family.split():
        return ", ".join(filter(None, (family, given, suffix)))
    return " ".join(filter(None, (given, family, suffix)))


def given_first(name: str) -> str:
    """Return a name for readers: of ``Family, Given, Suffix`` the given name comes first."""
    if name.count(",") not in (1, 2) or _is_organization(name):
        return name
    family, given, suffix = (*name.split(","), "")[:3]
    return " ".join(f"{given} {family} {suffix}".split())


def split_name(name: str) -> Name | None:
    """Split a person's name (as `person_name` has it); None where its parts cannot be told safely."""
    parts = [part.split() for part in name.split(",")]
    words = [word for part in parts for word in part]
    suffix = words.pop() if len(words) > 2 and _is_suffix(words[-1]) else ""
    others = set("".join(words)) - set(_IN_NAMES)
    is_plain = all(each.isalpha() or unicodedata.combining(each) for each in others) and all(
        word[0].isalpha() and word.lower() not in ("and", "others") for word in words
    )
    if len(words) < 2 or len(parts) > 3 or not is_plain or _is_organization(name):
        return None
    if len(parts) > 1 and parts[0] and parts[1]:
        return Name(" ".join(parts[0]), " ".join(parts[1]), suffix)
    last = _family_words(words)
    return Name(" ".join(last), " ".join(words[: -len(last)]), suffix)


def _is_organization(name: str) -> bool:
    return not _ORGANIZATIONS.isdisjoint(_WORDS.findall(name.lower()))


def _family_words(words: list[str]) -> list[str]:
    return words[next((i for i, word in enumerate(words[1:], start=1) if word[0].islower()), -1) :]


def _is_suffix(word: str) -> bool:
    return word.lower().replace(".", "") in _SUFFIXES


def _is_initials(word: str) -> bool:
    if "." in word:
        return word[0].isupper() and _DOTTED.fullmatch(word) is not None and not _is_suffix(word)
    return word.isupper() and _UNDOTTED.fullmatch(word) is not None


def _between_and(text: str) -> list[str]:
    first, *rest = _AND.split(text)
    parts = [first]
    for separator, part in zip(rest[::2], rest[1::2], strict=True):
        before, after = parts[-1].rpartition(",")[2].strip(), part.partition(",")[0].strip()
        is_short = any(" " not in each and not each.isupper() for each in (before, after))
        goes_on = is_short or (re.search(r"\b(?:of|for)\b", before) and not _is_organization(after))
        if before and "," not in separator and goes_on and _is_organization(f"{before} {after}"):
            parts[-1] += separator + part
        else:
            parts.append(part)
    return [part.strip(" ,") for part in parts]


def are_several(text: str, *, is_only: bool) -> bool:
    """Return True if a text is several names, not "Family, Given"; ``is_only``: no other has a comma."""
    if not text.isascii() and (any(map(text.__contains__, "\uff1b\u3001\uff0c")) or _EASTERN.search(text)):
        return True
    if "," not in text or _is_organization(text):
        return False
    parts, kinds = _kinds(text)
    return _LIST.fullmatch(kinds) is not None or (is_only and kinds == "FF" and not _is_one(parts))


def _is_one(parts: Sequence[str]) -> bool:
    names = (unicodedata.normalize("NFKD", part).encode("ascii", "ignore").decode() for part in parts)
    family, given = (name.split() or [""] for name in names)
    is_given = [word.lower() in _GIVEN for word in (family[0], family[-1], given[-1])]
    return is_given == [False, False, True] and not any(map(_is_initials, family))


def _kinds(text: str) -> tuple[list[str], str]:
    """Return parts and kinds: I (initials), R (family name and I), S (family name), F (natural order)."""
    parts: list[str] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        if parts and _is_suffix(part):
            parts[-1] += f" {part}"
        else:
            parts.append(part)
    kinds = ""
    for part in parts:
        words = [word for word in part.split() if not _is_suffix(word)] or [part]
        if _is_initials(words[-1]):
            kinds += "I" if all(map(_is_initials, words)) else "R"
        else:
            kinds += "S" if len(words) == 1 or words[0].islower() else "F"
    return parts, kinds


def _between_commas(text: str) -> list[str]:
    parts, kinds = _kinds(text)
    if len(parts) % 2 == 0 and _PAIRS.fullmatch(kinds):
        return [f"{family}, {given}" for family, given in zip(parts[::2], parts[1::2], strict=True)]
    if kinds == "FF" and _is_one(parts):
        return [", ".join(parts)]
    if len(parts) == 1 or not re.search("I|^SSF+$", kinds):
        return parts
    names = [parts[0]]
    for position, part in enumerate(parts[1:], start=1):
        if (kinds[position] == "I" and kinds[position - 1] != "I") or (position == 1 and "I" not in kinds):
            names[-1] += f", {part}"
        else:
            names.append(part)
    return names
