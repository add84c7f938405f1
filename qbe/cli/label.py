"""``qbe label``: pairs of papers with grades by facet, by a language model; and agreement of grades."""

from __future__ import annotations

import sys

from qbe.cli import common as _cli
from qbe.cli.label_options import OPTIONS, PROGRAM, check, parser, prices_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from qbe.index.index import Index
    from qbe.label.labelling import LabelConfig, Labelled
    from qbe.label.pairs import Merges, Pair
    from qbe.models.language_model import Estimate

__all__ = ["OPTIONS", "PROGRAM", "main", "parser"]


def main(arguments: list[str]) -> None:
    """Parse the options, and do what they say."""
    options = parser().parse_args(arguments)
    check(options)
    prices_of(options.price)

    from pathlib import Path

    from qbe.label.pairs import GRADED, PAIRS, parse_merges, write_pairs
    from qbe.util.outputs import check_output

    merges = parse_merges(options.merge)
    if options.agreement:
        _print_agreement(options, merges)
        return
    output = Path(options.output)
    check_output(output, GRADED if options.model or options.pairs else PAIRS)
    if not options.model and options.pairs:
        _merge(Path(options.pairs), output, merges)
        return
    config = _config(options, output, merges) if options.model else None

    from qbe.index.index import Index

    with Index(options.index) as index:
        pairs = _pairs(options, index)
        if config is not None:
            _label(options, index, pairs, output, config)
            return
    write_pairs(output, pairs)
    print(f"{output}: {len(pairs):,} pairs of {len({pair.query_id for pair in pairs}):,} query papers")


def _print_agreement(options: argparse.Namespace, merges: Merges) -> None:
    import json

    from qbe.label.agreement import agreement, as_record, as_table

    first, second = options.agreement
    found = agreement(first, second, merges)
    print(json.dumps(as_record(found)) if options.format == "json" else as_table(found, options.agreement))


def _merge(source: Path, output: Path, merges: Merges) -> None:
    """Write graded pairs with grades merged."""
    from qbe.label.pairs import merged, read_grades, read_pairs, write_pairs

    grades, pairs = read_grades(source), read_pairs(source)
    rows = [[merged(grade, merges) for grade in grades[pair.query_id, pair.paper_id]] for pair in pairs]
    write_pairs(output, pairs, rows)
    print(f"{output}: {len(pairs):,} pairs")


def _config(options: argparse.Namespace, output: Path, merges: Merges) -> LabelConfig:
    from pathlib import Path

    from qbe.errors import FileFormatError, input_error
    from qbe.label.labelling import LabelConfig
    from qbe.models.language_model import Endpoint

    guideline = None
    if options.guideline:
        try:
            guideline = Path(options.guideline).read_text(encoding="utf-8")
        except OSError as error:
            raise input_error(options.guideline, error) from None
        except UnicodeDecodeError:
            raise FileFormatError(
                f"{options.guideline}: expected UTF-8 text, found none; convert it"
            ) from None
    return LabelConfig(
        Endpoint.of(options.endpoint, options.model, options.timeout, options.response_format),
        Path(options.answers or f"{output}.answers.sqlite"),
        guideline,
        options.budget_requests,
        options.budget_tokens,
        options.parallel,
        merges,
        options.random_seed,
    )


def _pairs(options: argparse.Namespace, index: Index) -> list[Pair]:
    """The pairs that the options give, or candidates of query papers."""
    from qbe.label.candidates import drawn, ids_of, pool_candidates
    from qbe.label.pairs import read_pairs
    from qbe.util.text import read_ids

    if options.pairs:
        return drawn(read_pairs(options.pairs), options.sample, options.random_seed)
    ids = list(dict.fromkeys(read_ids(options.queries))) if options.queries else ids_of(index)
    queries = drawn(ids, options.sample, options.random_seed)
    count = 16 if options.candidates is None else options.candidates
    with _cli.counter("finding candidates", "papers", len(queries)) as progress:
        return pool_candidates(index, queries, count, options.random_seed, progress)


def _label(
    options: argparse.Namespace, index: Index, pairs: list[Pair], output: Path, config: LabelConfig
) -> None:
    from qbe.label.candidates import papers_of
    from qbe.label.labelling import label

    papers = papers_of(index, pairs)
    if bare := sum(not paper.abstract for paper in papers.values()):
        print(
            f"{PROGRAM}: {bare:,} of {len(papers):,} papers have no abstract in this index; the model is "
            "shown their titles alone",
            file=sys.stderr,
        )
    prices = prices_of(options.price)

    def approve(estimate: Estimate) -> bool:
        line = _in_words(len(pairs), estimate, prices)
        print(line, file=sys.stdout if options.dry_run else sys.stderr)
        return not options.dry_run

    try:
        with _cli.counter("grading", "pairs", len(pairs)) as progress:
            labelled = label(pairs, papers, output, config, approve=approve, progress=progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("; what was answered is kept: repeat the command for the rest") from None
    if labelled is not None:
        _report(labelled, len(pairs), output)


def _in_words(count: int, estimate: Estimate, prices: tuple[float, float] | None) -> str:
    answered = count - estimate.requests
    line = (
        f"{count:,} pairs, {answered:,} of them answered already or equal to others: {estimate.requests:,} "
        f"requests, about {estimate.prompt_tokens:,} tokens in and {estimate.completion_tokens:,} out"
    )
    if prices is None:
        return line
    cost = (estimate.prompt_tokens * prices[0] + estimate.completion_tokens * prices[1]) / 1e6
    return f"{line}, at a price of about {cost:,.2f}"


def _report(labelled: Labelled, count: int, output: Path) -> None:
    """Print what came of it; raises ModelError where pairs were asked for in vain."""
    from qbe.errors import ModelError

    print(
        f"{output}: {labelled.graded:,} of {count:,} pairs graded; {labelled.requests:,} requests and "
        f"{labelled.tokens:,} tokens so far"
    )
    for facet, counts in labelled.counts.items():
        shares = ", ".join(f"{grade}: {counts[grade]:,}" for grade in range(4))
        print(f"  {facet!s:12}{shares}")
    if labelled.stopped:
        left = count - labelled.graded - len(labelled.problems)
        print(
            f"{PROGRAM}: {left:,} pairs were not asked for: {labelled.stopped}; repeat the command with a "
            "larger budget for the rest",
            file=sys.stderr,
        )
    if labelled.problems:
        pair, problem = next(iter(labelled.problems.items()))
        raise ModelError(
            f"expected grades of all pairs, found none for {len(labelled.problems):,}, such as "
            f"{pair.query_id} and {pair.paper_id} ({problem}); repeat the command, which asks for these alone"
        )


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
