"""Hugging Face datasets as corpora, all of them local."""

import datetime
import sys
from pathlib import Path
from typing import Any

import pytest
from support.messages import messages_of

from qbe.corpus.reading import read_corpus
from qbe.corpus.records import Reading
from qbe.errors import CorpusError, MissingDependencyError, UsageError
from qbe.types import Facet, Paper, Sentence

COLUMNS = ("paper_id", "title", "abstract", "pred_labels", "metadata", "unused")
METADATA = {"year": 1999, "seen": datetime.date(2020, 1, 2)}
LABELS = ["objective_label", "method_label"]
ROWS: list[dict[str, Any]] = [
    dict(zip(COLUMNS, ("a", "One", ["First.", "Second."], LABELS, METADATA, 1.5), strict=True)),
    dict(zip(COLUMNS, ("b", "Two", ["Third."], None, None, None), strict=True)),
]
FIRST, SECOND = Sentence("First.", Facet.BACKGROUND), Sentence("Second.", Facet.METHOD)
EXPECTED = [
    Paper("a", "One", (FIRST, SECOND), labelled=True, metadata={"year": 1999, "seen": "2020-01-02"}),
    Paper("b", "Two", (Sentence("Third."),)),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders: one and splits (save_to_disk), parquet, columns, labels, twice."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    root = tmp_path_factory.mktemp("hf")
    rows = datasets.Dataset.from_list(ROWS)
    rows.with_format("numpy").save_to_disk(root / "one")
    datasets.DatasetDict(train=rows, test=rows.select([1])).save_to_disk(root / "splits")
    for name in ("parquet", "columns", "labels", "twice"):
        (root / name).mkdir()
    rows.select([0]).to_parquet(root / "parquet" / "part-0.parquet")
    rows.select([1]).to_parquet(root / "parquet" / "part-1.parquet")
    renamed = datasets.Dataset.from_list([{"id": 3, "name": "Three", "summary": "It is. It was."}])
    renamed.to_parquet(root / "columns" / "x.parquet")
    names = datasets.ClassLabel(names=["method", "result"])
    coded = rows.select([0]).remove_columns(["pred_labels", "metadata"]).add_column("pred_labels", [[1, 0]])
    coded.cast_column("pred_labels", datasets.List(names)).to_parquet(root / "labels" / "x.parquet")
    rows.to_parquet(root / "twice" / "x.parquet")
    rows.map(lambda row: {"title": f"Not {row['title']}"}).to_parquet(root / "twice" / "y.parquet")
    (root / "broken").mkdir()
    (root / "broken" / "x.parquet").write_bytes((root / "twice" / "x.parquet").read_bytes()[:-50])
    (root / "empty").mkdir()
    return root


@pytest.mark.parametrize(
    "name", ["{}/one", "hf:{}/one", "{}/parquet", "hf:{}/parquet::train", "hf:{}/splits::train"]
)
def test_local_folders(saved: Path, name: str) -> None:
    assert list(read_corpus([name.format(saved)])) == EXPECTED


def test_splits_columns_of_other_names_and_labels_kept_as_numbers(saved: Path) -> None:
    assert [paper.paper_id for paper in read_corpus([f"hf:{saved}/splits::test"])] == ["b"]
    reading = Reading(columns={"title": "name"})
    (paper,) = read_corpus([f"hf:{saved}/columns"], lambda text: text.split(". "), reading)
    assert paper == Paper("3", "Three", (Sentence("It is"), Sentence("It was.")))
    (paper,) = read_corpus([f"hf:{saved}/labels"])
    assert [sentence.facet for sentence in paper.sentences] == [Facet.RESULT, Facet.METHOD]


UNFIT = ["hf:{}/splits", "hf:{}/splits::dev", "hf:{}/one::dev", "hf:{}/columns", "hf:{}/twice", "hf:{}/empty"]


def test_unfit_datasets(saved: Path, told) -> None:
    reads = [lambda name=name: list(read_corpus([name.format(saved)])) for name in UNFIT]
    told("datasets of Hugging Face", messages_of(reads, CorpusError, saved))
    with pytest.raises(CorpusError, match=r"^cannot read [^\n]*broken[^\n]*$"):
        list(read_corpus([f"hf:{saved}/broken"]))


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    datasets, hub = pytest.importorskip("datasets"), pytest.importorskip("huggingface_hub")
    for settings in (hub.constants, datasets.config):  # as with HF_HUB_OFFLINE in the environment
        monkeypatch.setattr(settings, "HF_HUB_OFFLINE", True)
    with pytest.raises(CorpusError, match=r"^cannot read hf:nobody/nothing: ConnectionError: .*$") as raised:
        list(read_corpus(["hf:nobody/nothing"]))
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        MissingDependencyError,
        match=r"the package datasets, found none; run: pip install 'qbe\[huggingface\]'$",
    ):
        list(read_corpus(["hf:a/b"]))


@pytest.mark.parametrize("name", ["hf:", "hf:a:b:c:d"])
def test_malformed_names(name: str) -> None:
    with pytest.raises(UsageError, match=r"^hf:.*: expected NAME\[:CONFIG\]\[:SPLIT\]"):
        list(read_corpus([name]))
