"""Results for programs: records, CSV, bibliographies, TREC runs; and runs of topics that can be continued."""

import csv
import io
import json
import logging
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qbe.corpus.bibliography import FORMATS as BIBLIOGRAPHIES
from qbe.corpus.bibliography import Bibliography, comment, entries, reference_of
from qbe.errors import RunError
from qbe.query import Query
from qbe.runs import format_run
from qbe.search import present
from qbe.search.queries import ASKED
from qbe.types import Facet, Hit, Match, Paper, Sentence
from qbe.util.files import StrPath, atomic_file, lock, resumable_staging, write_text
from qbe.util.text import plain

log = logging.getLogger(__name__)

Record = dict[str, Any]

_ABOUT = ("title", "authors", "year", "venue", "doi", "url")  # `authors` are separated by semicolons
COLUMNS = ("query_id", "rank", "paper_id", *_ABOUT, "score", "facet", "sentence", *map(str, Facet))
_FORMULAS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")  # beginnings; the last four: = + - @ in full width


class Result(NamedTuple):
    """A query, its id in the run, and its hits."""

    query_id: str
    query: Query
    hits: Sequence[Hit]


def to_record(
    lookup: present.Lookup, result: Result, *, first_rank: int = 1, explain: bool = False
) -> Record:
    """Make a record of JSON values of one query's result.

    A query of one aspect has ``paper_id`` and ``facet``, one of several ``aspects``, and each match then
    names its ``aspect``. ``explain`` adds the query's sentences, the probabilities of matched sentences'
    facets, each hit's component scores, the pair that contributed most, and the transport plan. Graded or
    explained hits have ``in_common``, words of techniques that the query's paper has too.
    """
    query_id, query, hits = result
    asked = query.papers[0].metadata.get(ASKED)
    record: Record = {"query_id": query_id, **({ASKED: dict(asked)} if asked else {})}
    aspects: list[Record] = [
        {"paper_id": each.paper.paper_id, "facet": each.facet.value if each.facet else None}
        for each in query.aspects
    ]
    if query.is_single:
        record |= aspects[0]
    else:
        pairs = zip(aspects, query.aspects, strict=True)
        record["aspects"] = [
            about | {"positions": each.positions, "weight": each.weight} for about, each in pairs
        ]
    if explain:
        sentences = [
            [sentence._asdict() for sentence in present.explain_query(aspect)] for aspect in query.aspects
        ]
        record["sentences"] = sentences[0] if query.is_single else sentences
    papers = [lookup(hit.paper_id) for hit in hits]
    with_words = [paper for paper, hit in zip(papers, hits, strict=True) if explain or hit.grades is not None]
    in_common = dict(zip(map(id, with_words), present.techniques_in_common(query, with_words), strict=True))
    record["hits"] = []
    for rank, (hit, paper) in enumerate(zip(hits, papers, strict=True), start=first_rank):
        place = {"rank": rank, "paper_id": hit.paper_id, "score": hit.score, **described(paper)}
        if hit.corner is not None:
            place |= {"corner": hit.corner, "chance": hit.chance}
        if hit.grades is not None:
            place["grades"] = dict(hit.grades)
        if (words := in_common.get(id(paper))) is not None:
            place["in_common"] = words
        if explain:
            scores = hit.component_scores or {}
            place["component_scores"] = {name: round(score, 6) for name, score in scores.items()}
            place["driven_by"] = _match(query, paper, hit.driven_by, explain) if hit.driven_by else None
            place["plan"] = [{**entry._asdict(), "mass": round(entry.mass, 6)} for entry in hit.plan]
        place["matches"] = [_match(query, paper, match, explain) for match in hit.matches]
        record["hits"].append(place)
    return record


def _match(query: Query, paper: Paper, match: Match, explain: bool) -> Record:
    sentence = paper.sentences[match.position]
    record: Record = {} if query.is_single else {"aspect": match.aspect}
    record |= {
        "query_position": match.query_position,
        "query_sentence": query.aspects[match.aspect].paper.sentences[match.query_position].text,
        "position": match.position,
        "sentence": sentence.text,
        "offsets": list(paper.offsets[match.position]) if paper.offsets else None,
        "facet": sentence.facet.value if sentence.facet else None,
        "score": round(match.score, 6),
    }
    return record | ({"probability": present.facet_probability(sentence)} if explain else {})


def described(paper: Paper) -> Record:
    """Title, year, authors, venue, links and abstract of a paper as JSON values."""
    reference = reference_of(paper)
    return {
        "title": paper.title,
        "year": plain(paper.year or ""),
        "authors": list(reference.authors),
        "venue": reference.venue,
        "links": dict(reference.links),
        "abstract": paper.abstract,
    }


def paper_record(paper: Paper, *, inside: bool, selected: Collection[int] = ()) -> Record:
    """A paper with its sentences, ``selected`` ones marked; its id is None unless ``inside`` the index."""
    return {
        "paper_id": paper.paper_id if inside else None,
        **described(paper),
        "sentences": sentence_records(paper, selected),
    }


def sentence_records(paper: Paper, selected: Collection[int] = ()) -> list[Record]:
    """The sentences of a paper, with their facets and how probable these are (None: given)."""
    return [
        {
            "position": position,
            "text": sentence.text,
            "facet": sentence.facet.value if sentence.facet else None,
            "label": sentence.label,
            "probability": present.facet_probability(sentence),
            "selected": position in selected,
        }
        for position, sentence in enumerate(paper.sentences)
    ]


def as_json(record: Mapping[str, Any]) -> str:
    """A record as JSON in one line; raises ValueError for what JSON has no number for."""
    return json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def export_parts(papers: Iterable[Paper], form: str) -> list[str]:
    """Papers in ``bibtex``, ``ris``, ``csv``, ``markdown`` or ``json``, a part a paper."""
    if form in BIBLIOGRAPHIES:
        first, *rest = entries(list(papers), form)
        return [first, *(f"\n{entry}" for entry in rest)]
    parts = list[str]()
    for paper in papers:
        if form == "csv":
            header = [] if parts else [("paper_id", *_ABOUT, "abstract")]
            parts.append(to_csv([*header, [paper.paper_id, *_about(paper), paper.abstract]]))
        elif form == "markdown":
            said = filter(None, (present.credits_of(reference_of(paper), link=False), paper.paper_id))
            parts.append(f"- {present.linked_title(paper)} {present.escaped('; '.join(said))}\n")
        else:
            record = paper_record(paper, inside=True)
            parts.append(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
    return parts


def _about(paper: Paper) -> Sequence[object]:
    reference = reference_of(paper)
    about = reference.year, reference.venue, reference.doi, reference.page
    return [reference.title, "; ".join(reference.authors), *about]


def to_csv(rows: Iterable[Iterable[object]]) -> str:
    """Format rows as CSV, with an apostrophe before texts that spreadsheets would take for formulas."""

    def guarded(cell: object) -> object:
        if not isinstance(cell, str):
            return cell
        text = plain(cell)
        return f"'{text}" if text.lstrip(" \N{NO-BREAK SPACE}").startswith(_FORMULAS) else text

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(guarded, row) for row in rows)
    return text.getvalue()


ResultWriter = Callable[[Result, bool], str]  # of a result, and whether it is the first
WITHOUT_MATCHES = ("trec", *BIBLIOGRAPHIES)  # formats; hits of all others must have matches


def open_writer(
    form: str,
    tag: str,
    lookup: present.Lookup,
    width: int,
    *,
    explain: bool,
    command: str = "qbe search",
    title: present.Heading = present.heading,
    graded_by: str = "",
) -> ResultWriter:
    """Open the writer of ``trec``, ``json``, ``table``, ``csv``, ``markdown``, ``bibtex`` or ``ris``.

    ``tag`` is of TREC runs, ``width`` of tables. In a bibliography a paper has one entry, under the first
    query that found it; in BibTeX a comment names the ``command``, each query, and the keys of papers found
    before.
    """
    bibliography = Bibliography(form) if form in BIBLIOGRAPHIES else None

    def text(result: Result, first: bool) -> str:
        query_id, query, hits = result
        if form == "trec":
            return format_run(tag, {query_id: hits})
        if form == "json":
            record = to_record(lookup, result, explain=explain)
            return json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        if form == "csv":
            return _csv(lookup, result, first)
        if bibliography is not None:
            found = [(hit.paper_id, bibliography.add(lookup(hit.paper_id))) for hit in hits]
            lines = [entry for _, entry in found if entry is not None]
            if form == "ris":
                return "".join(f"{entry}\n" for entry in lines)
            above = [bibliography.keys[paper_id] for paper_id, entry in found if entry is None]
            about = comment(f"above: {', '.join(above)}") if above else ""
            made = "\n".join([comment(f"{command}: {query_id}") + about, *lines])
            return made if first else f"\n{made}"
        if form == "markdown":
            made = present.to_markdown(lookup, query, hits, title, graded_by)
        else:
            made = present.to_table(
                lookup, query, hits, width, explain=explain, title=title, graded_by=graded_by
            )
        return f"{made}\n" if first else f"\n{made}\n"

    return text


def _csv(lookup: present.Lookup, result: Result, first: bool) -> str:
    rows: list[Iterable[object]] = [COLUMNS] if first else []
    for rank, hit in enumerate(result.hits, start=1):
        paper, grades = lookup(hit.paper_id), hit.grades or {}
        best = present.shown(result.query, paper, hit)
        sentence = paper.sentences[best[0].position] if best else Sentence("")
        matched = sentence.facet.value if sentence.facet else "", sentence.text
        by_facet = (grades.get(facet.value, "") for facet in Facet)
        rows.append((result.query_id, rank, hit.paper_id, *_about(paper), hit.score, *matched, *by_facet))
    return to_csv(rows)


def write_run(
    path: StrPath | None,
    writer: ResultWriter,
    ids: Sequence[str],
    search: Callable[[Sequence[int]], Iterable[Result]],
    *,
    resumable: bool = False,
    resume: bool = False,
    overwrite: bool = False,
) -> None:
    """Write results of queries to a file, or standard output; ``search`` yields those at places of ``ids``.

    A ``resumable`` run keeps finished queries in ``.NAME.part`` until all are there; ``resume`` searches for
    those that it lacks, ``overwrite`` alone discards it.
    """
    path = Path(path) if path else None
    if path is None or not resumable or (path.exists() and not path.is_file()):
        texts = (writer(result, place == 0) for place, result in enumerate(search(range(len(ids)))))
        if path is not None:
            write_text(path, "".join(texts))
        else:
            sys.stdout.writelines(texts)
        return
    path = Path(os.path.realpath(path))
    part = path.with_name(f".{path.name}.part")
    with lock(path.with_name(f".{path.name}.lock")) as is_mine:
        if not is_mine:
            raise RunError(f"{path} is being written by another process; wait until it ends")
        if resume and not overwrite and path.exists() and path.stat().st_size:
            if part.exists():
                raise RunError(f"{part} holds an unfinished run; go on with `overwrite` and `resume`")
            log.info("%s is complete: no unfinished run is there to resume", path)
            return
        done = _finished(part, resume=resume, overwrite=overwrite) if part.exists() else set()
        missing = [place for place, query_id in enumerate(ids) if query_id not in done]
        try:
            with resumable_staging(part, lambda: bool(done)):
                with part.open("a" if done else "w", encoding="utf-8") as stream:
                    for place, result in zip(missing, search(missing), strict=True):
                        record = {"query_id": ids[place], "text": writer(result, place == 0)}
                        stream.write(json.dumps(record) + "\n")
                        stream.flush()
                        done.add(ids[place])
                with part.open("rb") as lines, atomic_file(path) as output:
                    output.writelines(json.loads(line)["text"].encode() for line in lines)
                part.unlink()
        except KeyboardInterrupt:
            hint = [f"; {'--overwrite ' * overwrite}--resume continues with what is finished"] if done else []
            raise KeyboardInterrupt(*hint) from None


def _finished(part: Path, *, resume: bool, overwrite: bool) -> set[str]:
    """The ids of the complete queries of an unfinished run; what was cut off behind them is removed."""
    done, size = set[str](), 0
    with part.open("rb") as lines:
        for line in lines:
            try:
                done.add(json.loads(line if line.endswith(b"\n") else b"")["query_id"])
            except ValueError:  # cut off; what follows would stand on the same line
                break
            size += len(line)
    if not done or (overwrite and not resume):
        return set()
    if not resume:
        raise RunError(
            f"{part} holds an unfinished run; continue it with `resume`, or discard it with `overwrite`"
        )
    os.truncate(part, size)
    log.info("continuing the unfinished run in %s", part)
    return done
