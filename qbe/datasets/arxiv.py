"""arXiv's papers of computer science to the end of 2019: the papers of qbe's graded pairs.

arXiv's metadata are published under CC0. qbe's models were trained on a file that was made of two dumps of
them by category (github.com/staeiou/arxiv_archive, of 2019-01-01 and 2020-01-01), as far as these were at
hand: 176,320 records, in which papers of cs.CV, cs.LG, cs.AI and cs.IT are there through cross-listing only.
arXiv's snapshot (kaggle.com/datasets/Cornell-University/arxiv) has these papers and the others under the same
ids; of a paper that was revised since, it has the newer abstract.
"""

from __future__ import annotations

import lzma
import os
from pathlib import Path

from qbe.corpus.reading import read_corpus
from qbe.corpus.records import SKIP, Reading
from qbe.corpus.rejected import SUFFIX
from qbe.datasets.citing import listing
from qbe.datasets.names import ARXIV_CS
from qbe.datasets.records import raw_line, unsplit
from qbe.errors import DatasetError
from qbe.util.files import atomic_file

FILE = "arxiv-cs.jsonl.xz"
ARXIV = f"{ARXIV_CS}/{FILE}"
"""Where other commands look for the papers, below QBE_DATA."""

SNAPSHOT = "arxiv-metadata-oai-snapshot.json"
WHERE = "kaggle.com/datasets/Cornell-University/arxiv"
CATEGORIES = ("cs.*", "stat.ML", "eess.AS", "eess.IV")
LAST_YEAR = "2019"


def write(source: Path | None, output: Path) -> list[str]:
    """Write ``arxiv-cs.jsonl.xz``, each abstract as one string.

    ``source`` is arXiv's snapshot, the folder that holds it, or another file of arXiv's papers; by default
    the snapshot in ``$QBE_DATA/arxiv-cs``. Records that cannot be used are listed in a file beside it.
    Returns lines that summarize what was written, and where the papers come from. Raises DatasetError where
    the source is absent or has no such paper, CorpusError where it cannot be read, OutputError.
    """
    path = _find(source)
    target = output / FILE
    listed = target.with_name(target.name + SUFFIX)
    reading = Reading(categories=CATEGORIES, on_error=SKIP)
    papers = 0
    with (
        listing(listed) as left_out,
        atomic_file(target) as stream,
        lzma.open(stream, "wb", preset=3) as lines,
    ):
        for paper in read_corpus([str(path)], unsplit, reading, left_out):
            if paper.year <= LAST_YEAR:
                papers += 1
                lines.write(raw_line(paper))
        if not papers:
            raise DatasetError(
                f"{path}: expected papers to the end of {LAST_YEAR}, found none; give {SNAPSHOT} of {WHERE}"
            )
    return [
        f"{ARXIV_CS}: {papers:,} papers to the end of {LAST_YEAR} ({', '.join(CATEGORIES)}) in {target}",
        *([f"  {left_out.summary()}, listed in {listed}"] if left_out else []),
        f"  arXiv's metadata (CC0), from {path}. qbe's models were trained on 176,320 of them,",
        "  as the dumps of 2019-01-01 and 2020-01-01 in github.com/staeiou/arxiv_archive have them.",
    ]


def _find(source: Path | None) -> Path:
    data = os.environ.get("QBE_DATA")
    if source is None and data:
        source = Path(data, ARXIV_CS, SNAPSHOT)
    path = source / SNAPSHOT if source is not None and source.is_dir() else source
    if path is None or not path.is_file():
        actual = f"no {path}" if path else "neither"
        raise DatasetError(
            f"expected arXiv's metadata, {SNAPSHOT}, as `source` or in $QBE_DATA/{ARXIV_CS}, found {actual}; "
            f"get it from {WHERE}"
        )
    return path
