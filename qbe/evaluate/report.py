"""Evaluation from files to a report: evaluations, comparisons, published figures, and gains by query."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from qbe.errors import FileFormatError, UsageError
from qbe.evaluate import evaluation, facets, measures, protocols
from qbe.evaluate.evaluation import Evaluation, evaluate
from qbe.evaluate.protocols import CSFCUBE, SPLITS, csfcube_protocol, judged_scopes, load_folds
from qbe.evaluate.significance import Comparison, compare
from qbe.query import SHAPES, split_query_id
from qbe.runs import RunFile, read_qrels, read_run
from qbe.types import Facet, Hit
from qbe.util.files import StrPath

IN_PER_CENT = {*measures.MEASURES, *evaluation.POOL_DEFINITIONS}  # by publications


class Protocol(NamedTuple):
    """A protocol as a report shows it."""

    title: str
    evaluate: Callable[..., Evaluation]  # takes judgements, a run, and ``measures`` unless it has its own
    definitions: Mapping[str, str] = {}
    read: Callable[[Sequence[StrPath]], Any] | None = None  # what reads judgements (None: they are qrels)
    compared: Sequence[str] | None = None  # the measures of significance tests (None: all)
    own_measures: bool = False


PLAIN = Protocol("means over queries (relevant: grade 1 or more, or as a measure says)", evaluate)
_of_grades = partial(Protocol, read=facets.read_facet_grades, own_measures=True)
PROTOCOLS: Mapping[str, Protocol] = {
    CSFCUBE: Protocol("CSFCube protocol, {split} folds", csfcube_protocol),
    evaluation.POOLS: Protocol(
        "judged pools, means over queries", evaluation.pool_protocol, evaluation.POOL_DEFINITIONS
    ),
    facets.CROSSED: _of_grades(
        "crossed pairs, shares ranked right", facets.crossed_protocol, facets.CROSSED_DEFINITIONS
    ),
    facets.EXPLORATION: _of_grades(
        "exploration, means over query papers",
        facets.exploration_protocol,
        facets.EXPLORATION_DEFINITIONS,
        compared=(facets.NDCG,),
    ),
    facets.AS_ASKED: _of_grades(
        "first hits that are as asked, means over query papers",
        facets.as_asked_protocol,
        facets.AS_ASKED_DEFINITIONS,
        compared=tuple(f"P@{k}" for k in facets.AS_ASKED_CUTOFFS),
    ),
    facets.DIVERSITY: _of_grades(
        "first hits by corner, means over query papers",
        facets.diversity_protocol,
        facets.DIVERSITY_DEFINITIONS,
        compared=(facets.ALPHA_NDCG, facets.NDCG),
    ),
    evaluation.CITATIONS: Protocol(
        "citation recommendation, means over query papers",
        evaluation.citations_protocol,
        evaluation.CITATION_DEFINITIONS,
    ),
    protocols.REVIEWERS: Protocol(
        "researchers' scores of papers, means over samples of their own",
        protocols.reviewers_protocol,
        protocols.REVIEWER_DEFINITIONS,
        own_measures=True,
    ),
    protocols.REVIEWS: Protocol("systematic reviews, means over reviews", protocols.reviews_protocol),
    protocols.HEADINGS: Protocol(
        "labels of sentences against headings set by authors",
        protocols.headings_protocol,
        protocols.HEADING_DEFINITIONS,
        read=protocols.read_labels,
        own_measures=True,
    ),
}


class Publication(NamedTuple):
    """A publication; ``no_rows`` is the reason why it has no figures here, if it has none."""

    citation: str
    short: str
    url: str
    no_rows: str = ""


class PublishedRow(NamedTuple):
    """A system's figures: measure -> scope -> figure in [0, 1]; ``paper`` is the key of its publication."""

    system: str
    paper: str
    source: str
    figures: Mapping[str, Mapping[str, float]]
    collection: str = ""


class Published(NamedTuple):
    """The publications of a protocol by key, also those without figures, and rows of figures."""

    papers: Mapping[str, Publication]
    rows: Sequence[PublishedRow]


@cache
def published_under(protocol: str | None) -> Published:
    """Return what is published under a protocol; raise UsageError where nothing is."""
    content = json.loads(resources.files(__package__).joinpath("published.json").read_text(encoding="utf-8"))
    known = content.pop("papers")
    if protocol not in content:
        expected = f"a `protocol` with published figures ({', '.join(content)})"
        raise UsageError(f"expected {expected}, found {protocol}; give one")
    section = content[protocol]

    def by_scope(printed: Sequence[float | None]) -> dict[str, float]:
        figures = zip(section["scopes"], printed, strict=True)
        return {scope: round(value / section["one"], 4) for scope, value in figures if value is not None}

    rows = []
    for row in section["rows"]:
        figures = {name: by_scope(printed) for name, printed in row["figures"].items()}
        rows.append(PublishedRow(**row | {"figures": figures}))
    reasons = section["no_rows"]
    named = {row.paper for row in rows} | reasons.keys()
    papers = {key: Publication(**known[key], no_rows=reasons.get(key, "")) for key in known if key in named}
    return Published(papers, rows)


@dataclass(frozen=True, slots=True)
class Scoring:
    """A protocol (None: means over queries), measures, CSFCube's split, its folds (None: by the qrels).

    Raises UsageError for others, and for measures where the protocol has its own.
    """

    protocol: str | None = None
    measures: Sequence[str] = ()
    split: str = "test"
    folds_file: StrPath | None = None

    def __post_init__(self) -> None:
        if self.protocol is not None and self.protocol not in PROTOCOLS:
            raise UsageError(f"expected a `protocol` of {', '.join(PROTOCOLS)}, found {self.protocol!r}")
        if self.split not in SPLITS:
            raise UsageError(f"expected a `split` of {' or '.join(SPLITS)}, found {self.split!r}")
        if self.measures:
            measures.parse_measures(self.measures)  # a misspelt name, before any file is read
        if self.measures and self.described.own_measures:
            raise UsageError(f"the `protocol` {self.protocol} has measures of its own; leave out `measures`")

    @property
    def described(self) -> Protocol:
        return PLAIN if self.protocol is None else PROTOCOLS[self.protocol]

    def evaluator(self, judged: Any, qrels_files: Sequence[StrPath] = ()) -> Callable[..., Evaluation]:
        """Return what evaluates a run by judgements, which the protocol reads from these files."""
        described = self.described
        if described.own_measures:
            return partial(described.evaluate, judged)
        if self.protocol != CSFCUBE:
            usual = () if self.protocol else measures.DEFAULT_MEASURES
            return partial(described.evaluate, judged, measures=self.measures or usual)
        folds_file = self.folds_file or Path(qrels_files[0]).parent / "folds.json"
        if self.folds_file is None and not Path(folds_file).is_file():
            raise FileFormatError(
                f"expected the protocol's folds in {folds_file}, found no such file; give it as `folds_file`"
            )
        folds = load_folds(folds_file)
        judged_scopes(folds, judged, self.split)  # a mismatch is reported without the name of a run
        return partial(csfcube_protocol, judged, folds=folds, measures=self.measures, split=self.split)


@dataclass(frozen=True, slots=True)
class Report:
    """Evaluations and run files by system (baselines last), baselines, comparisons, what is published."""

    scoring: Scoring
    evaluations: Mapping[str, Evaluation]
    files: Mapping[str, tuple[Path, ...]]
    baselines: tuple[str, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    published: Published | None = None


def build_report(
    qrels_files: Sequence[StrPath],
    run_files: Sequence[StrPath],
    scoring: Scoring | None = None,
    *,
    baseline_files: Sequence[StrPath] = (),
    published: bool = False,
) -> Report:
    """Evaluate run files against qrels files, which are joined, and compare all with ``baseline_files``."""
    scoring = scoring or Scoring()
    read, compared = scoring.described.read, scoring.described.compared
    others = published_under(scoring.protocol) if published else None
    run_paths, baseline_paths = [Path(path) for path in run_files], [Path(path) for path in baseline_files]
    judged: Any = read_qrels(*qrels_files) if read is None else read(qrels_files)
    if read is None and not judged:
        raise FileFormatError("expected judgements in the qrels files, found none; give other qrels files")
    evaluator = scoring.evaluator(judged, qrels_files)
    files = group_runs([*run_paths, *(path for path in baseline_paths if path not in run_paths)])
    evaluations = {}
    for name, paths in files.items():
        explored = scoring.protocol in (facets.EXPLORATION, facets.AS_ASKED)
        is_tagged = scoring.protocol == protocols.HEADINGS
        run: Any = protocols.read_labels(paths) if is_tagged else read_runs(paths, explored=explored).rankings
        try:
            evaluations[name] = evaluator(run)
        except FileFormatError as error:
            raise FileFormatError(f"{name}: {error}") from error
    baselines = {name: evaluations[name] for name, paths in files.items() if set(paths) & set(baseline_paths)}
    comparisons = compare(evaluations, baselines, compared) if baselines else ()
    if baselines and not comparisons:
        raise UsageError(
            f"expected another run with figures to compare with {', '.join(baselines)}, the "
            f"`baseline_files`, found {'none' if len(files) > 1 else 'it alone'}; give `run_files` "
            "of another name"
        )
    return Report(scoring, evaluations, files, tuple(baselines), comparisons, others)


_TARGET = rf"(?P<target>(?:{facets.FACETS})(?P<other>-not-(?:{facets.FACETS}))?|{'|'.join(SHAPES)})"
_OF_SYSTEM = re.compile(rf"(?P<name>.+)\.{_TARGET}(?:\.[^.]+)?")


def group_runs(paths: Sequence[StrPath]) -> dict[str, tuple[Path, ...]]:
    """Group run files by the name of their system, in the order in which they are given.

    ``NAME.method.trec``, ``NAME.method-not-background.trec`` and ``NAME.competitors.trec`` of one folder are
    one system, NAME; any other file is one by itself. Equal names get their folders.
    """
    groups: dict[tuple[str, Path], list[Path]] = {}
    for path in map(Path, paths):
        name = path.name.removesuffix(".gz")
        match = _OF_SYSTEM.fullmatch(name)
        key = (match["name"], path.parent / match["name"]) if match else (Path(name).stem, path)
        if path in groups.setdefault(key, []):
            raise UsageError(f"expected each run file once, found {path} twice; give it once")
        groups[key].append(path)
    names = [name for name, _ in groups]
    return {
        name if names.count(name) == 1 else str(name_with_folder): tuple(files)
        for (name, name_with_folder), files in groups.items()
    }


def read_runs(paths: Iterable[StrPath], *, explored: bool = False) -> RunFile:
    """Read the run files of one system as one run, with the first file's tag.

    With ``explored``, queries of a file such as ``NAME.method-not-background.trec`` are named by paper and
    target; of several topics of a paper that of the liked facet counts, else the first.
    """
    rankings: dict[str, tuple[Hit, ...]] = {}
    tag = ""
    for path in map(Path, paths):
        run = read_run(path)
        tag = tag or run.tag
        named = run.rankings
        match = _OF_SYSTEM.fullmatch(path.name.removesuffix(".gz"))
        if explored and match and (match["other"] or match["target"] in SHAPES):
            named = {}
            for query_id, hits in run.rankings.items():
                paper_id, facet = split_query_id(query_id)
                is_named = "&" in query_id or query_id.endswith(f"_{match['target']}")
                name = query_id if is_named else f"{paper_id}_{match['target']}"
                if name not in named or match["target"].startswith(f"{facet}-"):
                    named[name] = hits
        if twice := rankings.keys() & named.keys():
            raise FileFormatError(
                f"{path}: expected queries that no other file of this run has, found {min(twice)}; "
                "give the files of one run with different queries"
            )
        rankings.update(named)
    return RunFile(tag, rankings)


def worst_to_text(
    report: Report, qrels_files: Sequence[StrPath], count: int, titles: Mapping[str, str]
) -> str:
    """Format the ``count`` queries with the largest losses to the baseline, and with the lowest NDCG%20."""
    system = next(iter(report.evaluations))
    if len(report.baselines) != 1 or system in report.baselines:
        raise UsageError(
            "expected a first run and one baseline for a comparison by query, found the baselines "
            f"{', '.join(report.baselines) or 'none'} of {system}; give one with `baseline_files`"
        )
    (baseline,) = report.baselines
    qrels, rankings = read_qrels(*qrels_files), read_runs(report.files[system]).rankings
    evaluations, measure = report.evaluations, measures.NDCG_PERCENT
    scores, others = (evaluations[name].per_query[measure] for name in (system, baseline))

    def text(query: str) -> str:
        pool = measures.pool_of(query, qrels[query])
        order = measures.trec_order({hit.paper_id: hit.score for hit in rankings.get(query, ())})
        ranked = [paper_id for paper_id in order if paper_id in pool]
        both = f"{100 * scores[query]:.2f} against {100 * others[query]:.2f}"
        gain, title = 100 * (scores[query] - others[query]), titles.get(split_query_id(query)[0], "")
        lines = [f"{query}  {both} ({gain:+.2f})  {title}".rstrip()]
        for kind, papers in (("high  ", overranked(ranked, pool)), ("missed", best_missed(ranked, pool))):
            for paper_id in papers:
                is_found, title = paper_id in ranked, titles.get(paper_id, "")
                place = f"rank {ranked.index(paper_id) + 1} of {len(pool)}" if is_found else "not retrieved"
                lines.append(f"  {kind}  {place}, grade {pool[paper_id]}: {paper_id}  {title}".rstrip())
        return "\n".join(lines)

    of_facets = (query for facet in Facet for query in evaluations[system].queries.get(facet.value, ()))
    queries = [query for query in of_facets if query in scores and query in others]
    by_score = sorted(queries, key=lambda query: (scores[query], query))
    by_loss = sorted(queries, key=lambda query: (scores[query] - others[query], query))
    losses = [query for query in by_loss if scores[query] < others[query]]
    return "\n".join(
        [
            f"Largest losses of {system} against {baseline}, {measure} (per cent):",
            *(map(text, losses[:count]) if losses else ["none"]),
            f"\nLowest scores of {system}, {measure} (per cent):",
            *map(text, by_score[:count]),
            "",
        ]
    )


def overranked(ranked: Sequence[str], pool: Mapping[str, int]) -> list[str]:
    """Return the papers at the ranks where most of NDCG%20 is lost, at most three, in rank order."""
    ideal = sorted(pool.values(), reverse=True)
    losses = {}
    for rank, paper_id in enumerate(ranked[: int(0.20 * len(pool))], start=1):
        losses[paper_id] = (max(ideal[rank - 1], 0) - max(pool[paper_id], 0)) / measures.discount(rank)
    largest = sorted(losses, key=losses.__getitem__, reverse=True)[:3]
    return [paper_id for paper_id, loss in losses.items() if loss > 0 and paper_id in largest]


def best_missed(ranked: Sequence[str], pool: Mapping[str, int]) -> list[str]:
    """Find the best paper, the lowest of these, that is ranked below as many as have its grade or more."""
    ranks = {paper_id: rank for rank, paper_id in enumerate(ranked, start=1)}
    missed = [
        (-grade, -ranks.get(paper_id, math.inf), paper_id)
        for paper_id, grade in pool.items()
        if grade > 0 and ranks.get(paper_id, math.inf) > sum(other >= grade for other in pool.values())
    ]
    return [min(missed)[2]] if missed else []
