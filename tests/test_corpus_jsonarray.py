"""Objects of a JSON array, read as a stream."""

import io
import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.formats import Endless

from qbe.corpus import decode
from qbe.corpus.decode import json_objects
from qbe.corpus.fields import Fields
from qbe.corpus.reading import Entry
from qbe.errors import CorpusError, RecordError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=4), max_size=6)


def stream(data: bytes, at_once: int = 1 << 20) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(data), at_once)


def read(data: bytes, *keys: str) -> list[Entry]:
    return list(json_objects(stream(data), "a.json", keys))


def test_pages_may_follow_each_other_and_a_path_of_keys_leads_through_objects() -> None:
    message = b'{"facets": {}, "items": [{"a": 1}], "z": [{}]}'
    data = b'{"status": "ok", "n": 12.5, "message": %s, "y": null}' % message
    assert [entry.record for entry in read(data, "message", "items")] == [{"a": 1}]
    entries = read(b'{"items": [{"a": 1}]}\n{"items": []}\n{"items": [{"a": 2}]}\n', "items")
    assert [(entry.where, entry.record) for entry in entries] == [
        ("a.json, item 1", {"a": 1}),
        ("a.json, item 2", {"a": 2}),
    ]


def test_a_malformed_text_ends_the_reading(told) -> None:
    messages = []
    for data in (
        b'{"items": [{"a": 1}',
        b'{"items": [{"a": 1}]',
        b'{"items": [{"a": "',
        b'{"items": {"a": 1}}',
        b'{"items"; []}',
        b"{7: []}",
        b'{"a": [{}]}',
        b"[]",
        b"",
        b'{"a": ' + b"[" * 100_000,
    ):
        with pytest.raises(CorpusError) as caught:
            read(data, "items")
        assert not isinstance(caught.value, RecordError)
        messages.append(str(caught.value))
    told("arrays of JSON", messages)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (b'{"a" 2}', "malformed JSON"),
        (b'{"a": 1,}', "malformed JSON"),
        (b'{"a": "\\x"}', "malformed JSON"),
        (b'{"a": "}", "b": [{]}}', "malformed JSON"),
        (b"{'a': \"]}\"}", "malformed JSON"),
        (b'{"a": %s}' % (b"9" * 5000), "malformed JSON"),
        (b'{"a": %s%s}' % (b"[" * 100_000, b"]" * 100_000), "malformed JSON"),
        (b"null", "null"),
        (b"7", "not a JSON object"),
        (b'"x"', "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b'{"a": "\xfc"}', "text that is not UTF-8"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 13, 1 << 20])
def test_a_broken_item_concerns_itself_alone(monkeypatch, item, reason, chunk):
    monkeypatch.setattr(decode, "_CHUNK_BYTES", chunk)
    first, second, third = read(b'[{"a": 1}, %s, {"a": 2}]' % item)
    assert (first.record, second.where, third.record) == ({"a": 1}, "a.json, item 2", {"a": 2})
    assert isinstance(second.record, RecordError) and second.record.reason == reason
    assert second.record.is_fault == (reason != "null")


@pytest.mark.parametrize(
    "text", [b'[{"a": 1} {"a": 2}]', b'[{"a": 1},, {"a": 2},]', b'[{"a": 1}\n{"a": 2}\n]']
)
def test_commas_between_items_may_lack_or_be_too_many(text: bytes) -> None:
    assert [entry.record for entry in read(text)] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    "data", [b'[{"a": "' + b"x" * 300, b'{"a": [' + b"1, " * 100, b'{"a": 1.' + b"1" * 300]
)
def test_a_value_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(decode, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(decode, "_CHUNK_BYTES", 10)
    source = stream(data)
    with pytest.raises(
        CorpusError, match="expected at most 0 MiB an item, found more; write one paper an item"
    ):
        list(json_objects(source, "a.json", () if data.startswith(b"[") else ("items",)))
    assert source.read()


@settings(max_examples=25)
@given(OBJECTS, st.integers(1, 40), st.sampled_from([None, 1]), st.booleans())
def test_any_array_is_read_as_it_was_written(items, chunk, indent, escaped):
    text = json.dumps({"n": -1.5e300, "items": items, "z": 7}, ensure_ascii=escaped, indent=indent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "_CHUNK_BYTES", chunk)
        assert [entry.record for entry in read(text.encode(), "items")] == items


def test_memory_does_not_grow_with_the_array() -> None:
    source = Endless(b'{"items": [', b'{"title": "%s"}, ' % (b"x" * 10_000), 3000)
    entries = json_objects(io.BufferedReader(source), "a.json", ("items",))
    tracemalloc.start()
    for _ in range(2500):
        next(entries)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 << 20


def test_fields_that_are_lists_of_other_types() -> None:
    with pytest.raises(RecordError, match=r"^here: expected objects as a, found str; "):
        Fields({"a": [{}, "x"]}, "here").objects("a[]")
    with pytest.raises(RecordError, match=r"^here: expected strings as a, found int; "):
        Fields({"a": ["x", 1]}, "here").texts("a[]")
    assert Fields({}, "here").objects("a[]") == Fields({"a": None}, "here").texts("a[]") == []
