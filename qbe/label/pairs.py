"""Files of pairs: to be graded, drawn from an index in several ways, and graded."""

import math
import random
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from qbe.errors import CorpusError, FileFormatError, UsageError, check_count
from qbe.index.index import Index
from qbe.query import SAME_METHOD_OTHER_PROBLEM, SAME_PROBLEM_OTHER_METHOD, SHAPES, Query
from qbe.runs import PAIRS_HEADER, read_graded_pairs, read_run
from qbe.search.request import SearchRequest
from qbe.search.session import SearchSession
from qbe.search.stages import Stages, default_stages
from qbe.types import Facet, Paper
from qbe.util.files import StrPath, write_text
from qbe.util.text import bad_line, read_fields

Grades = Sequence[float]  # of a pair, facet by facet; NaN where it has none
Merges = Mapping[Facet, Mapping[int, int]]  # grades that count as other ones, by facet

IDS = PAIRS_HEADER[:2]
POOL, ASSESSOR = "pool", "assessor"
GIVEN, DIFFERS = "given", "differs"  # pools: of pairs that a user gave, that two files grade differently


class Pair(NamedTuple):
    """Name a query paper and a candidate by their ids, and how the candidate was found."""

    query_id: str
    paper_id: str
    pool: str = GIVEN


def read_pairs(path: StrPath) -> list[Pair]:
    """Read the pairs, each once, of a tab-separated file of query_id and paper_id, and pool if any."""
    rows = read_fields(path, "\t")
    number, header = next(rows, (1, []))
    if not set(IDS) <= set(header) or len({*header}) < len(header):
        raise bad_line(path, number, f"the tab-separated columns {' and '.join(IDS)}", "\t".join(header))
    pairs: dict[tuple[str, str], Pair] = {}
    for number, fields in rows:
        row = dict(zip(header, fields, strict=False))
        query_id, paper_id = (row.get(name, "") for name in IDS)
        if not query_id or not paper_id or any(fields[len(header) :]):
            raise bad_line(path, number, "two ids", "\t".join(fields))
        pairs.setdefault((query_id, paper_id), Pair(query_id, paper_id, row.get(POOL) or GIVEN))
    if not pairs:
        raise FileFormatError(f"{path}: expected pairs, found none; give a file of pairs")
    return list(pairs.values())


def read_grades(path: StrPath, merges: Merges = {}) -> dict[tuple[str, str], Grades]:  # noqa: B006
    """Read grades by query paper and candidate, merged; FileFormatError also for a pair graded twice."""
    grades: dict[tuple[str, str], Grades] = {}
    for query, pairs in read_graded_pairs(path, partial=True).items():
        for pair in pairs:
            first = grades.setdefault((query, pair.paper_id), pair.grades)
            if not _equal(first, pair.grades):
                found = " and ".join(", ".join(map(text_of, each)) for each in (first, pair.grades))
                expected = f"one grade by each facet for {query} and {pair.paper_id}"
                raise FileFormatError(f"{path}: expected {expected}, found {found}; keep one line")
    return {key: merged(each, merges) for key, each in grades.items()}


def write_pairs(
    path: StrPath, pairs: Sequence[Pair], grades: Sequence[Grades] | None = None, assessor: str = ""
) -> None:
    """Write pairs, with their grades and the ``assessor`` by hand if there are any."""
    hand = [assessor] if assessor else []
    header = (*(IDS if grades is None else PAIRS_HEADER), POOL, *(ASSESSOR for _ in hand))
    given: Sequence[Grades] = [()] * len(pairs) if grades is None else grades
    rows = (
        (pair.query_id, pair.paper_id, *map(text_of, row), pair.pool, *hand)
        for pair, row in zip(pairs, given, strict=True)
    )
    write_text(path, "".join("\t".join(fields) + "\n" for fields in (header, *rows)))


def text_of(grade: float) -> str:
    """Return a grade as files have it, empty for none."""
    return "" if math.isnan(grade) else f"{grade:g}"


def parse_merges(texts: Sequence[str]) -> dict[Facet, dict[int, int]]:
    """Parse grades to merge: ``3:2`` counts 3 as 2, ``method:3:2`` in one facet; raises UsageError."""
    merges: dict[Facet, dict[int, int]] = {facet: {} for facet in Facet}
    for text in texts:
        *facets, grade, other = text.split(":") if text.count(":") else ("", "")
        wrong = len(facets) > 1 or not {grade, other} <= set("0123") or not {*facets} <= {*map(str, Facet)}
        for facet in map(Facet, () if wrong else facets or Facet):
            wrong |= int(grade) in merges[facet]
            merges[facet][int(grade)] = int(other)
        if wrong:
            expected = "grades to `merge` as in 3:2 (3 counts as 2) or method:3:2, of 0 to 3 and each once"
            raise UsageError(f"expected {expected}, found {text!r}")
    return merges


def merged(grades: Grades, merges: Merges) -> tuple[float, ...]:
    """Return the grades of a pair after merging, interpolated where one lies between two whole ones."""
    found = list(grades)
    for place, (facet, grade) in enumerate(zip(Facet, grades, strict=True)):
        of_facet = merges.get(facet)
        if of_facet and not math.isnan(grade):
            below, above = math.floor(grade), math.ceil(grade)
            share = grade - below
            found[place] = (1 - share) * of_facet.get(below, below) + share * of_facet.get(above, above)
    return tuple(found)


def differences(first: StrPath, second: StrPath, *, merges: Merges) -> list[Pair]:
    """Return the pairs that two files grade differently, for a third assessor; FileFormatError if none."""
    one, other = (read_grades(path, merges) for path in (first, second))
    found = [Pair(*key, DIFFERS) for key in one if key in other and not _equal(one[key], other[key])]
    if not found:
        raise FileFormatError(f"expected pairs that {first} and {second} grade differently, found none")
    return found


def adjudicated(first: StrPath, second: StrPath, third: StrPath, *, merges: Merges) -> dict[Pair, Grades]:
    """Return the grades of pairs of two files: theirs where they agree, else the third's, facet by facet.

    Raises FileFormatError where the third lacks a pair on which they differ.
    """
    graded = [read_grades(path, merges) for path in (first, second, third)]
    decided: dict[Pair, Grades] = {}
    for key in (key for key in graded[0] if key in graded[1]):
        one, other = graded[0][key], graded[1][key]
        if not _equal(one, other) and key not in graded[2]:
            expected = f"grades of all pairs that {first} and {second} grade differently"
            found = f"none of {key[0]} and {key[1]}; grade those that are left"
            raise FileFormatError(f"{third}: expected {expected}, found {found}")
        pair = Pair(*key, DIFFERS if key in graded[2] else GIVEN)
        each = zip(one, other, graded[2].get(key, one), strict=True)
        decided[pair] = [a if text_of(a) == text_of(b) else c for a, b, c in each]
    return decided


def _equal(one: Grades, other: Grades) -> bool:
    """Whether grades are equal, none and none included."""
    return list(map(text_of, one)) == list(map(text_of, other))


T = TypeVar("T")

DEPTH = 60  # ranks of a list from which candidates are drawn
BATCH = 8  # query papers searched for together
FAR, ABSTRACT = "far", "abstract"
MIXED = (SAME_METHOD_OTHER_PROBLEM, SAME_PROBLEM_OTHER_METHOD)
# Sources of candidates: rankings by facet, by mixed queries and by the whole abstract, and what none holds.
POOLS = (*(facet.value for facet in Facet), *MIXED, ABSTRACT, FAR)


def drawn(items: Sequence[T], count: int | None, seed: int) -> list[T]:
    """Return ``count`` random items in their order, or all for None."""
    if count is None:
        return list(items)
    if not 1 <= count <= len(items):
        raise UsageError(f"expected a `sample` from 1 to {len(items):,}, found {count:,}")
    return [items[place] for place in sorted(random.Random(seed).sample(range(len(items)), count))]


def ids_with(index: Index, keywords: Sequence[str]) -> list[str]:
    """Return the ids of papers with one of the phrases, whole and in any case; UsageError where none has."""
    any_of = "|".join(r"\s+".join(map(re.escape, each.split())) for each in keywords if each.strip())
    pattern = re.compile(rf"(?<!\w)(?:{any_of})(?!\w)", re.IGNORECASE)
    found = [each.paper_id for each in index if pattern.search(f"{each.title}\n{each.abstract}")]
    if not any_of or not found:
        raise UsageError(f"expected papers with one of the `keywords` {', '.join(keywords)}, found none")
    return found


def pool_runs(runs: Sequence[StrPath], depth: int, papers: Mapping[str, str]) -> dict[str, list[Pair]]:
    """Return for each query paper the first ``depth`` papers of each TREC run, each once, by their ids.

    ``papers`` gives the query paper of a topic; without one a query's id is taken for its paper's. A pair's
    pool names the files of the runs that have it.
    """
    check_count("depth", depth)
    found: dict[str, dict[str, dict[str, None]]] = {}
    for path in runs:
        for query_id, hits in read_run(path).rankings.items():
            query = papers.get(query_id, query_id)
            for hit in [hit for hit in hits if hit.paper_id != query][:depth]:
                found.setdefault(query, {}).setdefault(hit.paper_id, {})[Path(path).stem] = None
    return {
        query: [Pair(query, paper_id, "+".join(names)) for paper_id, names in sorted(pools.items())]
        for query, pools in found.items()
    }


def pool_candidates(
    index: Index,
    query_ids: Sequence[str],
    count: int,
    seed: int,
    progress: Callable[[int], object] = lambda _: None,
) -> list[Pair]:
    """Return for each query paper ``count`` candidates, taken from POOLS in turn: the best of mixed rankings;
    of the others by turns the best and one drawn from the first DEPTH.

    The first stage alone ranks, so that no reranker chooses what it is to learn from.
    """
    check_count("candidates", count)
    everything, pairs = index.papers.ids, list[Pair]()
    with SearchSession(index, Stages(default_stages(index).first_stage)) as session:
        for start in range(0, len(query_ids), BATCH):
            some = query_ids[start : start + BATCH]
            papers = [index.label_facets(index.paper(paper_id)) for paper_id in some]
            queries = [list(_queries(paper)) for paper in papers]
            requests = [SearchRequest(query, DEPTH, matches=False) for each in queries for _, query in each]
            rankings = iter(session.batch(requests, rerank=False))
            for paper, named in zip(papers, queries, strict=True):
                lists = {name: [hit.paper_id for hit in next(rankings).hits] for name, _ in named}
                pairs += _chosen(paper.paper_id, lists, everything, count, seed)
                progress(1)
    if not pairs:
        raise UsageError("expected an `index` with candidates for the queries, found none; give a larger one")
    return pairs


def _queries(paper: Paper) -> Iterator[tuple[str, Query]]:
    present = {facet for facet in Facet if paper.facet_positions(facet)[0]}
    yield from ((facet.value, Query(paper, facet)) for facet in Facet if facet in present)
    for name in MIXED:
        if SHAPES[name].keys() <= present:
            yield name, Query.by_facets(paper, SHAPES[name])
    yield ABSTRACT, Query(paper)


def _chosen(
    query_id: str, lists: dict[str, list[str]], everything: Sequence[str], count: int, seed: int
) -> list[Pair]:
    rng = random.Random(f"{seed} {query_id}")
    near = {query_id}.union(*lists.values())
    far = [paper_id for paper_id in everything if paper_id not in near]
    rng.shuffle(far)
    sources = {}
    for name, hits in lists.items():
        left, ordered = list(hits), list[str]()
        while left and name not in MIXED:  # by turns the best and one that is drawn
            ordered.append(left.pop(0))
            if left:
                ordered.append(left.pop(rng.randrange(len(left))))
        sources[name] = iter(hits if name in MIXED else ordered)
    sources[FAR] = iter(far)
    chosen: dict[str, Pair] = {}
    turns = deque(sources.items())
    while turns and len(chosen) < count:
        name, source = turns.popleft()
        found = next((paper_id for paper_id in source if paper_id not in chosen), None)
        if found is not None:
            chosen[found] = Pair(query_id, found, name)
            turns.append((name, source))
    return [chosen[paper_id] for paper_id in sorted(chosen)]


def papers_of(index: Index, pairs: Iterable[Pair]) -> dict[str, Paper]:
    """Return the papers of pairs by id; raises CorpusError where the index lacks some."""
    ids = dict.fromkeys(paper_id for pair in pairs for paper_id in (pair.query_id, pair.paper_id))
    missing = [paper_id for paper_id in ids if paper_id not in index]
    if missing:
        raise CorpusError(
            f"expected the {len(ids):,} papers of the pairs in the index, found {len(missing):,} not there, "
            f"such as {missing[0]}; give the index that holds them, for query ids of runs `topics`"
        )
    return {paper_id: index.paper(paper_id) for paper_id in ids}
