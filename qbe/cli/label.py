"""``qbe label``: pairs of papers with grades by facet, by a language model; and agreement of grades."""

from __future__ import annotations

import argparse
import sys

import qbe
from qbe.cli import common
from qbe.cli.common import Parser, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from qbe.label.grading import LabelConfig
    from qbe.label.pairs import Merges, Pair
    from qbe.models.language_model import Estimate

PROGRAM = "qbe label"
ABOUT = """\
Make pairs of papers that are graded from 0 to 3 for background, method and result, by a language model \
behind an OpenAI-compatible endpoint; or compare two files of grades."""
EPILOG = """\
Candidates of 20 papers of an index, to be graded by hand (qbe serve --pairs):
  qbe label --index DIR --sample 20 --output pairs.tsv
The same, graded by a model of a server on this machine; repeated after an interrupt, it asks for the rest:
  qbe label --index DIR --sample 20 --output graded.tsv --endpoint http://127.0.0.1:8080/v1 --model NAME
The first 13 papers of each of two runs; pairs on which two assessors differ, and the decision of a third:
  qbe label --runs runs/bm25.trec runs/dense.trec --depth 13 --topics topics.tsv --output pairs.tsv
  qbe label --differences grades/ann.tsv grades/ben.tsv --output third.tsv
  qbe label --adjudicate grades/ann.tsv grades/ben.tsv grades/cy.tsv --output decided.tsv
"""
OPTIONS = f"""
--output FILE  the pairs, tab-separated, with their grades
{common.OVERWRITE}\
? --queries FILE  ids of query papers, one a line; - is standard input (default: all of the index)
? --keywords WORD...  query papers are those whose title or abstract has one of these words or phrases
? --runs RUN...  pairs of the first papers of TREC runs for each query (a pool of them)
? --pairs FILE  pairs to grade: tab-separated, with the columns query_id and paper_id
? --differences FILE FILE  the pairs that two files of grades grade differently, for a third assessor
? --adjudicate FILE FILE FILE  grades of two assessors where they agree, else of the third
# pairs
--index DIR  an index that holds the papers, built by qbe index
--sample N  so many query papers, or pairs, at random
--candidates N (16)  of each query paper
--depth N (13)  papers of each of --runs for a query
--topics FILE  of --runs: the topics whose ids they have (default: ids of query papers)
--random-seed N (0)  of what is drawn
--merge G:G...  grades that count as other ones, as in 3:2, or in one facet, as in method:3:2; of
  --pairs without a model: of their own grades
# the model; without --model pairs are written without grades
--model NAME  its name at the endpoint
--endpoint URL  such as http://127.0.0.1:8080/v1 (default: $QBE_LLM_ENDPOINT); its key is that of $QBE_LLM_KEY
--guideline FILE  what the model is told of facets and grades: a file, or sciface for SciFACE's two facets
  (default: qbe's own)
--answers FILE  where answers are kept (default: --output and .answers.sqlite)
--budget-requests N  requests at most, earlier ones included
--budget-tokens N  tokens at most, earlier ones included
--price IN:OUT  of a million tokens of requests and of answers, for the estimate
--dry-run  print what is left to ask, and ask nothing
--parallel N (4)  requests under way at a time
--response-format json_schema|json_object|none  how the endpoint is asked for JSON (default:
  $QBE_LLM_RESPONSE_FORMAT, else json_schema)
--timeout SECONDS (120)  for an answer
# agreement
--agreement FILE FILE  print how far two files of graded pairs agree, and end
--format table|json (table)  of the agreement
"""
PARSER = Parser(PROGRAM, ABOUT, OPTIONS, EPILOG)


def main(arguments: list[str]) -> None:
    options = PARSER.parse_args(arguments)

    import json
    from pathlib import Path

    from qbe.errors import check_count
    from qbe.label.pairs import adjudicated, merged, parse_merges, read_grades, read_pairs, write_pairs
    from qbe.util.files import check_output

    merges = parse_merges(options.merge or ())
    if options.agreement:
        from qbe.label.agreement import agreement, as_record, as_table

        found = agreement(options.agreement[0], options.agreement[1], merges)
        record = options.format == "json"
        print(json.dumps(as_record(found)) if record else as_table(found, options.agreement))
        return
    refuse(not options.output, "expected --output for the pairs, or two files of --agreement, found neither")
    refuse(options.topics and not options.runs, "--topics goes with --runs; give both")
    refuse(options.adjudicate and options.model, "--adjudicate reads grades of three files; drop --model")
    if not options.model:
        refuse(options.dry_run, "--dry-run goes with --model; give it")
        alone = bool(options.pairs) != bool(options.merge) and not (options.differences or options.adjudicate)
        told = (
            "expected --model for grades, or --pairs with --merge to merge theirs, found one of these alone"
        )
        refuse(alone, told)
    given = options.pairs or options.runs or options.differences or options.adjudicate
    refuse(not options.index and (options.model or not given), "expected --index of the papers, found none")
    for name in ("budget_requests", "budget_tokens", "parallel"):
        if getattr(options, name) is not None:
            check_count(name, getattr(options, name))
    prices, output = _prices(options.price), Path(options.output)
    check_output(output, options.overwrite)
    if options.adjudicate or (options.pairs and not options.model):
        if options.adjudicate:
            decided = adjudicated(*options.adjudicate, merges=merges)
        else:
            grades = read_grades(options.pairs)
            decided = {each: merged(grades[each[:2]], merges) for each in read_pairs(options.pairs)}
        write_pairs(output, list(decided), list(decided.values()))
        print(f"{output}: {len(decided):,} pairs")
        return
    config = _config(options, output, merges) if options.model else None
    if not options.index:
        pairs = _pairs_of_files(options, merges)
    else:
        with qbe.Index(options.index) as index:
            pairs = _pairs_of_files(options, merges) or _candidates(options, index)
            if config is not None:
                _label(index, pairs, output, config, prices, dry_run=options.dry_run)
                return
    write_pairs(output, pairs)
    print(f"{output}: {len(pairs):,} pairs of {len({pair.query_id for pair in pairs}):,} query papers")


def _prices(text: str | None) -> tuple[float, float] | None:
    """The prices of a million tokens of requests and of answers."""
    if text is None:
        return None
    prices = [part for part in text.split(":") if part.replace(".", "", 1).isdecimal()]
    refuse(len(prices) != 2 or text.count(":") != 1, f"expected a `price` as in 0.15:0.6, found {text!r}")
    return float(prices[0]), float(prices[1])


def _config(options: argparse.Namespace, output: Path, merges: Merges) -> LabelConfig:
    """How the model is asked."""
    from pathlib import Path

    from qbe.label.grading import LabelConfig
    from qbe.models.language_model import Endpoint, read_guideline

    answers = Path(options.answers or f"{output}.answers.sqlite")
    same = f"expected --answers in another file than the --output, found {output} as both"
    refuse(answers.resolve() == output.resolve(), same)
    guideline = read_guideline(Path(options.guideline)) if options.guideline else None
    form = options.response_format
    endpoint = Endpoint(options.endpoint, options.model, options.timeout, response_format=form)
    budgets = options.budget_requests, options.budget_tokens
    return LabelConfig(endpoint, answers, guideline, *budgets, options.parallel, merges, options.random_seed)


def _pairs_of_files(options: argparse.Namespace, merges: Merges) -> list[Pair]:
    """The pairs that files state, or none."""
    from qbe.label.candidates import drawn, pool_runs
    from qbe.label.pairs import differences, read_pairs

    if options.runs:
        from qbe.runs import read_topics

        topics = read_topics(options.topics) if options.topics else ()
        pools = pool_runs(
            options.runs,
            options.depth,
            {topic.query_id: topic.paper_id for topic in topics if topic.paper_id},
        )
        chosen = drawn(list(pools), options.sample, options.random_seed)
        return [pair for query in chosen for pair in pools[query]]
    pairs = differences(*options.differences, merges=merges) if options.differences else []
    pairs = read_pairs(options.pairs) if options.pairs else pairs
    return drawn(pairs, options.sample, options.random_seed) if pairs else []


def _candidates(options: argparse.Namespace, index: qbe.Index) -> list[Pair]:
    """Candidates of query papers of an index."""
    from qbe.label.candidates import drawn, ids_of, ids_with, pool_candidates
    from qbe.util.text import read_ids

    if options.keywords:
        ids = ids_with(index, options.keywords)
    else:
        ids = list(dict.fromkeys(read_ids(options.queries))) if options.queries else ids_of(index)
    queries = drawn(ids, options.sample, options.random_seed)
    with common.Bar("finding candidates", "papers", len(queries)) as advance:
        return pool_candidates(index, queries, options.candidates, options.random_seed, advance)


def _label(
    index: qbe.Index,
    pairs: list[Pair],
    output: Path,
    config: LabelConfig,
    prices: tuple[float, float] | None,
    *,
    dry_run: bool,
) -> None:
    """Grade pairs, and print what came of it; raises ModelError where pairs were asked for in vain."""
    from qbe.label.candidates import papers_of
    from qbe.label.grading import label

    papers = papers_of(index, pairs)
    if bare := sum(not paper.abstract for paper in papers.values()):
        told = "papers have no abstract in this index; the model is shown their titles alone"
        common.note(PROGRAM, f"{bare:,} of {len(papers):,} {told}")

    def approve(estimate: Estimate) -> bool:
        """Print what is to be asked."""
        line = (
            f"{len(pairs):,} pairs, {len(pairs) - estimate.requests:,} of them answered already or equal to "
            f"others: {estimate.requests:,} requests, about {estimate.prompt_tokens:,} tokens in and "
            f"{estimate.completion_tokens:,} out"
        )
        if prices:
            cost = (estimate.prompt_tokens * prices[0] + estimate.completion_tokens * prices[1]) / 1e6
            line += f", at a price of about {cost:,.2f}"
        print(line, file=sys.stdout if dry_run else sys.stderr)
        return not dry_run

    try:
        with common.Bar("grading", "pairs", len(pairs)) as advance:
            labelled = label(pairs, papers, output, config, approve=approve, progress=advance)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("; what was answered is kept: repeat the command for the rest") from None
    if labelled is None:
        return
    print(
        f"{output}: {labelled.graded:,} of {len(pairs):,} pairs graded; {labelled.requests:,} requests and "
        f"{labelled.tokens:,} tokens so far"
    )
    for facet, counts in labelled.counts.items():
        if counts:
            print(f"  {facet!s:12}{', '.join(f'{grade}: {counts[grade]:,}' for grade in range(4))}")
    if labelled.stopped:
        left = len(pairs) - labelled.graded - len(labelled.problems)
        told = f"{left:,} pairs were not asked for: {labelled.stopped}"
        common.note(PROGRAM, f"{told}; repeat the command with a larger budget for the rest")
    if labelled.problems:
        pair, problem = next(iter(labelled.problems.items()))
        raise qbe.ModelError(
            f"expected grades of all pairs, found none for {len(labelled.problems):,}, such as "
            f"{pair.query_id} and {pair.paper_id} ({problem}); repeat the command with `overwrite`, which "
            "asks for these alone"
        )
