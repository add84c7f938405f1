"""SciDocs: papers that are cited by, co-cited, viewed or read with a paper (Cohan et al., 2020).

Of the two public layouts this is the original, as the repository's instructions fetch it:
``paper_metadata_view_cite_read.json`` (one object, paper id to record) and, in ``cite``, ``cocite``,
``coview`` and ``coread``, ``val.qrel`` and ``test.qrel`` (TREC's format). A query has about 5 papers of
grade 1 and 25 of grade 0. ASPIRE's layout of the same data leaves out papers without an abstract; the
original scorer, and with it the published figures, keeps them.
"""

from __future__ import annotations

from pathlib import Path

from qbe.datasets.judgments import Pools
from qbe.datasets.records import Papers, read_papers
from qbe.datasets.whole import Collection, Split
from qbe.errors import DatasetError
from qbe.trec import read_qrels

TASKS = ("cite", "cocite", "coview", "coread")
SPLITS = ("val", "test")
PAPERS = "paper_metadata_view_cite_read.json"
FILES = (PAPERS, *(f"{task}/{split}.qrel" for task in TASKS for split in SPLITS))


def read(source: Path) -> tuple[Papers, list[Split]]:
    """Read the papers, and the splits ``{task}.{split}``, of a release.

    Queries and candidates that are missing in the file of papers are kept; `qbe.datasets.whole` treats them
    as papers without text. Raises CorpusError for a record that is no paper, FileFormatError for a file of
    judgements that is no qrels file, DatasetError for a grade other than 0 or 1.

    >>> import json
    >>> records = {name: {"paper_id": name, "title": "On stone"} for name in "ab"}
    >>> _ = Path(PAPERS).write_text(json.dumps(records))
    >>> for file in FILES[1:]:
    ...     Path(file).parent.mkdir(exist_ok=True)
    ...     _ = Path(file).write_text("a 0 b 1")
    >>> read(Path())[1][0]
    Split(name='cite.val', pools={'a': {'b': 1}})
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


SCIDOCS = Collection("scidocs", FILES, "https://github.com/allenai/scidocs (aws s3 sync ...)", read)
