"""Model cards' text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping


def joined(parts: Iterable[str]) -> str:
    """Markdown out of its parts: paragraphs are wrapped, tables, headings and lists stay as they are."""
    return "\n\n".join(map(_wrapped, parts)) + "\n"


def sources(digests: Mapping[str, str]) -> str:
    """A list of files with their SHA-256."""
    return "\n".join(f"- {name}: SHA-256 {digest}" for name, digest in digests.items())


def _wrapped(part: str) -> str:
    return part if part.startswith(("|", "#", "-")) else textwrap.fill(part, 110, break_on_hyphens=False)
