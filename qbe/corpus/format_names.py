"""The names of the formats, apart from their readers: help names them and is to load nothing else."""

FORMAT_NAMES = (
    *("arxiv", "semantic-scholar", "openalex", "crossref", "pubmed", "acl-anthology", "csl-json", "bibtex"),
    *("ris", "nbib", "wos", "endnote", "refworks", "pdf", "parquet", "jsonl", "table"),
)
