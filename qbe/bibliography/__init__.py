"""Papers as entries of a bibliography: BibTeX and RIS, with keys, and what tables and JSON show of them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from qbe.bibliography.reference import Reference, reference_of
    from qbe.bibliography.writing import Bibliography, entries

__all__ = ["Bibliography", "Reference", "entries", "reference_of"]

_HOMES = {
    "Bibliography": "writing",
    "Reference": "reference",
    "entries": "writing",
    "reference_of": "reference",
}
"""The module of each name."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"qbe.bibliography.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
