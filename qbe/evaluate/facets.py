"""Protocols against grades by facet: crossed pairs, exploration, first hits as asked, and corners."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, combinations, permutations, product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from qbe.errors import FileFormatError
from qbe.evaluate import measures
from qbe.evaluate.evaluation import ALL, Evaluation, coverage, pool_warnings, scope_figures, scores_of
from qbe.evaluate.measures import parse_measures, per_query_values, trec_order
from qbe.query import HIGHEST, OTHER_TO, SHAPES, SIMILAR_FROM, split_query_id
from qbe.runs import Rankings, has_graded_pairs, read_graded_pairs, read_qrels
from qbe.types import Facet, Hit
from qbe.util.files import StrPath

CROSSED, EXPLORATION, AS_ASKED, DIVERSITY = "crossed", "exploration", "as-asked", "diversity"
CUTOFF = 10
NDCG, PRECISION = f"nDCG@{CUTOFF}", f"P@{CUTOFF}"

Row = Mapping[Facet, float]
FacetGrades = Mapping[str, Mapping[str, Row]]  # by query paper, candidate and facet


def read_facet_grades(paths: Iterable[StrPath]) -> dict[str, dict[str, dict[Facet, float]]]:
    """Read grades by query paper, candidate and facet from graded pairs or qrels (``{paper_id}_{facet}``)."""
    grades: dict[str, dict[str, dict[Facet, float]]] = {}
    for path in map(Path, paths):
        found: list[tuple[str, str, Facet, float]] = []
        if has_graded_pairs(path):
            for query, pairs in read_graded_pairs(path, partial=True).items():
                for pair in pairs:
                    graded = zip(Facet, pair.grades, strict=True)
                    found += [(query, pair.paper_id, *each) for each in graded if not math.isnan(each[1])]
        else:
            for query_id, by_paper in read_qrels(path).items():
                query, of_query = split_query_id(query_id)
                if of_query is None:
                    raise FileFormatError(
                        f"{path}: expected queries such as p1_method, found {query_id}; give others"
                    )
                found += [(query, paper_id, of_query, float(grade)) for paper_id, grade in by_paper.items()]
        for query, paper_id, facet, grade in found:
            if not 0 <= grade <= HIGHEST:
                raise FileFormatError(
                    f"{path}: expected grades from 0 to {HIGHEST:g}, found {grade:g} for {query} and "
                    f"{paper_id} by {facet}; mend the file"
                )
            if paper_id == query:
                continue
            row = grades.setdefault(query, {}).setdefault(paper_id, {})
            if row.setdefault(facet, grade) != grade:
                raise FileFormatError(
                    f"{path}: expected one grade by {facet} for {query} and {paper_id}, found {row[facet]:g} "
                    f"and {grade:g}; keep one"
                )
    return grades


def _without(expected: str, facets: str = "at least two facets") -> FileFormatError:
    return FileFormatError(f"expected {expected}, found none; give judgements of {facets} of the same papers")


# Crossed pairs: does a ranking follow its facet where the facets disagree? Of two candidates, each better for
# one facet by at least a grade, a ranking that ignores the facet is right for the one facet exactly where it
# is wrong for the other.

GAP = 1.0
CROSSED_DEFINITIONS = {
    f"right by {name}": f"share of crossed pairs ranked right by {name} {facets}"
    for name, facets in (("first", "facet"), ("second", "facet"), ("both", "facets"))
}
PAIRS = ((Facet.METHOD, Facet.BACKGROUND), (Facet.METHOD, Facet.RESULT), (Facet.RESULT, Facet.BACKGROUND))


def crossed_pairs(pool: Mapping[str, Row], first: Facet, second: Facet) -> list[tuple[str, str]]:
    """Return pairs of candidates of which one is better for the first facet, the other for the second."""
    graded = [(name, row[first], row[second]) for name, row in pool.items() if {first, second} <= row.keys()]
    return [
        (name, other)
        for (name, by_first, by_second), (other, other_first, other_second) in permutations(graded, 2)
        if by_first - other_first >= GAP and other_second - by_second >= GAP
    ]


def _right(scores: Mapping[str, float], better: str, worse: str) -> float:
    """Score a pair: equal scores count half; a candidate that is missing ranks last, a missing pair wrong."""
    if better not in scores and worse not in scores:
        return 0.0
    high, low = scores.get(better, -math.inf), scores.get(worse, -math.inf)
    return 0.5 if high == low else float(high > low)


def crossed_protocol(grades: FacetGrades, rankings: Rankings) -> Evaluation:
    """Evaluate a run, whose queries are named ``{paper_id}_{facet}``, by its crossed pairs."""
    scores = scores_of(rankings)
    queries: dict[str, tuple[str, ...]] = {}
    figures: dict[str, dict[str, float | None]] = {name: {} for name in CROSSED_DEFINITIONS}
    per_query: dict[str, dict[str, float]] = {name: {} for name in CROSSED_DEFINITIONS}
    numbers: dict[str, int] = {}
    asked: dict[str, None] = {}
    for first, second in PAIRS:
        pairs = {paper: crossed_pairs(pool, first, second) for paper, pool in grades.items()}
        pairs = {paper: of_paper for paper, of_paper in pairs.items() if of_paper}
        if not pairs:
            continue
        for facet in (first, second):
            if not any(f"{paper}_{facet}" in scores for paper in pairs):
                raise FileFormatError(
                    f"expected rankings by {facet} for the papers with crossed pairs ({next(iter(pairs))}, "
                    f"...), found none in the run; give the run's file of {facet} too"
                )
            asked |= dict.fromkeys(f"{paper}_{facet}" for paper in pairs)
        scope = f"{first}-{second}"
        rows = {}
        for paper, of_paper in pairs.items():
            by_first, by_second = (scores.get(f"{paper}_{facet}", {}) for facet in (first, second))
            right = [(_right(by_first, one, two), _right(by_second, two, one)) for one, two in of_paper]
            rows[f"{paper}_{scope}"] = [(*each, each[0] * each[1]) for each in right]
        queries[scope] = tuple(rows)
        numbers[scope] = sum(map(len, rows.values()))
        for place, name in enumerate(CROSSED_DEFINITIONS):
            per_query[name] |= {query: fmean(row[place] for row in own) for query, own in rows.items()}
            figures[name][scope] = fmean(row[place] for own in rows.values() for row in own)
    if not queries:
        raise _without("pairs of papers of which each is better for one facet by a grade")
    judged: dict[str, Any] = {
        f"{paper}_{facet}": pool for paper, pool in grades.items() for row in pool.values() for facet in row
    }
    _, warnings = coverage({CROSSED: tuple(asked)}, judged, rankings)
    return Evaluation(queries, per_query, figures, warnings, pairs=numbers)


SCOPES = tuple(pair for one, two in combinations(Facet, 2) for pair in ((one, two), (two, one)))
LIKED_FROM, DISLIKED_TO = 2.0, 0.5  # grades of relevant papers
_RELEVANT = f"liked >= {LIKED_FROM:g}, disliked <= {DISLIKED_TO:g}"
EXPLORATION_DEFINITIONS: Mapping[str, str] = {
    NDCG: f"normalized discounted cumulated gain at rank {CUTOFF}: the gain is the grade of the liked facet "
    "minus that of the disliked one, at least 0; discounts 1/log2(rank + 1)",
    PRECISION: f"share of relevant papers ({_RELEVANT}) among the first {CUTOFF}, over the queries with any",
    "RR": f"reciprocal rank of the first relevant paper ({_RELEVANT}), over the queries with any",
}
FACETS = "|".join(facet.value for facet in Facet)
_ENDINGS: Mapping[str, tuple[Facet, ...]] = {
    **{facet.value: (facet,) for facet in Facet},
    **{f"{one}-not-{other}": (one, other) for one, other in product(Facet, repeat=2)},
    **{name: tuple(weights) for name, weights in SHAPES.items() if min(weights.values()) < 0},
}
_ASPECT = rf"(-?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)\*([^&]+)_({FACETS})"
_SIGNED = re.compile(rf"{_ASPECT}&{_ASPECT}")


class Contrast(NamedTuple):
    """A query's paper, its liked facet, and its disliked one, if any."""

    paper_id: str
    liked: Facet
    disliked: Facet | None = None


def contrast_of(query_id: str) -> Contrast | None:
    """Parse the id of a query by one facet, or by a liked and a disliked one; None for any other.

    >>> contrast_of("1*a%26b_background&-0.5*a%26b_method")
    Contrast(paper_id='a&b', liked=<Facet.BACKGROUND: 'background'>, disliked=<Facet.METHOD: 'method'>)
    >>> contrast_of("p_method").disliked, contrast_of("1*p_method&1*p_result")
    (None, None)
    """
    paper, _, ending = query_id.rpartition("_")
    facets = _ENDINGS.get(ending, ())
    if aspects := _SIGNED.fullmatch(query_id):
        low, high = sorted((float(aspects[n]), aspects[n + 1], aspects[n + 2]) for n in (1, 4))
        is_contrast = low[0] < 0 < high[0] and low[1] == high[1] and low[2] != high[2]
        paper, facets = low[1], (Facet(high[2]), Facet(low[2])) if is_contrast else ()
    return Contrast(paper.replace("%26", "&").replace("%25", "%"), *facets) if facets else None


def ndcg(ranked: Sequence[float], pool: Collection[float]) -> float:
    """Compute nDCG at rank 10 of gains, with discounts 1/log2(rank + 1); 0 without positive gains."""
    return measures.ndcg(ranked, pool, CUTOFF, lambda rank: math.log2(rank + 1))


def exploration_protocol(grades: FacetGrades, rankings: Rankings) -> Evaluation:
    """Evaluate a run that looks for papers like a paper in one facet and unlike it in another.

    The queries of a scope are the query papers with a candidate of positive gain. A query's ranking is that
    of the run's query ``1*p_background&-0.5*p_method`` (any weights), ``p_background-not-method`` or a shape;
    where the run has none, that of ``p_background``.
    """
    gains: dict[str, dict[str, float]] = {}
    relevant: dict[str, dict[str, int]] = {}
    contrasts: dict[str, dict[str, Contrast]] = {}
    for (liked, disliked), (paper, rows) in product(SCOPES, grades.items()):
        both = {n: r for n, r in rows.items() if n != paper and {liked, disliked} <= r.keys()}
        gain = {name: max(0.0, row[liked] - row[disliked]) for name, row in both.items()}
        if any(gain.values()):
            scope = f"{liked}-not-{disliked}"
            query = f"{paper}_{scope}"
            contrasts.setdefault(scope, {})[query] = Contrast(paper, liked, disliked)
            gains[query] = gain
            relevant[query] = {
                name: int(row[liked] >= LIKED_FROM and row[disliked] <= DISLIKED_TO)
                for name, row in both.items()
            }
    if not gains:
        raise _without("papers with a higher grade for one facet than for another")
    sources: dict[Contrast, str] = {}  # the run's query of each contrast
    others = {}
    for query, hits in rankings.items():
        contrast = contrast_of(query)
        if contrast is not None and (first := sources.setdefault(contrast, query)) != query:
            other = f" and not {contrast.disliked}" if contrast.disliked else ""
            raise _twice(contrast.paper_id, f" by {contrast.liked}{other}", f"{first} and {query}")
        if query not in gains and (contrast is None or contrast.paper_id not in grades):
            others[query] = hits
    scopes = {scope: tuple(of_scope) for scope, of_scope in contrasts.items()}
    ranked_by, warnings = _ranked_by(contrasts, sources, rankings)
    ranked = {scope: ids for scope, ids in scopes.items() if not ranked_by.keys().isdisjoint(ids)}
    _, missing = coverage(ranked, relevant, others | ranked_by)
    scores = scores_of(ranked_by, relevant)
    of_gain = {}
    for query in chain.from_iterable(ranked.values()):
        order = trec_order(scores.get(query, {}))
        of_gain[query] = ndcg([gains[query][name] for name in order], gains[query].values())
    with_any = {query for query, grades_of_query in relevant.items() if any(grades_of_query.values())}
    with_relevant = {scope: tuple(q for q in ids if q in with_any) for scope, ids in scopes.items()}
    binary = {query: relevant[query] for query in of_gain if query in with_any}
    values = {NDCG: of_gain, **per_query_values(parse_measures((PRECISION, "RR")), binary, scores)}
    warnings += [*missing, *pool_warnings(relevant, scores, small=0)]
    figures = scope_figures({}, values, scopes)
    return Evaluation(scopes, values, figures, tuple(warnings), with_relevant=with_relevant)


def _ranked_by(
    contrasts: Mapping[str, Mapping[str, Contrast]], sources: Mapping[Contrast, str], rankings: Rankings
) -> tuple[dict[str, Sequence[Hit]], list[str]]:
    """Return the ranking of each query, by its contrast or by its liked facet alone, and warnings."""
    ranked_by: dict[str, Sequence[Hit]] = {}
    warnings: list[str] = []
    for scope, of_scope in contrasts.items():
        likes = {query: each._replace(disliked=None) for query, each in of_scope.items()}
        signed = {query: sources[each] for query, each in of_scope.items() if each in sources}
        by_one = {q: sources[each] for q, each in likes.items() if q not in signed and each in sources}
        ranked_by |= {query: rankings[source] for query, source in (signed | by_one).items()}
        if not signed and not by_one:
            warnings.append(f"no query for {scope} in the run: no figures for {scope}")
        elif signed and by_one:
            warnings.append(
                f"{len(by_one)} of {len(of_scope)} queries for {scope} are ranked by the liked facet alone "
                f"({next(iter(by_one.values()))}, ...)"
            )
    if not ranked_by:
        paper, liked, disliked = next(iter(next(iter(contrasts.values())).values()))
        queries = f"1*{paper}_{liked}&-1*{paper}_{disliked} or {paper}_{liked}"
        raise _not_ranked(queries, rankings, "give grades and run of the same papers")
    return ranked_by, warnings


def _twice(paper: str, by: str, queries: str) -> FileFormatError:
    return FileFormatError(
        f"expected one ranking{by} for paper {paper}, found {queries}; put them in runs of their own"
    )


def _not_ranked(queries: str, rankings: Rankings, remedy: str) -> FileFormatError:
    return FileFormatError(
        f"expected rankings of the graded papers, of queries such as {queries}, found "
        f"{next(iter(rankings), 'no query')}; {remedy}"
    )


# As asked: how many of the first hits over a whole corpus are as asked? A hit without a judgement counts as
# not asked for: the best of many unrelated papers compete for the first places, which pools do not show.

_IN_TABLES = ("same-method-other-problem", "same-problem-other-method", "competitors")
# The facets that should be similar (weights above 0), and those that should differ (below), by scope.
REQUIREMENTS: Mapping[str, Mapping[Facet, float]] = {
    **{facet.value: {facet: 1.0} for facet in Facet},
    **{shape: SHAPES[shape] for shape in _IN_TABLES},
}
_SHAPE_OF_CONTRAST = {
    "-not-".join(map(str, weights)): shape for shape, weights in SHAPES.items() if min(weights.values()) < 0
}
AS_ASKED_CUTOFFS = (5, 10)
AS_ASKED_DEFINITIONS: Mapping[str, str] = {
    **{
        f"P@{k}": f"share of the first {k} hits that are as asked: a grade of at least {SIMILAR_FROM:g} in "
        f"the facets that are to be similar, of at most {OTHER_TO:g} in those that are to be another"
        for k in AS_ASKED_CUTOFFS
    },
    **{
        f"best P@{k}": f"the P@{k} of the best ranking of the judged papers: the smaller of {k} and the "
        f"number that are as asked, divided by {k}"
        for k in AS_ASKED_CUTOFFS
    },
    **{
        f"mean {facet} grade": f"mean {facet} grade of the judged papers of the first 5 hits"
        for facet in Facet
    },
    "judged@10": "share of the first 10 hits that are judged; those that are not count as not asked for",
}


def is_as_asked(row: Row, scope: str) -> bool:
    """Return True if these grades are as a query of the scope asks; False where one is missing."""
    return all(
        row.get(facet, 0.0) >= SIMILAR_FROM if weight > 0 else row.get(facet, math.inf) <= OTHER_TO
        for facet, weight in REQUIREMENTS[scope].items()
    )


def as_asked_protocol(grades: FacetGrades, rankings: Rankings) -> Evaluation:
    """Evaluate the first hits of ``{paper_id}_{scope}`` or ``{paper_id}_background-not-method``.

    A candidate is judged in a scope where it has grades for all facets that the scope asks for.
    """
    judged: dict[str, dict[str, set[str]]] = {scope: {} for scope in REQUIREMENTS}
    for (scope, asked), (paper, rows) in product(REQUIREMENTS.items(), grades.items()):
        if names := {name for name, row in rows.items() if asked.keys() <= row.keys()}:
            judged[scope][paper] = names
    first: dict[str, dict[str, list[str]]] = {scope: {} for scope in REQUIREMENTS}
    for query_id, scores in scores_of(rankings).items():
        paper, _, scope = query_id.rpartition("_")
        scope = _SHAPE_OF_CONTRAST.get(scope, scope)
        if paper in first.get(scope, ()):
            raise _twice(paper, f" by {scope}", f"{query_id} too")
        if scope in first and paper in grades:
            first[scope][paper] = [hit for hit in trec_order(scores) if hit != paper][: AS_ASKED_CUTOFFS[-1]]
    scopes = {scope: hits for scope, hits in first.items() if not judged[scope].keys().isdisjoint(hits)}
    unjudged_scopes = [scope for scope, hits in first.items() if hits and scope not in scopes]
    if unjudged_scopes and not scopes:
        raise FileFormatError(
            f"expected judgements by all facets that {unjudged_scopes[0]} asks for, found none for its "
            "queries; add some"
        )
    if not scopes:
        query = f"{next(iter(grades), 'p1')}_{next(iter(REQUIREMENTS))}"
        raise _not_ranked(query, rankings, "name the queries of the topics so")
    queries = {scope: tuple(f"{paper}_{scope}" for paper in judged[scope]) for scope in REQUIREMENTS}
    per_query: dict[str, dict[str, float]] = {measure: {} for measure in AS_ASKED_DEFINITIONS}
    warnings = [f"all queries by {scope} without judgements left out" for scope in unjudged_scopes]
    for scope, ranked in scopes.items():
        papers, unjudged = judged[scope], 0
        for paper, candidates in papers.items():
            rows, hits = grades[paper], ranked.get(paper, [])
            good = {name for name, row in rows.items() if is_as_asked(row, scope)}
            top = [rows[hit] for hit in hits[: AS_ASKED_CUTOFFS[0]] if hit in rows]
            values = {f"P@{k}": sum(hit in good for hit in hits[:k]) / k for k in AS_ASKED_CUTOFFS}
            values |= {f"best P@{k}": min(k, len(good)) / k for k in AS_ASKED_CUTOFFS}
            for facet in Facet:
                if of_facet := [row[facet] for row in top if facet in row]:
                    values[f"mean {facet} grade"] = fmean(of_facet)
            values["judged@10"] = sum(hit in candidates for hit in hits) / max(1, len(hits))
            unjudged += sum(hit not in candidates for hit in hits)
            for measure, value in values.items():
                per_query[measure][f"{paper}_{scope}"] = value
        if missing := [paper for paper in papers if paper not in ranked]:
            warnings.append(f"{len(missing)} of {len(papers)} queries by {scope} missing ({missing[0]}, ...)")
        if others := [paper for paper in ranked if paper not in papers]:
            warnings.append(
                f"queries by {scope} without judgements left out: {len(others)} ({others[0]}, ...)"
            )
        if unjudged:
            warnings.append(f"{unjudged} of the first {AS_ASKED_CUTOFFS[-1]} hits by {scope} are not judged")
    return Evaluation(queries, per_query, scope_figures({}, per_query, queries), tuple(warnings))


ALPHA = 0.5  # a paper is worth (1 - ALPHA) ** n for a corner that n papers above it have
ALPHA_NDCG = f"alpha-nDCG@{CUTOFF}"
DIVERSITY_DEFINITIONS: Mapping[str, str] = {
    ALPHA_NDCG: f"alpha-nDCG at rank {CUTOFF} (Clarke et al., 2008), alpha {ALPHA:g}, over the corners "
    f"{', '.join(SHAPES)}",
    f"corners@{CUTOFF}": f"share of the corners with a judged paper that are among the first {CUTOFF} "
    "(S-recall; Zhai et al., 2003)",
    PRECISION: f"share of the first {CUTOFF} hits that are in a corner",
    NDCG: f"normalized discounted cumulated gain at rank {CUTOFF}: the gain is the mean of the "
    "grades of all facets",
    **{
        f"{facet} spread": f"mean difference of the {facet} grades of two of the first {CUTOFF} hits"
        for facet in Facet
    },
}


def alpha_ndcg(ranked: Sequence[Collection[str]], pool: Sequence[Collection[str]]) -> float:
    """Compute alpha-nDCG at rank 10 (Clarke et al., 2008, eqs. 5 to 7); the ideal list is found greedily."""

    def dcg(papers: Sequence[Collection[str]], *, is_ideal: bool) -> float:
        left, seen, total = list(papers), Counter[str](), 0.0

        def gain(subtopics: Collection[str]) -> float:
            return math.fsum((1 - ALPHA) ** seen[subtopic] for subtopic in subtopics)

        for rank in range(1, min(CUTOFF, len(left)) + 1):
            next_one = max(left, key=gain) if is_ideal else left[0]
            left.remove(next_one)
            total += gain(next_one) / math.log2(rank + 1)
            seen.update(next_one)
        return total

    highest = dcg(pool, is_ideal=True)
    return dcg(ranked, is_ideal=False) / highest if highest else 0.0


def diversity_protocol(grades: FacetGrades, rankings: Rankings) -> Evaluation:
    """Evaluate the first hits of ``{paper_id}`` or ``{paper_id}_{anything}`` by the corners they are in."""
    corners = {
        paper: {name: {shape for shape in SHAPES if is_as_asked(row, shape)} for name, row in rows.items()}
        for paper, rows in grades.items()
    }
    papers = [paper for paper, rows in corners.items() if any(rows.values())]
    if not papers:
        raise _without("papers as one of the shapes of exploration asks", "background and method")
    ranked: dict[str, Sequence[Hit]] = {}
    for query_id, ranking in rankings.items():
        base = query_id.rpartition("_")[0]
        named = base if base in grades and query_id not in grades else query_id
        if named in ranked:
            raise _twice(named, "", f"{query_id} too")
        ranked[named] = ranking
    scopes = {ALL: tuple(papers)}
    _, warnings = coverage(scopes, dict[str, Any](grades), ranked)
    scores = scores_of(ranked)
    per_query: dict[str, dict[str, float]] = {name: {} for name in DIVERSITY_DEFINITIONS}
    for paper in papers:
        rows = grades[paper]
        hits = [name for name in trec_order(scores.get(paper, {})) if name in rows][:CUTOFF]
        found = [corners[paper][hit] for hit in hits]
        gains = {name: fmean(row.get(facet, 0.0) for facet in Facet) for name, row in rows.items()}
        per_query[ALPHA_NDCG][paper] = alpha_ndcg(found, list(corners[paper].values()))
        in_pool = len(set().union(*corners[paper].values()))
        per_query[f"corners@{CUTOFF}"][paper] = len(set().union(*found)) / in_pool
        per_query[PRECISION][paper] = sum(map(bool, found)) / CUTOFF
        per_query[NDCG][paper] = ndcg([gains[hit] for hit in hits], gains.values())
        for facet in Facet:
            of_facet = [rows[hit].get(facet, 0.0) for hit in hits]
            spread = [abs(one - other) for one, other in combinations(of_facet, 2)]
            per_query[f"{facet} spread"][paper] = fmean(spread) if spread else 0.0
    return Evaluation(scopes, per_query, scope_figures({}, per_query, scopes), warnings)
