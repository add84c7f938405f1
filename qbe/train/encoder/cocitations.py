"""Co-cited papers and the sentences that cite them, in the form of ASPIRE's pre-processing.

JSON lines, one pair of papers each, as ``pre_proc_cocits.py`` of the paper's code (Mysore et al., 2022)
writes them and its batchers read them:

- ``cited_pids``: the ids of all papers that were cited together, two or more; of a set of three there are
  three lines;
- ``query`` and ``pos_context``: two of these papers, each ``TITLE`` (a string) and ``ABSTRACT`` (sentences);
- ``citing_contexts``, beside them or inside ``pos_context``: the sentences that cite the set;
- optionally inside ``pos_context``, ``cc_align`` and ``abs_align``: positions of an aligned sentence of the
  query and of the positive, found through the citing sentences or directly.

Files for sentence encoders (``coppsent``) have two sentences that cite the same set as ``query`` and
``pos_context``. Other fields are ignored, ``neg_context`` too: negatives are drawn within batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus import parse_paper
from qbe.corpus.decode import decode_record, decode_text
from qbe.corpus.streams import display_name, numbered_lines, open_source
from qbe.corpus.titles import TitleIndex
from qbe.errors import CorpusError
from qbe.types import Paper, Sentence

Alignment = tuple[int, int]
"""Positions (from 0) of a sentence of one paper and of a sentence of another."""


class Cocitation(NamedTuple):
    """Two papers that were cited together, and the sentences that cite them.

    ``cited`` are the ids of the whole set. Alignments are None where the file has none.
    """

    cited: frozenset[str]
    query: Paper
    positive: Paper
    contexts: tuple[str, ...] = ()
    by_contexts: Alignment | None = None
    by_abstracts: Alignment | None = None


def read_cocitations(source: Path, evaluated: TitleIndex, *, contexts: bool = False) -> Iterator[Cocitation]:
    """Pairs of papers that were cited together, as a stream, without those of papers in ``evaluated``.

    Equal papers are one object. With ``contexts``, citing sentences are required. Raises CorpusError with
    file and line for malformed lines.

    >>> import json
    >>> query, positive = ({"TITLE": title, "ABSTRACT": ["Hard."]} for title in ("On stone", "On iron"))
    >>> record = {"cited_pids": ["1", "2"], "query": query, "pos_context": positive}
    >>> _ = Path("pairs.jsonl").write_text(json.dumps(record))
    >>> [pair.positive.title for pair in read_cocitations(Path("pairs.jsonl"), TitleIndex([]))]
    ['On iron']
    >>> list(read_cocitations(Path("pairs.jsonl"), TitleIndex(["On stone"])))
    []
    """
    papers: dict[tuple[str, tuple[Sentence, ...]], Paper] = {}
    kept: dict[str, bool] = {}
    for where, record in _records(source):
        if isinstance(record.get("query"), str):
            raise CorpusError(
                f"{where}: expected two papers, found sentences; give a file of abstracts, or cosent as "
                "`objective`"
            )
        cocitation = _cocitation(record, where)
        if contexts and not cocitation.contexts:
            raise CorpusError(
                f"{where}: expected the sentences that cite both papers as citing_contexts, found none; add "
                "them, or take an objective that needs none"
            )
        pair = [papers.setdefault((paper.title, paper.sentences), paper) for paper in cocitation[1:3]]
        for paper in pair:
            if paper.title not in kept:
                kept[paper.title] = not evaluated.holds(paper.title)
        if all(kept[paper.title] for paper in pair):
            yield cocitation._replace(query=pair[0], positive=pair[1])


def read_citing_sentences(source: Path, evaluated: TitleIndex) -> Iterator[Cocitation]:
    """Pairs of sentences that cite the same papers, each as a paper of one sentence without a title.

    Each two of the sentences that cite a set of papers make a pair; sets with a paper in ``evaluated`` are
    left out where the file has the papers. Raises CorpusError with file and line for malformed lines.

    >>> import json
    >>> record = {"cited_pids": ["1", "2"], "query": "Both cut stone [1, 2].", "pos_context": "See [1, 2]."}
    >>> _ = Path("sentences.jsonl").write_text(json.dumps(record))
    >>> (pair,) = read_citing_sentences(Path("sentences.jsonl"), TitleIndex([]))
    >>> pair.query.abstract, pair.positive.abstract
    ('Both cut stone [1, 2].', 'See [1, 2].')
    """
    seen: set[frozenset[str]] = set()
    for where, record in _records(source):
        cited = _cited(record, where)
        if isinstance(record.get("query"), str):
            texts = _two_sentences(record, where)
        else:
            cocitation = _cocitation(record, where)
            new = cited not in seen and not any(evaluated.holds(paper.title) for paper in cocitation[1:3])
            texts = cocitation.contexts if new else ()
            seen |= {cited} if new else set()
        for pair in itertools.combinations([Paper("", "", (Sentence(text),)) for text in texts], 2):
            yield Cocitation(cited, *pair)


def _records(source: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    name = display_name(source)
    with open_source(source) as stream:
        for number, line in numbered_lines(stream, name):
            where = f"{name}, line {number}"
            if text := decode_text(line, where).removeprefix("\ufeff").strip():
                yield where, decode_record(text, where, "one JSON object a line")


def _cocitation(record: Mapping[str, Any], where: str) -> Cocitation:
    positive = record.get("pos_context")
    papers = [_paper(record.get(field), f"{where}, {field}") for field in ("query", "pos_context")]
    assert isinstance(positive, Mapping)  # checked by _paper
    contexts = record.get("citing_contexts", positive.get("citing_contexts"))
    # Where empty sentences were dropped, positions do not refer to the same sentences any more.
    complete = all(
        len(paper.sentences) == len(record[field]["ABSTRACT"])
        for paper, field in zip(papers, ("query", "pos_context"), strict=True)
    )
    alignments = [
        _alignment(positive.get(field), papers, f"{where}, {field}") if complete else None
        for field in ("cc_align", "abs_align")
    ]
    return Cocitation(
        _cited(record, where),
        papers[0],
        papers[1],
        () if contexts is None else _sentences(contexts, where, "citing_contexts"),
        *alignments,
    )


def _cited(record: Mapping[str, Any], where: str) -> frozenset[str]:
    ids = record.get("cited_pids")
    valid = isinstance(ids, list) and all(isinstance(each, (str, int)) and each != "" for each in ids)
    cited = frozenset(map(str, ids)) if isinstance(ids, list) and valid else frozenset[str]()
    if len(cited) < 2:
        raise CorpusError(
            f"{where}: expected the ids of two papers or more as cited_pids, found {_short(ids)}; say which "
            "papers were cited together"
        )
    return cited


def _paper(value: Any, where: str) -> Paper:
    if not isinstance(value, Mapping):
        raise CorpusError(
            f"{where}: expected an object with TITLE and ABSTRACT, found {_short(value)}; give both papers"
        )
    if not isinstance(value.get("ABSTRACT"), list):
        raise CorpusError(
            f"{where}: expected a list of sentences as ABSTRACT, found {_short(value.get('ABSTRACT'))}; "
            "split it into sentences"
        )
    record = {"title": value.get("TITLE"), "abstract": value["ABSTRACT"]}
    return parse_paper(record, where, default_id="")


def _sentences(value: Any, where: str, field: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise CorpusError(f"{where}: expected sentences as {field}, found {_short(value)}; give strings")
    if not any(text.strip() for text in value):
        return ()
    paper = parse_paper({"title": "", "abstract": value}, f"{where}, {field}", default_id="")
    return tuple(sentence.text for sentence in paper.sentences)


def _two_sentences(record: Mapping[str, Any], where: str) -> tuple[str, ...]:
    both = [record["query"], record.get("pos_context")]
    texts = _sentences(both, where, "query and pos_context")
    if len(texts) < 2:
        raise CorpusError(
            f"{where}: expected two sentences as query and pos_context, found {_short(both)}; give both"
        )
    return texts


def _alignment(value: Any, papers: list[Paper], where: str) -> Alignment | None:
    if value is None:
        return None
    lengths = [len(paper.sentences) for paper in papers]
    valid = isinstance(value, list) and len(value) == 2 and all(type(place) is int for place in value)
    if not valid or not all(0 <= place < length for place, length in zip(value, lengths, strict=True)):
        raise CorpusError(
            f"{where}: expected the positions of two sentences, below {lengths[0]} and {lengths[1]}, found "
            f"{_short(value)}; mend it or drop the field"
        )
    return value[0], value[1]


def _short(value: Any) -> str:
    if value is None:
        return "none"
    text = ascii(value[:60] if isinstance(value, (str, list)) else value)
    return text if len(text) <= 62 else text[:59] + "..."
