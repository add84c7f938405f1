"""The names of the formats, for help that loads no reader; `qbe.corpus.formats` has their readers."""

FORMATS = (
    "arxiv",
    "jsonl",
)
