"""Flaws of publishers' and databases' exports, each of which every reader that can have it mends."""

import io
import json
import lzma
from pathlib import Path

import pytest
from support.formats import buffered

from qbe import paper_from_file
from qbe.corpus.markup import clean_abstract, clean_bibtex
from qbe.corpus.reading import FORMATS, kind_of, read_corpus
from qbe.corpus.records import REPEATED, Reading, RejectedRecords
from qbe.corpus.streams import Head
from qbe.errors import RecordError

EMPTY = {"title": "On fish", "abstract": "Fish swim.", "metadata": {}}
FISH = "We count fish."
DOI, CNKI = "10.5555/7", {"venue": "情报学报"}
OF_2019 = {"authors": ["王小明"], "year": 2019}
OF_LISTS = {"titles": [{"title": "On fish"}], "abstracts": [{"value": "Fish swim."}]}
KINDS = {"Other": "Lakes.", "Abstract": "Fish swim."}
DESCRIBED = {"descriptions": [{"description": t, "descriptionType": kind} for kind, t in KINDS.items()]}


def only(form: str, text: str) -> dict:
    (entry,) = FORMATS[form].read(buffered(text), "export", Reading())
    record = dict(entry.record)
    record.pop("paper_id")
    return record


@pytest.mark.parametrize("word", ["nan", "NA", "None", "null", "N/A"])
def test_placeholders_are_no_values_of_any_field(word):
    table = f"id,title,abstract,authors,journal,keywords\n{word},On fish,Fish swim.,{word},{word},{word}\n"
    ris = f"TY  - JOUR\nTI  - On fish\nAB  - Fish swim.\nAU  - {word}\nJO  - {word}\nKW  - {word}\nER  - \n"
    csl = {"type": "article-journal", "title": "On fish", "abstract": "Fish swim.", "container-title": word}
    assert only("table", table) == only("ris", ris) == only("csl-json", json.dumps([csl])) == EMPTY


@pytest.mark.parametrize(
    "text",
    [
        *(f"ABSTRACT {FISH}", f"[Abstract] {FISH}", f"Résumé. {FISH}", f"Resumen: {FISH}", f"{FISH} {FISH}"),
        f"{FISH}Competing Interest StatementThe authors have declared no competing interest.",
        *(f"{FISH}(ABSTRACT TRUNCATED AT 250 WORDS)", f"{FISH} [abstract truncated]", f"摘 要 {FISH}"),
        *(f"RESUMEN {FISH}", f"Riassunto: {FISH}", f"{FISH} Graphical abstract"),
        f"{FISH} [Figure: see text].",
        *(f"<title>Abstract</title><p>{FISH}</p>", f"{FISH} Competing interests: None declared."),
    ],
)
def test_residues_and_repetitions_are_no_part_of_an_abstract(text):
    assert clean_abstract(text) == FISH


def test_of_abstracts_in_two_languages_the_first_counts():
    for second in ("Contamos los peces de un lago y los del otro.", "我们数鱼。", FISH):
        text = f"TY  - JOUR\nTI  - On fish\nAB  - We count the fish of a lake.\nAB  - {second}\nER  - \n"
        both = f"We count the fish of a lake. {FISH}" if second == FISH else "We count the fish of a lake."
        assert only("ris", text)["abstract"] == both


def test_abstract_before_its_first_word():
    assert clean_abstract("Summary 1. Fish swim. 2. We count.") == "1. Fish swim. 2. We count."
    assert clean_abstract("Abstract Graph networks are common.") == "Graph networks are common."
    for text in ("Abstract Interpretation gives bounds.", "Abstract Games are played.", "Abstract algebra."):
        assert clean_abstract(text) == text


@pytest.mark.parametrize(
    ("text", "names"),
    [
        *(("Eva Lund, Per Moe", ["Eva Lund", "Per Moe"]), ("Lund E, Moe P", ["E Lund", "P Moe"])),
        *(("Ann Ek, Per Moe and Bo Dahl", ["Ann Ek", "Per Moe", "Bo Dahl"]), ("Ek, Ann", ["Ann Ek"])),
        *(("Eva Lund,Per Moe, Ann Ek", ["Eva Lund", "Per Moe", "Ann Ek"]), ("王, 小明", ["小明 王"])),
        *(("Ek, Ann, Per Moe", ["Ann Ek", "Per Moe"]), ("Ek Dahl, Ann Maria", ["Ek Dahl, Ann Maria"])),
        ("王小明\uff1b李华\uff0c张三、陈", ["王小明", "李华", "张三", "陈"]),
        ("山田, 太郎", ["太郎 山田"]),
        *(("王小明, 李华", ["王小明", "李华"]), ("李华 张三", ["李华", "张三"])),
        ("Ek Dahl, Ann Zoi and Moe, Per", ["Ek Dahl, Ann Zoi", "Per Moe"]),
        ("Moe, Per (per@fish.org)", ["Per Moe"]),
    ],
)
def test_authors_in_one_field(text, names):
    readers = {
        "bibtex": f"@misc{{a, title={{On fish}}, abstract={{Fish swim.}}, author={{{text}}}}}",
        "ris": f"TY  - JOUR\nTI  - On fish\nAB  - Fish swim.\nAU  - {text}\nER  - \n",
        "endnote": f"%0 Journal Article\n%T On fish\n%X Fish swim.\n%A {text}\n",
        "table": f'title,abstract,authors\nOn fish,Fish swim.,"{text}"\n',
    }
    for form, export in readers.items():
        assert only(form, export)["metadata"]["authors"] == names, form
    item = {"title": "On fish", "abstract": "Fish swim.", "author": [{"literal": text}]}
    if len(names) > 1:
        assert only("csl-json", json.dumps([item]))["metadata"]["authors"] == names


def test_formulas_in_parentheses():
    assert clean_bibtex(r"a \(p>2\) \[x_1\] b") == "a $p>2$ $x_1$ b"


@pytest.mark.parametrize(
    ("columns", "cells", "metadata"),
    [
        ("Cites,Source", "12,Fish Notes", {"venue": "Fish Notes"}),  # Publish or Perish counts
        ("Cites,Source", "12,...", {}),
        ("cord_uid,publish_time", "ug7v,2001-07-04", {"year": 2001, "date": "2001-07-04"}),
        ("authorships.author.display_name", "Eva Lund|Per Moe", {"authors": ["Eva Lund", "Per Moe"]}),
        ("pubtitle,digitalObjectIdentifier", "Fishes,10.5555/A", {"venue": "Fishes", "doi": "10.5555/a"}),
        ("venue.raw,cites", "Fish Notes,2", {"venue": "Fish Notes"}),
        ("Author-作者,Year-年,Source-文献来源", "王小明,2019,情报学报", CNKI | OF_2019),
        (
            "Authors,Arxiv ID,Journal,Proceedings title,Labels filed in",  # Paperpile
            '"van Ek Ann,Moe Per A",2101.00002,,Fish Notes,read',
            {"authors": ["Ann van Ek", "Per A Moe"], "venue": "Fish Notes", "ids": {"arxiv": "2101.00002"}}
            | {"tags": ["read"]},
        ),
    ],
)
def test_usual_columns_of_large_sources(columns, cells, metadata):
    assert only("table", f"title,abstract,{columns}\nOn fish,Fish swim.,{cells}\n")["metadata"] == metadata


def test_flaws_that_concern_one_record_stop_nothing(tmp_path):
    entry = "@article{doi:10.5555/7},\ntitle = {On fish},\nyear = {2020},\nabstract = {Fish swim.}\n}\n"
    assert only("bibtex", entry)["metadata"] == {"key": "doi:10.5555/7", "year": 2020}
    assert only("bibtex", entry.replace("7},\n", "7,\n").replace("},\n", "}\n")) == only("bibtex", entry)
    titles = ("On \x0bfish", "On fish & nets", "On &#1; nets", "On &amp; on")
    articles = "".join(
        f"<PubmedArticle><MedlineCitation><PMID>{number}</PMID><Article><ArticleTitle>{title}</ArticleTitle>"
        f"</Article><OtherAbstract><AbstractText>{FISH}</AbstractText></OtherAbstract><MeshHeadingList>"
        "<MeshHeading><DescriptorName>Birds</DescriptorName><QualifierName>physiology</QualifierName>"
        "</MeshHeading></MeshHeadingList></MedlineCitation></PubmedArticle>"
        for number, title in enumerate(titles)
    )
    (tmp_path / "a.xml").write_text(f"<PubmedArticleSet>{articles}</PubmedArticleSet>")
    papers = list(read_corpus([str(tmp_path / "a.xml")], lambda text: [text]))
    assert [paper.title for paper in papers] == ["On fish", "On fish & nets", "On nets", "On & on"]
    assert {(paper.abstract, *paper.metadata["tags"]) for paper in papers} == {(FISH, "Birds/physiology")}


def test_a_library_is_read_whole_and_what_is_left_out_is_named(tmp_path):
    entries = "@misc{a, title={On fish}}\n@misc{b, title={On {nets}\n@misc{c, note={x}}\n"
    entries += "\n".join(f"@misc{{d{i}, title={{On {i}}}}}" for i in range(100))
    (tmp_path / "a.bib").write_text(entries)
    stream = io.BytesIO()
    rejected = RejectedRecords(stream)
    papers = list(read_corpus([str(tmp_path / "a.bib")], lambda text: [text], rejected=rejected))
    assert (len(papers), rejected.skipped) == (101, {"a broken entry": 1, "no title": 1})
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [each["paper_id"] for each in told if "title stands" not in each["message"]] == ["b", "c"]
    with pytest.raises(RecordError):
        list(read_corpus([str(tmp_path / "a.bib")], lambda text: [text], Reading(on_error="stop")))


@pytest.mark.parametrize("line", Path(__file__).parent.joinpath("data/twice.tsv").read_text().splitlines())
def test_a_field_that_stands_twice_with_other_text_is_told(tmp_path, line):
    form, text, told = line.split("\t")
    for second, count in (("On nets", 1), ("On fish", 0)):
        (tmp_path / "a").write_text(text.replace("\\n", "\n").replace("On nets", second))
        reading, file = Reading(form, keep_without_abstract=True), str(tmp_path / "a")
        [paper] = read_corpus([file], str.split, reading, rejected := RejectedRecords(stream := io.BytesIO()))
        found = [its for its in map(json.loads, stream.getvalue().splitlines()) if its["reason"] == REPEATED]
        assert (paper.title, len(found), rejected.noted[REPEATED]) == ("On fish", count, count)
        for each in found:
            message = f"{each['where']}: expected each field once, found different values twice of {told}"
            assert (each["message"], each["paper_id"], each["title"]) == (message, paper.paper_id, "On fish")


def test_other_exports_are_named():
    for text, kind in (
        *(("{Reference Type}: Article", "NoteExpress"), ("\n <17. >\nTI", "Ovid"), ("#*Fish", "AMiner")),
        ("Record #1 of 2\nID: 7", "Cochrane"),
    ):
        assert kind_of(Head("a.txt", text.encode())) == f"an export of {kind}"


def test_records_of_eric():
    lines = "\nOWN - ERIC\nTI  - On fish\nOID - EJ7\nLID - http://eric.ed.gov/?id=EJ7\nAB  - Fish swim.\n"
    [entry] = FORMATS["nbib"].read(buffered(lines), "eric", Reading())
    assert entry.record["paper_id"] == "EJ7"
    assert entry.record["metadata"] == {"url": "http://eric.ed.gov/?id=EJ7"}


@pytest.mark.parametrize(
    "answer",
    [
        {"response": {"docs": [{"title": ["On fish"], "abstract": "Fish swim.", "doi": ["10.5555/7"]}]}},
        {"response": {"docs": [{"title_s": ["On fish", "x"], "abstract_s": ["Fish swim."], "doiId_s": DOI}]}},
        {"hits": {"hits": [{"id": "1", "metadata": OF_LISTS | {"dois": [{"value": DOI}]}}]}},
        {"data": [{"type": "dois", "attributes": {"titles": [{"title": "On fish"}]} | DESCRIBED}]},
        {"collection": [{"title": "On fish", "abstract": "Fish swim.", "doi": DOI}]},
        {"resultList": {"result": [{"title": "On fish", "abstractText": "Fish swim.", "doi": DOI}]}},
        {"notes": [{"content": {"title": {"value": "On fish"}, "abstract": {"value": "Fish swim."}}}]},
        {"results": [{"mainTitle": "On fish", "descriptions": ["Fish swim."], "doi": DOI}]},
        {"paper_id": "7", "metadata": {"title": "On fish", "abstract": "Fish swim.", "doi": DOI}},
        {"title": "On fish", "indexed_abstract": {"InvertedIndex": {"swim.": [1], "Fish": [0]}}},
    ],
)
def test_answers_of_databases(tmp_path, answer):
    """Of NASA ADS, HAL, INSPIRE, DataCite, bioRxiv, Europe PMC, OpenReview, OpenAIRE; unarXive, AMiner."""
    (tmp_path / "a.json").write_text(json.dumps(answer))
    [paper] = read_corpus([str(tmp_path / "a.json")], lambda text: [text])
    assert (paper.title, paper.abstract) == ("On fish", "Fish swim.")
    assert paper.metadata.get("doi", DOI) == DOI


def test_a_damaged_second_member_of_an_archive_is_told(tmp_path: Path):
    data = lzma.compress(json.dumps({"title": "On fish", "abstract": "Fish swim."}).encode())
    (tmp_path / "a.xz").write_bytes(data + b"\xfe" + data[1:])
    with pytest.raises(Exception, match="truncated or corrupt"):
        paper_from_file(tmp_path / "a.xz")
