"""SciDocs: which papers are cited, co-cited, viewed or read together with a paper (Cohan et al., 2020).

Of the two layouts that are public this is the original, as the repository's instructions fetch it:
``paper_metadata_view_cite_read.json`` (one object, paper id to record) and, in ``cite``, ``cocite``,
``coview`` and ``coread``, ``val.qrel`` and ``test.qrel`` (TREC's format). A query has about 5 papers of
grade 1 and 25 of grade 0. ASPIRE's layout of the same data leaves out papers without an abstract; the
original's scorer, and with it the published figures, keeps them.
"""

from __future__ import annotations

from pathlib import Path

from qbe.datasets.judgments import Pools
from qbe.datasets.whole import Papers, Split, read_papers
from qbe.errors import DatasetError
from qbe.trec import read_qrels

NAME = "scidocs"
TASKS = ("cite", "cocite", "coview", "coread")
SPLITS = ("val", "test")
PAPERS = "paper_metadata_view_cite_read.json"
FILES = (PAPERS, *(f"{task}/{split}.qrel" for task in TASKS for split in SPLITS))
WHERE = "https://github.com/allenai/scidocs (aws s3 sync ...)"


def read(source: Path) -> tuple[Papers, list[Split]]:
    """Papers, and splits ``{task}.{split}``.

    A query or candidate that the papers' file lacks is left to `qbe.datasets.whole`, as one without a text.
    Raises CorpusError for unfit papers, FileFormatError for judgements that are no qrels, DatasetError for
    a grade other than 0 or 1.
    """
    papers = read_papers(source / PAPERS)
    return papers, [
        Split(f"{task}.{split}", _read_pools(source / task / f"{split}.qrel"))
        for task in TASKS
        for split in SPLITS
    ]


def _read_pools(path: Path) -> Pools:
    pools = read_qrels(path)
    for query, pool in pools.items():
        unfit = [grade for grade in pool.values() if grade not in (0, 1)]
        if unfit:
            raise DatasetError(
                f"{path}: expected grades 0 and 1, found {unfit[0]} for {query}; take the file of the release"
            )
    return pools
