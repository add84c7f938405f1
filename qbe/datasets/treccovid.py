"""TRECCOVID-RF: papers on COVID-19 that are relevant to the same topic of TREC-COVID find each other.

Made from TREC-COVID's judgements (Voorhees et al., 2020) by ASPIRE's authors (Mysore et al., 2022), and read
in their layout (see `qbe.datasets.aspire`). The original has topics in words and no query papers; the
reformulation draws its queries at random, so that only the released files have those that published figures
are on. Grades: 1 for a paper that TREC judged relevant (not partially) to the query paper's topic, 0 for
every other paper of the collection. So each query's pool is the whole collection, near 10,000 papers.
"""

from __future__ import annotations

from pathlib import Path

from qbe.datasets import aspire
from qbe.datasets.whole import Papers, Split

NAME = "treccovid"
FILES = aspire.files(NAME)
WHERE = "https://figshare.com/articles/dataset/TRECCOVID-RF-Aspire/19425515"
HIGHEST = 1


def read(source: Path) -> tuple[Papers, list[Split]]:
    """Papers and splits (``dev``, ``test``) of a release; raises what `aspire.read_release` raises."""
    return aspire.read_release(NAME, source, HIGHEST)
