"""The papers of an index that a bibliography or a list names: by id, DOI, arXiv id, or title."""

from __future__ import annotations

import io
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus import fields
from qbe.corpus.decode import decode_record, decode_text
from qbe.corpus.dedupe import FEWEST_WORDS, first_author, normalized_title, other_ids
from qbe.corpus.formats import FORMATS, JSON_LINES
from qbe.corpus.head import HEAD_BYTES, Head, head_of, kind_of
from qbe.corpus.read import entries, id_of
from qbe.corpus.reading import Reading
from qbe.corpus.record import parse_paper
from qbe.corpus.streams import MAX_LINE_BYTES, display_name, from_western, open_source
from qbe.errors import CorpusError, RecordError, UsageError
from qbe.index.reader import IndexReader
from qbe.lines import read_ids
from qbe.text.split import split_sentences
from qbe.types import Paper, year_given

PLAIN = (".txt", ".ids", ".lst", ".md", "")
"""How names of files end that may be a list, if what they hold is no bibliography."""

SHOWN = 3
"""Entries that the index lacks which a message names."""

MOST_SEARCHED = 200_000
"""Papers of an index that are read to say which one is meant by an id that it lacks."""

_ARXIV = re.compile(
    r"(?:^|arxiv[.:]\s*|arxiv\.org/\w+/)(\d{4}\.\d{4,5}|[a-z-]+(?:\.[a-z]{2})?/\d{7})(?:v\d+)?(?![\w/])"
)
_PREFIX = re.compile(r"[a-z]+:\s*(?!/)")
"""As of ``PMID: 7`` and ``doi:10.1234/5``."""


class NamedPapers(NamedTuple):
    """Ids of papers of the index, each once, in the order of the bibliography; how many ``entries`` it has;
    the names of those that the index lacks, ``missing``; how many name a paper again, ``repeated``; and what
    is wrong with the entries that could not be read, ``broken``.
    """

    paper_ids: list[str]
    entries: int
    missing: tuple[str, ...] = ()
    repeated: int = 0
    broken: tuple[str, ...] = ()

    def missing_in_words(self, name: str) -> str | None:
        """What the index lacks of the bibliography of that ``name``, and what could not be read, in one line;
        None where all was found.

        >>> NamedPapers(["s051"], 2, ("unknown",)).missing_in_words("refs.bib")
        'refs.bib: 1 of 2 entries are not in the index and are left out (unknown)'
        """
        said = []
        if self.missing:
            shown = ", ".join([*self.missing[:SHOWN], *(["..."] if len(self.missing) > SHOWN else [])])
            count = f"{len(self.missing)} of {self.entries} entries"
            said.append(f"{count} are not in the index and are left out ({shown})")
        if self.broken:
            said.append(f"{len(self.broken)} entries cannot be read and are left out ({self.broken[0]})")
        return f"{name}: {'; '.join(said)}" if said else None


def papers_of(
    reader: IndexReader, path: Path, catalogue: Callable[[], Catalogue] | None = None
) -> NamedPapers:
    r"""The papers of the index that a file names: a bibliography in any format of `qbe.corpus.formats`, or a
    list of ids, DOIs, arXiv ids, addresses or titles, one a line. ``catalogue`` gives that of the reader,
    where it serves several files.

    Raises UsageError where the index has none of them, FileFormatError or CorpusError for a file that cannot
    be read.

    >>> _ = Path("cited.txt").write_text("s051\nunknown\n")
    >>> with index.reading() as reader:
    ...     papers_of(reader, Path("cited.txt"))
    NamedPapers(paper_ids=['s051'], entries=2, missing=('unknown',), repeated=0, broken=())
    """
    named = papers_named(reader, _entries(path), catalogue)
    if not named.paper_ids:
        first = ", ".join([*named.missing[:SHOWN], *named.broken[:1]])
        raise UsageError(
            f"{path}: expected papers of the index, found none of its {named.entries} entries in it"
            f"{first and f' ({first})'}; give ids, DOIs or arXiv ids, one a line, or entries with a title"
        )
    return named


def papers_named(
    reader: IndexReader,
    named: Iterable[Mapping[str, Any] | RecordError | str],
    catalogue_of: Callable[[], Catalogue] | None = None,
) -> NamedPapers:
    """The papers of the index that records of a corpus name, or texts: ids, DOIs, arXiv ids, addresses, or
    titles.

    Records are looked up by id, DOI, arXiv id and their other ids, then by title, with year and first author.

    >>> with index.reading() as reader:
    ...     papers_named(reader, ["S051", {"metadata": {"ids": {"x": "s036"}}}, "s1"])[:3]
    (['s051', 's036'], 3, ('s1',))
    """
    catalogue = None
    paper_ids: dict[str, None] = {}
    count, repeated, missing, broken = 0, 0, [], []
    for entry in named:
        count += 1
        if isinstance(entry, RecordError):
            broken.append(str(entry))
            continue
        record = {"paper_id": entry, "title": entry} if isinstance(entry, str) else entry
        name = record.get("paper_id")
        paper_id = entry if isinstance(entry, str) else id_of(entry) or ""
        if reader.papers.find(paper_id) is None:
            catalogue = catalogue or (catalogue_of or partial(Catalogue, reader))()
            paper_id = catalogue.find(record) or ""
        if paper_id:
            repeated += paper_id in paper_ids
            paper_ids[paper_id] = None
        else:
            missing.append(str(name or record.get("title") or f"entry {count}"))
    return NamedPapers(list(paper_ids), count, tuple(missing), repeated, tuple(broken))


def not_found(reader: IndexReader, paper_id: str) -> str:
    """What to say of an id that the index lacks, with the paper that may be meant.

    >>> with index.reading() as reader:
    ...     print(not_found(reader, "S036"))
    expected the id of one of the 128 papers of the index, found 'S036'; did you mean s036?
    """
    searched = len(reader) <= MOST_SEARCHED
    meant = Catalogue(reader).find({"paper_id": paper_id, "title": paper_id}) if searched else None
    hint = f"did you mean {meant}?" if meant else "qbe list shows ids and titles"
    return f"expected the id of one of the {len(reader)} papers of the index, found {paper_id!r}; {hint}"


def _entries(path: Path) -> Iterator[Mapping[str, Any] | RecordError | str]:
    """The entries of a bibliography, or the lines of a list."""
    name = display_name(path)
    if path.suffix.lower() in PLAIN:
        with open_source(path) as stream:
            head = head_of(stream, name)
        if not any(each.recognizes(head) for each in FORMATS.values()):
            yield from read_ids(path)
            return
    for _, record in entries(str(path), Reading(on_error="skip", keep_without_abstract=True)):
        yield record


class Catalogue:
    """The papers of an index by what else names them than their ids: these in another case or without a
    version, DOIs, arXiv ids, other ids, addresses, titles.

    >>> with index.reading() as reader:
    ...     Catalogue(reader).find({"paper_id": "S036"})
    's036'
    """

    def __init__(self, reader: IndexReader) -> None:
        self._by_name: dict[str, str] = {}
        self._by_title: dict[str, list[tuple[str, str, str]]] = {}
        others: dict[str, str] = {}
        for paper in reader:
            for name in _names(paper.paper_id):
                self._by_name.setdefault(name, paper.paper_id)
            for text in other_ids(paper.metadata):
                for name in _names(text):
                    others.setdefault(name, paper.paper_id)
            if title := normalized_title(paper.title):
                known = paper.paper_id, paper.year, first_author(paper.metadata.get("authors"))
                self._by_title.setdefault(title, []).append(known)
        self._by_name = others | self._by_name

    def find(self, record: Mapping[str, Any]) -> str | None:
        """The id of the paper that a record names; None where the index has none."""
        metadata = record.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        own = record.get("paper_id")
        for text in (*([own] if isinstance(own, str) else []), *other_ids(metadata)):
            for name in (*_names(text), *_parts(text)):
                if name in self._by_name:
                    return self._by_name[name]
        title = record.get("title")
        return self._titled(normalized_title(title), metadata) if isinstance(title, str) else None

    def _titled(self, title: str, metadata: Mapping[str, Any]) -> str | None:
        """The paper of a title. Another year may be that of a preprint, and another spelling of an author of
        the same year does not count; of short titles neither may differ, and one must agree.
        """
        year, author = year_given(metadata), first_author(metadata.get("authors"))
        short = title.count(" ") + 1 < FEWEST_WORDS
        for paper_id, its_year, its_author in self._by_title.get(title, ()) if title else ():
            pairs = [(a, b) for a, b in ((year, its_year), (author, its_author)) if a and b]
            agree = sum(a == b for a, b in pairs)
            differ = len(pairs) - agree
            if (agree and not differ) if short else (agree or not (author and its_author)):
                return paper_id
        return None


def _names(text: str) -> list[str]:
    """A name of a paper in lower case; the DOI and the arXiv id in it, the one without address, the other
    without version.

    >>> _names("https://doi.org/10.1234/ABC."), _names("arXiv:1706.03762v5")[1:]
    (['https://doi.org/10.1234/abc', '10.1234/abc'], ['1706.03762'])
    """
    lower = text.strip().lower().rstrip("/.,;").removesuffix(".pdf")
    doi, arxiv = fields.doi(lower), _ARXIV.search(lower)
    return list(dict.fromkeys(filter(None, (lower, doi, arxiv[1] if arxiv else ""))))


def _parts(text: str) -> list[str]:
    """What else of a text may be a paper's name: what follows ``PMID:``, the last part of an address."""
    lower = text.strip().lower()
    if lower.startswith(("http://", "https://")):
        return _names(re.split(r"[?#]", lower)[0].rstrip("/").rpartition("/")[2])
    prefix = _PREFIX.match(lower)
    return _names(lower[prefix.end() :]) if prefix else []


ID = "query"
"""The id of a paper that brings none."""

_SUFFIXES = {
    ".pdf": "a PDF document",
    ".doc": "a Word document",
    ".docx": "a Word document",
    ".odt": "an OpenDocument file",
    ".tex": "a LaTeX document",
}
_READ = ("plain text", "an empty file", "JSON")
"""Kinds of `qbe.corpus.head.kind_of` that may be a paper."""

_TITLE = re.compile(r"[ \t#*]*title[ \t*]*:[ \t*]*(\S.*)", re.IGNORECASE)
_ABSTRACT = re.compile(
    r"^[ \t#*]*abstract[ \t*]*(?:[:.\u2013\u2014-][ \t*]*|$)", re.IGNORECASE | re.MULTILINE
)
_WRAPPED = 0.75
"""A first line of this share of the next one's length may be one of a paragraph with line breaks."""


def paper_from_file(source: str) -> Paper:
    r"""The paper of a file (``-``: standard input): a JSON object with title and abstract, the only entry of
    a file in a format of `qbe.corpus.formats`, or text (see `title_and_abstract`).

    Its id is ``query`` if it has none. Raises UsageError for a file of another kind or of several papers,
    CorpusError for one that cannot be read or holds no abstract.

    >>> _ = Path("paper.txt").write_text("On stone\n\nStone is hard. We cut it.")
    >>> paper = paper_from_file("paper.txt")
    >>> paper.paper_id, paper.title, len(paper.sentences)
    ('query', 'On stone', 2)
    """
    name = display_name(source)
    if kind := _SUFFIXES.get(Path(name).suffix.lower()):
        raise _other_kind(name, kind)
    with open_source(source) as stream:
        data = from_western(stream)[0].read(MAX_LINE_BYTES + 1).removeprefix(BOM_UTF8)
    if len(data) > MAX_LINE_BYTES:
        most = MAX_LINE_BYTES >> 20
        raise CorpusError(f"{name}: expected one paper, found more than {most} MiB; shorten it")
    head = Head(name, data[:HEAD_BYTES])
    known = next((each for each in FORMATS.values() if each.recognizes(head)), None)
    kind = kind_of(head)
    if known is None and not kind.startswith(_READ):
        raise _other_kind(name, kind)
    text = decode_text(data, name).strip()
    if not text:
        raise CorpusError(f"{name}: expected title and abstract, found nothing; give them")
    record = _object(text, name)
    if isinstance(record, dict) and (known is None or _is_own(record)):
        return parse_paper(record, name, split_sentences, ID)
    if known is None and text[0] not in "{[":
        title, abstract = title_and_abstract(text, name)
        return parse_paper({"title": title, "abstract": abstract}, name, split_sentences, ID)
    read = (known or JSON_LINES).read
    entries = list(islice(read(io.BufferedReader(io.BytesIO(data)), name, Reading()), 2))
    for _, entry in entries:
        if isinstance(entry, RecordError):
            raise record if isinstance(record, RecordError) else entry
    if len(entries) != 1:
        raise UsageError(
            f"{name}: expected one paper, found {'several' if entries else 'none'}; give a file of one, or "
            "search for papers like several with `cited`"
        )
    ((where, only),) = entries
    assert not isinstance(only, RecordError)
    return parse_paper(only, where, split_sentences, ID)


def _is_own(record: dict[str, Any]) -> bool:
    """Whether title and abstract are where qbe's own records have them."""
    return isinstance(record.get("title"), str) and isinstance(record.get("abstract"), str | list)


def _object(text: str, name: str) -> dict[str, Any] | RecordError | None:
    """The JSON object that a text is, or what is wrong with it; None for a text that is none."""
    try:
        return decode_record(text, name) if text.startswith("{") else None
    except RecordError as error:
        return error


def _other_kind(name: str, kind: str) -> UsageError:
    return UsageError(
        f"{name}: expected a paper as JSON, an entry of a bibliography, or text, found {kind}; paste its "
        "abstract as `text`, its title as `title`"
    )


def title_and_abstract(text: str, name: str) -> tuple[str, str]:
    r"""The title, '' where there is none, and the abstract of a text: behind ``Title:`` and ``Abstract:``, or
    the first line as title where it is no sentence, or all as abstract.

    Raises UsageError where the first line may be a title as well as one of a paragraph with line breaks.

    >>> title_and_abstract("On fish\nFish swim in lakes and in rivers.", "a.txt")
    ('On fish', 'Fish swim in lakes and in rivers.')
    >>> title_and_abstract("Title: On fish\nAnn Lee\nAbstract: Fish swim.", "a.txt")
    ('On fish', 'Fish swim.')
    """
    first, _, rest = text.strip().partition("\n")
    first, named = first.strip().lstrip("# "), _TITLE.match(text.strip())
    title = named[1].strip() if named else first
    if heading := _ABSTRACT.search(text):
        begins = text[: heading.start()].strip()
        return (title if begins else ""), text[heading.end() :].strip()
    if named:
        return title, rest.strip()
    following = rest.split("\n")[0].strip()
    if not rest.strip() or first.endswith((".", ",", ";")) or ". " in first or following[:1].islower():
        return "", text.strip()
    if following and len(rest.split("\n")) > 1 and len(first) >= _WRAPPED * len(following):
        raise UsageError(
            f"{name}: expected a title with an empty line behind it, or none, found a first line that may be "
            "one; add the empty line, or write Title: and Abstract: before them"
        )
    return first, rest.strip()
