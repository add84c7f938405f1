"""What ``pytest --doctest-modules qbe`` collects, and what the examples in docstrings may use.

Collecting imports a module, which takes time: modules without examples are left out. Examples run in an empty
folder. Those of the packages in WITH_INDEX have an ``index``, the sample with postings and
vectors, opened, in ``indexes/sample``, and its ``corpus.jsonl``, ``topics.tsv`` and ``pools.tsv`` in
``sample``.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "qbe"
WITH_INDEX = ("index", "rerank", "search", "cite", "cluster", "service", "serve", "mcp", "list", "label")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a module of the package that has no example."""
    if collection_path.suffix != ".py" or not collection_path.is_relative_to(PACKAGE):
        return None
    return ">>> " not in collection_path.read_text(encoding="utf-8") or None


@pytest.fixture(scope="session")
def documented_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """The sample, indexed as a user would."""
    from qbe.search.pipeline import build_index

    folder = tmp_path_factory.mktemp("documented")
    shutil.copytree(Path(__file__).parent / "tests" / "data" / "sample", folder / "sample")
    with build_index(folder / "indexes" / "sample", folder / "sample" / "corpus.jsonl") as index:
        yield index


@pytest.fixture(autouse=True)
def _example_environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder and the names of an example."""
    if not isinstance(request.node, pytest.DoctestItem):
        return
    package = Path(request.node.path).relative_to(PACKAGE).parts[0]
    if package not in WITH_INDEX:
        monkeypatch.chdir(request.getfixturevalue("tmp_path"))
        return
    index = request.getfixturevalue("documented_index")
    request.getfixturevalue("doctest_namespace")["index"] = index
    monkeypatch.chdir(Path(index.folder).parent.parent)
