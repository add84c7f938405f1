"""What all readers of text share: one table of samples, the same questions to each, and mutations of each.

QBE_MUTATIONS says how many mutations a sample are tried.
"""

import gzip
import io
import os
import re
from pathlib import Path

import pytest
from support.samples import PAPERS, Sample, mutated, samples

from qbe.corpus import read_corpus
from qbe.corpus.dedupe import CHOSEN, UNIQUE
from qbe.corpus.formats import FORMATS, recognized
from qbe.corpus.leftout import RECODED, LeftOut
from qbe.corpus.reading import Reading
from qbe.errors import CorpusError
from qbe.types import Paper

MUTATIONS = int(os.environ.get("QBE_MUTATIONS", "40"))
LENIENT = Reading(on_error="skip")
TITLE, ABSTRACT = PAPERS[1][1], PAPERS[1][2]
TYPES = {
    "authors": list,
    "year": int,
    "date": str,
    "venue": str,
    "categories": list,
    "tags": list,
    "collections": list,
    "doi": str,
    "url": str,
    "cites": list,
    "ids": dict,
    "key": str,
}
each_sample = pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)


def whole(text: str) -> list[str]:
    return [text]


def read(path: Path, data: bytes, reading: Reading = LENIENT) -> tuple[list[Paper], LeftOut]:
    """The papers of a file of this content, and what was left out."""
    path.write_bytes(data)
    left_out = LeftOut()
    return list(read_corpus([str(path)], whole, reading, left_out)), left_out


def look(sample: Sample, data: bytes) -> int:
    """How many records begin in the text, by a pattern that the reader does not know."""
    return len(re.findall(sample.begins.encode(), data.replace(b"\r", b"\n"), re.MULTILINE))


def test_every_format_has_a_sample():
    assert {sample.format for sample in samples()} == set(FORMATS) - {"parquet"}


@each_sample
def test_a_sample_is_read_whole_and_in_order_each_time(tmp_path, sample):
    papers, left_out = read(tmp_path / sample.name, sample.data)
    assert [(paper.title, paper.abstract) for paper in papers] == [(title, text) for _, title, text in PAPERS]
    assert (len(papers), left_out.counts()) == (look(sample, sample.data), {})
    assert len({paper.paper_id for paper in papers}) == len(papers)
    assert read(tmp_path / sample.name, sample.data)[0] == papers
    for name, value in (item for paper in papers for item in paper.metadata.items()):
        assert type(value) is TYPES[name], name
        assert value not in ("", [], {})
    stream = io.BufferedReader(io.BytesIO(sample.data))
    assert recognized(stream, "papers").name == sample.format


@each_sample
@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.decode().encode("utf-16"),
        lambda data: data + b"\n\n \n",
        lambda data: data.rstrip(b"\n"),
        gzip.compress,
    ],
    ids=["mark", "returns", "UTF-16", "blank lines", "no last line end", "gzip"],
)
def test_another_form_of_the_text_holds_the_same_papers(tmp_path, sample, change):
    papers, left_out = read(tmp_path / sample.name, change(sample.data))
    assert (papers, left_out.counts()) == (read(tmp_path / sample.name, sample.data)[0], {})


@each_sample
def test_a_pipe_is_read_like_a_file(tmp_path, sample, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(sample.data))))
    papers = list(read_corpus(["-"], whole))
    assert papers == read(tmp_path / sample.name, sample.data)[0]


@each_sample
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (TITLE, "", "no title"),
        (ABSTRACT, "", "no abstract"),
        (ABSTRACT, "[No abstract available]", "no abstract"),
        (ABSTRACT, "word " * 400_000, "abstract that is too long"),
    ],
    ids=["title", "abstract", "placeholder", "length"],
)
def test_what_a_record_lacks_concerns_it_alone(tmp_path, sample, old, new, reason):
    data = sample.data
    if sample.format == "openalex" and old == ABSTRACT:
        texts = {
            ABSTRACT: None,
            "": "null",
            "[No abstract available]": '{"[No":[0],"abstract":[1],"available]":[2]}',
        }
        begin = data.index(b'{"We"', data.index(TITLE.encode()))
        inverted = texts.get(new) or '{"' + "x" * 1_100_000 + '":[0]}'
        data = data[:begin] + inverted.encode() + data[data.index(b"}", begin) + 1 :]
    else:
        data = data.replace(old.encode(), new.encode(), 1)
    papers, left_out = read(tmp_path / sample.name, data)
    if reason == "no title" and FORMATS[sample.format].ids == UNIQUE:
        assert [paper.title for paper in papers][1] == ""
        return
    assert len(papers) == len(PAPERS) - 1
    assert left_out.counts() == {reason: 1}


@each_sample
def test_a_byte_that_is_not_utf8_is_named_with_its_place(tmp_path, sample):
    begin = sample.data.index("ö".encode(), sample.data.index(TITLE.encode()))
    data = sample.data[:begin] + b"\xf6" + sample.data[begin + 2 :]
    try:
        papers, left_out = read(tmp_path / sample.name, data)
    except CorpusError as error:
        assert str(error).startswith(str(tmp_path / sample.name))
        return
    if FORMATS[sample.format].ids == CHOSEN:
        assert ([paper.abstract for paper in papers][1], left_out.counts()) == (ABSTRACT, {RECODED: 1})
    else:
        assert (len(papers), left_out.counts()) == (len(PAPERS) - 1, {"text that is not UTF-8": 1})


@each_sample
def test_an_empty_file_has_no_papers(tmp_path, sample):
    for data in (b"", b"\n \n"):
        with pytest.raises(CorpusError, match=re.escape(str(tmp_path / sample.name))):
            read(tmp_path / sample.name, data, Reading(format=sample.format, on_error="skip"))


@each_sample
def test_a_mutated_sample_is_read_or_reported(tmp_path, sample):
    """Each record that the look finds is a paper or counted, or the reading ends with the place."""
    path, problems = tmp_path / sample.name, []
    for number in range(MUTATIONS):
        data = mutated(sample.data, f"{sample.name} {number}")
        reading = Reading(format=sample.format, on_error="skip", keep_without_abstract=number % 2 == 0)
        try:
            papers, left_out = read(path, data, reading)
        except CorpusError as error:
            if not str(error).isprintable() or str(path) not in str(error):
                problems.append((number, f"message {error}", data))
            continue
        except Exception as error:
            problems.append((number, f"{type(error).__name__} {error}", data))
            continue
        read_or_left_out = len(papers) + sum(left_out.skipped.values()) + left_out.merged
        if read_or_left_out < look(sample, data):
            problems.append((number, f"{read_or_left_out} of {look(sample, data)} {left_out.counts()}", data))
    if folder := os.environ.get("QBE_MUTATIONS_FOLDER"):
        report = Path(folder) / f"mutations-{sample.name}.txt"
        report.write_text("\n\n".join(f"{n}: {problem}\n{data!r}" for n, problem, data in problems))
    assert not problems, f"{len(problems)} of {MUTATIONS}, such as {problems[0]}"
