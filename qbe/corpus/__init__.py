"""Readers of papers, each a stream of records; what they have in common is a `qbe.types.Paper`.

The names are loaded when they are first used, so that help is fast.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from qbe.corpus.json_formats import read_jsonl, read_records, write_jsonl
    from qbe.corpus.reading import read_corpus
    from qbe.corpus.records import Splitter, paper_to_record, parse_paper
    from qbe.corpus.streams import FORMAT_NAMES

__all__ = ["FORMAT_NAMES", "Splitter", "paper_to_record", "parse_paper", "read_corpus"]
__all__ += ["read_jsonl", "read_records", "write_jsonl"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    homes = dict.fromkeys(("read_jsonl", "read_records", "write_jsonl"), "json_formats")
    homes |= {"read_corpus": "reading", "FORMAT_NAMES": "streams"}
    return getattr(import_module(f"qbe.corpus.{homes.get(name, 'records')}"), name)
