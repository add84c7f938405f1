"""Reading papers: records, JSON lines, one object of all, several sources."""

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbe.corpus import (
    paper_from_record,
    paper_to_record,
    parse_paper,
    read_corpus,
    read_jsonl,
    write_jsonl,
)
from qbe.corpus.record import MAX_ABSTRACT_CHARS, dump_record, locate
from qbe.errors import CorpusError
from qbe.types import Facet, FacetProbabilities, Paper, Sentence

GOOD: dict[str, Any] = {
    "paper_id": "7",
    "title": "Sorting with one hand",
    "abstract": ["Sorting is slow.", "We use one hand.", "It is slower."],
}


def lines(path: Path, *records: object) -> str:
    """A JSON lines file; strings and bytes stand as they are."""
    encoded = [
        r if isinstance(r, bytes) else (r if isinstance(r, str) else json.dumps(r)).encode() for r in records
    ]
    path.write_bytes(b"\n".join(encoded) + b"\n")
    return str(path)


def by_period(text: str) -> list[str]:
    return [part + "." for part in text.split(".") if part.strip()]


def test_a_paper_with_labels_and_metadata() -> None:
    labels = ["objective_label", "method", "other_label"]
    record = GOOD | {"pred_labels": labels, "metadata": {"year": 1999}, "pred_labels_truncated": False}
    paper = parse_paper(record, "here")
    assert paper == Paper(
        paper_id="7",
        title="Sorting with one hand",
        sentences=(
            Sentence("Sorting is slow.", Facet.BACKGROUND),
            Sentence("We use one hand.", Facet.METHOD),
            Sentence("It is slower.", None),
        ),
        labelled=True,
        metadata={"year": 1999},
    )
    assert paper.year == "1999"


def test_predicted_labels_are_written_as_they_were_predicted() -> None:
    predicted = [FacetProbabilities(*(0.125 + 0.375 * (i == j) for i in range(5))) for j in range(5)]
    sentences = tuple(Sentence(f"Sentence {i}.", p.facet, p) for i, p in enumerate(predicted))
    record = paper_to_record(Paper("7", "T", (*sentences, Sentence("Given.")), labelled=True))
    labels = ["background", "objective", "method", "result", "other", "other"]
    assert record["pred_labels"] == [f"{label}_label" for label in labels]
    back = parse_paper(record, "here").sentences
    assert [s.facet for s in back] == [*(p.facet for p in predicted), None]
    assert {s.probabilities for s in back} == {None}


def test_white_space_and_controls_become_single_spaces_and_empty_sentences_go() -> None:
    record = {
        "paper_id": 12,
        "title": "\tOne\r\n two\u00a0 three ",
        "abstract": [" a\x1bb\u2028c ", " \n", "d  e", ""],
        "pred_labels": ["method_label", "result_label", "background_label", "other_label"],
    }
    paper = parse_paper(record, "here")
    assert (paper.paper_id, paper.title) == ("12", "One two three")
    assert paper.sentences == (Sentence("a b c", Facet.METHOD), Sentence("d e", Facet.BACKGROUND))


def test_a_string_abstract_is_split_by_the_caller() -> None:
    record = GOOD | {"abstract": "One  is.\nTwo is. "}
    assert [s.text for s in parse_paper(record, "here", by_period).sentences] == ["One is.", "Two is."]
    with pytest.raises(CorpusError, match="here: expected a list of sentences as abstract, found str"):
        parse_paper(record, "here")


def without(field: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != field}


RECORD_ERRORS = [
    (without("paper_id"), "expected a string or whole number as paper_id, found none"),
    (GOOD | {"paper_id": None}, "expected a string or whole number as paper_id, found none"),
    (GOOD | {"paper_id": ""}, "expected a string or whole number as paper_id, found str ''"),
    (GOOD | {"paper_id": 1.5}, "as paper_id, found float 1.5"),
    (GOOD | {"paper_id": True}, "as paper_id, found bool True"),
    (
        GOOD | {"paper_id": "a b"},
        r"paper_id without white space \(a TREC run could not hold it\), found white",
    ),
    (GOOD | {"paper_id": "a\n"}, "found white space in 'a\\\\n'; rename"),
    (GOOD | {"paper_id": "a\0"}, "found an unprintable character in 'a\\\\x00'"),
    (GOOD | {"paper_id": "x" * 513}, "paper_id of at most 512 characters, found 513"),
    (without("title"), "expected a string as title, found none"),
    (GOOD | {"title": None}, "expected a string as title, found none"),
    (GOOD | {"title": ["x"]}, "expected a string as title, found list"),
    (without("abstract"), "expected a list of sentences or a string as abstract, found none"),
    (GOOD | {"abstract": None}, "expected a list of sentences or a string as abstract, found none"),
    (GOOD | {"abstract": {"a": 1}}, "expected a list of sentences or a string as abstract, found dict"),
    (GOOD | {"abstract": []}, "expected an abstract, found an empty one"),
    (GOOD | {"abstract": [" ", ""]}, "expected an abstract, found an empty one"),
    (GOOD | {"abstract": " "}, "expected an abstract, found an empty one"),
    (GOOD | {"abstract": ["a", 3]}, "expected strings in the abstract, found int 3"),
    (GOOD | {"abstract": ["a", None]}, "expected strings in the abstract, found none"),
    (GOOD | {"pred_labels": ["method"] * 2}, r"pred_labels as sentences in the abstract \(3\), found 2"),
    (GOOD | {"pred_labels": []}, r"pred_labels as sentences in the abstract \(3\), found 0"),
    (GOOD | {"pred_labels": "method"}, "expected a list as pred_labels, found str 'method'"),
    (GOOD | {"pred_labels": ["method", "aim", "result"]}, "as label, found str 'aim'; rename"),
    (GOOD | {"pred_labels": ["method", None, "result"]}, "as label, found none; rename"),
    (GOOD | {"pred_labels": ["method", ["x"], "result"]}, "as label, found list"),
    (
        GOOD | {"abstract": "One. Two.", "pred_labels": ["method"] * 2},
        "a list of sentences as abstract, one for each",
    ),
    (GOOD | {"metadata": [1]}, r"expected an object as metadata, found list \[1\]"),
    (GOOD | {"title": "a\0b"}, "found a NUL character in the title"),
    (GOOD | {"abstract": ["a\0b"]}, "found a NUL character in the abstract"),
    (GOOD | {"abstract": ["a\ud83d"]}, r"found a lone surrogate \(.ud800 to .udfff\)"),
    (GOOD | {"metadata": {"venue": "a\udc00"}}, "found a lone surrogate"),
    (
        GOOD | {"title": "x" * (MAX_ABSTRACT_CHARS + 1)},
        "title of at most 1,000,000 characters, found 1,000,001",
    ),
    (GOOD | {"abstract": ["x" * 600_000] * 2}, "abstract of at most 1,000,000 characters, found 1,200,000"),
]


@pytest.mark.parametrize(("record", "message"), RECORD_ERRORS)
def test_unfit_records_are_named_by_file_and_line(tmp_path, record, message):
    source = lines(tmp_path / "papers.jsonl", GOOD, "", record)
    with pytest.raises(CorpusError, match=r"papers\.jsonl, line 3: .*" + message) as caught:
        list(read_jsonl(source, by_period))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(source)


LINE_ERRORS = [
    (
        '{"paper_id": ',
        r"expected one JSON object a line, found malformed JSON \(Expecting value at column 13\)",
    ),
    ("{'paper_id': 1}", "malformed JSON"),
    ("[1, 2]", "expected a JSON object, found an array"),
    ('"text"', "expected a JSON object, found a string"),
    ("17", "expected a JSON object, found a number"),
    ("null", "expected a JSON object, found null"),
    ("[" * 100_000, "found values nested too deeply"),
    ("9" * 5000, "malformed JSON .*digits"),
    (b'{"title": "a\0b"}', "expected JSON, found a NUL byte"),
    (b"\0\0\0", "expected JSON, found a NUL byte"),
    (b'{"title": "caf\xe9"}', "expected UTF-8 text, found byte 0xe9 at position 15; convert"),
    (b'{"title": "\xed\xa0\x80"}', "expected UTF-8 text, found byte 0xed"),
    ('{"title": "a\\u0000b"}', "as paper_id, found none"),
]


@pytest.mark.parametrize(("line", "message"), LINE_ERRORS)
def test_broken_lines_are_named_by_file_and_line(tmp_path: Path, line: str | bytes, message: str) -> None:
    source = lines(tmp_path / "papers.jsonl", GOOD, line, GOOD)
    with pytest.raises(CorpusError, match=r"papers\.jsonl, line 2: .*" + message) as caught:
        list(read_jsonl(source))
    assert len(str(caught.value)) < 400 + len(source)


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qbe.corpus.streams.MAX_LINE_BYTES", 1 << 20)
    source = lines(tmp_path / "x", GOOD, "x" * 2_000_000)
    with pytest.raises(CorpusError, match="line 2: expected at most 1 MiB a line, found more"):
        list(read_jsonl(source))


@pytest.mark.slow
def test_memory_is_bounded_by_a_paper(tmp_path: Path) -> None:
    source = lines(
        tmp_path / "x", *[GOOD | {"paper_id": i, "metadata": {"note": "x" * 500}} for i in range(20_000)]
    )
    tracemalloc.start()
    count = sum(1 for _ in read_jsonl(source))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 4 << 20 < Path(source).stat().st_size


# One object of all papers, as CSFCube's 800,000 abstracts are passed around.


@pytest.mark.parametrize("indent", [None, 1])
def test_one_object_of_all_papers(tmp_path: Path, indent: int | None) -> None:
    papers = {str(i): GOOD | {"paper_id": str(i), "metadata": {"n": "}, {"}} for i in range(5)}
    papers['a"b'] = without("paper_id")
    (tmp_path / "x.json").write_text(json.dumps(papers, indent=indent))
    assert [p.paper_id for p in read_corpus([str(tmp_path / "x.json")])] == ["0", "1", "2", "3", "4", 'a"b']


def test_one_object_of_papers_is_read_in_small_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("qbe.corpus.decode._CHUNK_BYTES", 7)
    papers = {str(i): GOOD | {"paper_id": str(i), "title": "é€😀" * i} for i in range(9)}
    (tmp_path / "x.json").write_text(json.dumps(papers, ensure_ascii=False), encoding="utf-8")
    read = list(read_jsonl(tmp_path / "x.json"))
    assert [p.paper_id for p in read] == list(papers)
    assert read[8].title == "é€😀" * 8


def test_a_record_that_starts_with_its_metadata_is_a_record(tmp_path: Path) -> None:
    source = lines(tmp_path / "x", {"metadata": {"year": 1}} | GOOD, {"metadata": {}} | GOOD)
    assert len(list(read_jsonl(source))) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"1": {"title": "x"', "item 1: .*malformed JSON .Expecting ',' delimiter"),
        (
            b'{"1": {"title": "x"}}',
            "item 1: expected a list of sentences or a string as abstract, found none",
        ),
        (b'{"1": %s, "2": 3}', "item 2: expected a JSON object, found a number"),
        (b'{"1": %s', "after item 1: expected a comma or the end of the object"),
        (b'{"1": %s} {', "after item 1: expected a comma or the end of the object"),
        (b'{"1": %s "2": %s}', "after item 1: expected a comma or the end of the object"),
        (b'{"1": %s, "2": {"title": "\xe9"}}', "item 2: expected UTF-8 text, found byte 0xe9"),
        (b'{"1": %s, "2": {"title": "a\0"}}', "item 2: expected JSON, found a NUL byte"),
        (b'{"1": %s, "2": {"title": "\\ud800"}}', "item 2: .*lone surrogate"),
        (b'{"1": {"a": ' + b"[" * 100_000, "item 1: .*nested too deeply"),
    ],
)
def test_broken_objects_of_papers(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "x.json").write_bytes(text.replace(b"%s", json.dumps(GOOD).encode()))
    with pytest.raises(CorpusError, match=r"x\.json, " + message) as caught:
        list(read_jsonl(tmp_path / "x.json"))
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


# Several sources.


def test_duplicate_ids_within_and_across_files(tmp_path: Path) -> None:
    other = GOOD | {"title": "Sorting with no hand"}
    first = lines(tmp_path / "a", GOOD, GOOD | {"paper_id": "8"})
    second = lines(tmp_path / "b", GOOD | {"paper_id": "9"}, other | {"paper_id": 8})
    third = lines(
        tmp_path / "c", GOOD | {"paper_id": "10"}, GOOD | {"paper_id": "11"}, other | {"paper_id": "11"}
    )
    with pytest.raises(CorpusError, match=r"b, line 2: .*found '8' again .* \(first as paper 2 of .*a\); d"):
        list(read_corpus([first, second]))
    with pytest.raises(CorpusError, match=r"c, line 3: .*found '11' again .* \(first as paper 2 of .*c\)"):
        list(read_corpus([first, third]))


# One paper.


# There and back.

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30).map(
    lambda text: parse_paper({"paper_id": 1, "title": text, "abstract": ["x"]}, "").title
)
WORD = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda x: st.lists(x, max_size=2) | st.dictionaries(TEXT, x, max_size=2),
    max_leaves=4,
)


@st.composite
def papers(draw: st.DrawFn) -> Paper:
    labelled = draw(st.booleans())
    facets = st.sampled_from([*Facet, None]) if labelled else st.none()
    sentence = st.builds(Sentence, TEXT.map("Fish {}".format).map(str.strip), facets, st.none())
    sentences = st.lists(sentence, min_size=1, max_size=5).map(tuple)
    metadata = st.dictionaries(TEXT, JSON, max_size=3)
    return Paper(draw(WORD), draw(TEXT), draw(sentences), labelled, draw(metadata))


@given(papers())
def test_paper_to_record_to_paper(paper: Paper) -> None:
    record = json.loads(dump_record(paper_to_record(paper)))
    assert parse_paper(record, "here") == paper_from_record(record) == paper


@given(st.lists(papers(), max_size=4))
def test_papers_to_lines_to_papers(tmp_path_factory: pytest.TempPathFactory, expected: list[Paper]) -> None:
    stream = io.BytesIO()
    assert write_jsonl(expected, stream) == len(expected)
    path = tmp_path_factory.getbasetemp() / "round-trip.jsonl"
    path.write_bytes(stream.getvalue())
    assert list(read_jsonl(path)) == expected


def test_the_release_loads(qbe_data: Path) -> None:
    read = list(read_corpus([str(qbe_data / "csfcube" / "abstracts-csfcube-preds.jsonl")]))
    assert len(read) == 4205
    assert all(paper.labelled for paper in read)
    assert sum(len(paper.sentences) for paper in read) == 29197


def test_offsets_point_into_the_abstract_as_it_came():
    raw = "  One\n sentence.\tAnother\x07one.Glued here. "
    sentences = ["One sentence.", "Another one.", "Glued here."]
    offsets = locate(raw, sentences)
    assert offsets is not None
    assert [raw[begin:end] for begin, end in offsets] == ["One\n sentence.", "Another\x07one.", "Glued here."]
    assert locate("One.", ["One.", "Two."]) is None
    assert locate("One. Two.", ["One", "Two"]) is None
    assert locate("One. Two.", ["One."]) is None


@given(st.lists(st.text(alphabet="ab. \n\u00a0\u2003\x01é", max_size=12).filter(lambda text: text.split())))
def test_offsets_hold_the_visible_characters(parts):
    text = "".join(parts)
    offsets = locate(text, parts)
    assert offsets is not None

    def visible(part):
        return "".join(part.replace("\x01", "").split())

    assert [visible(text[begin:end]) for begin, end in offsets] == [visible(part) for part in parts]


def test_offsets_survive_a_record():
    record = {"paper_id": "x", "title": "", "abstract": "One. \n Two."}
    paper = parse_paper(record, "here", lambda text: text.split(" "))
    assert paper.offsets == ((0, 4), (7, 11))
    record = paper_to_record(paper)
    assert parse_paper(record, "here") == paper_from_record(record) == paper
    dropped = {**record, "abstract": ["One.", " "], "sentence_offsets": [[0, 4], [5, 5]]}
    assert parse_paper(dropped, "here").offsets == ((0, 4),)


@pytest.mark.parametrize(
    "offsets", [[[0, 4]], [[0, 4], [3, 9]], [[0, 4], [5, "9"]], [[0, 4], [5]], 7, [[0, 4], [True, 9]]]
)
def test_unsound_offsets_are_refused(offsets):
    record = {"paper_id": "x", "title": "", "abstract": ["One.", "Two."], "sentence_offsets": offsets}
    with pytest.raises(CorpusError, match=r"here: expected sentence_offsets as one pair"):
        parse_paper(record, "here")
