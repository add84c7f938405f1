"""PDFs as queries and as a corpus: what is read of them, and what is said of those that cannot be."""

import json
import signal
import zlib
from pathlib import Path

import pytest

pytest.importorskip("reportlab")
from reportlab.lib.pdfencrypt import StandardEncryption
from support import pdfs
from support.pdfs import SANS_BOLD, SERIF, Paper, Sheet, article, laid_out, springer, without_abstract

from qbe import QbeError, paper_from_file
from qbe.corpus import pdf
from qbe.corpus.reading import read_corpus
from qbe.corpus.records import STANDS_IN, Reading, RejectedRecords
from qbe.corpus.sentences import split_sentences

PAPER = Paper(
    "Efficient first-order classification of flying fish",
    "Fish fly in five different offices, as is officially known. We find, by classifying 1,500 of them with "
    "a well-known first-order method, that representative fish are sufficiently different from others. The "
    "effectiveness of this classification surpasses that of five baselines, the first of them well-known.",
    [
        "Flying fish have been known for as long as there have been fish and people to look at them, and "
        "they have been classified by many. What is new in this paper is the order in which this is done.",
        "The rest of this paper says how.",
    ],
    7,
)


def written(folder: Path, data: bytes, name: str = "paper.pdf") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_papers_with_the_stamp_of_arxiv_and_with_a_doi(tmp_path):
    paper = paper_from_file(str(written(tmp_path, laid_out(article, PAPER))))
    assert (paper.title, paper.abstract) == (PAPER.title, PAPER.abstract)
    assert paper.metadata == {"ids": {"arxiv": "2101.10007v2"}, "year": 2021, "file": "paper.pdf"}
    assert len(paper.sentences) == 3
    path = written(tmp_path, laid_out(springer, PAPER), "a file")  # told by its content
    paper = paper_from_file(str(path))
    assert (paper.title, paper.abstract) == (PAPER.title, PAPER.abstract)
    assert paper.metadata == {"doi": "10.1007/s00000-020-00007", "file": "a file"}


def test_the_introduction_stands_for_an_abstract_and_this_is_said(tmp_path, tiny_index, capsys):
    from qbe.cli.search import main

    path = written(tmp_path, laid_out(without_abstract, PAPER))
    assert paper_from_file(str(path)).abstract == PAPER.body[0]
    main(["--index", str(tiny_index), "--paper-file", str(path), "--first-stage=bm25", "--hits=1"])
    said = "no abstract was found in the query; the introduction's first paragraph stands for it"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("gap", [14, 30])
def test_a_structured_abstract_behind_a_cover_in_two_languages(gap):
    """Headings in bold on lines of their own (14 points apart), or before their text, blank lines between."""
    sheet = Sheet()
    sheet.line(72, 80, "White Lake Repository", SANS_BOLD, 20)
    notice = "Items deposited in the repository are protected by copyright, all rights reserved."
    sheet.line(72, 120, notice, SERIF, 9)
    sheet.canvas.showPage()
    sheet.line(72, 80, "On the flying fish of lakes", SANS_BOLD, 18)
    sheet.line(72, 130, "Abstract", SANS_BOLD, 11)
    y = 150
    parts = {"Background": "Fish fly over lakes.", "Methods": "We count fish.", "Results": "They are ten."}
    for heading, text in parts.items():
        if gap == 14:
            sheet.line(72, y, heading, SANS_BOLD, 10)
            y += 12
        long = f"{text} This is known of all the fish that fly over all of the lakes of all countries."
        sheet.line(72, y, long if gap == 14 else f"{heading}: {long}", SERIF, 10)
        sheet.line(72, y + 12, "It is said in a second line, too.", SERIF, 10)
        y += 12 + gap
    sheet.line(72, y, "Resumo", SANS_BOLD, 10)
    sheet.line(72, y + 12, "Os peixes voam sobre os lagos.", SERIF, 10)
    found = pdf.answer(sheet.data())
    assert found["title"] == "On the flying fish of lakes"
    assert [heading for heading in parts if f"{heading}: " in found["abstract"]] == [*parts]
    assert found["abstract"].endswith("It is said in a second line, too.")


def test_a_folder_is_a_corpus(tmp_path):
    for name, template in (("a.pdf", article), ("b.pdf", pdfs.cover), ("c.pdf", without_abstract)):
        paper = PAPER._replace(title=f"{PAPER.title} in {name[0].upper()}")
        written(tmp_path, laid_out(template, paper), name)
    written(tmp_path, blank(), "empty.pdf")
    rejected = RejectedRecords()
    papers = list(read_corpus([str(tmp_path)], split_sentences, Reading(on_error="skip"), rejected))
    assert [paper.metadata["file"] for paper in papers] == ["a.pdf", "b.pdf", "c.pdf"]
    assert papers[0].paper_id == "2101.10007"
    assert papers[1].abstract == PAPER.abstract
    assert rejected.counts() == {"a PDF without text": 1, STANDS_IN: 1}


def test_only_the_first_pages_are_read(tmp_path):
    sheet = Sheet()
    sheet.centered(80, PAPER.title, SERIF, 20)
    sheet.flow(f"Abstract: {PAPER.abstract}", [pdfs.Column(72, 400, 72, 700)], SERIF, 10, y=130)
    for _ in range(600):
        sheet.canvas.showPage()
        sheet.centered(80, "Summary", SERIF, 30)
    paper = paper_from_file(str(written(tmp_path, sheet.data())))
    assert (paper.title, paper.abstract) == (PAPER.title, PAPER.abstract)


def bomb(operators: int) -> bytes:
    """A page of very many operators, compressed."""
    content = zlib.compress(b"BT /F 10 Tf " + b"(word word) Tj 1 0 Td " * operators + b"ET", 9)
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F 5 0 R >> >> >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    numbered = (b"%d 0 obj\n%s\nendobj\n" % item for item in enumerate(objects, start=1))
    return b"%PDF-1.5\n" + b"".join(numbered) + b"trailer\n<< /Size 6 /Root 1 0 R >>\n%%EOF\n"


def blank() -> bytes:
    """A page without text, as a scan is."""
    sheet = Sheet()
    sheet.canvas.rect(100, 100, 200, 300)
    return sheet.data()


def encrypted() -> bytes:
    sheet = Sheet()
    sheet.canvas._doc.encrypt = StandardEncryption("secret")
    sheet.centered(80, PAPER.title, SERIF, 20)
    return sheet.data()


def test_what_cannot_be_read_is_said_in_one_line(tmp_path, monkeypatch, told):
    monkeypatch.chdir(tmp_path)
    files = {
        "encrypted.pdf": encrypted(),
        "truncated.pdf": laid_out(article, PAPER)[:300],
        "scan.pdf": blank(),
        "slow.pdf": bomb(1_000_000),
        "page.pdf": b"<!DOCTYPE html><title>Log in</title>",
        "text.pdf": b"On fish\n\nFish swim.",
        "empty.pdf": b"",
    }
    messages = []
    for name, data in files.items():
        written(tmp_path, data, name)
        monkeypatch.setattr(pdf, "SECONDS", 0.5 if name == "slow.pdf" else 20)
        with pytest.raises(QbeError) as raised:
            paper_from_file(name)
        messages.append(str(raised.value))
    told("test_pdf", messages)
    # What a document does to the process that reads it does not reach the next one.
    assert paper_from_file(str(written(tmp_path, laid_out(article, PAPER)))).title == PAPER.title


def test_the_process_that_reads_ends_with_its_input():
    from qbe.util import work

    with work.start([pdf.sys.executable, "-m", "qbe.corpus.pdf"]) as process:
        data = laid_out(springer, PAPER)
        answers = process.communicate(2 * (len(data).to_bytes(8, "big") + data), timeout=60)[0].splitlines()
    assert [json.loads(line)["title"] for line in answers] == [PAPER.title, PAPER.title]
    assert process.returncode == 0


def test_an_interrupted_document_does_not_answer_for_the_next_one(tmp_path):
    path = str(written(tmp_path, laid_out(article, PAPER)))
    assert paper_from_file(path).title == PAPER.title  # the process that reads runs
    slow = str(written(tmp_path, bomb(1_000_000), "slow.pdf"))
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            paper_from_file(slow)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert paper_from_file(path).title == PAPER.title
