"""What ``pytest --doctest-modules qbe`` collects, and what the examples in docstrings may use.

Collecting imports a module, which takes time: modules without examples are left out. Examples run in an
empty folder. Those of the packages in WITH_INDEX have an ``index``, opened, in ``indexes/mini``: a query
paper of the collection in the package, and its candidates.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "qbe"
WITH_INDEX = ("index", "search")
QUERY = "2505.20979"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a module of the package that has no example."""
    if collection_path.suffix != ".py" or not collection_path.is_relative_to(PACKAGE):
        return None
    return ">>> " not in collection_path.read_text(encoding="utf-8") or None


@pytest.fixture(scope="session")
def documented_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Few papers, indexed as a user would."""
    from qbe.datasets import arxiv
    from qbe.search.pipeline import build_index

    folder, ids = tmp_path_factory.mktemp("documented"), {QUERY, *arxiv.grades(QUERY)}
    lines = arxiv.corpus().splitlines(keepends=True)
    corpus = folder / "few.jsonl"
    corpus.write_bytes(b"".join(line for line in lines if json.loads(line)["paper_id"] in ids))
    with build_index(folder / "indexes" / "mini", corpus) as index:
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
