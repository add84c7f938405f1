"""Values of options that are small languages: component weights and sentence positions."""

from __future__ import annotations

from qbe.errors import UsageError
from qbe.search.config import COMPONENTS


def parse_weights(text: str) -> dict[str, float]:
    """Component weights such as ``bm25=1,whole=0.5``; components not named get 0; raises UsageError.

    >>> parse_weights("bm25=1,whole=0.5")
    {'bm25': 1.0, 'sentences': 0.0, 'facet': 0.0, 'whole': 0.5}
    """
    weights = dict.fromkeys(COMPONENTS, 0.0)
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            if name not in weights:
                raise ValueError
            weights[name] = float(value)
        except ValueError:
            raise UsageError(
                f"expected weights such as {COMPONENTS[0]}=1,{COMPONENTS[-1]}=0.5 of "
                f"{', '.join(COMPONENTS)}, found {part!r}; check `weights`"
            ) from None
    return weights


def parse_positions(text: str) -> tuple[int, ...]:
    """Sentence positions such as ``0,3``, counted from 0; raises UsageError.

    >>> parse_positions("0,3")
    (0, 3)
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"expected sentence positions such as 0,3, found {text!r}; check --sentences"
        ) from None
