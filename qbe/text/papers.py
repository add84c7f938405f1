"""A paper from a title and an abstract as plain text."""

from __future__ import annotations

import hashlib

from qbe.corpus.record import parse_paper
from qbe.text.split import split_sentences
from qbe.types import Paper


def paper_from_text(title: str, abstract: str, *, paper_id: str | None = None) -> Paper:
    """A paper whose abstract is split into sentences; the title may be empty. Without ``paper_id`` its id is
    ``sha-`` and 16 hexadecimal digits of the SHA-256 of both texts.

    White space and control characters become single spaces. Raises TypeError for an argument that is not a
    string, and CorpusError for an empty abstract, a text that no corpus may contain (NUL characters, lone
    surrogates, over a million characters), or an id with white space.

    >>> paper = paper_from_text("On fish", "Fish swim. We count them, e.g. cod.")
    >>> [sentence.text for sentence in paper.sentences]
    ['Fish swim.', 'We count them, e.g. cod.']
    >>> paper.paper_id
    'sha-18d06b14ce4412fd'
    """
    given = {"title": title, "abstract": abstract} | ({} if paper_id is None else {"paper_id": paper_id})
    for name, value in given.items():
        if not isinstance(value, str):
            raise TypeError(f"expected `{name}` of type str, found {type(value).__name__}")
    if paper_id is None:
        texts = "\n".join(" ".join(text.split()) for text in (title, abstract))
        paper_id = f"sha-{hashlib.sha256(texts.encode(errors='replace')).hexdigest()[:16]}"
    record = {"paper_id": paper_id, "title": title, "abstract": abstract}
    return parse_paper(record, f"paper {paper_id}" if paper_id.isprintable() else "paper", split_sentences)
