"""Co-cited papers, in the form of ASPIRE's pre-processing.

JSON lines, one pair of papers each, as ``pre_proc_cocits.py`` of the paper's code (Mysore et al., 2022)
writes them and its batchers read them:

- ``cited_pids``: the ids of all papers that were cited together, two or more; of a set of three there are
  three lines;
- ``query`` and ``pos_context``: two of these papers, each ``TITLE`` (a string) and ``ABSTRACT`` (sentences);
- inside ``pos_context``, for objectives that align sentences, ``cc_align``: positions of an aligned sentence
  of the query and of the positive, found through the sentences that cite both.

Other fields are ignored, ``neg_context`` too: negatives are drawn within batches.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus import parse_paper
from qbe.corpus.identity import TitleIndex
from qbe.corpus.json_stream import decode_record, decode_text
from qbe.corpus.streams import display_name, numbered_lines, open_source
from qbe.errors import CorpusError
from qbe.train.work import Sources
from qbe.types import Paper, Sentence

log = logging.getLogger(__name__)
HELD_OUT, MOST_HELD_OUT = 0.05, 2000
"""The share of the sets that become dev, and the most, where no dev file is given."""


class Pair(NamedTuple):
    """Two co-cited papers, the ids of the set that was cited, and the positions of two aligned sentences."""

    cited: frozenset[str]
    query: Paper
    positive: Paper
    alignment: tuple[int, int] = (0, 0)


class Parts(NamedTuple):
    """Pairs to train on and pairs of dev; no set of cited papers is in both."""

    train: list[Pair]
    dev: list[Pair]


def read_parts(sources: Sources, *, aligned: bool) -> Parts:
    """Read pairs, ``aligned`` by two sentences; raises CorpusError for malformed ones, and for too few."""
    evaluated = TitleIndex.of_corpus(sources.leave_out)
    train, dev = (
        [pair for path in paths for pair in read_cocitations(path, evaluated, aligned=aligned)]
        for paths in (sources.train, sources.dev)
    )
    sets = {pair.cited for pair in dev}
    parts = Parts([pair for pair in train if pair.cited not in sets], dev) if sources.dev else hold_out(train)
    for pairs, paths in ((parts.train, sources.train), (parts.dev, sources.dev or sources.train)):
        if not any(pair.cited.isdisjoint(pairs[0].cited) for pair in pairs):
            shared = frozenset[str]().union(*(pair.cited for pair in pairs))
            raise CorpusError(
                f"{', '.join(map(str, paths))}: expected co-citations of papers that are not all related, to "
                f"train on and as dev, found {len(pairs):,} pairs of {len(shared):,} papers; give more of "
                "them"
            )
    log.info("%d pairs to train on, %d of dev", len(parts.train), len(parts.dev))
    return parts


def hold_out(pairs: Sequence[Pair]) -> Parts:
    """Split pairs by their sets; dev is a random sample of the sets that depends on nothing else.

    It has a share HELD_OUT of the sets, at least 2 and at most MOST_HELD_OUT.
    """
    sets = sorted({pair.cited for pair in pairs}, key=sorted)
    count = min(max(2, round(HELD_OUT * len(sets))), MOST_HELD_OUT, len(sets))
    dev_sets = set(random.Random("held out").sample(sets, count))
    return Parts(
        [pair for pair in pairs if pair.cited not in dev_sets],
        [pair for pair in pairs if pair.cited in dev_sets],
    )


def read_cocitations(source: Path, evaluated: TitleIndex, *, aligned: bool = False) -> Iterator[Pair]:
    """Stream pairs of papers that were cited together, without those of papers in ``evaluated``.

    Equal papers are one object. Where ``aligned``, the positions of two sentences must be there. Raises
    CorpusError with file and line for malformed lines.
    """
    papers: dict[tuple[str, tuple[Sentence, ...]], Paper] = {}
    kept: dict[str, bool] = {}
    name = display_name(source)
    with open_source(source) as stream:
        for number, line in numbered_lines(stream, name):
            where = f"{name}, line {number}"
            if not (text := decode_text(line, where).removeprefix("\ufeff").strip()):
                continue
            record = decode_record(text, where, "one JSON object a line")
            pair = [
                papers.setdefault((paper.title, paper.sentences), paper) for paper in _papers(record, where)
            ]
            cited = _cited(record, where)
            alignment = _alignment(record, f"{where}, cc_align") if aligned else (0, 0)
            for paper in pair:
                if paper.title not in kept:
                    kept[paper.title] = not evaluated.holds(paper.title)
            if all(kept[paper.title] for paper in pair):
                yield Pair(cited, pair[0], pair[1], alignment)


def _papers(record: Mapping[str, Any], where: str) -> list[Paper]:
    papers = []
    for field in ("query", "pos_context"):
        value, place = record.get(field), f"{where}, {field}"
        if not isinstance(value, Mapping):
            raise _unusable(place, "an object with TITLE and ABSTRACT", value, "give both papers")
        sentences = value.get("ABSTRACT")
        if not isinstance(sentences, list):
            raise _unusable(place, "a list of sentences as ABSTRACT", sentences, "split it into sentences")
        papers.append(parse_paper({"title": value.get("TITLE"), "abstract": sentences}, place, default_id=""))
    return papers


def _cited(record: Mapping[str, Any], where: str) -> frozenset[str]:
    ids = record.get("cited_pids")
    valid = isinstance(ids, list) and all(isinstance(each, (str, int)) and each != "" for each in ids)
    cited = frozenset(map(str, ids)) if isinstance(ids, list) and valid else frozenset[str]()
    if len(cited) < 2:
        remedy = "say which papers were cited together"
        raise _unusable(where, "the ids of two papers or more as cited_pids", ids, remedy)
    return cited


def _alignment(record: Mapping[str, Any], where: str) -> tuple[int, int]:
    """The positions of two sentences; empty sentences, which papers lack, are not counted."""
    value = record["pos_context"].get("cc_align")
    texts = [record[part]["ABSTRACT"] for part in ("query", "pos_context")]
    valid = isinstance(value, list) and len(value) == 2 and all(type(place) is int for place in value)
    if valid and all(
        0 <= place < len(part) and part[place].strip() for place, part in zip(value, texts, strict=True)
    ):
        first, second = (
            sum(bool(text.strip()) for text in part[:place]) for place, part in zip(value, texts, strict=True)
        )
        return first, second
    sizes = " and ".join(str(len(part)) for part in texts)
    remedy = "add it, or take an objective that aligns no sentences, such as ot, as `objective`"
    raise _unusable(where, f"the positions of two sentences, below {sizes}", value, remedy)


def _unusable(where: str, expected: str, value: Any, remedy: str) -> CorpusError:
    text = "none" if value is None else ascii(value[:60] if isinstance(value, (str, list)) else value)
    found = text if len(text) <= 62 else text[:59] + "..."
    return CorpusError(f"{where}: expected {expected}, found {found}; {remedy}")
