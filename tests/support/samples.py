"""Six papers in each format, an independent look that counts them, and mutations of text."""

import csv
import io
import json
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

PAPERS = [  # number, title and abstract
    (number, title, f"We count {what} in Gödel's lake. The method is a net; it takes {number} days.")
    for number, title, what in (
        *((1, "On the fish of the lake", "fish"), (2, "On the birds of the shore", "birds")),
        *((3, "On the reeds of the bay", "reeds"), (4, "On the stones of the beach", "stones")),
        *((5, "On the wind over the water", "gusts"), (6, "On the moon above the hills", "moons")),
    )
]


class Sample(NamedTuple):
    """A file of the papers: its format, name and content, and a pattern of what begins each record."""

    format: str
    name: str
    data: bytes
    begins: str


def _lines(records: Iterable[dict]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _array(records: Iterable[dict], begin: str = "[\n", end: str = "\n]\n") -> str:
    return begin + ",\n".join(json.dumps(record, ensure_ascii=False) for record in records) + end


def _each(form: Callable[[int, str, str], object]) -> list:
    return [form(*paper) for paper in PAPERS]


def _table(delimiter: str) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["id", "title", "authors", "year", "abstract"])
    writer.writerows(_each(lambda n, t, a: [f"p{n}", t, "Lee, Ann; Ray, Bo", 2000 + n, a]))
    return stream.getvalue()


def _tagged(*lines: str, end: str, begin: str = "", last: str = "") -> str:
    return begin + "".join(_each(lambda n, t, a: "\n".join(lines).format(n=n, t=t, a=a) + end)) + last


def _openalex(n: int, title: str, abstract: str) -> dict:
    words: dict[str, list[int]] = {}
    for place, word in enumerate(abstract.split()):
        words.setdefault(word, []).append(place)
    name = {"id": f"https://openalex.org/W{n}", "display_name": title, "publication_year": 2000 + n}
    return {**name, "abstract_inverted_index": words, "referenced_works": []}


_PUBMED = """<PubmedArticle>
<MedlineCitation>
<PMID Version="1">{n}</PMID>
<Article>
<ArticleTitle>{t}</ArticleTitle>
<Abstract>
<AbstractText>{a}</AbstractText>
</Abstract>
</Article>
</MedlineCitation>
</PubmedArticle>
"""
_ACL = """<paper id="{n}">
<title>{t}</title>
<author><first>Ann</first><last>Lee</last></author>
<abstract>{a}</abstract>
<url hash="1234abcd">2020.fish-1.{n}</url>
</paper>
"""
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


def _texts() -> list[tuple[str, str, str, str]]:
    own = _each(lambda n, t, a: {"paper_id": f"p{n}", "title": t, "abstract": [a]})
    works = _each(lambda n, t, a: {"DOI": f"10.1000/p{n}", "title": [t], "abstract": f"<jats:p>{a}</jats:p>"})
    cited = [{**work, "type": "journal-article", "is-referenced-by-count": 0} for work in works]
    csl = _each(lambda n, t, a: {"id": f"p{n}", "type": "article-journal", "title": t, "abstract": a})
    s2 = _each(lambda n, t, a: {"paperId": f"p{n}", "title": t, "abstract": a, "externalIds": {}})
    arxiv = _each(
        lambda n, t, a: {
            "id": f"0704.000{n}",
            "submitter": "Ann Lee",
            "authors": "Ann Lee",
            "title": t,
            "categories": "cs.IR",
            "abstract": a,
            "update_date": "2008-11-26",
            "versions": [{"version": "v1", "created": "Mon, 2 Apr 2007 19:18:42 GMT"}],
            "authors_parsed": [["Lee", "Ann", ""]],
        }
    )
    openalex = _each(_openalex)
    ris_lines = ("TY  - JOUR", "ID  - p{n}", "TI  - {t}", "AU  - Lee, Ann", "PY  - 200{n}", "AB  - {a}")
    ris = _tagged(*ris_lines, end="\nER  - \n\n")
    bib = "@misc{{p{n},\n  title = {{{t}}},\n  author = {{Lee, Ann}},\n  abstract = {{{a}}},\n}}\n\n"
    nbib = _tagged("PMID- {n}", "DP  - 200{n}", "TI  - {t}", "AB  - {a}", "FAU - Lee, Ann", end="\n\n")
    wos = ("PT J", "AU Lee, A", "TI {t}", "AB {a}", "PY 200{n}", "UT WOS:00{n}")
    begin = "FN Clarivate Analytics Web of Science\nVR 1.0\n"
    wos_text = _tagged(*wos, end="\nER\n\n", begin=begin, last="EF\n")
    enw = ("%0 Journal Article", "%T {t}", "%A Lee, Ann", "%D 200{n}", "%X {a}", "%F p{n}")
    endnote = _tagged(*enw, end="\n\n")
    rt = ("RT Journal Article", "ID p{n}", "A1 Lee,Ann", "T1 {t}", "YR 200{n}", "AB {a}")
    loose = {form: _tagged(*lines, end="\n\n") for form, lines in (("ris", ris_lines[1:]), ("enw", enw[1:]))}
    pubmed = f"{_XML}<PubmedArticleSet>\n{_tagged(_PUBMED, end='')}</PubmedArticleSet>\n"
    acl = f'{_XML}<collection id="2020.fish">\n<volume id="1">\n<meta>\n<year>2020</year>\n</meta>\n'
    object_line, results = r"^\{", '{"meta": {},\n"results": [\n'
    of_ris = r"^TY  - .*\n(?!TY  - |ER  - |\s*\Z)"  # first lines with nothing below are no records
    return [
        ("jsonl", "papers.jsonl", _lines(own), object_line),
        ("arxiv", "arxiv.json", _lines(arxiv), object_line),
        ("semantic-scholar", "s2.jsonl", _lines(s2), object_line),
        ("openalex", "openalex.jsonl", _lines(openalex), object_line),
        ("openalex", "openalex.json", _array(openalex, results, "\n]}\n"), object_line[:3] + '"id"'),
        ("crossref", "crossref.jsonl", _lines(cited), object_line),
        ("crossref", "crossref.json", _array(cited, '{"items": [\n', "\n]}\n"), r'^\{"DOI"'),
        ("csl-json", "csl.json", _array(csl), object_line),
        *(("bibtex", "refs.bib", _tagged(bib, end=""), r"^@misc\{"), ("ris", "refs.ris", ris, of_ris)),
        *(("nbib", "refs.nbib", nbib, r"^PMID- "), ("wos", "refs.ciw", wos_text, r"^PT \S")),
        *(("endnote", "refs.enw", endnote, r"^%0 "), ("table", "papers.csv", _table(","), r"^p\d,")),
        ("refworks", "refworks.txt", _tagged(*rt, end="\n\n"), r"^RT "),
        ("ris", "cinahl.txt", loose["ris"], r"(?:\A|\n\n)ID  - "),
        ("endnote", "refer.txt", loose["enw"], r"(?:\A|\n\n)%T "),
        ("table", "papers.tsv", _table("\t"), r"^p\d\t"),
        ("pubmed", "pubmed.xml", pubmed, r"<PubmedArticle>"),
        ("acl-anthology", "acl.xml", acl + _tagged(_ACL, end="") + "</volume>\n</collection>\n", r"<paper "),
    ]


def samples() -> list[Sample]:
    return [Sample(form, name, text.encode(), begins) for form, name, text, begins in _texts()]


def mutated(data: bytes, seed: str) -> bytes:
    """The data after one to three changes of lines, bytes, white space or line ends."""
    random = Random(seed)
    for _ in range(random.randint(1, 3)):
        data = random.choice(_CHANGES)(data, random)
    return data


def _of_lines(change: Callable[[list[bytes], Random], None]) -> Callable[[bytes, Random], bytes]:
    def changed(data: bytes, random: Random) -> bytes:
        lines = data.splitlines(keepends=True)
        if lines:
            change(lines, random)
        return b"".join(lines)

    return changed


def _delete(lines: list[bytes], random: Random) -> None:
    begin = random.randrange(len(lines))
    del lines[begin : begin + random.choice([1, 1, 2, 5])]


def _duplicate(lines: list[bytes], random: Random) -> None:
    begin = random.randrange(len(lines))
    lines[begin:begin] = lines[begin : begin + random.choice([1, 1, 2, 5])]


def _swap(lines: list[bytes], random: Random) -> None:
    first, second = random.randrange(len(lines)), random.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]


def _space(lines: list[bytes], random: Random) -> None:
    place = random.randrange(len(lines))
    old, new = random.choice(
        [(b" ", b"  "), (b"  ", b" "), (b" ", b"\t"), (b" ", b""), (b"\n", b" \n"), (b"\n", b"")]
    )
    lines[place] = random.choice([lines[place].replace(old, new), b" " + lines[place], b"\n" + lines[place]])


def _cut(data: bytes, random: Random) -> bytes:
    begin = random.randint(0, len(data))
    return data[:begin] + (b"" if random.random() < 0.3 else data[begin + random.randint(1, 30) :])


def _insert(data: bytes, random: Random) -> bytes:
    begin = random.randint(0, len(data))
    inserted = random.randbytes(random.choice([1, 1, 2, 4]))
    return data[:begin] + inserted + data[begin + random.choice([0, 1]) :]


def _ends(data: bytes, random: Random) -> bytes:
    place, end = random.randint(0, len(data)), random.choice([b"\r\n", b"\r", b"\r\n\n", b"\n\r", b"\x0c\n"])
    return data[:place] + data[place:].replace(b"\n", end, random.choice([1, -1]))


_CHANGES = [*map(_of_lines, (_delete, _duplicate, _swap, _space)), _cut, _insert, _ends]
