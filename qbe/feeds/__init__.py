"""Harvests of repositories by OAI-PMH, and watches: searches that are kept, with what is new for them."""

ARXIV = "https://oaipmh.arxiv.org/oai"
# From the end of a request to the next; arXiv's terms of use ask for at most one in three seconds.
INTERVAL_S = 3.0

FORMATS = ("arXivRaw", "arXiv")  # metadata formats that are read

REPORTS = ("table", "json", "markdown", "atom")  # formats of reports of watches


def check_day(name: str, day: str | None) -> None:
    """Raise UsageError for a parameter that is given and no day as YYYY-MM-DD."""
    from datetime import date

    from qbe.errors import UsageError

    try:
        is_day = not day or date.fromisoformat(day).isoformat() == day
    except ValueError:
        is_day = False
    if not is_day:
        raise UsageError(f"expected `{name}` such as 2026-11-20 (YYYY-MM-DD), found {day!r}")
