"""The sample in the package: a small invented collection for tests and demonstrations.

Its judgements follow from its layout (``layout.json``): under each facet every paper belongs to a variant of
a family, and families are related in pairs (``tests/support/layout.py``).
"""

from __future__ import annotations

import json
from pathlib import Path

from qbe.corpus.records import dump_record
from qbe.datasets.releases import DatasetOptions, Report, packaged, raw_record
from qbe.types import Facet
from qbe.util.files import StrPath, atomic_file

PAPERS = "papers.jsonl"

_FILES = {
    PAPERS: "corpus.jsonl",
    "topics.tsv": "topics.tsv",
    "pools.tsv": "pools.tsv",
    **{f"sample.{facet}.qrels": f"sample.{facet}.qrels" for facet in Facet},
    "folds.json": "folds.json",
}


def copy_sample(output: StrPath, *, raw: bool = False) -> list[str]:
    """Copy the sample's files to a folder; return their names. With ``raw`` each abstract is one string."""
    for name, target in _FILES.items():
        data = packaged("sample", name)
        if raw and name == PAPERS:
            data = b"".join(dump_record(raw_record(json.loads(line))) for line in data.splitlines())
        with atomic_file(Path(output, target)) as stream:
            stream.write(data)
    return list(_FILES.values())


def write(options: DatasetOptions, output: Path, _: Report) -> list[str]:
    """Write the sample to a folder; return a line that says so."""
    return [f"sample: {', '.join(copy_sample(output, raw=options.raw))}"]
