"""The papers that are new for watches, found among those that came into an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from qbe.errors import QbeError
from qbe.index.index import Index
from qbe.search.opening import no_grades
from qbe.search.paper_files import papers_of
from qbe.search.request import SearchRequest
from qbe.search.session import SearchSession
from qbe.search.stages import Dense, Stages
from qbe.service.requests import MOST_PAPERS, SearchBody
from qbe.shapes import HIGHEST
from qbe.types import Facet, Hit
from qbe.watch.watches import MOST_OF_ONE, Found, Watch, Watches, full, now

TOGETHER = 5000
"""New papers that are graded together."""


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
        new = [ids[row] for row in reader.papers.live.tolist() if ids[row] not in known]
    watches.known += new


def keep(watches: Watches, watch: Watch, session: SearchSession) -> None:
    """Add a watch, for which all papers of the index are old; before that the others find what is new for
    them, so that nothing escapes them which leaves the index before their next run.

    Raises what `SearchBody.compile` and `Watches.add` do.
    """
    for body in _bodies(watch, session.index):
        session.prepared([body.compile(session.index)])
    find(watches, session)
    watches.add(watch)


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
    for watch in watches.watches.values():
        new = watches.known[watch.seen :]
        most = max(0, min(room, MOST_OF_ONE - watch.waiting))
        try:
            graded = _graded(watch, new, session) if most else {}
        except QbeError as error:
            problems[watch.name] = error
        else:
            found = [paper_id for paper_id in new if graded.get(paper_id, -1.0) >= watch.grade]
            if len(found) > most or (new and not most):  # those behind what there is room for stay new
                problems[watch.name] = QbeError(full())
                new = new[: new.index(found[most])] if most else []
            found = found[:most]
            best = sorted(found, key=lambda paper_id: (-graded[paper_id], paper_id))
            watch.keep([Found(paper_id, graded[paper_id], time) for paper_id in best])
            watch.seen += len(new)
            room -= len(found)
        advance(1)
    return problems


def _graded(watch: Watch, paper_ids: Sequence[str], session: SearchSession) -> dict[str, float]:
    """The grades of those of some papers that are in the index and may be found."""
    index = session.index
    grades: dict[str, float] = {}
    own: set[str] = set()
    pool = [paper_id for paper_id in paper_ids if paper_id in index]
    if not pool:
        return grades
    for body in _bodies(watch, index):
        asked = body.compile(index)
        own |= {paper.paper_id for paper in asked.query.papers}
        for begin in range(0, len(pool), TOGETHER):
            some = pool[begin : begin + TOGETHER]
            request = SearchRequest(asked.query, len(some), some, asked.filter, matches=False, grades=True)
            for hit in session.search(request, rerank=False).hits:
                grades[hit.paper_id] = max(grade_of(body, hit), grades.get(hit.paper_id, 0.0))
    return {paper_id: grade for paper_id, grade in grades.items() if paper_id not in own}


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
