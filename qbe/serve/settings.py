"""How an index is served."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from qbe.errors import UsageError, input_error

SHORTEST_KEY = 16
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names of this machine, for itself."""


class ServeSettings(NamedTuple):
    """Who may ask, and what is logged.

    ``api_key`` is what requests must bring, None: nothing. ``hosts`` are the names under which the server is
    reached, None: any. ``origins`` are those of other pages that may ask. ``log_queries`` says whether what
    is searched for is logged.
    """

    api_key: str | None = None
    hosts: frozenset[str] | None = LOCAL
    origins: tuple[str, ...] = ()
    log_queries: bool = False


def settings_for(
    host: str, key: str | None, hosts: tuple[str, ...], origins: tuple[str, ...], *, log_queries: bool
) -> ServeSettings:
    """Settings for a server that listens at ``host``; raises UsageError where everybody could ask.

    A server for this machine alone answers only under the names of this machine and ``hosts``, so that no
    page of another site can reach it by a name that is made to lead here.

    >>> settings_for("127.0.0.1", None, ("papers.example.org",), (), log_queries=False).hosts == LOCAL | {
    ...     "papers.example.org"}
    True
    >>> settings_for("0.0.0.0", None, (), (), log_queries=False)
    Traceback (most recent call last):
    ...
    qbe.errors.UsageError: expected `key_file` with `host` 0.0.0.0, which others can reach, found none; ...
    """
    is_local = host in LOCAL
    if not is_local and key is None:
        raise UsageError(
            f"expected `key_file` with `host` {host}, which others can reach, found none; write a key of "
            f"{SHORTEST_KEY} or more characters into a file, or leave `host` out"
        )
    names = LOCAL | {name.lower() for name in hosts} if is_local or hosts else None
    return ServeSettings(key, names, origins, log_queries)


def read_key(path: str) -> str:
    r"""The key in a file, its first line; raises InputError, UsageError for one that is too short.

    >>> _ = Path("key").write_text("a-key-that-is-long-enough\n")
    >>> read_key("key")
    'a-key-that-is-long-enough'
    """
    try:
        text = Path(path).read_text(encoding="ascii").partition("\n")[0].strip()
    except OSError as error:
        raise input_error(path, error) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: expected a key of ASCII characters, found others") from None
    if len(text) < SHORTEST_KEY or not text.isprintable() or " " in text:
        raise UsageError(
            f"{path}: expected a key of {SHORTEST_KEY} or more characters without spaces in the first line, "
            f"found {len(text)}"
        )
    return text
