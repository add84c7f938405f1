"""The paper of a query from outside: a pasted abstract, a file, or a file that a stranger sends."""

import contextlib
import io
import json
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from qbe.corpus import streams
from qbe.corpus.fields import ABSTRACT_FROM, NOT_READ
from qbe.corpus.records import Reader, Reading, parse_paper
from qbe.corpus.sentences import ABSTRACT, TITLE, split_sentences, title_and_abstract
from qbe.errors import CorpusError, QbeError, RecordError, UsageError
from qbe.types import Paper
from qbe.util import work
from qbe.util.text import one_line

ID = "query"  # of papers from outside that bring none
LONG_ABSTRACT = 20_000  # characters of abstracts that take seconds to encode

_SUFFIXES = {".doc": "a Word document", ".docx": "a Word document", ".odt": "an OpenDocument file"}
_LATEX = "a LaTeX document"
_READ = ("plain text", "an empty file", "JSON", _LATEX)  # kinds of files that may hold a paper

_LINE_END = re.compile(r"\r\n?")


def note_on_papers(papers: Sequence[Paper]) -> str:
    """Tell users in one line of papers from outside with parts missing, or with far too long abstracts."""
    notes = []
    for metadata in (paper.metadata for paper in papers):
        if ABSTRACT_FROM in metadata:
            notes.append(f"no abstract was found in the query; {metadata[ABSTRACT_FROM]} stands for it")
        if NOT_READ in metadata:
            notes.append(
                "title or abstract of the query may lack parts in files that cannot be read "
                f"({metadata[NOT_READ]}): give them as text"
            )
    if (longest := max((len(paper.abstract) for paper in papers), default=0)) > LONG_ABSTRACT:
        notes.append(f"the query has {longest:,} characters, all of which are read: give the abstract alone")
    return one_line("; ".join(notes))


def pasted_paper(text: str, title: str) -> Paper:
    """Make the paper ``query`` of an abstract, perhaps below its title; raises CorpusError if it is empty."""
    text = _LINE_END.sub("\n", text).strip()
    if not title or TITLE.match(text) or ABSTRACT.search(text):
        with contextlib.suppress(UsageError):  # a first line that may be a title stays in the abstract
            found, abstract = title_and_abstract(text, "`text`")
            if abstract:
                title, text = title or found, abstract
    return parse_paper({"paper_id": ID, "title": title, "abstract": text}, "`text`", split_sentences)


def paper_from_file(path: str | Path) -> Paper:
    r"""Read the paper of a file (``-``: standard input): a PDF, a LaTeX source with the files that it inputs,
    a JSON object with title and abstract, the only entry of a file that `qbe index` reads, or text.

    Its id is ``query`` if it has none. Raises UsageError for another kind or several papers, CorpusError for
    one that cannot be read.
    """
    name = streams.display_name(path)
    if kind := _SUFFIXES.get(Path(name).suffix.lower()):
        raise _other_kind(name, kind)
    with streams.open_source(path) as stream:
        data = stream.read(streams.MAX_LINE_BYTES + 1)
    return paper_from_bytes(data, name, None if str(path) == streams.STDIN else Path(path).parent)


def paper_from_bytes(data: bytes, name: str, folder: Path | None = None) -> Paper:
    """Read a paper as `paper_from_file` does; ``folder`` has the files that a LaTeX source inputs."""
    from qbe.corpus import latex
    from qbe.corpus.json_stream import decode_record, decode_text
    from qbe.corpus.reading import FORMATS, JSON_LINES, kind_of

    if len(data) > streams.MAX_LINE_BYTES:
        most = streams.MAX_LINE_BYTES >> 20
        raise CorpusError(f"{name}: expected one paper, found more than {most} MiB; shorten it")
    head = streams.Head(name, data[: streams.HEAD_BYTES])
    known = next((each for each in FORMATS.values() if each.recognizes(head)), None)
    if known is FORMATS["pdf"]:
        return _only(known.read, data, name)
    kind = _SUFFIXES.get(head.suffix) or kind_of(head)
    if head.suffix == ".pdf":
        raise UsageError(f"{name}: expected a PDF, found {kind}; fetch the paper itself again")
    if known is None and not kind.startswith(_READ):
        raise _other_kind(name, kind)
    data = streams.from_western(io.BufferedReader(io.BytesIO(data)), name)[0].read().removeprefix(BOM_UTF8)
    if head.suffix in latex.SUFFIXES or (known is None and kind == _LATEX):
        source = latex.source_of(decode_text(data, name), folder)
        return parse_paper(latex.paper_of(source, name), name, split_sentences, ID)
    text = _LINE_END.sub("\n", decode_text(data, name)).strip()
    if not text:
        raise CorpusError(f"{name}: expected title and abstract, found nothing; give them")
    broken = None
    if text[0] == "{":
        try:
            record = decode_record(text, name)
        except RecordError as error:  # or several objects
            record, broken = {}, error
        is_own = isinstance(record.get("title"), str) and isinstance(record.get("abstract"), str | list)
        if is_own or (known is None and not broken):
            return parse_paper(record, name, split_sentences, ID)
    elif known is None and text[0] != "[":
        title, abstract = title_and_abstract(text, name)
        return parse_paper({"title": title, "abstract": abstract}, name, split_sentences, ID)
    return _only((known or JSON_LINES).read, data, name, broken)


def sent_paper(data: bytes, name: str) -> dict[str, str]:
    """Read title, text and a note of a stranger's file in a process of little time and memory."""
    from qbe.corpus.pdf import MOST_BYTES, SECONDS

    with work.start([sys.executable, "-m", "qbe.search.paper_file", name]) as process:
        try:
            line = work.answer_of(process, data, SECONDS)
        finally:
            process.kill()
    limits = f"{SECONDS:g} s and {MOST_BYTES >> 30} GiB"
    lost = f"{name}: expected a file that is read in {limits}, found another; paste its abstract as `text`"
    found: dict[str, str] = json.loads(line) if line else {"error": lost}
    if error := found.get("error"):
        raise CorpusError(error)
    return found


def main() -> None:
    """Answer the paper of standard input, which is named by the argument, or what is wrong with it."""
    from qbe.corpus.pdf import MOST_BYTES

    work.limit(MOST_BYTES)
    data = sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(8), "big"))
    try:
        paper = paper_from_bytes(data, sys.argv[1])
        found = {"title": paper.title, "text": paper.abstract, "note": note_on_papers([paper])}
    except QbeError as error:
        found = {"error": str(error)}
    sys.stdout.write(json.dumps(found) + "\n")


def _only(read: Reader, data: bytes, name: str, broken: RecordError | None = None) -> Paper:
    entries = list(islice(read(io.BufferedReader(io.BytesIO(data)), name, Reading()), 2))
    for _, entry in entries:
        if isinstance(entry, RecordError):
            raise broken or entry
    if len(entries) != 1:
        raise UsageError(
            f"{name}: expected one paper, found {'several' if entries else 'none'}; give a file of one, or "
            "search for papers like several by qbe search --cited"
        )
    ((where, only),) = entries
    assert not isinstance(only, RecordError)
    return parse_paper(only, where, split_sentences, ID)


def _other_kind(name: str, kind: str) -> UsageError:
    return UsageError(
        f"{name}: expected a paper as PDF, LaTeX, JSON, an entry of a bibliography, or text, found {kind}; "
        "paste its abstract as `text`, its title as `title`"
    )


if __name__ == "__main__":
    main()
