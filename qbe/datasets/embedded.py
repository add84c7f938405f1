"""The sample that the package carries: a small collection written for tests and demonstrations."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from qbe.corpus.jsonl import dump_record
from qbe.datasets.raw import raw_record
from qbe.errors import DatasetError
from qbe.files import atomic_file
from qbe.types import Facet

PAPERS = "papers.jsonl"

_FILES = {
    PAPERS: "corpus.jsonl",
    "topics.tsv": "topics.tsv",
    "pools.tsv": "pools.tsv",
    **{f"sample.{facet}.qrels": f"sample.{facet}.qrels" for facet in Facet},
    "folds.json": "folds.json",
}


def copy_sample(output: Path, *, raw: bool = False) -> list[str]:
    """Copy the sample's files to a folder, under the names `qbe.datasets.csfcube` uses; returns the names.

    With ``raw`` the corpus has abstracts in one string, without labels.
    Raises DatasetError when the installation lacks them, OutputError when the folder cannot be written.
    """
    folder = resources.files("qbe.datasets").joinpath("sample")
    for name, target in _FILES.items():
        try:
            data = folder.joinpath(name).read_bytes()
        except OSError as error:
            raise DatasetError(
                f"expected {name} in the installed package, found none ({error.strerror}); install qbe again"
            ) from error
        if raw and name == PAPERS:
            data = b"".join(dump_record(raw_record(json.loads(line))) for line in data.splitlines())
        with atomic_file(output / target) as stream:
            stream.write(data)
    return list(_FILES.values())
