"""Which papers of an index a bibliography or a list names: by id, DOI, arXiv id or title, in any format."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from support.citing import index_of, papers_that_cite
from support.messages import messages_of

from qbe import BuildSettings, CorpusError, FileFormatError, PaperNotFoundError, UsageError, build_index
from qbe.index.index import Index
from qbe.index.reader import IndexReader
from qbe.search.queries import NamedPapers, papers_named, papers_of

BIBTEX = """
@article{s004, title = {Adaptive Probing of Fake Accounts}}
@inproceedings{Doe2020, title = {No paper of the index}, doi = {https://doi.org/10.5555/S006}}
@misc{Roe2021, title = {{Taking} a {B}ug graph apart!}}
@article{Poe2022, title = {Nobody Knows This}, doi = {10.5555/unknown}}
"""
"""By its key with a similar title, by its DOI, by its title; one that the index lacks."""

RIS = """TY  - JOUR
ID  - s004
TI  - Another title
ER  -
TY  - JOUR
TI  - No paper of the index
DO  - 10.5555/S006
ER  -
TY  - JOUR
TI  - TAKING A BUG GRAPH APART
ER  -
TY  - JOUR
TI  - Nobody Knows This
ER  -
"""

JSON_LINES = """{"paper_id": "s004", "title": "Another title", "abstract": "A."}
{"paper_id": "x", "title": "None", "abstract": "A.", "metadata": {"doi": "10.5555/s006"}}
{"paper_id": "y", "title": "Taking a Bug Graph Apart", "abstract": null}
{"paper_id": "z", "title": "Nobody Knows This", "abstract": "A."}
"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    def opened(papers) -> IndexReader:
        return IndexReader(index_of(tmp_path_factory.mktemp("cited") / "index", papers, None))

    return opened


@pytest.fixture(scope="module")
def reader(opened, papers):
    """Of papers with DOIs, one of which is without a title, and one named by its DOI."""
    chosen = papers_that_cite(papers)[:16]
    chosen[0] = replace(chosen[0], title="", metadata={})
    chosen[1] = replace(chosen[1], paper_id="10.5555/ABC", metadata={})
    return opened(chosen)


@pytest.fixture(scope="module")
def identified(opened, papers):
    chosen = papers_that_cite(papers)[:16]
    ids = {"arxiv": "1905.01234", "pmid": "4004", "acl": "P19-1004"}
    chosen[3] = replace(chosen[3], metadata=chosen[3].metadata | {"ids": ids, "url": "https://example.org/4"})
    chosen[4] = replace(chosen[4], paper_id="4")
    return opened(chosen)


@pytest.fixture(scope="module")
def clashing(opened, papers):
    """Of papers of one family name and year."""
    about = {"Deep Learning of Fish in Lakes": "10.5555/a", "A Theory of Prices in Auctions": "10.5555/b"}
    known = [{"year": 2003, "authors": ["Ann Lee"], "doi": doi} for doi in about.values()]
    named = zip(papers, about, known, strict=False)
    return opened([*(replace(each, title=title, metadata=it) for each, title, it in named), papers[2]])


@pytest.fixture
def found(reader, tmp_path):
    def find(name: str, text: str) -> NamedPapers:
        path = Path(tmp_path, name)
        path.write_text(text)
        return papers_of(reader, path)

    return find


@pytest.mark.parametrize("name", ["cited.txt", "cited.ids", "cited", "CITED.TXT"])
def test_ids_one_a_line(found, name):
    text = "s005\n\n s003 \r\nunknown\ns005\n10.5555/s006\ntaking a bug graph apart\n"
    assert found(name, text) == NamedPapers(["s005", "s003", "s006", "s013"], 6, ("unknown",))


@pytest.mark.parametrize(
    ("names", "text", "missing"),
    [
        (("refs.bib", "refs.txt"), BIBTEX, "Poe2022"),
        (("refs.ris", "endnote.txt"), RIS, "Nobody Knows This"),
        (("refs.jsonl",), JSON_LINES, "z"),
        (("refs",), "s004\ns006\ns013\nz", "z"),
    ],
)
def test_entries_are_found_by_id_doi_and_title(found, names, text, missing):
    for name in names:
        assert found(name, text) == NamedPapers(["s004", "s006", "s013"], 4, (missing,))


def test_each_paper_is_given_once_and_found_by_the_doi_that_is_its_id(found):
    text = "@misc{s004}\n@misc{b, title = {B}, doi = {10.5555/s004}}\n"
    assert found("refs.bib", text) == NamedPapers(["s004"], 2)
    assert found("refs.bib", "@misc{a, title = {B}, doi = {10.5555/abc}}") == NamedPapers(["10.5555/ABC"], 1)


def test_a_line_of_a_list_is_any_name_of_a_paper(identified):
    unknown = "https://arxiv.org/abs/1905.99999"
    lines = ["S004", "DOI: 10.5555/S004.", "http://dx.doi.org/10.5555/S004", "arXiv:1905.01234v2"]
    for line in (*lines, "https://pubmed.ncbi.nlm.nih.gov/4004/"):
        assert papers_named(identified, [line, unknown])[:3] == (["s004"], 2, (unknown,))


def test_entries_without_a_title_are_found_by_what_they_are_called(identified, tmp_path):
    for name, text, expected, broken in (
        ("a.bib", "@misc{s004}\n@misc{x, doi = {10.5555/S004}}\n@misc{nosuch}", (["s004"], 3, ()), 1),
        ("a.ris", "TY  - JOUR\nDO  - 10.5555/S004\nER  -\n", (["s004"], 1, ()), 0),
        ("a.jsonl", '{"paper_id": 4, "title": "Another title", "abstract": "A."}\n', (["4"], 1, ()), 0),
    ):
        (tmp_path / name).write_text(text)
        found = papers_of(identified, tmp_path / name)
        assert (found[:3], len(found.broken)) == (expected, broken)


def test_titles_are_compared_with_year_and_author(opened, papers):
    titles, known = ("Nets and fish of lakes", "Editorial"), {"year": 2003, "authors": ["Ann Lee", "Bo Ek"]}
    named = zip(papers, titles, strict=False)
    reader = opened([replace(paper, title=title, metadata=known) for paper, title in named])
    for number, metadata, is_found in (
        (0, {}, True),
        (0, {"year": 2001, "authors": ["Ann Lee"]}, True),  # a preprint's year
        (0, {"year": 2003, "authors": ["A. Le"]}, True),  # another spelling
        *((0, {"year": 2001, "authors": ["Bo Ek"]}, False), (1, {}, False), (1, {"year": 2003}, True)),
        (1, {"year": 2004, "authors": ["Ann Lee"]}, False),
    ):
        expected = ([f"s00{number + 1}"], 1, ()) if is_found else ([], 1, (titles[number],))
        assert papers_named(reader, [{"title": titles[number], "metadata": metadata}]) == (*expected, ())
    for year, named_by_key in ((1950, []), (2003, ["s001"])):  # in all another paper; of the same year
        record = {"paper_id": "s001", "title": "Cats", "metadata": {"year": year, "authors": ["Zed Q."]}}
        assert papers_named(reader, [record]).paper_ids == named_by_key


PRICES = "title = {A Theory of Prices in Auctions}"
FISH = "title = {Deep Learning of Fish in Lakes: A Survey}"
KEYED = {
    f"{PRICES}, author = {{Lee, Ann}}, year = 2003, doi = {{10.5555/b}}": "s002",
    f"{PRICES}, author = {{Lee, Ann}}, year = 2003": "s002",
    "doi = {10.5555/b}": "s002",
    "title = {Frogs}": None,
    f"{FISH}, year = 2004": "s001",
    f"{FISH}, doi = {{10.48550/arXiv.2001.00001}}": "s001",
    f"{FISH}, doi = {{10.5555/c}}": None,
    f"{FISH}, author = {{Ek, Bo}}": None,
    "title = {Another Title}, doi = {10.5555/a}": "s001",
    "": "s001",
}


@pytest.mark.parametrize("fields", KEYED)
def test_a_citation_key_names_a_paper_only_where_the_title_agrees(clashing, tmp_path, fields):
    (tmp_path / "refs.bib").write_text(f"@misc{{s001, {fields}}}\n@misc{{s003}}\n")
    expected = [paper_id for paper_id in (KEYED[fields], "s003") if paper_id]
    assert papers_of(clashing, tmp_path / "refs.bib").paper_ids == expected


OF_S004 = [f"{prefix}1905.01234{end}" for prefix in ("", "arXiv:", "arxiv: ") for end in ("", "v2")]
OF_S004 += ["s004", "S004", "https://arxiv.org/abs/1905.01234v2", "http://arxiv.org/pdf/1905.01234.pdf"]
OF_S004 += ["10.48550/arXiv.1905.01234", "1905.01234 [cs.CL]", "10.5555/S004", "doi:10.5555/s004"]
OF_S004 += ["https://doi.org/10.5555/s004", "https://dx.doi.org/10.5555/S004.", "P19-1004", "ACL:p19-1004"]
OF_S004 += ["https://aclanthology.org/P19-1004/", "https://aclanthology.org/P19-1004.pdf"]
OF_S004 += ["10.18653/v1/P19-1004", "https://example.org/4", "PMID: 4004"]
BY_NAME = dict.fromkeys(OF_S004, "s004") | {
    "4": "4",
    "Taking a Bug Graph Apart": "s013",
    "TAKING a bug: graph": "s013",
    "sampling": "s009",
    "Lesions ov": "s002",
    "sites sensor choo": "s010",
}
OF_NONE = ["nosuch", "1905.01234,1905.99999", "arXiv:1905.99999, arXiv:1905.01234", "of", "???", ""]
OF_NONE += ["10.5555/4", "https://doi.org/10.5555/4", "https://doi.org/10.18653/v1/4"]  # 4 is another paper
OF_NONE += ["https://www.jstor.org/stable/4004", "https://www.jstor.org/stable/4004.pdf", "isbn:4004"]


def test_a_paper_by_any_name(identified):
    assert {name: identified.find(name).paper_id for name in BY_NAME} == BY_NAME
    for name in OF_NONE:
        with pytest.raises(PaperNotFoundError, match="one of the 16 papers of the index, found"):
            identified.find(name)


def test_a_name_of_several_papers(opened, papers, told):
    titles = ["On fish", "On fish in lakes", "On Fish in Rivers", "Rivers", "Rivers"]
    titles.append("In rivers, on fish: lakes")
    named = [replace(papers[number], title=title) for number, title in enumerate(titles)]
    named.append(replace(papers[len(titles)], title=""))
    reader = opened(named)
    assert [reader.names.find(text) for text in ("", "!!!")] == [[], []]  # not the paper without a title
    assert reader.find("on fish").paper_id == "s001"  # a whole title goes before a part of others
    assert reader.find("Fish in Lakes").paper_id == "s002"  # words in this order before any order
    assert reader.find("lakes rivers").paper_id == "s006"
    asked = [partial(reader.find, text) for text in ("fish in", "rivers")]
    told("find: several papers", [each.partition(": ")[2] for each in messages_of(asked, PaperNotFoundError)])


def test_names_follow_the_index(tmp_path, papers):
    with Index(index_of(tmp_path / "index", papers[:3], None)) as index:
        title = papers[0].title
        assert index.find(title).paper_id == "s001"
        index.append([replace(papers[0], paper_id="again", metadata={"doi": "10.1234/again"})])
        index.delete(["s001"])
        assert index.find(title).paper_id == index.find("10.1234/AGAIN").paper_id == "again"
        with pytest.raises(PaperNotFoundError):
            index.find("S001")


def test_broken_entries_are_left_out_and_told(found):
    lines = JSON_LINES.splitlines(keepends=True)
    named = found("refs.jsonl", "".join([*lines[:2], "{broken\n", *lines[2:3]]))
    assert named[:3] == (["s004", "s006", "s013"], 4, ())
    said = named.missing_in_words("refs.jsonl")
    assert said.startswith("refs.jsonl: 1 entries cannot be read and are left out (")
    assert "line 3: expected" in said


@pytest.mark.parametrize("metadata", ["[1]", '"10.5555/s006"', "7", '{"doi": 7, "ids": [1]}', "{}", "null"])
def test_metadata_of_another_type_names_nothing(found, metadata):
    text = '{"paper_id": "x", "title": "X", "abstract": "A.", "metadata": ' + metadata + "}\n"
    assert found("refs.jsonl", JSON_LINES + text).paper_ids == ["s004", "s006", "s013"]


@pytest.mark.parametrize(
    ("name", "text", "entries", "named"),
    [
        *(("cited.txt", "", 0, ""), ("refs.txt", "a\nb\n", 2, " (a, b)")),
        ("refs.bib", BIBTEX[-80:], 1, " (Poe2022)"),
        ("refs.bib", "@misc{a, title = {???}}", 1, " (a)"),  # which is not the paper without a title
    ],
)
def test_a_file_that_names_no_paper_of_the_index(found, tmp_path, name, text, entries, named):
    with pytest.raises(UsageError) as raised:
        found(name, text)
    assert str(raised.value) == (
        f"{tmp_path / name}: expected papers of the index, found none of its {entries} entries in it{named}; "
        "give ids, DOIs or arXiv ids, one a line, or entries with a title"
    )


@pytest.mark.parametrize(
    ("name", "data", "error", "message"),
    [
        ("cited.txt", b"s004\n\xff\n", FileFormatError, "line 2: expected UTF-8 text, found byte 0xff"),
        ("refs.bib", b"@misc{s004, title = {\xff}}", UsageError, "found none of its 1 entries"),
        ("cited.txt", None, CorpusError, "cited.txt"),
        ("refs.bib", None, CorpusError, "refs.bib"),
    ],
)
def test_what_is_no_text_and_what_is_not_there(reader, tmp_path, name, data, error, message):
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(error, match=message) as raised:
        papers_of(reader, path)
    assert str(path) in str(raised.value)


def test_entries_without_ids_are_known_by_their_content(tmp_path):
    """Titles of three words, without year and author, whose ids are made of the content on both sides."""
    path = tmp_path / "library.ris"
    path.write_text("TY  - JOUR\nTI  - Counting fish one\nAB  - We count. They swim.\nER  - \n")
    with build_index(tmp_path / "index", path, BuildSettings(dense=False)) as index:
        assert papers_of(index.reader, path).paper_ids == [paper.paper_id for paper in index]
