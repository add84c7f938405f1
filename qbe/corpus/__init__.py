"""Readers of papers, each a stream of records; what they have in common is a `qbe.types.Paper`.

The names are loaded when they are first used, so that help, which names the formats, is fast.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from qbe.corpus.jsonl import read_jsonl, read_records, write_jsonl
    from qbe.corpus.read import read_corpus
    from qbe.corpus.record import Splitter, paper_from_record, paper_to_record, parse_paper

__all__ = ["Splitter", "paper_from_record", "paper_to_record", "parse_paper", "read_corpus"]
__all__ += ["read_jsonl", "read_records", "write_jsonl"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    homes = {"read_corpus": "read", "read_jsonl": "jsonl", "read_records": "jsonl", "write_jsonl": "jsonl"}
    return getattr(import_module(f"qbe.corpus.{homes.get(name, 'record')}"), name)


def __dir__() -> list[str]:
    return __all__
