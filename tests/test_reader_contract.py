"""What all readers share: one table of samples, the same questions to each, mutations of each.

QBE_MUTATIONS says how many mutations a sample are tried.
"""

import gzip
import io
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.formats import FORMATS as FILES
from support.formats import check_reading, misplaced, mistyped
from support.samples import PAPERS, Sample, mutated, samples

from qbe import CorpusError, Paper, Reading
from qbe.corpus.identity import CHOSEN, UNIQUE
from qbe.corpus.reading import FORMATS, format_of, read_corpus
from qbe.corpus.records import RECODED, REPEATED, RejectedRecords
from qbe.corpus.streams import Head
from qbe.corpus.xml_formats import DELETION
from qbe.errors import RecordError

MUTATIONS = int(os.environ.get("QBE_MUTATIONS", "15"))
LENIENT = Reading(on_error="skip")
WITH_VALUES = re.compile(r"json|\.xml$")
TITLE, ABSTRACT = PAPERS[1][1], PAPERS[1][2]
TYPES: dict[str, type] = dict.fromkeys(("authors", "categories", "tags", "collections", "cites"), list)
TYPES |= dict.fromkeys(("date", "venue", "doi", "url", "key"), str) | {"year": int, "ids": dict}
each_sample = pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)


def whole(text: str) -> list[str]:
    return [text]


def read(path: Path, data: bytes, reading: Reading = LENIENT) -> tuple[list[Paper], RejectedRecords]:
    path.write_bytes(data)
    left_out = RejectedRecords()
    return list(read_corpus([str(path)], whole, reading, left_out)), left_out


def look(sample: Sample, data: bytes) -> int:
    return len(re.findall(sample.begins.encode(), re.sub(rb"\r\n?", b"\n", data), re.MULTILINE))


def test_every_format_has_a_sample_and_all_files_of_programs_their_records():
    assert {sample.format for sample in samples()} == set(FORMATS) - {"parquet", "pdf"}
    assert set(RECORDS) == {
        path.name for name in ("formats", "exports") for path in FILES.with_name(name).iterdir()
    }


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
    assert format_of(io.BufferedReader(io.BytesIO(sample.data)), "papers").name == sample.format


@each_sample
@pytest.mark.parametrize(
    "change",
    [
        *(lambda data: b"\xef\xbb\xbf" + data, lambda data: data.replace(b"\n", b"\r\n")),
        *(lambda data: data.decode().encode("utf-16"), lambda data: data + b"\n\n \n"),
        *(lambda data: data.rstrip(b"\n"), gzip.compress),
    ],
    ids=["mark", "returns", "UTF-16", "blank lines", "no last line end", "gzip"],
)
def test_another_form_of_the_text_holds_the_same_papers(tmp_path, sample, change):
    papers, left_out = read(tmp_path / sample.name, change(sample.data))
    assert (papers, left_out.counts()) == (read(tmp_path / sample.name, sample.data)[0], {})


@each_sample
def test_a_pipe_is_read_like_a_file(tmp_path, sample, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(sample.data))))
    assert list(read_corpus(["-"], whole)) == read(tmp_path / sample.name, sample.data)[0]


@each_sample
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (TITLE, "", "no title"),
        (ABSTRACT, "", "no abstract"),
        (ABSTRACT, "[No abstract available]", "no abstract"),
        (ABSTRACT, "word " * 210_000, "abstract that is too long"),
    ],
    ids=["title", "abstract", "placeholder", "length"],
)
def test_what_a_record_lacks_concerns_it_alone(tmp_path, sample, old, new, reason):
    data = sample.data
    if sample.format == "openalex" and old == ABSTRACT:
        texts = {"": "null", "[No abstract available]": '{"[No":[0],"abstract":[1],"available]":[2]}'}
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


@pytest.mark.parametrize(
    "name", [path.name for path in sorted(FILES.iterdir()) if WITH_VALUES.search(path.name)]
)
@settings(max_examples=20)
@given(data=st.data())
def test_values_of_other_types_and_elements_elsewhere_are_records_and_errors_in_one_line(name, data):
    sample = (FILES / name).read_bytes()
    form = format_of(io.BufferedReader(io.BytesIO(sample)), name)
    kind = misplaced(sample) if name.endswith(".xml") else mistyped(sample)
    check_reading(form.read, data.draw(kind), name)


RECORDS = json.loads((FILES.parent / "records.json").read_text())
"""The format of each file of ``formats`` and ``exports`` in ``tests/data``, and what its entries are."""


@pytest.mark.parametrize("name", RECORDS)
def test_a_file_of_a_program_has_these_records(name):
    is_export = not (FILES / name).exists()  # of a database, recognized by its header
    data = (FILES.with_name("exports") if is_export else FILES).joinpath(name).read_bytes()
    called = "export" if is_export else name
    form = format_of(io.BufferedReader(io.BytesIO(data)), called)
    actual = [
        [where, str(record) if isinstance(record, RecordError) else record]
        for where, record in form.read(io.BufferedReader(io.BytesIO(data)), called, Reading())
        if getattr(record, "reason", "") != DELETION  # which the second of two passes leaves out
    ]
    assert json.loads(json.dumps({"format": form.name, "records": actual})) == RECORDS[name]
    others = {each.name for each in FORMATS.values() if each.recognizes(Head(called, data))} - {form.name}
    assert others <= {"jsonl"}  # S2ORC's records have the fields of qbe's own


OTHER = "not a record of this format"
ABSTRACT_OF_FISH = "<abstract>Fish swim.</abstract>"
OF_ACL = [
    ("<title>A</title><author><last>Plato</last></author>", {"authors": ["Plato"]}),
    ("<title>A</title><author/><author><first> </first></author>", {"authors": None}),
    ("<title>A</title><doi>https://doi.org/10.1000/A</doi>", {"doi": "10.1000/a"}),
    ("<title>A</title><editor><last>Lee</last></editor>", {"authors": None}),
    ("<title>On\n <b>fi</b>sh</title>", {"title": "On fish"}),
    ("<title>On <tex-math>x</tex-math></title>", {"title": "On $x$"}),
    *(("<title><!-- x -->On &lt; fish</title>", {"title": "On < fish"}), ("<title/>", "no title")),
    *(("<title>A</title><abstract/>", "no abstract"), ("<title>A</title><title>B</title>", {"title": "A"})),
    ("<title>A</title><paper id='8'/>", "no title"),
]
OF_ARXIV = [
    ({"versions": [{"created": "Mon, 2 Apr 2007 19:18:42 GMT"}]}, {"date": "2007-04-02"}),
    ({"versions": [{"created": ""}], "update_date": "2008-01-02"}, {"date": "2008-01-02"}),
    *(({"versions": [{}]}, OTHER), ({"title": "On\n  fish"}, {"title": "On fish"})),
    *(({"title": "On \\\\ fish"}, {"title": "On \\\\ fish"}), ({"title": None}, OTHER)),
    *(({"abstract": None}, "no abstract"), ({"categories": None}, {"categories": None})),
    ({"doi": "doi:10.1000/A 10.1000/B"}, {"doi": "10.1000/a"}),
    ({"authors": "A. Lee, B. Ray and C. Doe"}, {"authors": ["A. Lee", "B. Ray", "C. Doe"]}),
    ({"authors_parsed": [["Lee", "Ann", ""], ["ATLAS"]]}, OTHER),
    ({"authors_parsed": [["van der Berg", "J.", "Jr"]]}, {"authors": ["J. van der Berg Jr"]}),
]
OF_PARQUET = [
    *(({"year": [float("nan")]}, {"year": None}), ({"id": [7.0]}, {"paper_id": "7"})),
    *(({"id": [b"x"]}, {"paper_id": "x"}), ({"abstract": [["One.", "Two."]]}, {"abstract": "One. Two."})),
    *(({"abstract": [[7]]}, OTHER), ({"abstract": [True]}, OTHER), ({"title": [None]}, "no title")),
    *(({"abstract": ["n/a"]}, "no abstract"), ({"venue": [{"volume": 1}]}, {"venue": None})),
    ({"abstract": ["M\0"]}, "a NUL character"),
]
WHOLE_ACL = "<collection id='2020.acl'><volume id='main'><paper id='7'>{}</paper></volume></collection>"
WHOLE_ARXIV = {"id": "0704.1", "title": "On fish", "abstract": "Fish swim.", "categories": "q-bio"}
FLAWED = [("acl-anthology", WHOLE_ACL.format(text + ABSTRACT_OF_FISH), paper) for text, paper in OF_ACL]
FLAWED += [("arxiv", WHOLE_ARXIV | change, paper) for change, paper in OF_ARXIV]
FLAWED += [("parquet", {"title": ["A"], "abstract": ["B."]} | change, paper) for change, paper in OF_PARQUET]


@pytest.mark.parametrize(("form", "content", "expected"), FLAWED)
def test_flawed_records_are_right_or_reported(tmp_path, form, content, expected):
    """What the paper has, None for what it lacks; or the reason for which it is left out."""
    if form == "parquet":
        table = pytest.importorskip("pyarrow").table(content)
        pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "papers")
        data = (tmp_path / "papers").read_bytes()
    else:
        data = (content if isinstance(content, str) else json.dumps(content)).encode()
    try:
        papers, left_out = read(tmp_path / "papers", data, Reading(form, on_error="skip"))
    except CorpusError as error:
        assert isinstance(expected, str) and expected in str(error)
        return
    assert not isinstance(expected, str) and not left_out.skipped and {*left_out.noted} <= {REPEATED}
    [paper] = papers
    has = {"paper_id": paper.paper_id, "title": paper.title, "abstract": paper.abstract, **paper.metadata}
    assert {name: has.get(name) for name in expected} == expected
