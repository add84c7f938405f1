"""Corpora with records that cannot be used: stopping at the first, or leaving them out with a report."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.builds import Job, build_job, kill

from qbe.corpus.reading import Reading
from qbe.errors import CorpusError, IndexBuildError, RecordError
from qbe.index.index import Index
from qbe.index.live.changes import append_papers

PAPERS = 10_000
GOOD = {"title": "On fish", "abstract": "Fish swim. We count them. They are many."}
BROKEN = {
    "malformed JSON": '{"paper_id": "x", "title": ',
    "not a JSON object": "[1, 2]",
    "text that is not UTF-8": b'{"paper_id": "x", "title": "M\xfcller", "abstract": "A."}',
    "no paper_id": json.dumps(GOOD),
    "no title": json.dumps({"paper_id": "x1", "abstract": "A."}),
    "no abstract": json.dumps({"paper_id": "x2", "title": "A", "abstract": " "}),
    "a paper_id with white space or control characters": json.dumps({"paper_id": "x 3", **GOOD}),
    "labels that do not fit": json.dumps(
        {"paper_id": "x4", "title": "A", "abstract": ["A.", "B."], "pred_labels": ["method"]}
    ),
    "a paper_id that occurs twice": json.dumps({"paper_id": "p0", **GOOD}),
}
TIMES = [5, 5, 5, 4, 4, 4, 4, 3, 3]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """10,000 lines, 37 of them broken in 9 ways, spread over the file."""
    lines = [json.dumps({"paper_id": f"p{n}", **GOOD}).encode() for n in range(PAPERS - sum(TIMES))]
    broken = [text for text, times in zip(BROKEN.values(), TIMES, strict=True) for _ in range(times)]
    for number, line in enumerate(broken):
        lines.insert(100 + 260 * number, line if isinstance(line, bytes) else line.encode())
    path = tmp_path_factory.mktemp("corpus") / "papers.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


@pytest.fixture
def job(corpus) -> Job:
    return Job(corpus=(str(corpus),), dense=False, reading=Reading(on_error="skip"))


def test_stop_names_the_first_and_how_to_go_on(tmp_path, job, corpus):
    with pytest.raises(RecordError) as raised:
        build_job(tmp_path / "index", replace(job, reading=Reading()))
    message = str(raised.value)
    assert message.startswith(f"{corpus}, line 101: expected one JSON object a line, found malformed JSON")
    assert message.endswith("(leave such records out with `on_error` skip)")
    assert list(tmp_path.iterdir()) == []


def test_skip_reports_37_records_with_their_reasons(tmp_path, job, corpus):
    manifest = build_job(tmp_path / "index", job)
    assert manifest.corpus["papers"] == PAPERS - 37
    assert manifest.corpus["left_out"] == dict(zip(BROKEN, TIMES, strict=True))
    listed = [json.loads(line) for line in (tmp_path / "index.rejected.jsonl").read_text().splitlines()]
    assert len(listed) == 37
    assert [line["where"] for line in listed[:2]] == [f"{corpus}, line 101", f"{corpus}, line 361"]
    assert all(line["message"].startswith(line["where"]) for line in listed)
    assert [line["reason"] for line in listed] == [
        reason for reason, times in zip(BROKEN, TIMES, strict=True) for _ in range(times)
    ]


@pytest.mark.parametrize("moment", ["papers begun", "papers noted", "manifest written"])
def test_a_killed_build_resumes_to_the_same_digest_and_report(tmp_path, job, moment):
    whole = build_job(tmp_path / "whole" / "index", job)
    report = (tmp_path / "whole" / "index.rejected.jsonl").read_bytes()
    output = tmp_path / "killed" / "index"
    kill(moment, output, job, "--on-error", "skip")
    resumed = build_job(output, job, resume=True)
    assert resumed.digest == whole.digest
    assert resumed.corpus == whole.corpus
    assert output.with_name("index.rejected.jsonl").read_bytes() == report


def test_too_many_broken_records_fail_and_are_listed(tmp_path, job):
    with pytest.raises(
        CorpusError, match=r"at most 0.003 .* found 33 of 10,000 \(malformed JSON: 5, .*lists"
    ):
        build_job(tmp_path / "index", replace(job, reading=Reading(on_error="skip", max_rejected=0.003)))
    assert [path.name for path in tmp_path.iterdir()] == ["index.rejected.jsonl"]


def test_a_list_of_another_build_is_replaced_and_a_file_of_the_user_is_not(tmp_path, job, sample):
    listed = tmp_path / "index.rejected.jsonl"
    build_job(tmp_path / "index", job)
    build_job(tmp_path / "index", replace(job, corpus=(str(sample / "corpus.jsonl"),)), overwrite=True)
    assert not listed.exists()
    listed.write_text("my own notes\n")
    with pytest.raises(IndexBuildError, match=r"found another file; move it away"):
        build_job(tmp_path / "index", job, overwrite=True)
    assert listed.read_text() == "my own notes\n"


def test_appended_records_are_listed_beside_the_index(tmp_path, job, sample):
    build_job(tmp_path / "index", replace(job, corpus=(str(sample / "corpus.jsonl"),)))
    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps({"paper_id": "new", **GOOD}) + '\n{"paper_id"\n')
    written = append_papers(tmp_path / "index", str(more), reading=Reading(on_error="skip", max_rejected=0.5))
    assert written.added == 1
    assert len((tmp_path / "index.rejected.jsonl").read_text().splitlines()) == 1


def test_another_way_of_reading_is_another_build(tmp_path, job):
    build_job(tmp_path / "index", job)
    with pytest.raises(IndexBuildError, match="is an index already"):
        build_job(tmp_path / "index", replace(job, reading=Reading(on_error="skip", limit=10)), resume=True)


def test_papers_without_an_abstract_are_found_by_their_titles(tmp_path, job):
    corpus = tmp_path / "titles.jsonl"
    corpus.write_text('{"paper_id": "t", "title": "On salmon ladders"}\n')
    reading = Reading(keep_without_abstract=True)
    build_job(tmp_path / "index", replace(job, corpus=(str(corpus),), reading=reading))
    with Index(tmp_path / "index") as index:
        assert index.paper("t").abstract == "On salmon ladders"
