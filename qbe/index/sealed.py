"""Descriptions in JSON that state their own digest, so that one changed character is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

CHECKSUM = "checksum"


def seal(record: Mapping[str, Any]) -> str:
    """The JSON text of a description with its checksum: the SHA-256 of its values, however they are laid out.

    >>> unseal(seal({"papers": 2}).encode())
    {'papers': 2}
    """
    return json.dumps({CHECKSUM: _checksum(record), **record}, indent=1) + "\n"


def unseal(text: bytes) -> dict[str, Any]:
    r"""The description of a text, without its checksum; one of an older version may have none.

    Raises ValueError for a text that is no JSON object, or has another checksum.

    >>> unseal(seal({"papers": 2}).replace("2\n", "3\n").encode())
    Traceback (most recent call last):
        ...
    ValueError: another checksum than it states
    """
    try:
        record = json.loads(text)
    except RecursionError:
        raise ValueError("objects nested too deep") from None
    if not isinstance(record, dict):
        raise ValueError(f"a {type(record).__name__}")
    checksum = record.pop(CHECKSUM, None)
    if checksum is not None and checksum != _checksum(record):
        raise ValueError("another checksum than it states")
    return record


def _checksum(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
