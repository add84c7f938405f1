"""PubMed's XML to papers."""

from pathlib import Path
from typing import Any

import pytest
from support.formats import buffered

from qbe.corpus import xml_formats
from qbe.corpus.reading import read_corpus
from qbe.corpus.records import Entry, Reading, RejectedRecords
from qbe.errors import RecordError


def read(data: bytes) -> list[Entry]:
    return list(xml_formats.read_pubmed(buffered(data), "pubmed.xml", Reading()))


def article(content: str, pmid: str = "<PMID>7</PMID>", data: str = "") -> Any:
    citation = f"<MedlineCitation>{pmid}<Article>{content}</Article></MedlineCitation>"
    text = f"<PubmedArticleSet><PubmedArticle>{citation}{data}</PubmedArticle></PubmedArticleSet>"
    [entry] = read(text.encode())
    return entry.record


def version(pmid: str, number: str, title: str) -> str:
    attribute = f' Version="{number}"' if number else ""
    article = f"<ArticleTitle>{title}</ArticleTitle><Abstract><AbstractText>Fish.</AbstractText></Abstract>"
    citation = f"<PMID{attribute}>{pmid}</PMID><Article>{article}</Article>"
    return f"<PubmedArticle><MedlineCitation>{citation}</MedlineCitation></PubmedArticle>"


def deletion(*pmids: str) -> str:
    numbers = "".join(f'<PMID Version="1">{pmid}</PMID>' for pmid in pmids)
    return f"<DeleteCitation>{numbers}</DeleteCitation>"


@pytest.mark.parametrize(
    ("files", "titles", "left_out", "deleted"),
    [
        ([version("7", "2", "Old") + version("7", "1", "Last")], ["Last"], 1, set()),
        ([version("7", "", "Old") + version("7", "", "Revised")], ["Revised"], 1, set()),
        ([version("7", "9", "Old") + version("7", "10", "New")], ["New"], 1, set()),
        ([version("7", "1", "Old"), version("7", "1", "Revised")], ["Revised"], 1, set()),
        ([version("7", "1", "A") + version("8", "1", "B") + deletion("7", "9")], ["B"], 1, {"7", "9"}),
        ([version("7", "1", "A") + version("8", "1", "B"), deletion("7")], ["B"], 1, {"7"}),
        ([version("7", "2", "A"), deletion("7"), version("7", "1", "Again")], ["Again"], 1, set()),
        ([deletion("7"), version("8", "1", "B"), deletion()], ["B"], 0, {"7"}),
    ],
)
def test_the_newest_version_counts_and_deletions_delete(tmp_path, files, titles, left_out, deleted):
    for number, text in enumerate(files):
        (tmp_path / f"{number}.xml").write_text(f"<PubmedArticleSet>{text}</PubmedArticleSet>")
    counted = RejectedRecords()
    papers = read_corpus([str(tmp_path)], lambda text: [text], Reading(), counted)
    assert [paper.title for paper in papers] == titles
    assert (counted.skipped["an older version"], counted.broken) == (left_out, 0)
    assert counted.deleted == deleted


def test_a_deletion_in_a_stream_that_is_read_once_is_reported() -> None:
    data = f"<PubmedArticleSet>{version('7', '1', 'A')}{deletion('7')}</PubmedArticleSet>"
    first, second = xml_formats.read_pubmed(buffered(data), "standard input", Reading())
    assert first.record["title"] == "A"
    assert second.record.reason == "a deletion in a stream"


def test_revisions_are_noted_in_a_first_pass(tmp_path: Path) -> None:
    text = "".join(version(str(pmid), "1", "A") for pmid in range(30))
    articles, file = [(str(pmid), False) for pmid in range(30)], tmp_path / "pubmed.xml"
    for more, others in (
        ("</PubmedArticleSet>", []),
        (deletion("3", "4") + deletion("5"), [(pmid, True) for pmid in "345"]),
        (f"<!-- {version('31', '1', 'A')} --></PubmedArticleSet>", []),
        (version("7", "2", "B") + version("3&#50;", "2", "B"), [("7", False), ("32", False)]),
        (version("31", "1", "A")[:-9], []),
    ):
        file.write_text(f"<PubmedArticleSet>{text}{more}")
        assert list(xml_formats.note_pubmed(str(file))) == articles + others


def test_a_book_goes_by_its_own_title_and_one_without_is_an_error() -> None:
    book = "<PubmedBookArticle><BookDocument>{}</BookDocument></PubmedBookArticle>"
    title = "<BookTitle>On <i>fish</i></BookTitle>"
    books = book.format(f"<PMID>1</PMID><Book>{title}</Book>") + book.format("<PMID>2</PMID><Book></Book>")
    entry, other = read(f"<PubmedArticleSet>{books}</PubmedArticleSet>".encode())
    assert isinstance(other.record, RecordError) and other.record.reason == "no title"
    assert (entry.record["paper_id"], entry.record["title"]) == ("1", "On fish")
    assert entry.record["metadata"] == {"url": "https://pubmed.ncbi.nlm.nih.gov/1/"}


def test_sections_without_text_are_left_out_and_articles_without_pmid() -> None:
    sections = '<AbstractText Label="AIM"/><AbstractText Label="END">Fish swim.</AbstractText>'
    record = article(f"<ArticleTitle>A</ArticleTitle><Abstract>{sections}</Abstract>")
    assert record["abstract"] == "Fish swim."
    assert article("<ArticleTitle>A</ArticleTitle>", pmid="").reason == "no paper_id"
