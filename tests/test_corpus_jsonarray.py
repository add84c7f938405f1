"""Objects of a JSON array, read as a stream."""

import io
import json
import tracemalloc
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.formats import Endless, buffered

from qbe.corpus import json_stream
from qbe.corpus.fields import Fields
from qbe.corpus.json_stream import json_objects
from qbe.corpus.records import Entry
from qbe.errors import CorpusError, RecordError

TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e6, 1e6) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(TEXTS, JSON, max_size=4), min_size=1, max_size=6)


def read(data: bytes) -> list[Entry]:
    return list(json_objects(buffered(data), "a.json"))


def test_pages_may_follow_each_other_and_a_path_of_keys_leads_through_objects() -> None:
    message = b'{"facets": {}, "items": [{"a": 1}], "z": [{}]}'
    data = b'{"status": "ok", "n": 12.5, "message": %s, "y": null}' % message
    assert [entry.record for entry in read(data)] == [{"a": 1}]
    entries = read(b'{"items": [{"a": 1}]}\n{"items": []}\n{"items": [{"a": 2}]}\n')
    assert entries == [Entry("a.json, item 1", {"a": 1}), Entry("a.json, item 2", {"a": 2})]
    assert [entry.record for entry in read(b'[{"title": "A"}]\n')] == [{"title": "A"}]
    *_, (where, lost) = read(b'{"items": [{"title": "A"}]}\n{"title": "B"}')
    assert str(lost) == f"{where}: expected its end, found an object; put it inside"


def test_a_malformed_text_ends_the_reading_after_the_items_before_it(told) -> None:
    messages = []
    for data, count in (
        *((b'{"items": [{"a": 1}', 1), (b'{"items": [{"a": 1}, {"a" 2}, {"a": 3}]}', 1)),
        *((b'{"items": [{"a": 1}, {"a": "\xfc"}]}', 1), (b'{"items": [{"a": NaN}]}', 0)),
        (b'{"items": [{"a": "', 0),
    ):
        entries = json_objects(buffered(data), "a.json")
        assert [next(entries).where for _ in range(count)] == ["a.json, item 1"] * count
        with pytest.raises(CorpusError) as caught:
            next(entries)
        assert not isinstance(caught.value, RecordError)
        messages.append(str(caught.value))
    told("arrays of JSON", messages)


@pytest.mark.parametrize(
    ("item", "reason"), [("null", "null"), ("7", "not a JSON object"), ('"x"', "not a JSON object")]
)
def test_an_item_that_is_no_object_concerns_itself_alone(item, reason):
    first, second, third = read(f'[{{"a": 1}}, {item}, {{"a": 2}}]'.encode())
    assert (first.record, second.where, third.record) == ({"a": 1}, "a.json, item 2", {"a": 2})
    assert isinstance(second.record, RecordError) and second.record.reason == reason
    assert second.record.is_fault == (reason != "null")


@pytest.mark.parametrize(
    "data", [b'[{"a": "' + b"x" * 200_000, b'{"items": [{"a": [' + b"1, " * 100_000, b"[" * 100_000]
)
def test_a_value_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(json_stream, "MAX_LINE_BYTES", 1 << 16)
    source = buffered(data)
    told = r"expected at most [0-9,]* (bytes|open brackets) an item, found more; "
    with pytest.raises(CorpusError, match=told):
        list(json_objects(source, "a.json"))
    assert source.read()


@settings(max_examples=25)
@given(OBJECTS, st.sampled_from([None, 1]), st.booleans())
def test_any_array_is_read_as_it_was_written(items, indent, escaped):
    text = json.dumps({"n": -1.5e300, "items": items, "z": 7}, ensure_ascii=escaped, indent=indent)
    assert [entry.record for entry in read(text.encode())] == items


def test_memory_does_not_grow_with_the_array() -> None:
    source = Endless(b'{"items": [{}', b', {"title": "%s"}' % (b"x" * 10_000), 3000)
    entries = json_objects(io.BufferedReader(source), "a.json")
    tracemalloc.start()
    for _ in range(2500):
        next(entries)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 << 20


def test_fields_that_are_lists_of_other_types() -> None:
    with pytest.raises(RecordError, match=r"^expected objects as a, found str; "):
        Fields({"a": [{}, "x"]}).all("a[]", Mapping)
    with pytest.raises(RecordError, match=r"^expected strings as a, found int; "):
        Fields({"a": ["x", 1]}).all("a[]")
    assert Fields({}).all("a[]", Mapping) == Fields({"a": None}).all("a[]") == []
