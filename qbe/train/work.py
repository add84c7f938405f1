"""Work folders of trainings: what their finished parts are made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbe.errors import ModelError
from qbe.files import write_text

_NOTE = "made-from.json"


def claim(work: Path, facts: Mapping[str, Any]) -> None:
    """Note in a work folder what its parts are made from; refuse one whose parts are made from others."""
    note, text = work / _NOTE, json.dumps(facts, indent=1) + "\n"
    if not note.exists():
        write_text(note, text)
    elif note.read_text() != text:
        raise ModelError(
            f"{work}: expected parts of the same recipe and data, found those of others (see {note.name}); "
            "give another --work"
        )


def made_from(work: Path) -> Any:
    """What the parts in a work folder are made from; raises ModelError where it holds none."""
    try:
        return json.loads((work / _NOTE).read_text())
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{work}: expected the work folder of a training, found no {_NOTE} in it; check --start"
        ) from error


def record(value: Any) -> Any:
    """Nested named tuples as nested dictionaries."""
    fields = getattr(value, "_asdict", None)
    return {name: record(part) for name, part in fields().items()} if fields else value
