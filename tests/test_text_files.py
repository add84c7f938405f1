"""Text files in UTF-8, with a byte order mark and in gzip: read like those without, by every reader."""

import gzip
import io
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.messages import messages_of

from qbe.errors import FileFormatError
from qbe.evaluate.protocols import load_folds
from qbe.runs import has_graded_pairs, read_graded_pairs, read_pools, read_qrels, read_run, read_topics
from qbe.search.paper_file import paper_from_file
from qbe.util.text import read_fields, read_ids

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
    for name, start, code in (("plain", "", "utf-8"), ("marked", mark, encoding)):
        (tmp_path / name).write_bytes((start + TEXTS[read]).replace("\n", "\r\n").encode(code))
    assert read(str(tmp_path / "marked")) == read(str(tmp_path / "plain"))


ENCODINGS = [
    b"q1 Q0\nq2 \xff Q0\n",
    "q1 Q0\n".encode("utf-16-le"),
    b"\xff\xfeq",
    gzip.compress(b"q1 Q0\n")[:-9],
]


def test_other_encodings_are_named(tmp_path, told):
    paths = [tmp_path / f"{number}.trec" for number in range(len(ENCODINGS))]
    for path, data in zip(paths, ENCODINGS, strict=True):
        path.write_bytes(data)
    told("encodings", messages_of([lambda p=p: list(read_fields(p, None)) for p in paths], folder=tmp_path))


@pytest.mark.parametrize("read", [read for read in TEXTS if read not in (load_folds, paper_from_file)])
def test_text_files_may_be_compressed(tmp_path, read):
    (tmp_path / "plain").write_text(TEXTS[read])
    (tmp_path / "compressed.gz").write_bytes(gzip.compress(TEXTS[read].encode()))
    assert read(tmp_path / "compressed.gz") == read(tmp_path / "plain")


TOPICS, PAIRS = "query_id\tpaper_id\tfacet\n", "query_id\tpaper_id\tbackground\tmethod\tresult\n"
BROKEN: dict[Callable[[Path], object], list[str | None]] = {
    read_run: [
        "q Q0 a 1 2\n",
        "q Q0 a 1 2 t\nq Q0 b 2 x t\n",
        "q Q0 a 1 nan t\n",
        "q Q0 a 1 2 t\nq Q0 a 2 1 t\n",
        "q Q0 a 1 1_0 t\n",
    ],
    read_qrels: [
        *("q 0 a\n", "q 0 a x\n", "q 0 a 1\nq 0 a 0\n", "q 0 a 1000\nq 0 b 1001\n"),
        *(f"q 0 a {grade}\n" for grade in ("99999999999999999999", "-8781666", "1_0", "٣")),
    ],
    read_topics: [
        "",
        "7_method\t7\tmethod\n",
        "query_id\n7\n",
        "query_id\tpaper_id\n7\t7\tmethod\n",
        "query_id\tpaper_id\n7\t8\n7\t9\n",
        *(
            f"{TOPICS}{line}\n"
            for line in ("7_method 7 method", "7_method\t\tmethod", "7 method\t7\tmethod", "7\t7\t ", "7")
        ),
        TOPICS + "7_x\t7\tother\n",
    ],
    read_graded_pairs: [
        "",
        PAIRS,
        PAIRS.replace("\tmethod", "") + "q\tp\t1\t2\n",
        PAIRS.replace("\t", ",") + "q,p,1,2,3\n",
        *(PAIRS + f"{line}\n" for line in ("q\tp\t1\tmuch\t3", "q\tp\t1\t\t3", "q", "q\tp\tinf\t2\t3")),
        *(PAIRS + f"q\tp\t1\t2\t{grade}\n" for grade in ("7", "-1", "nan", "0_1")),
    ],
    read_ids: [None],
    read_pools: [None],
}


def test_broken_lines_are_named_with_what_they_hold(tmp_path, told):
    files = []
    for read, texts in BROKEN.items():
        for text in texts:
            path = tmp_path / f"{len(files)}"
            files.append(partial(read, path))
            if text is not None:
                path.write_text(text)
    told("lines", messages_of(files, FileFormatError, tmp_path))


def test_standard_input_may_have_a_mark(monkeypatch):
    data = io.BufferedReader(io.BytesIO("s001\ns002\n".encode("utf-8-sig")))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data))
    assert read_ids(Path("-")) == ["s001", "s002"]
