"""Zotero's library where it lies: read while Zotero has it open, followed by ``--sync``, never written to."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import pdfs
from support.zotero import NEW, OLD, Library

from qbe import CorpusError
from qbe.cli.index import main
from qbe.corpus import read_corpus
from qbe.corpus.bibliography import reference_of
from qbe.corpus.records import RejectedRecords
from qbe.search.present import credits_of

LONG = (
    "We count frogs in ponds of three towns over a year. Our method is a net that is let down at night, "
    "and a lamp. There are nine frogs in each of them, and more where it rains."
)
ABSTRACT = "We count frogs. Our method is a net. There are nine."


def papers(source, rejected=None) -> dict:
    read = read_corpus([str(source)], lambda text: [text], rejected=rejected)
    return {paper.paper_id: paper for paper in read}


@pytest.mark.parametrize("schema", [NEW, OLD])
def test_all_items_of_a_library_that_zotero_has_open_and_none_of_its_trash(schema, tmp_path):
    library = Library(tmp_path / "Zotero", schema)
    creators = [("author", "Lee", "Ann"), ("editor", "Ray", "Bo"), ("author", "Frog Society", "")]
    fields = {"title": "On frogs", "abstractNote": ABSTRACT, "date": "2019-03-00 March 2019"}
    fields |= {"publicationTitle": "Frogs", "DOI": "10.1000/F1"}
    frogs = library.add("AAAA1111", creators=creators, tags=["nets", "ponds"], **fields)
    book = library.add("BBBB2222", "book", title="The pond", extra="Citation Key: pond2001")
    for kind in ("note", "annotation"):
        library.add(f"N{kind}", kind)
    library.add("LLLL3333", "letter")
    library.trash(library.add("TTTT4444", title="Trashed", abstractNote=ABSTRACT))
    library.collect(1, "Thesis", None)
    library.collect(2, "Chapter 2", 1, frogs)
    library.collect(3, "Reading", None, book)
    before, rejected = library.content(), RejectedRecords()
    assert schema == OLD or len(before["zotero.sqlite-wal"]) > 0
    found = papers(f"zotero:{library.folder}", rejected)
    assert library.content() == before
    assert list(found) == ["AAAA1111", "BBBB2222"]
    assert found["AAAA1111"].metadata == {
        "authors": ["Ann Lee", "Frog Society"],
        "year": 2019,
        "date": "2019-03",
        "venue": "Frogs",
        "doi": "10.1000/f1",
        "tags": ["nets", "ponds"],
        "collections": ["Thesis", "Chapter 2"],
        "zotero": "zotero://select/library/items/AAAA1111",
    }
    assert credits_of(reference_of(found["AAAA1111"])).endswith("; zotero://select/library/items/AAAA1111")
    assert [sentence.text for sentence in found["AAAA1111"].sentences] == [ABSTRACT]
    assert found["BBBB2222"].abstract == "The pond"
    assert found["BBBB2222"].metadata["abstract_from"] == "its title"
    assert "1 record skipped (no title: 1)" in rejected.summary()
    assert papers(f"zotero:{library.folder}/collection/Thesis").keys() == {"AAAA1111"}
    with pytest.raises(CorpusError, match=r"a collection 'Cellar' .* found Chapter 2, Reading, Thesis"):
        papers(f"zotero:{library.folder}/collection/Cellar")


def test_groups_feeds_and_abstracts_of_attached_pdfs(tmp_path):
    library = Library(tmp_path / "Zotero")
    library.add("SAME0000", title="Mine", abstractNote=ABSTRACT)
    library.add("SAME0000", library=2, title="Theirs", abstractNote=ABSTRACT)
    feed = library.add("FEED0000", library=3, title="News", abstractNote=ABSTRACT)
    library.database.execute("INSERT INTO feedItems VALUES (?, 'x')", [feed])
    stored, linked = library.add("PDFS0000", title="Stored"), library.add("PDFL0000", title="Linked")
    paper = pdfs.Paper("On ponds", LONG, ["We walk to the pond. It is wet. " * 20] * 3)
    document = pdfs.laid_out(pdfs.article, paper)
    for path in (library.folder / "storage" / "ATTA0000" / "frogs.pdf", tmp_path / "ponds.pdf"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(document)
    library.attach(stored, "ATTA0000", "storage:frogs.pdf")
    library.attach(linked, "ATTL0000", str(tmp_path / "ponds.pdf"))
    library.attach(library.add("GONE0000", title="Gone"), "ATTG0000", "storage:absent.pdf")
    found = papers(library.folder)
    assert list(found) == ["SAME0000", "PDFS0000", "PDFL0000", "GONE0000", "SAME0000-4711"]
    assert found["SAME0000-4711"].metadata["zotero"] == "zotero://select/groups/4711/items/SAME0000"
    assert found["SAME0000-4711"].metadata["group"] == "Birds"
    assert found["PDFS0000"].metadata["pdf"] == "zotero://open-pdf/library/items/ATTA0000"
    assert found["PDFS0000"].abstract == found["PDFL0000"].abstract == LONG
    assert found["GONE0000"].abstract == "Gone"


def test_the_library_is_found_where_zotero_keeps_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(CorpusError, match=r"expected a Zotero library in .*Zotero.*; name its folder"):
        papers("zotero")
    Library(tmp_path / "Zotero").add("HOME0000", title="At home", abstractNote=ABSTRACT)
    assert papers("zotero").keys() == {"HOME0000"}
    Library(tmp_path / "else where").add("ELSE0000", title="Elsewhere", abstractNote=ABSTRACT)
    profile = tmp_path / ".zotero" / "zotero" / "abc.default"
    profile.mkdir(parents=True)
    place = json.dumps(str(tmp_path / "else where"))
    (profile / "prefs.js").write_text(f'user_pref("extensions.zotero.dataDir", {place});\n')
    assert papers("zotero").keys() == {"ELSE0000"}


def test_what_is_no_library_is_told(tmp_path):
    with pytest.raises(CorpusError, match=r"expected a Zotero library, found no zotero.sqlite"):
        papers(f"zotero:{tmp_path}")
    (tmp_path / "zotero.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(CorpusError, match="expected Zotero's database, found another"):
        papers(f"zotero:{tmp_path}")


WRITER = """
import sys
from pathlib import Path
from support.zotero import Library
library = Library(Path(sys.argv[1]))
library.database.execute("PRAGMA wal_autocheckpoint=50")
for number in range(100000):
    library.database.execute("BEGIN")
    for copy in range(2):  # both or none
        library.add(f"K{number}x{copy}", title=f"On {number}", abstractNote="We count. It helps.")
    library.database.execute("COMMIT")
    if number == 20:
        print("ready", flush=True)
"""


def test_a_library_that_another_process_writes_to_is_read_as_it_was_between_two_changes(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)
    try:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        counts = []
        for _ in range(8):
            found = papers(f"zotero:{tmp_path}")
            assert all(paper.title and paper.abstract == "We count. It helps." for paper in found.values())
            counts.append(len(found))
    finally:
        writer.kill()
        writer.communicate()
    assert counts == sorted(counts)
    assert counts[-1] > counts[0] > 40
    assert not any(count % 2 for count in counts)


def test_twenty_thousand_items(tmp_path):
    library = Library(tmp_path)
    library.database.execute("BEGIN")
    for number in range(20000):
        library.add(f"K{number}", title=f"On {number}", abstractNote=f"We count {number}.")
    library.database.execute("COMMIT")
    assert len(papers(f"zotero:{tmp_path}")) == 20000


def test_sync_follows_the_library(tmp_path, capsys):
    library = Library(tmp_path / "Zotero")
    items = [
        library.add(f"K{n}", title=f"On {n} frogs", abstractNote=f"We count {n} frogs.") for n in range(5)
    ]
    source, index = f"zotero:{library.folder}", str(tmp_path / "index")
    main(["--corpus", source, "--output", index, "--only", "bm25"])
    for n in range(5, 8):
        library.add(f"K{n}", title=f"On {n} frogs", abstractNote=f"We count {n} frogs.")
    for item in items[:2]:
        library.set(item, "title", f"On {item} toads")
    library.trash(items[4])
    before = library.content()
    main(["--sync", "--corpus", source, "--output", index])
    printed = capsys.readouterr()
    assert library.content() == before
    assert "3 papers added, 2 replaced, 1 deleted, 2 unchanged, now 7" in printed.out
