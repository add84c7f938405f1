"""Reading papers: records, JSON lines, one object of all, several sources."""

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbe.corpus.json_formats import read_jsonl, write_jsonl
from qbe.corpus.records import MAX_ABSTRACT_CHARS, locate, paper_to_record, parse_paper
from qbe.errors import CorpusError
from qbe.types import Facet, FacetProbabilities, Paper, Sentence

GOOD: dict[str, Any] = {
    "paper_id": "7",
    "title": "Sorting with one hand",
    "abstract": ["Sorting is slow.", "We use one hand.", "It is slower."],
}


def lines(*records: object) -> bytes:
    """JSON lines; strings and bytes stand as they are."""
    texts = (each if isinstance(each, str | bytes) else json.dumps(each) for each in records)
    return b"".join((each if isinstance(each, bytes) else each.encode()) + b"\n" for each in texts)


def by_period(text: str) -> list[str]:
    return [part + "." for part in text.split(".") if part.strip()]


def test_a_paper_with_labels_and_metadata() -> None:
    labels = ["objective_label", "method", "other_label"]
    record = GOOD | {"pred_labels": labels, "metadata": {"year": 1999}, "pred_labels_truncated": False}
    paper = parse_paper(record, "here")
    sentences = tuple(map(Sentence, GOOD["abstract"], (Facet.BACKGROUND, Facet.METHOD, None)))
    assert paper == Paper("7", "Sorting with one hand", sentences, labelled=True, metadata={"year": 1999})
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
    with pytest.raises(CorpusError, match="as abstract, found str"):
        parse_paper(record, "here")


def without(field: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != field}


UNFIT: list[dict[str, Any]] = [
    *map(without, GOOD),
    *(GOOD | {"paper_id": value} for value in (None, "", 1.5, True, "a b", "a\n", "a\0", "x" * 513)),
    *(GOOD | {"title": value} for value in (None, ["x"], "a\0b", "x" * (MAX_ABSTRACT_CHARS + 1))),
    *(GOOD | {"abstract": value} for value in (None, {"a": 1}, [], [" ", ""], " ", ["a", 3], ["a", None])),
    *(GOOD | {"abstract": [value] * 2} for value in ("a\0b", "a\ud83d", "x" * 600_000)),
    *(GOOD | {"pred_labels": value} for value in (["method"] * 2, [], "method")),
    *(GOOD | {"pred_labels": ["method", value, "result"]} for value in ("aims", None, ["x"])),
    GOOD | {"abstract": "One. Two.", "pred_labels": ["method"] * 2},
    *(GOOD | {"metadata": value} for value in ([1], {"venue": "a\udc00"})),
    *(GOOD | {"sentence_offsets": value} for value in ([[0, 4]], [[0, 4], [3, 9], [10, 11]], 7)),
    *(GOOD | {"sentence_offsets": [[0, 4], value, [20, 21]]} for value in ([5, "9"], [5], [True, 9])),
]
BROKEN: list[str | bytes] = [
    *('{"paper_id": ', "{'paper_id': 1}", "[1, 2]", '"text"', "17", "null", "[" * 100_000, "9" * 5000),
    *(b'{"title": "a\0b"}', b"\0\0\0", b'{"title": "caf\xe9"}', b'{"title": "\xed\xa0\x80"}'),
    '{"title": "a\\u0000b"}',
]
BROKEN_OBJECTS = [
    *(b'{"1": {"title": "x"', b'{"1": {"title": "x"}}', b'{"1": %s, "2": 3}', b'{"1": %s', b'{"1": %s} {'),
    *(b'{"1": %s "2": %s}', b'{"1": %s, "2": {"title": "\xe9"}}', b'{"1": %s, "2": {"title": "a\0"}}'),
    *(b'{"1": %s, "2": {"title": "\\ud800"}}', b'{"1": {"a": ' + b"[" * 100_000),
]


def test_what_cannot_be_read_is_named_by_file_and_place(tmp_path, monkeypatch, told):
    monkeypatch.chdir(tmp_path)
    cases = [lines(GOOD, "", record) for record in UNFIT]
    cases += [lines(GOOD, line, GOOD) for line in BROKEN]
    cases += [text.replace(b"%s", json.dumps(GOOD).encode()) for text in BROKEN_OBJECTS]
    messages = []
    for data in cases:
        Path("x.json").write_bytes(data)
        with pytest.raises(CorpusError) as caught:
            list(read_jsonl(Path("x.json"), by_period))
        messages.append(str(caught.value))
    assert max(map(len, messages)) < 400
    told("records", messages)


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qbe.corpus.streams.MAX_LINE_BYTES", 1 << 20)
    (tmp_path / "x").write_bytes(lines(GOOD, "x" * 2_000_000))
    with pytest.raises(CorpusError, match="line 2: expected at most 1 MiB a line, found more"):
        list(read_jsonl(tmp_path / "x"))


def test_memory_is_bounded_by_a_paper(tmp_path: Path) -> None:
    source = tmp_path / "x"
    noted = GOOD | {"metadata": {"note": "x" * 5000}}
    source.write_bytes(lines(*(noted | {"paper_id": i} for i in range(1000))))
    tracemalloc.start()
    count = sum(1 for _ in read_jsonl(source))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 1000
    assert peak < 4 << 20 < source.stat().st_size


# One object of all papers, as CSFCube's 800,000 abstracts are passed around.


@pytest.mark.parametrize("indent", [None, 1])
def test_one_object_of_all_papers(tmp_path, indent):
    titles = {str(i): "é€😀" * i for i in range(9)}
    papers = {
        i: GOOD | {"paper_id": i, "title": title, "metadata": {"n": "}, {"}} for i, title in titles.items()
    }
    papers['a"b'] = without("paper_id")
    (tmp_path / "x.json").write_text(json.dumps(papers, ensure_ascii=False, indent=indent), encoding="utf-8")
    read = list(read_jsonl(tmp_path / "x.json"))
    assert [paper.paper_id for paper in read] == list(papers)
    assert read[8].title == "é€😀" * 8


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


@settings(max_examples=15)
@given(st.lists(papers(), max_size=4))
def test_papers_to_lines_to_papers(tmp_path_factory: pytest.TempPathFactory, expected: list[Paper]) -> None:
    stream = io.BytesIO()
    assert write_jsonl(expected, stream) == len(expected)
    path = tmp_path_factory.getbasetemp() / "round-trip.jsonl"
    path.write_bytes(stream.getvalue())
    assert list(read_jsonl(path)) == expected


def test_offsets_point_into_the_abstract_as_it_came():
    raw = "  One\n sentence.\tAnother\x07one.Glued here. "
    offsets = locate(raw, ["One sentence.", "Another one.", "Glued here."])
    assert offsets is not None
    assert [raw[begin:end] for begin, end in offsets] == ["One\n sentence.", "Another\x07one.", "Glued here."]
    assert locate("One.", ["One.", "Two."]) is None
    assert locate("One. Two.", ["One", "Two"]) is None
    assert locate("One. Two.", ["One."]) is None


@settings(max_examples=40)
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
    assert parse_paper(record, "here") == paper
    dropped = {**record, "abstract": ["One.", " "], "sentence_offsets": [[0, 4], [5, 5]]}
    assert parse_paper(dropped, "here").offsets == ((0, 4),)
