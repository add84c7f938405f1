"""A collection as most corpora come: abstracts in one string, without labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def raw_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A paper's record with its sentences joined by single spaces and without ``pred_labels``."""
    kept = {field: value for field, value in record.items() if field != "pred_labels"}
    abstract = record["abstract"]
    return {**kept, "abstract": abstract if isinstance(abstract, str) else " ".join(abstract)}
