"""The beginning of a source, by which its format is recognized."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any

HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class Head:
    """A source's name and its first decompressed bytes (HEAD_BYTES at most, of a pipe perhaps fewer).

    >>> head = Head("papers.jsonl.gz", b'{"id": "a"}')
    >>> head.suffix, head.text, head.record
    ('.jsonl', '{"id": "a"}', {'id': 'a'})
    """

    name: str
    data: bytes

    @property
    def suffix(self) -> str:
        """The suffix of the name in lower case, that of a compression left out."""
        path = PurePath(self.name)
        if path.suffix.lower() in (".gz", ".xz", ".zst", ".zip", ".bz2"):
            path = path.with_suffix("")
        return path.suffix.lower()

    @cached_property
    def text(self) -> str:
        """The bytes as text, without white space at its beginning; what is not UTF-8 is replaced."""
        return self.data.decode(errors="replace").lstrip()

    @cached_property
    def record(self) -> dict[str, Any]:
        """The first JSON object of the text, also the first of an array; empty where there is none, or where
        it is cut.
        """
        try:
            value, _ = json.JSONDecoder().raw_decode(self.text.removeprefix("[").lstrip())
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    def has(self, *names: str) -> bool:
        """Whether the first record has all these fields; of one that is cut, whether its text names them.

        >>> Head("-", b'{"id": 1, "title": "On').has("id", "title")
        True
        """
        if self.record:
            return all(name in self.record for name in names)
        is_json = self.text[:1] in ("{", "[") and "\n" not in self.text.rstrip()
        return is_json and all(f'"{name}":' in self.text.replace('" :', '":') for name in names)


def head_of(stream: io.BufferedReader, name: str) -> Head:
    """The beginning of a stream that is still at its start, and stays there.

    >>> head_of(io.BufferedReader(io.BytesIO(b'{"id": 1}')), "works.json").record
    {'id': 1}
    """
    return Head(name, stream.peek(HEAD_BYTES)[:HEAD_BYTES])
