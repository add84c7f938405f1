"""Text files in UTF-8 with a byte order mark and in UTF-16: read like those without, by every reader."""

import io
import json
import sys
from pathlib import Path

import pytest

from qbe.errors import FileFormatError
from qbe.evaluate.protocol import load_folds
from qbe.graded_pairs import has_graded_pairs, read_graded_pairs
from qbe.lines import read_fields, read_ids
from qbe.search.query_file import paper_from_file
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


TOPICS, PAIRS = "query_id\tpaper_id\tfacet\n", "query_id\tpaper_id\tbackground\tmethod\tresult\n"


@pytest.mark.parametrize(
    ("read", "text", "line", "found"),
    [
        (read_run, "q Q0 a 1 2\n", 1, "q Q0 a 1 2"),
        (read_run, "q Q0 a 1 2 t\nq Q0 b 2 x t\n", 2, "x"),
        (read_run, "q Q0 a 1 nan t\n", 1, "nan"),
        (read_run, "q Q0 a 1 2 t\nq Q0 a 2 1 t\n", 2, "a again for q"),
        (read_qrels, "q 0 a\n", 1, "q 0 a"),
        (read_qrels, "q 0 a x\n", 1, "x"),
        (read_qrels, "q 0 a 1\nq 0 a 0\n", 2, "a again for q"),
        (read_topics, "", 1, ""),
        (read_topics, "7_method\t7\tmethod\n", 1, r"7_method\t7\tmethod"),
        (read_topics, "query_id\n7\n", 1, "query_id"),
        (read_topics, TOPICS + "7_method 7 method\n", 2, "7_method 7 method"),
        (read_topics, TOPICS + "7_method\t\tmethod\n", 2, r"7_method\t\tmethod"),
        (read_topics, TOPICS + "7 method\t7\tmethod\n", 2, r"7 method\t7\tmethod"),
        (read_topics, TOPICS + "7\t7\t \n", 2, r"7\t7\t "),
        (read_topics, TOPICS + "7\n", 2, "7"),
        (read_topics, TOPICS + "7_x\t7\tother\n", 2, "other"),
        (read_topics, "query_id\tpaper_id\n7\t7\tmethod\n", 2, r"7\t7\tmethod"),
        (read_topics, "query_id\tpaper_id\n7\t8\n7\t9\n", 3, "7 again"),
        (read_graded_pairs, PAIRS.replace("\tmethod", "") + "q\tp\t1\t2\n", 1, r"query_id\tpaper_id\tback"),
        (read_graded_pairs, PAIRS.replace("\t", ",") + "q,p,1,2,3\n", 1, "query_id,paper_id"),
        (read_graded_pairs, PAIRS + "q\tp\t1\tmuch\t3\n", 2, r"q\tp\t1\tmuch\t3"),
        (read_graded_pairs, PAIRS + "q\tp\t1\t\t3\n", 2, r"q\tp\t1\t\t3"),
        (read_graded_pairs, PAIRS + "q\n", 2, "q"),
        (read_graded_pairs, PAIRS + "q\tp\tinf\t2\t3\n", 2, r"q\tp\tinf\t2\t3"),
    ],
)
def test_a_broken_line_is_named_with_what_it_holds(tmp_path, read, text, line, found):
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(FileFormatError) as raised:
        read(path)
    message = str(raised.value)
    assert message.startswith(f"{path}, line {line}: expected ")
    assert f", found '{found}" in message
    assert "\n" not in message


@pytest.mark.parametrize("read", [read_run, read_qrels, read_topics, read_pools, read_graded_pairs, read_ids])
def test_an_absent_file_is_told(read, tmp_path):
    with pytest.raises(FileFormatError, match=r"cannot read .*absent: No such file or directory"):
        read(tmp_path / "absent")


@pytest.mark.parametrize("text", ["", PAIRS])
def test_a_file_without_pairs_is_refused(text, tmp_path):
    (tmp_path / "pairs.tsv").write_text(text)
    with pytest.raises(FileFormatError, match=r"pairs\.tsv: expected graded pairs, found none"):
        read_graded_pairs(tmp_path / "pairs.tsv")


def test_standard_input_may_have_a_mark(monkeypatch):
    data = io.BufferedReader(io.BytesIO("s001\ns002\n".encode("utf-8-sig")))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data))
    assert read_ids(Path("-")) == ["s001", "s002"]
