"""Text formats of records whose lines begin with tags: RIS, and those of databases and reference managers.

White space and byte order marks may stand before a record; one without its last line ends where the next one
begins, and one without its first line begins at its title, abstract or authors.
"""

import io
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from qbe.corpus import fields
from qbe.corpus.json_stream import decode_text
from qbe.corpus.markup import clean_title, language
from qbe.corpus.names import ET_AL, credits
from qbe.corpus.records import Entry, Reading, converted
from qbe.corpus.streams import Head, numbered_lines

MAX_RECORD_BYTES = 4 << 20  # real ones are far shorter

_LOWER_TAG = re.compile(r"^[^\S\n]*[a-z][a-z0-9](?=[^\S\n]*-\s)", re.MULTILINE)
_IN_BRACKETS = re.compile(r"\[([^\[\]]+)\]\.?")
_DOI = re.compile(r"(?:https?://(?:dx\.)?doi\.org/|doi\b[:\s]*)?10\.\d", re.IGNORECASE)
_ADDRESS = re.compile(r"(?:https?|ftp)://[^\s<>\"]+", re.IGNORECASE)


@dataclass(frozen=True)
class Tagged:
    """Describe a format of tagged lines.

    ``begin`` and ``end`` match the first and the last line of a record, ``inner`` one with its title,
    abstract (whose tag is the group) or author, ``line`` one with a tag and a value (the groups). ``fields``
    lists each field's tags, better ones first. A tag of ``same`` is read as another. A line without a tag
    continues the value before, or is another value of a tag of ``separate``. The first line may stand again
    within a record that ``repeats`` it. ``needs`` is found in each file. Some programs write no first lines:
    then what ``loose`` matches (the group is a tag) begins a record at the beginning, behind a blank line, or
    with the same tag again. ``once`` matches a title or id (whose tag is the group) or a year (the second).
    Tags of ``single`` stand once in a record.
    """

    begin: re.Pattern[bytes]
    end: re.Pattern[bytes]
    inner: re.Pattern[bytes]
    loose: re.Pattern[bytes]
    once: re.Pattern[bytes]
    line: re.Pattern[str]
    fields: Mapping[str, Sequence[str]]
    single: Sequence[str]
    separate: Sequence[str] = ()
    same: Mapping[str, str] = field(default_factory=dict)
    repeats: bool = False
    needs: str = ""

    def recognizes(self, head: Head) -> bool:
        """Return True if a line begins a record, in a text that is none of JSON, XML or BibTeX."""
        is_other = head.text.startswith(("{", "[", "<", "@")) or not re.search(self.needs, head.text)
        lines = head.data.splitlines(keepends=True)
        first = next(filter(bytes.strip, lines), b"")
        is_loose = self.loose.match(first) is not None and sum(map(bool, map(self.inner.match, lines))) > 1
        return not is_other and (is_loose or any(map(self.begin.match, lines)))

    def read(self, stream: io.BufferedReader, name: str, _: Reading) -> Iterator[Entry]:
        """Yield the records of a file, each with the place of its first line."""
        return converted((p for its in self._records(stream, name) for p in self._apart(*its)), self._record)

    def _records(self, stream: io.BufferedReader, name: str) -> Iterator[tuple[str, list[bytes]]]:
        parts, size = list[tuple[str, list[bytes]]](), 0  # up to two, of which each may be a record
        is_apart, tag, has_title = True, b"", False  # behind a blank line; of a record without a first line
        for number, line in numbered_lines(stream, name):
            is_first = self.begin.match(line) is not None
            found = self.loose.match(line) if is_apart or tag or not parts else None
            is_next = found is not None and (is_apart or (has_title and found[1] == tag))
            is_inner = not parts and (self.inner.match(line) or self.once.match(b"\n" + line))
            if is_first or is_next or is_inner:
                whole = self._whole(parts)
                kept = whole[-1:] if len(whole) == len(parts) else []  # a pair that is one is done
                yield from whole[: len(whole) - len(kept)]
                parts = [*kept, (f"{name}, line {number}", [])]
                size, has_title, tag = 0, False, b"" if is_first or found is None else found[1]
            if parts and size <= MAX_RECORD_BYTES:  # what is longer is refused, and not kept
                parts[-1][1].append(line)
            size += len(line)
            is_apart = line.isspace() and not (parts and self.begin.match(parts[-1][1][0]))
            has_title = has_title or (tag != b"" and found is not None and found[1] in (b"TI", b"T1", b"%T"))
            if self.end.match(line):
                yield from self._whole(parts)
                parts = []
        yield from self._whole(parts)

    def _whole(self, parts: list[tuple[str, list[bytes]]]) -> list[tuple[str, list[bytes]]]:
        """Join two parts of a record: fields before its first line, or a stray first line and no title."""
        if len(parts) < 2:
            return parts
        (where, before), (_, after) = parts
        matches = (map(self.inner.match, lines) for lines in (before, after))
        tags = [{found[1] for found in each if found} for each in matches]
        has_first = self.begin.match(before[0]) is not None
        first = [each[1] for lines in (before, after) if (each := self.loose.match(lines[0]))]
        is_again = not has_first and len(first) == 2 and first[0] == first[1]
        lacks_title = self.repeats and not any(tag and tag.startswith(b"T") for tag in tags[1])
        is_one = not (is_again or (tags[0] & tags[1]) - {None}) and (lacks_title or not has_first)
        return [(where, before + after)] if is_one else parts

    def _apart(self, where: str, lines: list[bytes]) -> Iterator[tuple[str, bytes]]:
        """Part records that lack a first line: at the blank line before what stands once, or there."""
        found = self.once.findall(b"\n" + (data := b"".join(lines)))
        if len(found) == len({each[:2] for each in found}):
            yield where, data
            return
        name, _, number = where.rpartition(" ")
        begin, blank, last, seen = 0, 0, b"", dict[bytes, tuple[int, bytes]]()
        for place, line in enumerate(lines):
            if (one := self.once.match(b"\n" + line)) is None:
                blank, last = place + 1 if line.isspace() else blank, b""
                continue
            tag, value = one[1] or one[2], one[3].strip()
            before, known = seen.setdefault(tag, (place, value))
            if known != value and (before < blank or (one[1] and tag != last)):
                end = blank if before < blank else place
                yield f"{name} {int(number) + begin}", b"".join(lines[begin:end])
                seen = {each: its for each, its in seen.items() if its[0] >= end}
                begin, seen[tag] = end, (place, value)
            last = tag
        yield f"{name} {int(number) + begin}", b"".join(lines[begin:])

    def _record(self, data: bytes) -> dict[str, Any]:
        if len(data) > MAX_RECORD_BYTES:
            expected = f"a record of at most {MAX_RECORD_BYTES >> 20} MiB"
            raise fields.unfit(expected, "a longer one", "mend or remove it", "a broken entry")
        values = self._values(decode_text(data))
        tags = self.fields
        found = {name: [value for tag in of for value in values.get(tag, ())] for name, of in tags.items()}
        firsts = {name: of[0] for name, of in found.items() if of}
        paper_id, title, book = (firsts.get(name, "") for name in ("id", "title", "book"))
        if whole := _IN_BRACKETS.fullmatch(title):  # a translated one
            title = whole[1]
        abstracts = next((values[tag] for tag in tags["abstract"] if tag in values), [])
        spoken = {text: language(text) for text in abstracts} if len(abstracts) > 1 else {}
        abstracts = [text for text in spoken if spoken[text] in ("", spoken[abstracts[0]])] or abstracts
        authors = max((values.get(tag, []) for tag in tags["authors"]), key=len)
        authors = authors + [note for note in values.get("N1", ()) if note == ET_AL]  # as qbe writes it
        dois = [value for value in found["doi"] if _DOI.match(value)] or values.get(tags["doi"][0], [])
        addresses = (address[0] for value in found.get("url", ()) if (address := _ADDRESS.search(value)))
        dates = [date for text in found["dates"] if (date := fields.date(text))]
        if found["dates"] and not dates:  # a month alone: ScienceDirect has the year in another field
            dates = list(filter(None, map(fields.date, values.get("Y2", ()))))
        metadata = {
            **credits(dict.fromkeys(map(clean_title, authors))),
            **fields.dated(max((each for each in dates if each[:4] == dates[0][:4]), key=len, default="")),
            "venue": firsts.get("venue") or (book if title else ""),
            "doi": next(filter(None, map(fields.doi, dois)), ""),
            "url": next(addresses, ""),
            "ids": {name: firsts.get(name) for name in ("pmid", "pmc")},
            "tags": [word.replace("*", "") for value in found["keywords"] for word in value.split(";")],
        }
        several = {tag: values[tag] for tag in self.single if len(values.get(tag, ())) > 1}
        longest = {tag: max(of, key=len).casefold() for tag, of in several.items()}  # with the others in it
        twice = [tag for tag, of in several.items() if any(v.casefold() not in longest[tag] for v in of)]
        return fields.noted(fields.record(paper_id, title or book, " ".join(abstracts), metadata), twice)

    def _values(self, text: str) -> dict[str, list[str]]:
        pairs: list[tuple[str, list[str]]] = []
        match = self.line.match
        if text.lstrip("\ufeff \t\f\r\n")[:2].islower():
            text = _LOWER_TAG.sub(lambda found: found[0].upper(), text)
        for line in text.replace("\r", "\n").split("\n"):
            if (found := match(line)) is not None:
                tag, value = found.groups()
                pairs.append((self.same.get(tag, tag), [value.strip()]))
            elif pairs and (rest := line.strip()):
                if pairs[-1][0] in self.separate:
                    pairs.append((pairs[-1][0], [rest]))
                else:
                    pairs[-1][1].append(rest)
        values: dict[str, list[str]] = {}
        for tag, parts in pairs:
            if value := " ".join(filter(None, parts)):
                values.setdefault(tag, []).append(value)
        return values


_TABLE = tomllib.loads(resources.files("qbe.corpus").joinpath("tagged.toml").read_text("utf-8"))
for its in _TABLE.values():
    its |= {name: re.compile(its[name].encode()) for name in ("begin", "end", "inner", "loose", "once")}
    its["line"] = re.compile(its["line"])
    its["fields"] = {name: tags for name, *tags in map(str.split, its["fields"].split(","))}
FORMATS = {name: Tagged(**its) for name, its in _TABLE.items()}
