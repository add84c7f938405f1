"""RELISH: biomedical abstracts, each with about 60 judged, mostly by its own author (Brown et al., 2019).

Of the two layouts that are public this is ASPIRE's (Mysore et al., 2022; see `qbe.datasets.aspire`), which
has the texts and the splits that published figures are on. The original, ``RELISH_v1.json``, has PubMed ids
alone. Grades: 2 relevant, 1 partially relevant, 0 irrelevant. For MAP only 2 counts as relevant.
"""

from __future__ import annotations

from pathlib import Path

from qbe.datasets import aspire
from qbe.datasets.whole import Papers, Split

NAME = "relish"
FILES = aspire.files(NAME)
WHERE = "https://figshare.com/articles/dataset/RELISH-Aspire/19425506"
HIGHEST = 2


def read(source: Path) -> tuple[Papers, list[Split]]:
    """Papers and splits (``dev``, ``test``) of a release; raises what `aspire.read_release` raises."""
    return aspire.read_release(NAME, source, HIGHEST)
