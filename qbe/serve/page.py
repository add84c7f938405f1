"""The files of the page."""

from __future__ import annotations

from importlib import resources

MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def page_files() -> dict[str, tuple[bytes, str]]:
    """Content and media type of the page's files by their paths; ``/`` is the page itself.

    >>> page_files()["/"][1]
    'text/html; charset=utf-8'
    """
    files = {}
    for file in (resources.files("qbe.serve") / "page").iterdir():
        name, _, ending = file.name.rpartition(".")
        if ending in MEDIA_TYPES:
            path = "/" if name == "index" else f"/{file.name}"
            files[path] = (file.read_bytes(), f"{MEDIA_TYPES[ending]}; charset=utf-8")
    return files
