"""Corpora with records that cannot be used: stopping at the first, or leaving them out with a report."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.builds import Job, build_job
from support.searching import first_stage

from qbe import Paper, Query, Reading, Sentence
from qbe.cli.index import main
from qbe.errors import CorpusError, RecordError
from qbe.index.index import Index
from qbe.index.update import append_papers, delete_papers

pytestmark = pytest.mark.slow

PAPERS = 1200
GOOD = {"title": "On fish", "abstract": "Fish swim. We count them. They are many."}
BROKEN = {
    "malformed JSON": '{"paper_id": "x", "title": ',
    "not a JSON object": "[1, 2]",
    "text that is not UTF-8": b'{"paper_id": "x", "title": "M\xfcller", "abstract": "A."}',
    "no paper_id": json.dumps({"paper_id": "", **GOOD}),
    "no title": json.dumps({"paper_id": "x1", "abstract": "A."}),
    "no abstract": json.dumps({"paper_id": "x2", "title": "A", "abstract": " "}),
    "a paper_id with white space or control characters": json.dumps({"paper_id": "x 3", **GOOD}),
    "labels that do not fit": json.dumps(
        {"paper_id": "x4", **GOOD, "abstract": ["A.", "B."], "pred_labels": ["method"]}
    ),
    "a paper_id that occurs twice": json.dumps({"paper_id": "p0", "title": "On stone", "abstract": "A."}),
}
TIMES = [2, 2, 2, 1, 1, 1, 1, 1, 1]
LENIENT = Reading(on_error="skip", max_rejected=0.5)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """1,200 lines, 12 of them broken in 9 ways, spread over the file."""
    lines = [json.dumps({"paper_id": f"p{n}", **GOOD}).encode() for n in range(PAPERS - sum(TIMES))]
    broken = [text for text, times in zip(BROKEN.values(), TIMES, strict=True) for _ in range(times)]
    line: Any
    for number, line in enumerate(broken):
        lines.insert(100 + 90 * number, line if isinstance(line, bytes) else line.encode())
    path = tmp_path_factory.mktemp("corpus") / "papers.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


@pytest.fixture(scope="module")
def job(corpus) -> Job:
    return Job(corpus=(str(corpus),), dense=False, reading=Reading(on_error="skip"))


def test_stop_names_the_first_and_how_to_go_on(tmp_path, job, corpus):
    with pytest.raises(RecordError) as raised:
        build_job(tmp_path / "index", replace(job, reading=Reading()))
    message = str(raised.value)
    assert message.startswith(f"{corpus}, line 101: expected one JSON object a line, found malformed JSON")
    assert message.endswith("(leave such records out with `on_error` skip)")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory, job) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "index"
    build_job(folder, job)
    return folder


def test_skip_reports_all_records_with_their_reasons(whole, corpus):
    with Index(whole) as index:
        assert index.manifest.corpus["papers"] == PAPERS - 12
        assert index.manifest.corpus["left_out"] == dict(zip(BROKEN, TIMES, strict=True))
    listed = [json.loads(line) for line in whole.with_name("index.rejected.jsonl").read_text().splitlines()]
    assert len(listed) == 12
    assert [line["where"] for line in listed[:2]] == [f"{corpus}, line 101", f"{corpus}, line 191"]
    assert all(line["message"].startswith(line["where"]) for line in listed)
    reasons = [reason for reason, times in zip(BROKEN, TIMES, strict=True) for _ in range(times)]
    assert [line["reason"] for line in listed] == reasons


@pytest.mark.parametrize("moment", ["papers noted", "manifest written"])
def test_a_killed_build_resumes_to_the_same_digest_and_report(tmp_path, kill, job, whole, moment):
    output = tmp_path / "killed" / "index"
    kill(moment, output, job, "--on-error", "skip")
    resumed = build_job(output, job, resume=True)
    with Index(whole) as index:
        assert (resumed.digest, resumed.corpus) == (index.manifest.digest, index.manifest.corpus)
    listed, report = (path.with_name("index.rejected.jsonl").read_bytes() for path in (output, whole))
    assert listed == report


def test_too_many_broken_records_fail_and_are_listed(tmp_path, job):
    message = r"11 of 1,200 records are broken \(malformed JSON: 2, .*at most 0.3 %.*lists"
    with pytest.raises(CorpusError, match=message):
        build_job(tmp_path / "index", replace(job, reading=Reading(on_error="skip", max_rejected=0.003)))
    assert [path.name for path in tmp_path.iterdir()] == ["index.rejected.jsonl"]


def test_a_list_of_another_build_is_replaced(tmp_path, job, sample):
    build_job(tmp_path / "index", job)
    build_job(tmp_path / "index", replace(job, corpus=(str(sample / "corpus.jsonl"),)), overwrite=True)
    assert not (tmp_path / "index.rejected.jsonl").exists()


def one_more(folder: Path, paper_id: str = "new", broken: int = 1) -> Path:
    path = folder / f"{paper_id}.jsonl"
    path.write_text(json.dumps({"paper_id": paper_id, **GOOD}) + "\n" + '{"paper_id"\n' * broken)
    return path


@pytest.fixture
def copy(tmp_path, whole) -> Path:
    shutil.copytree(whole.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / "index"


def test_what_was_left_out_before_stays_listed(tmp_path, copy):
    listed = tmp_path / "index.rejected.jsonl"
    before = listed.read_bytes()
    assert append_papers(copy, str(one_more(tmp_path, broken=0)), reading=LENIENT).left_out == {}
    assert listed.read_bytes() == before
    more = one_more(tmp_path, "second")
    assert append_papers(copy, str(more), reading=LENIENT).left_out == {"malformed JSON": 1}
    lines = listed.read_bytes().removeprefix(before).splitlines()
    assert [json.loads(line)["where"] for line in lines] == [f"{more}, line 2"]
    with pytest.raises(CorpusError, match=rf"150 of 151 records .*\({listed} lists them\)"):
        append_papers(copy, str(one_more(tmp_path, "third", broken=150)), reading=LENIENT)
    assert len(listed.read_bytes().removeprefix(before).splitlines()) == 151
    assert sorted(path.name for path in copy.iterdir()) == ["000003", "CURRENT"]


def test_the_command_says_what_an_append_left_out(tmp_path, copy, capsys):
    main(["--append", "--corpus", str(one_more(tmp_path)), "--on-error", "skip:0.5", "--output", str(copy)])
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"1 record left out (malformed JSON: 1), listed in {copy}.rejected.jsonl"
    assert second.startswith(f"{copy}: 1 papers added, 0 replaced, 0 deleted, now 1,189, generation 2, ")
    library = tmp_path / "library.bib"
    library.write_text("@misc{a, title={On sand}}\n@misc{b, title={On sun}}\n")
    main(["--append", "--corpus", str(library), "--output", str(copy)])
    told = "2 papers without an abstract, indexed by title or first paragraph (a, b), listed in"
    assert capsys.readouterr().out.startswith(f"{told} {copy}.rejected.jsonl\n")


@pytest.mark.parametrize(
    "reading",
    [Reading(format="jsonl", limit=128), Reading(dedupe="title", on_error="skip")],
    ids=["format and limit", "dedupe and on_error"],
)
def test_an_index_read_in_another_way_is_changed_like_any_other(tmp_path, job, sample, reading):
    folder, corpus = tmp_path / "index", tmp_path / "corpus.jsonl"
    lines = (sample / "corpus.jsonl").read_text().splitlines(keepends=True)
    corpus.write_text("".join([*lines[:127], '{"paper_id"\n' * (reading.on_error == "skip"), *lines[127:]]))
    built = build_job(folder, replace(job, corpus=(str(corpus),), reading=reading))
    assert {"reading", "left_out"} & built.corpus.keys()
    new = Paper("new", "On fish", (Sentence("Fish swim."), Sentence("We count them.")))
    append_papers(folder, [new])
    counts = {"papers": 129, "labelled": 128, "sentences": 596, "predicted": 0}
    with Index(folder) as index:
        assert {name: index.manifest.corpus[name] for name in counts} == counts
        assert [paper.paper_id for paper in index][-2:] == ["s128", "new"]
        hits = first_stage(index, "bm25").search(Query(replace(new, paper_id="other")), 1)
        assert hits[0].paper_id == "new"
        removed = len(index.paper("s001").sentences)
    assert delete_papers(folder, ["s001"]).papers == 128
    counts |= {"papers": 128, "labelled": 127, "sentences": 596 - removed}
    with Index(folder) as index:
        assert {name: index.manifest.corpus[name] for name in counts} == counts
