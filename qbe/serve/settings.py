"""How an index is served."""

from __future__ import annotations

import re
from typing import NamedTuple

from qbe.errors import UsageError
from qbe.network.access import LOCAL, check_access

_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")


class ServeSettings(NamedTuple):
    """Who may ask, and what is logged.

    ``api_key`` is what requests must bring, None: nothing. ``hosts`` are the names under which the server is
    reached, None: any. ``origins`` are those of other pages that may ask. ``log_queries`` says whether what
    is searched for is logged. ``root_path`` is what a server in front puts before all paths, such as /qbe.
    """

    api_key: str | None = None
    hosts: frozenset[str] | None = LOCAL
    origins: tuple[str, ...] = ()
    log_queries: bool = False
    root_path: str = ""


def settings_for(
    host: str,
    key: str | None,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    *,
    log_queries: bool,
    root_path: str = "",
) -> ServeSettings:
    """Settings for a server that listens at ``host``; raises UsageError where everybody could ask, and for
    a root path that is none.

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
    check_access(host, key)
    names = LOCAL | {name.lower() for name in hosts} if host in LOCAL or hosts else None
    root_path = root_path.rstrip("/")
    if root_path and not _ROOT_PATH.fullmatch(root_path):
        raise UsageError(f"expected a `root_path` such as /qbe, found {root_path!r}")
    return ServeSettings(key, names, origins, log_queries, root_path)
