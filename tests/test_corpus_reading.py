"""How a corpus is read: formats, what is kept, duplicates, records that cannot be used."""

import functools
import gzip
import io
import json
import os
import zipfile
from pathlib import Path

import pytest

from qbe import CorpusError, Reading, UsageError
from qbe.corpus.markup import is_placeholder
from qbe.corpus.reading import FORMATS, files_of, read_corpus
from qbe.corpus.records import RejectedRecords, parse_paper
from qbe.corpus.streams import FORMAT_NAMES, open_source
from qbe.errors import RecordError


def write(path: Path, *records: dict) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def paper(paper_id: str, title: str = "On fish in rivers and lakes", **metadata: object) -> dict:
    return {"paper_id": paper_id, "title": title, "abstract": ["Fish swim."], "metadata": metadata}


def whole(abstract: str) -> list[str]:
    return [abstract]


def ids(source: str, reading: Reading, left_out: RejectedRecords | None = None) -> list[str]:
    return [each.paper_id for each in read_corpus([source], whole, reading, left_out)]


def test_the_names_of_the_command_line_are_those_of_the_readers():
    assert tuple(FORMATS) == FORMAT_NAMES


def test_limit_counts_papers_that_are_kept(tmp_path):
    source = write(tmp_path / "a.jsonl", paper("1"), paper("2"), {"paper_id": "3"}, paper("4"), paper("5"))
    assert ids(source, Reading(limit=3, on_error="skip", max_rejected=0.5)) == ["1", "2", "4"]


def test_categories_are_patterns_and_papers_without_any_are_left_out(tmp_path):
    source = write(
        tmp_path / "a.jsonl",
        paper("1", categories=["math.CO", "cs.CG"]),
        paper("2", categories="math.CO cs.LG"),
        paper("3", categories=["math.CO"]),
        paper("4"),
    )
    assert ids(source, Reading(categories=("cs.*",))) == ["1", "2"]
    assert ids(source, Reading(categories=("cs.CG", "math.*"))) == ["1", "2", "3"]


def test_titles_are_compared_with_year_and_first_author(tmp_path):
    source = write(
        tmp_path / "a.jsonl",
        paper("1", year=2019, authors=["Ann Gödel", "B. Post"]),
        paper("2", "On Fish in Rivers, and Lakes!", date="2019-05-02", authors="A. Godel, C. Tree"),
        paper("3", year=2020, authors=["Ann Gödel"]),
        paper("4", year=2019, authors=["Emil Post"]),
        paper("5", "Editorial"),
        paper("6", "Editorial"),
    )
    left_out = RejectedRecords()
    assert ids(source, Reading(dedupe="title"), left_out) == ["1", "3", "4", "5", "6"]
    assert left_out.summary() == "1 merged as duplicates"
    assert left_out.counts() == {"duplicate": 1}


@pytest.mark.parametrize(
    ("title", "changed", "is_same"),
    [
        ("On fish in rivers and lakes", {"authors": ["A. C. Lee"], "doi": "10.1000/b"}, True),
        ("On fish in rivers and lakes", {"authors": ["Bo Lee"]}, False),
        ("Editorial", {"doi": "10.1000/b"}, False),
        ("Editorial", {"doi": "10.48550/arxiv.2001.00001"}, True),
        ("Editorial", {"doi": None}, True),
        ("C++ for fish in rivers", {"title": "C for fish in rivers"}, False),
    ],
)
def test_first_authors_and_dois_tell_papers_of_one_title_apart(tmp_path, title, changed, is_same):
    first = paper("1", title, year=2019, authors=["Ann Lee", "Cy Ek"], doi="10.1000/a")
    changed = {"title": title, **changed}
    other = paper("2", changed.pop("title"), **{**first["metadata"], **changed})
    source = write(tmp_path / "a.jsonl", first, other, {**other, "paper_id": "3"})
    assert ids(source, Reading(dedupe="title")) == (["1"] if is_same else ["1", "2"])


def test_papers_without_an_abstract_stop_are_skipped_or_kept(tmp_path):
    source = write(tmp_path / "a.jsonl", paper("1"), {"paper_id": "2", "title": "On sand", "abstract": None})
    with pytest.raises(RecordError, match=r"keep such papers by their titles with `keep_"):
        ids(source, Reading())
    left_out = RejectedRecords()
    assert ids(source, Reading(on_error="skip"), left_out) == ["1"]  # it does not count as broken
    assert left_out.summary() == "1 record skipped (no abstract: 1)"
    kept = list(read_corpus([source], reading=Reading(keep_without_abstract=True)))
    assert [each.abstract for each in kept] == ["Fish swim.", "On sand"]


def test_libraries_keep_papers_without_an_abstract_unless_told_otherwise(tmp_path):
    source, listed = tmp_path / "library.bib", io.BytesIO()
    source.write_text("@misc{a, title={On sand}}\n@misc{b, title={On sun}, abstract={n/a}}\n")
    papers = read_corpus([str(source)], whole, rejected=RejectedRecords(listed))
    assert [paper.abstract for paper in papers] == ["On sand", "On sun"]
    assert [json.loads(line)["paper_id"] for line in listed.getvalue().splitlines()] == ["a", "b"]
    with pytest.raises(RecordError, match="line 1: expected an abstract, found none"):
        ids(str(source), Reading(on_error="stop"))


def test_a_paper_without_title_and_abstract_cannot_be_kept(tmp_path):
    source = write(tmp_path / "a.jsonl", paper("1"), {"paper_id": "2", "title": "", "abstract": ""})
    with pytest.raises(RecordError, match=r"line 2: expected an abstract, found an empty one"):
        ids(source, Reading(keep_without_abstract=True))


def test_large_files_are_read_without_stopping(tmp_path, monkeypatch):
    source = write(tmp_path / "a.jsonl", *(paper(str(number)) for number in range(200)), {"paper_id": 7})
    with pytest.raises(RecordError, match="line 201"):
        ids(source, Reading())
    monkeypatch.setattr("qbe.corpus.records.SKIP_BYTES", 1000)
    left_out = RejectedRecords()
    assert len(ids(source, Reading(), left_out)) == 200
    assert left_out.counts() == {"no title": 1}


def test_semantic_scholars_abstracts_are_refused_with_what_to_do(tmp_path):
    source = write(tmp_path / "a.jsonl", {"corpusid": 7, "openaccessinfo": {}, "abstract": "Eels are long."})
    with pytest.raises(CorpusError, match=r"a.jsonl: expected Semantic Scholar's papers, .* join both"):
        ids(source, Reading())


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs /dev/fd")
def test_a_pipe_that_is_named_is_read_from_its_beginning():
    reader, writer = os.pipe()
    os.write(writer, json.dumps(paper("1")).encode())
    os.close(writer)
    assert ids(f"/dev/fd/{reader}", Reading()) == ["1"]
    os.close(reader)


def test_files_of_a_folder_are_read_by_name(tmp_path):
    folder = tmp_path / "parts"
    (folder / "b").mkdir(parents=True)
    write(folder / "b" / "2.jsonl", paper("2"))
    (folder / "1.jsonl.gz").write_bytes(gzip.compress(json.dumps(paper("1")).encode()))
    write(folder / ".hidden.jsonl", paper("3"))
    assert files_of(str(folder)) == [str(folder / "1.jsonl.gz"), str(folder / "b" / "2.jsonl")]
    assert ids(str(folder), Reading(format="jsonl")) == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("on_error", "ignore"), ("dedupe", "id"), ("columns", {"name": "x"}), ("max_rejected", 2), ("limit", 0)],
)
def test_values_that_are_not_possible(name, value):
    with pytest.raises(UsageError, match=f"`{name}`"):
        Reading(**{name: value})


def test_duplicates_by_doi_or_title_keep_a_complete_list_of_authors(tmp_path):
    title = "Bird sound detection with neural networks"
    kahl = {"year": 2020, "authors": ["Sue Kahl"]}
    some = {"title": title, "metadata": {**kahl, "et_al": True, "doi": "10.1234/a"}}
    both = {"authors": ["Sue Kahl", "Per Moe"], "doi": "10.1234/a"}
    all_ = {"title": "Bird sounds of lakes in the north", "metadata": both}
    again = all_ | {"metadata": {"authors": ["S. Kahl"]}}  # by the title of the second
    last = {"title": title, "metadata": kahl}
    records = (
        {"paper_id": name, "abstract": "Birds sing.", **each}
        for name, each in zip("abcd", (some, all_, last, again), strict=True)
    )
    source = tmp_path / "birds.jsonl"
    source.write_text("\n".join(map(json.dumps, records)))
    (paper,) = read_corpus([str(source)], whole, Reading(dedupe="both"))
    assert (paper.title, paper.metadata["authors"]) == (title, ["Sue Kahl", "Per Moe"])
    assert "et_al" not in paper.metadata


def test_duplicates_are_merged_before_ids_are_compared(tmp_path):
    first = paper("1", doi="10.1000/ABC", year=2019, ids={"pmid": "7"}, tags=["a", "b"])
    short = paper("1", "On stone in mountains", tags=["x"])
    other = paper("2", "On fish", doi="https://doi.org/10.1000/abc", year=2020, venue="Lakes")
    other["abstract"] = ["Fish swim.", "We count them."]
    other["metadata"] |= {"ids": {"arxiv": "2001.00001"}, "tags": ["b", "c"]}
    left_out = RejectedRecords()
    source = write(tmp_path / "a.jsonl", first, paper("3"), other, {**other, "paper_id": "1"})
    merged, _ = read_corpus([source], whole, Reading(dedupe="doi"), left_out)
    assert (merged.paper_id, merged.title) == ("1", "On fish in rivers and lakes")
    assert merged.abstract == "Fish swim. We count them."
    assert merged.metadata == {
        "doi": "10.1000/ABC",
        "year": 2019,
        "venue": "Lakes",
        "ids": {"pmid": "7", "arxiv": "2001.00001"},
        "tags": ["a", "b", "c"],
        "merged_ids": ["2"],
    }
    assert left_out.counts() == {"duplicate": 2}
    with pytest.raises(RecordError, match="found '1' again with another title"):
        ids(write(tmp_path / "b.jsonl", first, short), Reading(dedupe="doi"))


def test_few_broken_records_are_reported_and_many_end_the_reading(tmp_path):
    broken = [{"paper_id": f"b{number}"} for number in range(2)]
    papers = [paper(str(number), f"Title {number}") for number in range(98)]
    left_out = RejectedRecords()
    few = write(tmp_path / "a.jsonl", *papers[:97], *broken)
    assert len(ids(few, Reading(on_error="skip"), left_out)) == 97
    assert left_out.counts() == {"no title": 2}
    with pytest.raises(CorpusError, match=r"^2 of 100 records are broken \(no title: 2\), .* 1 %; .*` 0.02$"):
        ids(write(tmp_path / "b.jsonl", *papers, *broken), Reading(on_error="skip"))


def test_a_folder_of_any_files_is_read_as_far_as_it_can_be(tmp_path):
    (tmp_path / "a.csv").write_text("title,abstract\nOn fish,Fish swim.\n")
    (tmp_path / "b.csv").write_text("Key,Title,Abstract Note,Year\nb,On birds,Birds fly.,2019\n")
    (tmp_path / "c.bib").write_text("@misc{c, title={On stone}, abstract={Stones lie.}}\n")
    (tmp_path / "d.pdf").touch()
    empty = RejectedRecords()
    assert len(ids(str(tmp_path), Reading(), empty)) == 3
    assert (empty.counts(), empty.broken) == ({"an empty file": 1}, 0)
    (tmp_path / "draft.txt").write_text("We write.\n")
    (tmp_path / "paper.rtf").write_bytes(b"{\\rtf1 \0")
    (tmp_path / "scores.csv").write_text("id,score\nb,7\n")
    (tmp_path / "zip.gz").write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(CorpusError, match=r"draft.txt: format not recognized: "):
        ids(str(tmp_path), Reading())
    left_out = RejectedRecords()
    assert len(ids(str(tmp_path), Reading(on_error="skip"), left_out)) == 3
    assert left_out.counts() == {"format not recognized": 4, "an empty file": 1}


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.txt", b"Some prose, in lines;\nnothing else.\n", "plain text"),
        ("a.html", b"\n<!DOCTYPE html><html></html>", "an HTML page"),
        ("a.xml", b"<?xml version='1.0'?><records/>", "XML of <records>"),
        ("dblp.xml", b'<!DOCTYPE dblp SYSTEM "dblp.dtd"><dblp/>', "DBLP's XML, which has no abstracts"),
        ("a.json", b'{"name": "x", "version": 2}', "JSON with 'name', 'version'"),
        ("a.enl", b"\0\1\2\3", "an EndNote library"),
        ("a.sqlite", b"SQLite format 3\0", "an SQLite database, as reference managers keep"),
        ("a.bin", bytes(range(256)), "binary data"),
        ("a.zip", ["word/document.xml", "x.xml"], "a Word document"),
        ("b.zip", ["xl/workbook.xml", "x"], "an Excel workbook"),
    ],
)
def test_a_file_of_another_kind_is_called_by_it(tmp_path, name, data, kind):
    if isinstance(data, bytes):
        (tmp_path / name).write_bytes(data)
    else:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for member in data:
                archive.writestr(member, b"")
    with pytest.raises(CorpusError, match=rf"{name}: format not recognized: .*found {kind}; "):
        ids(str(tmp_path / name), Reading())


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ("NA|n/a|<NA>|N.A.|nan|None|NULL|-|--|?|.|[No abstract available]|unavailable|no abstract", True),
        ("There is no abstract for this article.|(Abstract missing)|#N/A|[...]|Abstract|TBD", True),
        ("An abstract is not available for this content so a preview has been provided.", True),
        ("Abstract available from the publisher.|[Figure: see text].|Kein Abstract verfügbar.|无摘要", True),
        ("Resumen no disponible.|Pas de résumé.|[Table: see text]|抄録なし|Abstract to follow.", True),
        ("An abstract is unavailable. This article is available as HTML full text and PDF.", True),
        ("None of them swim.|No.|Not all fish swim.|Fish.|A null result.|No, it is not.", False),
        ("Is the abstract data type not enough for databases of fish?|Nothing is missing.", False),
    ],
)
def test_placeholders_are_no_abstracts_and_short_abstracts_are(texts, expected):
    for text in texts.split("|"):
        assert is_placeholder([text]) is is_placeholder([text, ""]) is expected


def test_metadata_may_not_be_nested_without_end(tmp_path):
    for depth in (98, 100, 975):
        value: list = functools.reduce(lambda inner, _: [inner], range(depth - 1), [])
        record = {"paper_id": "1", "title": "T", "abstract": ["Fish."], "metadata": {"x": value}}
        if depth < 100:
            assert parse_paper(record, "here").metadata == {"x": value}
            continue
        with pytest.raises(RecordError, match="at most 100 objects and lists within each other"):
            parse_paper(record, "here")


def test_a_small_archive_does_not_become_a_large_buffer(tmp_path):
    compressor = pytest.importorskip("zstandard").ZstdCompressor(level=19).compressobj()
    pieces = [compressor.compress(b"A" * (1 << 20)) for _ in range(64)]
    (tmp_path / "a.zst").write_bytes(b"".join(pieces) + compressor.flush())
    with open_source(tmp_path / "a.zst") as stream:
        stream.read(1)
        buffered = stream.raw._rest.nbytes  # type: ignore[attr-defined]
    assert 0 < buffered <= 33 << 20


def test_an_index_in_the_folder_of_its_corpus_is_no_part_of_it(tmp_path):
    write(tmp_path / "papers.jsonl", paper("a"))
    generation = tmp_path / "index" / "000001"
    generation.mkdir(parents=True)
    for path in (generation.parent / "CURRENT", generation / "papers.ids", generation / "papers.jsonl"):
        path.write_text("b")
    assert [paper.paper_id for paper in read_corpus([str(tmp_path)])] == ["a"]
