"""How often title and abstract are read right, in templates that the rules were written with and in others.

``pytest -n 0 -s tests/test_pdf_layouts.py`` prints the table of docs/corpora.md.
"""

import lzma
import os
import re
from collections import Counter
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("reportlab")
from support.pdfs import HELD_OUT, WRITTEN_WITH, Paper, Template, laid_out, without_abstract

from qbe.corpus.json_formats import read_jsonl
from qbe.corpus.pdf import answer
from qbe.corpus.sentences import split_sentences
from qbe.datasets import arxiv

pytestmark = pytest.mark.slow

PAPERS = int(os.environ.get("QBE_PDF_PAPERS", "2"))
"""For each template; of arXiv, where QBE_DATA has them, else of the package."""


@cache
def texts(folder: Path) -> list[tuple[str, str]]:
    """Titles and abstracts that can be printed with the fonts of every PDF reader."""
    path = folder / "papers.jsonl"
    if data := os.environ.get("QBE_DATA"):
        with lzma.open(Path(data) / "arxiv-cs" / "arxiv-cs.jsonl.xz") as stream:
            path.write_bytes(b"".join(islice(stream, 100 * PAPERS)))
    else:
        path.write_bytes(b"".join(arxiv.corpus().splitlines(keepends=True)[: 100 * PAPERS]))
    return [
        (paper.title, paper.abstract)
        for paper in read_jsonl(path, split_sentences)
        if _is_latin(paper.title + paper.abstract) and 40 <= len(paper.abstract.split()) <= 320
    ]


def papers(folder: Path, offset: int) -> list[Paper]:
    """PAPERS papers, evenly spread; what follows an abstract are others."""
    known = texts(folder)
    places = range(offset, len(known), max(1, len(known) // PAPERS))
    bodies = [[text for _, text in known[place + 1 : place + 30]] or [known[0][1]] for place in places]
    return [Paper(*known[place], body, place) for place, body in zip(places, bodies, strict=True)][:PAPERS]


def _is_latin(text: str) -> bool:
    return all(each.isprintable() and ord(each) < 127 for each in text)


def letters(text: str) -> str:
    return re.sub(r"\W", "", text.casefold())


def token_f1(found: str, right: str) -> float:
    first, second = (Counter(re.findall(r"\w+", text.casefold())) for text in (found, right))
    return 2 * (first & second).total() / (first.total() + second.total() or 1)


def measured(template: Template, folder: Path, offset: int) -> tuple[float, float]:
    """The shares of right titles, and of abstracts of a token F1 of at least .95."""
    titles, abstracts = [], []
    for paper in papers(folder, offset):
        found = answer(laid_out(template, paper))
        right = paper.body[0] if template is without_abstract else paper.abstract
        titles.append(letters(found.get("title", "")) == letters(paper.title))
        abstracts.append(token_f1(found.get("abstract", ""), right) >= 0.95)
    return sum(titles) / len(titles), sum(abstracts) / len(abstracts)


@pytest.mark.parametrize(
    ("templates", "offset"), [(WRITTEN_WITH, 0), (HELD_OUT, 5)], ids=["written with", "held out"]
)
def test_titles_and_abstracts_are_right(tmp_path_factory, templates, offset):
    folder = tmp_path_factory.getbasetemp()
    shares = {template.__name__: measured(template, folder, offset) for template in templates}
    for name, (titles, abstracts) in shares.items():
        print(f"{name:18} {100 * titles:5.0f} {100 * abstracts:5.0f}")
    assert sum(titles for titles, _ in shares.values()) / len(shares) >= 0.95
    assert sum(abstracts for _, abstracts in shares.values()) / len(shares) >= 0.9
