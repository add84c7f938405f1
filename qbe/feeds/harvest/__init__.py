"""Papers of a repository by the Open Archives Initiative's protocol (OAI-PMH 2.0), as arXiv offers it."""

ARXIV = "https://oaipmh.arxiv.org/oai"
INTERVAL_S = 3.0
"""From the end of a request to the next; arXiv's terms of use ask for at most one in three seconds."""

FORMATS = ("arXivRaw", "arXiv")
"""Formats of metadata that are read."""
