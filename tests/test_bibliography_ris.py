"""RIS: what rispy reads back is what was written."""

from dataclasses import replace

import pytest
import rispy
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bibliographies import CHIPS, NAMES, TEXTS, paper_of
from support.formats import buffered

from qbe.bibliography.reference import reference_of
from qbe.bibliography.writing import entries, to_ris
from qbe.corpus.reading import Reading
from qbe.corpus.tagged import RIS


def test_a_record_in_full():
    assert to_ris(reference_of(CHIPS)) == (
        "TY  - JOUR\n"
        "DP  - qbe\n"
        "ID  - 1905.01234\n"
        "TI  - Fish & Chips: a {BERT for $O(n^2)$ menus\n"
        "AU  - van der Müller, Zoë\n"
        "AU  - Ångström, Íñigo, Jr.\n"
        "AU  - ATLAS Collaboration\n"
        "AU  - Plato\n"
        "PY  - 2019\n"
        "JO  - Journal of Chips & Dips\n"
        "DO  - 10.1145/7_9\n"
        "UR  - https://arxiv.org/abs/1905.01234\n"
        "AB  - Fish_1 costs 5% more. We \\save~it.\n"
        "ER  - \n"
    )


@settings(max_examples=30)
@given(title=TEXTS, abstract=TEXTS, venue=TEXTS, authors=st.lists(NAMES, max_size=4))
def test_any_text_is_read_back(title, abstract, venue, authors):
    reference = reference_of(paper_of(title, abstract, authors=authors, venue=venue))
    (fields,) = rispy.loads(to_ris(reference))
    assert fields.get("title", "") == reference.title
    assert fields.get("abstract", "") == reference.abstract
    assert fields.get("journal_name", fields.get("secondary_title", "")) == reference.venue
    found = fields.get("authors", [])
    assert len(found) == len(reference.authors)
    for name, expected in zip(found, reference.authors, strict=True):
        family, *rest = name.split(", ")
        given, suffix = [*rest, "", ""][:2]
        assert expected in (name, " ".join(filter(None, (given, family, suffix))))


def test_a_value_has_one_line():
    (record,) = entries([paper_of("On\nfish\r\nER  - \x0bTY  - JOUR", "A\u2028b.")], "ris")
    assert record.splitlines()[3:5] == ["TI  - On fish ER - TY - JOUR", "AB  - A b."]


@pytest.mark.parametrize(
    ("venue", "kind"),
    [("Fish Letters", "JOUR"), ("Workshop on Fish", "CONF"), ("arXiv", "UNPB"), (None, "GEN")],
)
def test_types(venue, kind):
    ids = {"arxiv": "1905.01234"} if venue == "arXiv" else None
    (fields,) = rispy.loads("".join(entries([paper_of("On fish", venue=venue, ids=ids)], "ris")))
    assert fields["type_of_reference"] == kind


def test_tags_are_kept():
    paper = paper_of("On fish", tags=["fish, fresh", 7, "nets"])
    assert "KW  - fish, fresh\nKW  - nets\n" in to_ris(reference_of(paper))
    assert "  keywords = {fish, fresh; nets},\n" in "".join(entries([paper]))


def test_an_address_with_a_semicolon_stays_one():
    (fields,) = rispy.loads("".join(entries([paper_of("On fish", url="http://x.org/a;b")], "ris")))
    assert fields["urls"] == ["http://x.org/a%3Bb"]


def test_the_reader_of_a_corpus_reads_it_back():
    paper = replace(CHIPS, metadata={**CHIPS.metadata, "et_al": True})
    text = "\n".join(entries([paper], "ris"))
    assert "AU  - et al." not in text  # which reference managers take for a person
    (entry,) = RIS.read(buffered(text), "refs.ris", Reading())
    metadata = {name: value for name, value in paper.metadata.items() if name != "categories"}
    texts = {"paper_id": CHIPS.paper_id, "title": CHIPS.title, "abstract": CHIPS.abstract}
    assert entry.record == texts | {"metadata": {**metadata, "url": "https://arxiv.org/abs/1905.01234"}}


def test_the_id_is_the_library_s_own_key():
    papers = [
        replace(paper_of("On fish", key="Lee2019"), paper_id=paper_id) for paper_id in ("7", "8\nTY  - JOUR")
    ]
    assert [record.split("\n")[2] for record in entries(papers, "ris")] == [
        "ID  - Lee2019",
        "ID  - Lee2019-a",
    ]
    assert "\nID  - 8 TY - JOUR\n" in to_ris(reference_of(papers[1]))
