"""Hostile names, abstracts and records take a moment, not an hour."""

import contextlib
import json
import re
import time
from collections.abc import Callable

import pytest
from support.formats import buffered
from support.samples import Sample, samples

from qbe import CorpusError, Reading
from qbe.corpus.markup import clean_abstract
from qbe.corpus.names import split_authors
from qbe.corpus.reading import FORMATS

pytestmark = pytest.mark.slow


def read(form: str, text: str) -> None:
    list(FORMATS[form].read(buffered(text), "hostile", Reading()))


def entry(value: str) -> None:
    fields = ("title", "author", "abstract", "eprint", "url", "month")
    joined = "".join(f"{name}={{{value}}}, " for name in fields)
    read("bibtex", f"@book{{a, archiveprefix={{arxiv}}, year=1, {joined}}}")


def row(cell: str) -> None:
    header = "title\tabstract\tauthors\tcategories\tcites\tdate"
    read("table", f"{header}\nOn fish\tFish swim.\t{cell}\t{cell}\t{cell}\t{cell}\n")


def work(abstract: str) -> None:
    read("crossref", json.dumps({"DOI": "10.5555/7", "title": ["On fish"], "abstract": abstract}))


def record(lines: str) -> None:
    read("ris", f"TY  - JOUR\n{lines}ER  - ")


LEFT = "© 2019 " + "published by " * 10_000
HOSTILE: dict[Callable[[str], object], list[str]] = {
    split_authors: ["A. " * 40_000, "Lee, " * 40_000, " and " * 40_000, "(" * 100_000],
    clean_abstract: [
        *("© " + "A " * 100_000, "Copyright 2019 " + "Ab, " * 40_000 + "x", "(" * 100_000 + "(c) 2019"),
        *("All rights reserved " * 6_000, "Copyright of " * 10_000 + "x", LEFT),
    ],
    entry: [
        *("{" * 20_000 + "}" * 20_000, "\\{" * 20_000, "{\\'" * 20_000 + "}" * 20_000, "$" * 40_000),
        *("a-" * 20_000, "a and " * 10_000, "a," * 20_000, "@ " * 20_000, "\\emph{" * 10_000 + "}" * 10_000),
    ],
    row: ["[" + '"\\' * 80_000 + "]", "['" * 80_000 + "]", " and " * 40_000, "a-" * 100_000, "," * 100_000],
    work: [f"<jats:title>{end}" * 20_000 for end in ("", " ")]
    + [part * 20_000 for part in ("</tex-math><mml:math", "</mml:math>")],
    record: ["AB  - a\n" + "a\n" * 200_000, "AB  - a\n" * 100_000],
}


@pytest.mark.parametrize("read", HOSTILE, ids=lambda read: read.__name__)
def test_hostile_texts_take_a_moment(read):
    for text in HOSTILE[read]:
        start = time.process_time()
        read(text)
        assert time.process_time() - start < 4, text[:40]


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)
def test_200_kb_of_any_sign_word_or_line_take_a_moment(sample: Sample) -> None:
    """Before all records, and within the title of the first."""
    first = sample.data[: sample.data.index(b"birds")]
    parts = {line + b"\n" for line in first.splitlines()} | set(re.findall(rb"[<{\[(\"%@][\w/]*", first))
    parts |= {bytes([sign]) for sign in sample.data + b"\\ \t\n$&" if sign < 128 and not chr(sign).isalnum()}
    for part in sorted(parts):
        for place in (0, first.index(b"fish")):
            data = sample.data[:place] + part * (200_000 // len(part)) + sample.data[place:]
            start = time.process_time()
            with contextlib.suppress(CorpusError):
                for _ in FORMATS[sample.format].read(buffered(data), "hostile", Reading()):
                    pass
            assert time.process_time() - start < 4, (part, place)
