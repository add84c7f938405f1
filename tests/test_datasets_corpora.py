"""Corpora without queries: arXiv's computer science, the ACL Anthology."""

import json
from pathlib import Path

import pytest

from qbe.corpus import read_corpus
from qbe.datasets import write_dataset
from qbe.errors import DatasetError, UsageError

FORMATS = Path(__file__).parent / "data" / "formats"


@pytest.fixture
def snapshot(tmp_path) -> Path:
    path = tmp_path / "arxiv-metadata-oai-snapshot.json"
    path.write_bytes((FORMATS / "arxiv.json").read_bytes())
    return path


def test_computer_science_out_of_the_snapshot(tmp_path, snapshot):
    reported: list[str] = []
    lines = write_dataset("arxiv-cs", tmp_path / "out", source=snapshot, report=reported.append)
    corpus = tmp_path / "out" / "corpus.jsonl"
    assert lines == [
        f"arxiv-cs: 2 papers in {corpus}",
        f"next: qbe index --corpus {corpus} --output indexes/arxiv-cs",
    ]
    assert reported == [
        "about 0 records, 0 papers of them: read in 1 min, 0.0 GB on the disk",
        "indexed later: about 0.0 h on two cores, 0.0 GB on the disk, 1.0 GB of memory",
    ]
    records = [json.loads(line) for line in corpus.read_text().splitlines()]
    assert [record["paper_id"] for record in records] == ["0704.0001", "0704.0003"]
    assert records[1]["abstract"] == "Trees grow. We measure them."
    split = list(read_corpus([str(corpus)], lambda text: [part + "." for part in text.split(".")[:-1]]))
    assert [sentence.text for sentence in split[1].sentences] == ["Trees grow.", "We measure them."]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["corpus.jsonl"]


def test_the_folder_of_the_download_will_do(tmp_path, snapshot):
    assert write_dataset("arxiv-cs", tmp_path / "out", source=snapshot.parent, limit=1)[0].startswith(
        "arxiv-cs: 1 papers in"
    )


def test_broken_records_are_listed_beside_it(tmp_path, snapshot):
    good = snapshot.read_text()
    more = [json.dumps({**json.loads(good.splitlines()[2]), "id": f"0705.{n:04}"}) for n in range(200)]
    snapshot.write_text(good + "\n".join(more) + '\n{"id": 7\n')
    lines = write_dataset("arxiv-cs", tmp_path / "out", source=snapshot)
    assert lines[1] == (
        f"1 record skipped (malformed JSON: 1), listed in {tmp_path / 'out' / 'corpus.jsonl.rejected.jsonl'}"
    )


def test_the_anthology_is_a_folder_of_xml(tmp_path):
    folder = tmp_path / "xml"
    folder.mkdir()
    (folder / "2020.acl.xml").write_bytes((FORMATS / "acl_anthology.xml").read_bytes())
    write_dataset("acl-anthology", tmp_path / "out", source=folder)
    assert "2020.fish-main.1" in (tmp_path / "out" / "corpus.jsonl").read_text()


def test_an_absent_snapshot_says_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.delenv("QBE_DATA", raising=False)
    with pytest.raises(DatasetError, match=r"found neither; get it from kaggle.com/datasets/Cornell"):
        write_dataset("arxiv-cs", tmp_path)
    with pytest.raises(DatasetError, match=r"found no .*absent; get it from"):
        write_dataset("arxiv-cs", tmp_path, source=tmp_path / "absent")


def test_a_test_collection_is_written_whole(tmp_path):
    with pytest.raises(UsageError, match="sample is a test collection, which is written whole; leave out"):
        write_dataset("sample", tmp_path, limit=5)
