"""What all kinds of models share on disk: metadata in a JSON file, and digests of the other files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from qbe.errors import ModelError, UsageError
from qbe.files import sha256

T = TypeVar("T")


def read_metadata(path: Path, parse: Callable[[Any], T], expected: str, remedy: str) -> T:
    """What ``parse`` makes of a JSON file.

    Raises ModelError, which names what was ``expected`` and ends in ``remedy``, where the file is damaged or
    ``parse`` refuses its content; a ModelError of ``parse`` passes through.

    >>> write_metadata(Path("tagger.json"), {"name": "mine", "layers": [2, 6]})
    >>> read_metadata(Path("tagger.json"), lambda record: record["layers"], "a tagger", "train it again")
    [2, 6]
    """
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except (AttributeError, OSError, ValueError, TypeError, KeyError, UsageError) as error:
        raise ModelError(f"{path}: expected {expected}, found {error}; {remedy}") from error


def write_metadata(path: Path, record: Mapping[str, Any]) -> None:
    """Write metadata as JSON, one field a line."""
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def verify_digest(path: Path, expected: str | None, remedy: str) -> None:
    """Raise ModelError, which ends in ``remedy``, when a file is missing or has another SHA-256.

    >>> verify_digest(Path("head.onnx"), "0123abcd", "install qbe again")
    Traceback (most recent call last):
        ...
    qbe.errors.ModelError: head.onnx: expected SHA-256 0123abcd, found no file; install qbe again
    """
    digest = sha256(path) if path.is_file() else None
    if digest is None or digest != expected:
        raise ModelError(f"{path}: expected SHA-256 {expected}, found {digest or 'no file'}; {remedy}")
