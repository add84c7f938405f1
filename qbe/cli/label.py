"""``qbe label``: grades of pairs of papers by a language model, and how far two files of grades agree."""

import argparse
import json
import sys
from pathlib import Path

import qbe
from qbe.cli import common
from qbe.cli.common import refuse
from qbe.cli.parser import parse
from qbe.errors import check_count
from qbe.label import grading, pairs
from qbe.models.endpoint import Endpoint
from qbe.models.language_model import Estimate, read_guideline
from qbe.runs import read_topics
from qbe.util.files import check_output
from qbe.util.text import read_ids


def main(arguments: list[str]) -> None:
    options = parse("label", arguments)

    merges = pairs.parse_merges(options.merge or ())
    if options.agreement:
        found = grading.agreement(options.agreement[0], options.agreement[1], merges)
        as_json, files = options.format == "json", options.agreement
        print(json.dumps(grading.as_record(found)) if as_json else grading.as_table(found, files))
        return
    refuse(not options.output, "expected --output for the pairs, or two files of --agreement, found neither")
    refuse(options.topics and not options.runs, "--topics goes with --runs; give both")
    refuse(options.adjudicate and options.model, "--adjudicate reads grades of three files; drop --model")
    told = "expected --model for grades, or --pairs with --merge to merge theirs, found one of these alone"
    alone = bool(options.pairs) != bool(options.merge) and not (options.differences or options.adjudicate)
    refuse(alone and not options.model, told)
    given = options.pairs or options.runs or options.differences or options.adjudicate
    refuse(not options.index and (options.model or not given), "expected --index of the papers, found none")
    for name in ("budget_requests", "budget_tokens", "parallel"):
        if getattr(options, name) is not None:
            check_count(name, getattr(options, name))
    options.price, output = _prices(options.price), Path(options.output)
    check_output(output, options.overwrite)
    if options.adjudicate or (options.pairs and not options.model):
        if options.adjudicate:
            decided = pairs.adjudicated(*options.adjudicate, merges=merges)
        else:
            grades = pairs.read_grades(options.pairs, merges)
            decided = {each: grades[each[:2]] for each in pairs.read_pairs(options.pairs)}
        pairs.write_pairs(output, list(decided), list(decided.values()))
        print(f"{output}: {len(decided):,} pairs")
        return
    config = _config(options, output, merges) if options.model else None
    chosen = _pairs_of_files(options, merges)
    if options.index:
        with qbe.Index(options.index) as index:
            chosen = chosen or _candidates(options, index)
            if config is not None:
                _label(options, index, chosen, config)
                return
    pairs.write_pairs(output, chosen)
    print(f"{output}: {len(chosen):,} pairs of {len({pair.query_id for pair in chosen}):,} query papers")


def _prices(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    prices = [part for part in text.split(":") if part.replace(".", "", 1).isdecimal()]
    refuse(len(prices) != 2 or text.count(":") != 1, f"expected a `price` as in 0.15:0.6, found {text!r}")
    return float(prices[0]), float(prices[1])


def _config(options: argparse.Namespace, output: Path, merges: pairs.Merges) -> grading.LabelConfig:
    answers = Path(options.answers or f"{output}.answers.sqlite")
    same = f"expected --answers in another file than the --output, found {output} as both"
    refuse(answers.resolve() == output.resolve(), same)
    guideline = read_guideline(Path(options.guideline)) if options.guideline else None
    endpoint = common.made(Endpoint, options, url=options.endpoint or "")
    budgets, parallel = (options.budget_requests, options.budget_tokens), options.parallel or 4
    return grading.LabelConfig(endpoint, answers, guideline, *budgets, parallel, merges, options.random_seed)


def _pairs_of_files(options: argparse.Namespace, merges: pairs.Merges) -> list[pairs.Pair]:
    if options.runs:
        topics = read_topics(options.topics) if options.topics else ()
        papers = {topic.query_id: topic.paper_id for topic in topics if topic.paper_id}
        pools = pairs.pool_runs(options.runs, options.depth, papers)
        chosen = pairs.drawn(list(pools), options.sample, options.random_seed)
        return [pair for query in chosen for pair in pools[query]]
    listed = pairs.differences(*options.differences, merges=merges) if options.differences else []
    listed = pairs.read_pairs(options.pairs) if options.pairs else listed
    return pairs.drawn(listed, options.sample, options.random_seed) if listed else []


def _candidates(options: argparse.Namespace, index: "qbe.Index") -> list[pairs.Pair]:
    if options.keywords:
        ids = pairs.ids_with(index, options.keywords)
    else:
        ids = list(dict.fromkeys(read_ids(options.queries)) if options.queries else index.papers.ids)
    queries = pairs.drawn(ids, options.sample, options.random_seed)
    with common.Bar("finding candidates", "papers", len(queries)) as advance:
        return pairs.pool_candidates(index, queries, options.candidates, options.random_seed, advance)


def _label(
    options: argparse.Namespace, index: "qbe.Index", asked: list[pairs.Pair], config: grading.LabelConfig
) -> None:
    papers, output, prices = pairs.papers_of(index, asked), Path(options.output), options.price
    if bare := sum(not paper.abstract for paper in papers.values()):
        told = "papers have no abstract in this index; the model is shown their titles alone"
        common.note(f"{bare:,} of {len(papers):,} {told}")

    def approve(estimate: Estimate) -> bool:
        line = (
            f"{len(asked):,} pairs, {len(asked) - estimate.requests:,} of them answered already or equal to "
            f"others: {estimate.requests:,} requests, about {estimate.prompt_tokens:,} tokens in and "
            f"{estimate.completion_tokens:,} out"
        )
        if prices:
            cost = (estimate.prompt_tokens * prices[0] + estimate.completion_tokens * prices[1]) / 1e6
            line += f", at a price of about {cost:,.2f}"
        print(line, file=sys.stdout if options.dry_run else sys.stderr)
        return not options.dry_run

    try:
        with common.Bar("grading", "pairs", len(asked)) as advance:
            labelled = grading.label(asked, papers, output, config, approve=approve, progress=advance)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("; what was answered is kept: repeat the command for the rest") from None
    if labelled is None:
        return
    print(
        f"{output}: {labelled.graded:,} of {len(asked):,} pairs graded; {labelled.requests:,} requests and "
        f"{labelled.tokens:,} tokens so far"
    )
    for facet, counts in labelled.counts.items():
        if counts:
            print(f"  {facet!s:12}{', '.join(f'{grade}: {counts[grade]:,}' for grade in range(4))}")
    if labelled.stopped:
        left = len(asked) - labelled.graded - len(labelled.problems)
        told = f"{left:,} pairs were not asked for: {labelled.stopped}"
        common.note(f"{told}; repeat the command with a larger budget for the rest")
    if labelled.problems:
        pair, problem = next(iter(labelled.problems.items()))
        raise qbe.ModelError(
            f"expected grades of all pairs, found none for {len(labelled.problems):,}, such as "
            f"{pair.query_id} and {pair.paper_id} ({problem}); repeat the command with `overwrite`, which "
            "asks for these alone"
        )
