"""Who may ask a server: programs of this machine, or whoever has its key."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping
from pathlib import Path

from qbe.errors import UsageError, input_error

log = logging.getLogger("qbe.network")

SHORTEST_KEY = 16
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names of this machine, for itself."""


def check_access(host: str, key: str | None) -> None:
    """Raise UsageError where everybody could ask.

    >>> check_access("127.0.0.1", None)
    >>> check_access("0.0.0.0", None)
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected `key_file` with `host` 0.0.0.0, which others can reach, found none; ...
    """
    if host not in LOCAL and key is None:
        raise UsageError(
            f"expected `key_file` with `host` {host}, which others can reach, found none; write a key of "
            f"{SHORTEST_KEY} or more characters into a file, or leave `host` out"
        )


def read_key(path: str) -> str:
    r"""The key in a file, its first line, with a warning where others may read the file; raises InputError,
    UsageError for one that is too short.

    >>> _ = Path("key").write_text("a-key-that-is-long-enough\n")
    >>> read_key("key")
    'a-key-that-is-long-enough'
    """
    try:
        if Path(path).stat().st_mode & 0o077:
            log.warning("%s: others may read this key; chmod 600 it", path)
        key = Path(path).read_text(encoding="ascii").partition("\n")[0].strip()
    except OSError as error:
        raise input_error(path, error) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: expected a key of ASCII characters, found others") from None
    if len(key) < SHORTEST_KEY or not key.isprintable() or " " in key:
        raise UsageError(
            f"{path}: expected a key of {SHORTEST_KEY} or more characters without spaces in the first line, "
            f"found {len(key)}"
        )
    return key


def key_problem(headers: Mapping[str, str], key: str | None) -> str | None:
    """What is wrong with the key that a request brings, in ``Authorization: Bearer`` or ``X-API-Key``; None
    where nothing is, or none is wanted.

    >>> key_problem({"authorization": "Bearer a-key-that-is-long-enough"}, "a-key-that-is-long-enough")
    >>> key_problem({}, "a-key-that-is-long-enough")
    'expected an API key in the header Authorization: Bearer KEY, found none'
    """
    if key is None:
        return None
    scheme, _, given = headers.get("authorization", "").partition(" ")
    given = given.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    if hmac.compare_digest(given.encode(), key.encode()):
        return None
    actual = "another one" if given else "none"
    return f"expected an API key in the header Authorization: Bearer KEY, found {actual}"
