"""DBLP's XML, recognized to say that it is no corpus: its records have no abstracts."""

from __future__ import annotations

import io
from collections.abc import Iterator

from qbe.corpus.entry import Entry
from qbe.corpus.head import Head
from qbe.corpus.reading import Reading
from qbe.corpus.xmlstream import root_tag
from qbe.errors import CorpusError


def recognizes(head: Head) -> bool:
    """Whether this is DBLP's XML: the whole of it, a record's, or a person's."""
    return root_tag(head) in ("dblp", "dblpperson")


def read(stream: io.BufferedReader, name: str, reading: Reading) -> Iterator[Entry]:
    """Raise CorpusError: nothing is read.

    >>> read(io.BufferedReader(io.BytesIO(b"<dblp>")), "dblp.xml.gz", Reading())
    Traceback (most recent call last):
    ...
    qbe.errors.CorpusError: dblp.xml.gz: expected papers with abstracts, found DBLP's records, ...
    """
    del stream, reading
    raise CorpusError(
        f"{name}: expected papers with abstracts, found DBLP's records, which have none; use OpenAlex, "
        "Semantic Scholar or Crossref by DOI instead"
    )
