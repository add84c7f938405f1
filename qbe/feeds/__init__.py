"""Harvests of repositories by OAI-PMH, and watches: searches that are kept, with what is new for them."""

ARXIV = "https://oaipmh.arxiv.org/oai"
INTERVAL_S = 3.0
"""From the end of a request to the next; arXiv's terms of use ask for at most one in three seconds."""

FORMATS = ("arXivRaw", "arXiv")
"""Metadata formats that are read."""

REPORTS = ("table", "json", "markdown", "atom")
"""Formats of reports of watches."""
