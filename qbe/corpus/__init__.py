"""Readers of papers, each a stream of `qbe.types.Paper`: JSON lines, Hugging Face datasets."""

from qbe.corpus.jsonl import read_jsonl, read_paper_file, read_records, write_jsonl
from qbe.corpus.read import read_corpus
from qbe.corpus.record import Splitter, paper_from_record, paper_to_record, parse_paper

__all__ = [
    "Splitter",
    "paper_from_record",
    "paper_to_record",
    "parse_paper",
    "read_corpus",
    "read_jsonl",
    "read_paper_file",
    "read_records",
    "write_jsonl",
]
