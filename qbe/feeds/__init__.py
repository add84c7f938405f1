"""Harvests of repositories by OAI-PMH, and watches: searches that are kept, with what is new for them."""

ARXIV = "https://oaipmh.arxiv.org/oai"
# From the end of a request to the next; arXiv's terms of use ask for at most one in three seconds.
INTERVAL_S = 3.0

FORMATS = ("arXivRaw", "arXiv")  # metadata formats that are read

REPORTS = ("table", "json", "markdown", "atom")  # formats of reports of watches
