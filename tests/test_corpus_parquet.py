"""Papers in Parquet files."""

import datetime
import gzip
import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.formats import buffered

from qbe import Paper, Sentence
from qbe.corpus import tables
from qbe.corpus.records import Entry, Reading, parse_paper
from qbe.corpus.sentences import split_sentences
from qbe.corpus.streams import open_source
from qbe.errors import MissingDependencyError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

TIME = datetime.datetime(2019, 5, 7, 23, 30, tzinfo=datetime.UTC)
PAPERS = {
    "paper_id": pa.array([7, 8, 9]),
    "title": pa.array(["Counting <i>Salmon</i> in Gödel Ladders", "Lakes", None]),
    "abstract": pa.array(["We count 5\\% more. They jump.", None, "Rivers flow."], pa.large_string()),
    "authors": pa.array([["Siobhán O'Neill", None, "Jan Berg"], None, []], pa.list_(pa.string())),
    "year": pa.array([2019.0, None, float("nan")]),
    "date": pa.array([TIME, None, TIME], pa.timestamp("ns", tz="Europe/Berlin")),
    "venue": pa.array([{"name": "Fish Letters", "volume": 1}, None, None]),
    "categories": pa.array([["Ecology"], [], None]).cast(pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    "doi": pa.array([b"10.1234/FISH", None, None]),
    "cites": pa.array([[8, 9], None, None]),
    "text": pa.array(["not needed"] * 3),
}


def file(columns: dict[str, Any], **options: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, **options)
    return stream.getvalue()


def read(data: bytes, **columns: str) -> list[Entry]:
    return list(tables.read_parquet(buffered(data), "papers.parquet", Reading(columns=columns)))


def only(**columns: Any) -> Any:
    [entry] = read(file({"title": ["A"], "abstract": ["B."]} | columns))
    return entry.record


DATA = [
    file(PAPERS),
    file(PAPERS, compression="gzip", data_page_version="2.0", write_page_checksum=True),
    file(PAPERS, compression="none", use_dictionary=False),
]


def test_a_row_becomes_a_paper() -> None:
    where, record = read(DATA[0])[0]
    assert where == "papers.parquet, row 1"
    sentences = (Sentence("We count 5% more."), Sentence("They jump."))
    metadata = {"authors": ["Siobhán O'Neill", "Jan Berg"], "year": 2019, "date": "2019-05-07"}
    metadata |= {"venue": "Fish Letters", "categories": ["Ecology"]}
    metadata |= {"doi": "10.1234/fish", "cites": ["8", "9"]}
    expected = Paper("7", "Counting Salmon in Gödel Ladders", sentences, metadata=metadata)
    assert parse_paper(record, where, split_sentences) == replace(expected, offsets=((0, 17), (18, 28)))


@pytest.mark.parametrize("data", DATA)
def test_every_way_of_storage_holds_the_same(data: bytes) -> None:
    assert read(data)[:2] == read(DATA[0])[:2]


def test_a_file_of_several_groups_is_read_in_order() -> None:
    numbers = list(range(2500))
    titles = [f"T {number}" for number in numbers]
    data = file({"id": numbers, "title": titles, "abstract": titles}, row_group_size=1100)
    assert [entry.record["paper_id"] for entry in read(data)] == numbers


def test_without_pyarrow_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    told = r"the package pyarrow, .*pip install 'qbe\[huggingface\]'"
    with pytest.raises(MissingDependencyError, match=told):
        read(DATA[0])


def test_a_compressed_file_and_one_that_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "papers.parquet.gz"
    path.write_bytes(gzip.compress(DATA[0]))
    with open_source(path) as stream:
        assert len(list(tables.read_parquet(stream, "papers.parquet.gz", Reading()))) == 3

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    stream = io.BufferedReader(Pipe(DATA[0]))
    assert len(list(tables.read_parquet(stream, "standard input", Reading()))) == 3


@pytest.mark.parametrize(
    ("dates", "metadata"),
    [
        (pa.array([datetime.date(2019, 5, 7)]), {"year": 2019, "date": "2019-05-07"}),
        (pa.array([0], pa.timestamp("ms")), {"year": 1970, "date": "1970-01-01"}),
        (pa.array([10**18], pa.timestamp("us")), {}),
        (pa.array([TIME], pa.timestamp("us", tz="Nowhere/Atall")), {"year": 2019, "date": "2019-05-07"}),
        (pa.array(["2019-05"]), {"year": 2019, "date": "2019-05"}),
        (pa.array([True]), {}),
    ],
)
def test_dates_of_several_types(dates: Any, metadata: dict[str, Any]) -> None:
    assert only(date=dates)["metadata"] == metadata
