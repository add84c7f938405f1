"""The names of the formats, for help that loads no reader; `qbe.corpus.formats` has their readers."""

FORMATS = (
    *("arxiv", "semantic-scholar", "openalex", "crossref", "pubmed", "acl-anthology", "csl-json", "bibtex"),
    *("ris", "nbib", "wos", "endnote", "pdf", "parquet", "jsonl", "table"),
)
