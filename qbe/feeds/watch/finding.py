"""The papers that are new for watches, found among those that came into an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from qbe.errors import QbeError
from qbe.feeds.watch.watches import MOST_OF_ONE, Found, Watch, Watches, full, now
from qbe.index.index import Index
from qbe.query import HIGHEST
from qbe.search.grading import no_grades
from qbe.search.queries import papers_of
from qbe.search.request import SearchRequest
from qbe.search.session import SearchSession
from qbe.search.stages import Dense, Stages
from qbe.serve.service.requests import LONGEST_ID, MOST_PAPERS, SearchBody, distinct_papers
from qbe.types import Facet, Hit

TOGETHER, SEARCHES = 500, 25
"""How many new papers are graded together, for how many watches."""


def watch_session(index: Index) -> SearchSession:
    """A session that grades papers by stored vectors, and ranks them without Java and rerankers; raises
    UsageError for an index without grades.
    """
    session = SearchSession(index, Stages(Dense()))
    if session.can_grade:
        return session
    session.close()
    raise no_grades()


def note_papers(watches: Watches, index: Index) -> None:
    """Note the papers of an index that are not known yet, in its order."""
    known = set(watches.known)
    with index.reading() as reader:
        ids = reader.papers.ids
        new = [paper_id for paper_id in ids if paper_id not in known]
    watches.known += new


def keep(watches: Watches, watch: Watch, session: SearchSession) -> dict[str, QbeError]:
    """Add a watch, for which all papers of the index are old; before that the others find what is new for
    them, so that nothing escapes them which leaves the index before their next run. The papers of its search
    are kept by their ids: another name, such as a part of a title, may later name others.

    Returns what `find` does. Raises what `SearchBody.compile` and `Watches.add` do.
    """
    for field in ("paper_ids", "not_paper_ids"):
        if names := watch.search.get(field):
            ids = [paper.paper_id for paper in distinct_papers(session.index, names)]
            if max(map(len, ids)) <= LONGEST_ID:
                watch.search = {**watch.search, field: ids}
    for body in _bodies(watch, session.index):
        session.prepared([body.compile(session.index)])
    problems = find(watches, session)
    watches.add(watch)
    return problems


def find(
    watches: Watches, session: SearchSession, advance: Callable[[int], object] = lambda _: None
) -> dict[str, QbeError]:
    """Add to each watch what it finds among the papers that are new for it, best first.

    All new papers of the newest commit are graded by stored vectors, and the filter of the search holds;
    nothing else is searched.
    Returns what went wrong, by the name of the watch, whose new papers then stay new. ``session`` is that of
    `watch_session`, and ``advance`` is called with 1 for each watch.
    """
    session.index.refresh()  # no other process may have noted papers that this one does not see
    note_papers(watches, session.index)
    time = now()
    problems: dict[str, QbeError] = {}
    room = watches.room()
    every = list(watches.watches.values())
    for some in (every[begin : begin + SEARCHES] for begin in range(0, len(every), SEARCHES)):
        asking = [
            watch
            for watch in some
            if watch.seen < len(watches.known) and room > 0 and watch.waiting < MOST_OF_ONE
        ]
        grades = _graded(asking, watches.known, session, problems)
        for watch in some:
            advance(1)
            if watch.name in problems:
                continue
            new, graded = watches.known[watch.seen :], grades.get(watch.name, {})
            most = max(0, min(room, MOST_OF_ONE - watch.waiting))
            found = [paper_id for paper_id in new if graded.get(paper_id, -1.0) >= watch.grade]
            if len(found) > most or (new and not most):  # those behind what there is room for stay new
                problems[watch.name] = QbeError(full())
                new = new[: new.index(found[most])] if most else []
            found = found[:most]
            best = sorted(found, key=lambda paper_id: (-graded[paper_id], paper_id))
            watch.keep([Found(paper_id, graded[paper_id], time) for paper_id in best])
            watch.seen += len(new)
            room -= len(found)
    return problems


class _Asked(NamedTuple):
    """A search of a watch; a bibliography has several."""

    watch: Watch
    body: SearchBody
    request: SearchRequest


def _graded(
    watches: Sequence[Watch], known: Sequence[str], session: SearchSession, problems: dict[str, QbeError]
) -> dict[str, dict[str, float]]:
    """For each watch, by its name, its papers with their grades: of those that are new for it, are in the
    index and may be found. What goes wrong with one is noted.
    """
    index, asked = session.index, list[_Asked]()
    for watch in watches:
        try:
            asked += [_Asked(watch, body, body.compile(index)) for body in _bodies(watch, index)]
        except QbeError as error:
            problems[watch.name] = error
    grades: dict[str, dict[str, float]] = {watch.name: {} for watch in watches}
    first = min((each.watch.seen for each in asked), default=len(known))
    for begin in range(first, len(known), TOGETHER):
        together = known[begin : begin + TOGETHER]
        pool = [paper_id for paper_id in together if paper_id in index]
        some = [
            each
            for each in asked
            if each.watch.seen < begin + TOGETHER and each.watch.name not in problems and pool
        ]
        for (watch, body, _), hits in zip(some, _found(some, pool, session), strict=True):
            if isinstance(hits, QbeError):
                problems[watch.name] = hits
                continue
            graded = grades[watch.name]
            for hit in hits:
                if (grade := grade_of(body, hit)) >= watch.grade:
                    graded[hit.paper_id] = max(grade, graded.get(hit.paper_id, 0.0))
    for watch, _, request in asked:
        for paper in request.query.papers:
            grades[watch.name].pop(paper.paper_id, None)
    return grades


def _found(
    asked: Sequence[_Asked], pool: Sequence[str], session: SearchSession
) -> list[Sequence[Hit] | QbeError]:
    """The hits of searches among the papers of a pool, or what went wrong with one, which is found out by
    searching one by one.
    """
    requests = [
        SearchRequest(each.query, len(pool), pool, each.filter, matches=False, grades=True)
        for _, _, each in asked
    ]
    try:
        return [ranking.hits for ranking in session.batch(requests, rerank=False)]
    except QbeError as error:
        if len(asked) == 1:
            return [error]
        return [found for each in asked for found in _found([each], pool, session)]


def _bodies(watch: Watch, index: Index) -> Iterator[SearchBody]:
    """The searches of a watch: of a bibliography as many as its papers need."""
    if not watch.cited:
        yield SearchBody.model_validate(watch.search)
        return
    with index.reading() as reader:
        named = papers_of(reader, Path(watch.cited)).paper_ids
    for begin in range(0, len(named), MOST_PAPERS):
        yield SearchBody.model_validate({**watch.search, "paper_ids": named[begin : begin + MOST_PAPERS]})


def grade_of(body: SearchBody, hit: Hit) -> float:
    """The grade of a hit, from 0 to 3: of a search by a facet in this facet, of an exploration three times
    the chance of being as asked, of other searches the highest of all facets.

    >>> grade_of(SearchBody(paper_ids=["s036"]), Hit("s051", 0.5, grades={"method": 1.5, "result": 0.75}))
    1.5
    """
    aspects, grades = body.aspects, hit.grades or {}
    if isinstance(aspects, Mapping):
        return round(HIGHEST * float(hit.score), 4)
    return grades.get(str(aspects), 0.0) if isinstance(aspects, Facet) else max(grades.values(), default=0.0)
