"""Text files in UTF-8 with a byte order mark and in UTF-16: read like those without, by every reader."""

import io
import json
import sys
from pathlib import Path

import pytest

from qbe.errors import FileFormatError
from qbe.evaluate.__main__ import main as evaluate
from qbe.evaluate.protocol import load_folds
from qbe.graded_pairs import has_graded_pairs, read_graded_pairs
from qbe.lines import read_fields, read_ids
from qbe.search.paper_file import paper_from_file
from qbe.topics import read_pools, read_topics
from qbe.trec import read_qrels, read_run

FOLD = {name: ["q_method"] for name in ("fold1_dev", "fold2_dev", "fold1_test")} | {
    "fold2_test": ["p_method"]
}

TEXTS = {
    read_run: "q1 Q0 d1 1 2.0 t\nq2 Q0 é 1 2.0 t\n",
    read_qrels: "q1 0 d1 1\nq2 0 é 1\n",
    read_topics: "query_id\tpaper_id\nq1\té\n",
    read_pools: "query_id\tpaper_id\nq1\té\n",
    read_graded_pairs: "query_id\tpaper_id\tbackground\tmethod\tresult\nq\té\t3\t1\t0\n",
    has_graded_pairs: "query_id\tpaper_id\tbackground\tmethod\tresult\n",
    read_ids: "s001\n\n é \n",
    load_folds: json.dumps({"method": FOLD}),
    paper_from_file: '{"title": "É", "abstract": "We cut it."}',
}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("read", TEXTS)
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path, read, encoding):
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    for name, text in (("plain", TEXTS[read]), ("marked", TEXTS[read])):
        code = "utf-8" if name == "plain" else encoding
        path = tmp_path / name
        path.write_bytes(((mark if name == "marked" else "") + text).replace("\n", "\r\n").encode(code))
    assert read(str(tmp_path / "marked")) == read(str(tmp_path / "plain"))


def test_marked_runs_and_qrels_are_joined(tmp_path, capsys):
    (tmp_path / "a.qrels").write_text("q1 0 d1 1\nq2 0 d1 1\n", encoding="utf-8-sig")
    (tmp_path / "a.trec").write_text("q1 Q0 d1 1 2.0 t\nq2 Q0 d1 1 2.0 t\n", encoding="utf-16")
    evaluate(["--qrels", f"{tmp_path}/a.qrels", "--run", f"{tmp_path}/a.trec", "--measures", "RR"])
    printed = capsys.readouterr()
    assert (printed.out.split()[-1], printed.err) == ("1.0000", "")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"q1 Q0\nq2 \xff Q0\n", "line 2: expected UTF-8 text, found byte 0xff"),
        ("q1 Q0\n".encode("utf-16-le"), "line 1: expected UTF-8 text, found a NUL character, as of UTF-16"),
        (b"\xff\xfeq", "expected UTF-16 text, as its byte order mark says, found truncated data"),
    ],
)
def test_other_encodings_are_named(tmp_path, data, message):
    (tmp_path / "a.trec").write_bytes(data)
    with pytest.raises(FileFormatError) as raised:
        list(read_fields(tmp_path / "a.trec", None))
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"{tmp_path}/a.trec")


def test_standard_input_may_have_a_mark(monkeypatch):
    data = io.BufferedReader(io.BytesIO("s001\ns002\n".encode("utf-8-sig")))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data))
    assert read_ids(Path("-")) == ["s001", "s002"]
