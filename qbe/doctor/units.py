"""Numbers of bytes for people."""

from __future__ import annotations


def in_bytes(number: int) -> str:
    """A number of bytes in powers of 1000, as disks are sold.

    >>> in_bytes(0), in_bytes(1_250_000), in_bytes(24_684_084_000)
    ('0.0 kB', '1.2 MB', '24.7 GB')
    """
    if number >= 1_000_000_000_000:
        return f"{number / 1e12:.1f} TB"
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number / 1e3:.1f} kB"
