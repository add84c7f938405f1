"""Samples of the formats of papers, damage to them, and what may come of reading them.

The damage is done by a `Random`, not by strategies inside of each other, which take several times as long as
the reading. Hypothesis chooses its seed, and how often to damage a sample: this is what it makes smaller when
a test fails.
"""

import contextlib
import io
import json
import re
from collections.abc import Iterable, Iterator
from copy import deepcopy
from itertools import chain, repeat
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import strategies as st

from qbe.corpus.records import Entry, Reader, Reading, parse_paper
from qbe.corpus.sentences import split_sentences
from qbe.errors import CorpusError, RecordError

FORMATS = Path(__file__).parents[1] / "data" / "formats"
SEEDS = st.integers(0, 2**32 - 1)
TIMES = st.integers(1, 6)
TAG = re.compile(r"(</?)([\w-]+)")

WRONG: list[Any] = [None, True, 7, -1, 1.5, 10**30, "", " ", "x y\n", "\0", "\ud800"]
WRONG += [[], ["x"], [7], [[]], [[7]], [None], [{}], [{"x": 1}], {}, {"x": 1}]
"""Values that a member of an object should not have, or rarely has."""


def buffered(data: bytes | str) -> io.BufferedReader:
    """The stream that a reader is given for a source with this content."""
    return io.BufferedReader(io.BytesIO(data.encode() if isinstance(data, str) else data))


class Endless(io.RawIOBase):
    """A document of many parts, made as it is read."""

    def __init__(self, begin: bytes, part: bytes, count: int) -> None:
        self._parts = chain([begin], repeat(part, count))
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._rest or next(self._parts, b"")
        count = min(len(part), len(buffer))
        buffer[:count], self._rest = part[:count], part[count:]
        return count


@st.composite
def mistyped(draw: st.DrawFn, sample: bytes) -> bytes:
    """A sample of JSON, or of lines of JSON, with up to six of its values replaced by wrong ones."""
    random = Random(draw(SEEDS))
    values = _json(sample)
    for _ in range(draw(TIMES)):
        _mistype(random.choice(values), random)
    return "\n".join(map(json.dumps, values)).encode()


@st.composite
def misplaced(draw: st.DrawFn, sample: bytes) -> bytes:
    """A sample of XML, in which up to six tags are replaced by others of it wherever they stand."""
    random = Random(draw(SEEDS))
    tags = sorted({name for _, name in TAG.findall(sample.decode())})
    others = {random.choice(tags): random.choice(tags) for _ in range(draw(TIMES))}
    return TAG.sub(lambda tag: tag[1] + others.get(tag[2], tag[2]), sample.decode()).encode()


def check_reading(read: Reader, data: bytes, name: str) -> None:
    """Only a CorpusError in one line may end the reading of ``data``; entries are records whose title and
    abstract are texts, or errors in one line, and say where in the source they are.
    """
    for where, record in _until_error(read(buffered(data), name, Reading()), name):
        assert where.startswith(name)
        if isinstance(record, RecordError):
            assert str(record).startswith(name)
            assert str(record).isprintable()
            continue
        assert isinstance(record["title"], str)
        assert isinstance(record["abstract"], str | None)
        with contextlib.suppress(RecordError):
            parse_paper(record, where, split_sentences)


def _until_error(entries: Iterable[Entry], name: str) -> Iterator[Entry]:
    try:
        yield from entries
    except CorpusError as error:
        assert not isinstance(error, RecordError)
        assert str(error).startswith(name)
        assert str(error).isprintable()


def _json(data: bytes) -> list[Any]:
    try:
        return [json.loads(data)]
    except ValueError:
        return [json.loads(line) for line in data.splitlines()]


def _mistype(value: Any, random: Random) -> None:
    """Replace a value somewhere within a value, as deep as chance will have it."""
    while value:
        key = random.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if not isinstance(value[key], dict | list) or random.random() < 0.25:
            value[key] = _wrong(value[key], random)
            return
        value = value[key]


def _wrong(value: Any, random: Random) -> Any:
    """A value of WRONG, a list of several, or a text with any characters."""
    kind = random.random()
    if kind < 0.6:
        return deepcopy(random.choice(WRONG))
    if kind < 0.7:
        return deepcopy(random.choices(WRONG, k=random.randint(1, 4)))
    text = value if isinstance(value, str) else ""
    place = random.randint(0, len(text))
    characters = (chr(random.randrange(random.choice([0x80, 0x300, 0x110000]))) for _ in range(3))
    return text[:place] + "".join(characters) + text[place + random.randint(0, 3) :]
