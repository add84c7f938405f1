"""The sample that the package carries: a small collection written for tests and demonstrations."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from qbe.errors import DatasetError
from qbe.files import atomic_file
from qbe.types import Facet

_FILES = {
    "papers.jsonl": "corpus.jsonl",
    "topics.tsv": "topics.tsv",
    "pools.tsv": "pools.tsv",
    **{f"sample.{facet}.qrels": f"sample.{facet}.qrels" for facet in Facet},
    "folds.json": "folds.json",
}


def copy_sample(output: Path) -> list[str]:
    """Copy the sample's files to a folder, under the names `qbe.datasets.csfcube` uses; returns the names.

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
        with atomic_file(output / target) as stream:
            stream.write(data)
    return list(_FILES.values())
