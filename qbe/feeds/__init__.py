"""Harvests of repositories by OAI-PMH, and watches: searches that are kept, with what is new for them."""

from datetime import date

from qbe.errors import UsageError


def check_day(name: str, day: str | None) -> None:
    """Raise UsageError for a parameter that is given and no day as YYYY-MM-DD."""
    try:
        is_day = not day or date.fromisoformat(day).isoformat() == day
    except (ValueError, TypeError):
        is_day = False
    if not is_day:
        raise UsageError(f"expected `{name}` such as 2026-11-20 (YYYY-MM-DD), found {day!r}")
