"""``python -m benchmarks.citation_balance``: with how many negatives the judge of candidates should learn.

Nogueira, Jiang, Cho and Lin (2020, section 5.2) vary how many candidates that are not cited stand against
each one that is. The citation model's judge is fitted as `qbe train citation` fits it, to the queries of the
last years of train by features of the held-back projection, which the work folder of such a training holds;
but of each list only so many negatives for each positive are kept, drawn at random by seed. All candidates of
the queries of dev are judged; dev chooses the epoch, as in training.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.charts import Chart, Line, write_chart
from benchmarks.citation_common import BLOCK, DEPTH, PACKAGES, collection_options, decimals, index_option
from benchmarks.common import machine, positive, table
from qbe import _cli

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from qbe.cite.late_interaction import Projection
    from qbe.index.reader import IndexReader
    from qbe.parallel import Workers
    from qbe.train.citation.data import CitationFigures
    from qbe.train.heads import FeatureList

    Cited = Mapping[int, NDArray[np.int64]]
    """For each query, by row, the rows of the papers that it cites."""

ALL = 0
"""Stands for all negatives."""

BALANCES = (1, 3, 10, 30, 100, ALL)
SEEDS = (0, 1, 2)
HELD_BACK = "held-back.pt"


def balance(text: str) -> int:
    """Parse a number of negatives for each positive, or ``all``."""
    return ALL if text == "all" else positive(text)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.citation_balance", description=__doc__.split("\n\n")[0])
    index_option(parser)
    collection_options(parser)
    parser.add_argument(
        "--work", type=Path, required=True, metavar="DIR", help="of qbe train citation over the same index"
    )
    parser.add_argument("--model", type=Path, metavar="DIR", help="default: the one that ships")
    parser.add_argument(
        "--negatives",
        type=balance,
        nargs="+",
        default=BALANCES,
        metavar="N",
        help="for each positive, or all (default: 1 3 10 30 100 all)",
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="default: 0 1 2")
    return parser


def held_back(work: Path, digest: str) -> tuple[Projection, int]:
    """The projection in a training's work folder that was fitted without the last years, and their number.

    Raises ModelError where the folder has none, or one for another index than that of the digest.
    """
    from qbe.cite.late_interaction import Projection
    from qbe.errors import ModelError
    from qbe.train.artifacts import read_provenance
    from qbe.train.weights import best_weights

    note, file = read_provenance(work), work / HELD_BACK
    if note.get("index") != digest or not file.exists():
        actual = "that of another index" if note.get("index") != digest else f"no {HELD_BACK}"
        raise ModelError(
            f"{work}: expected the work folder of a training over this index, found {actual}; run qbe train "
            "citation --work with it"
        )
    weights = {name: part.double().numpy() for name, part in best_weights(file).items()}
    projection = Projection(*weights["matrices"], weights["weights"])
    return projection, note["recipe"]["held_back"]


def last_years(cited: Cited, years: NDArray[np.float64], count: int) -> Cited:
    """The queries of so many last years.

    >>> import numpy as np
    >>> none = np.zeros(0, np.int64)
    >>> list(last_years({0: none, 1: none, 2: none}, np.array([2015.0, 2018.0, np.nan]), 1))
    [1]
    """
    known = sorted({year for row in cited if (year := float(years[row])) > 0})
    return {row: rows for row, rows in cited.items() if years[row] >= known[-count]}


def feature_lists(
    reader: IndexReader, workers: Workers, projection: Projection, cited: Cited
) -> list[FeatureList]:
    """The candidates of each query, none younger than it, with their features."""
    import numpy as np

    from qbe.cite.features import columns
    from qbe.cite.judging import CandidateJudge
    from qbe.search.filters import PaperFilter
    from qbe.search.passing import PassingPapers
    from qbe.train.citation.data import query_at
    from qbe.train.heads import FeatureList

    judge, passing = CandidateJudge(reader, workers, projection, DEPTH), PassingPapers(reader)
    rows, lists = sorted(cited), []
    for first in range(0, len(rows), BLOCK):
        queries = [query_at(reader, judge.evidence, row) for row in rows[first : first + BLOCK]]
        filters = [None if query.year is None else PaperFilter(before=query.year) for query in queries]
        among = [None if each is None else passing.of(each).selection for each in filters]
        retrieved = judge.first_stage(queries, among)
        for row, query, candidates, papers in zip(rows[first:], queries, retrieved, among, strict=False):
            judged = judge.judged(query, candidates, papers)
            features = columns(judged.features, judged.known.names)
            lists.append(FeatureList(features, np.isin(judged.rows, cited[row]), len(cited[row])))
    return lists


def balanced(lists: Sequence[FeatureList], negatives: int, seed: int) -> list[FeatureList]:
    """The lists with so many negatives for each positive at most, drawn at random."""
    import numpy as np

    from qbe.train.heads import FeatureList

    if negatives == ALL:
        return list(lists)
    random = np.random.default_rng(seed)
    kept = []
    for features, cited, total in lists:
        others = np.flatnonzero(~cited)
        drawn = random.permutation(others)[: negatives * int(cited.sum())]
        rows = np.sort(np.concatenate([np.flatnonzero(cited), drawn]))
        kept.append(FeatureList(features[rows], cited[rows], total))
    return kept


class Balance(NamedTuple):
    """What was learned from so many ``negatives`` for each positive, ``total`` in all: the figures on dev of
    each seed.
    """

    negatives: int
    total: int
    figures: Sequence[CitationFigures]

    @property
    def name(self) -> str:
        """The number of negatives as text."""
        return "all" if self.negatives == ALL else str(self.negatives)


def learned(
    train: Sequence[FeatureList], dev: Sequence[FeatureList], negatives: int, seeds: Sequence[int]
) -> Balance:
    """Fit a judge for each seed to balanced lists, and measure it on all candidates of dev."""
    import numpy as np

    from qbe.grade.head import Head
    from qbe.train.citation.data import RankedList, citation_figures
    from qbe.train.heads import HeadSchedule, fit_head

    def measured(head: Head) -> CitationFigures:
        orders = (np.argsort(-head.scores(each.features), kind="stable") for each in dev)
        return citation_figures(
            RankedList(each.cited[order], each.total) for each, order in zip(dev, orders, strict=True)
        )

    def chosen_by(head: Head) -> float:
        figures = measured(head)
        return (figures.f1 + figures.mrr) / 2

    lists = [balanced(train, negatives, seed) for seed in seeds]
    with tempfile.TemporaryDirectory(prefix="qbe-") as work:
        heads = [
            fit_head(each, HeadSchedule(), seed, chosen_by, Path(work, f"{seed}.pt"))
            for each, seed in zip(lists, seeds, strict=True)
        ]
    total = sum(int((~each.cited).sum()) for each in lists[0])
    return Balance(negatives, total, [measured(head) for head in heads])


def mean_range(values: Sequence[float]) -> str:
    """The mean with the lowest and highest value.

    >>> mean_range([0.25, 0.27])
    '.260 (.250 to .270)'
    """
    return f"{decimals(fmean(values))} ({decimals(min(values))} to {decimals(max(values))})"


def f1_of(each: Balance) -> list[float]:
    """F1@20 of each seed."""
    return [figures.f1 for figures in each.figures]


def finding(balances: Sequence[Balance]) -> str:
    """The sentence on the balance: whether means differ by more than seeds of one balance do."""
    best, worst = (choose(balances, key=lambda each: fmean(f1_of(each))) for choose in (max, min))
    apart = fmean(f1_of(best)) - fmean(f1_of(worst))
    seeds = max(max(f1_of(each)) - min(f1_of(each)) for each in balances)
    verdict = "holds here" if apart > seeds else "does not hold here"
    return (
        f"That the balance of classes matters {verdict}: mean F1@20 goes from "
        f"{decimals(fmean(f1_of(worst)), 4)} with {worst.name} to {decimals(fmean(f1_of(best)), 4)} with "
        f"{best.name} negatives for each positive, {decimals(apart, 4)} apart; seeds of one balance are "
        f"{decimals(seeds, 4)} apart at most."
    )


def chart(balances: Sequence[Balance]) -> Chart:
    """F1@20 by balance, with the range over seeds."""
    values = [f1_of(each) for each in balances]
    line = Line("F1@20", list(map(fmean, values)), [(min(each), max(each)) for each in values])
    places = [each.name for each in balances]
    return Chart("Judge by class balance", "negatives for each positive", "F1@20", places, [line])


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)

    import torch

    from qbe.cite.evidence import Evidence
    from qbe.cite.model import default_model, read_model
    from qbe.index.opening import open_index
    from qbe.parallel import Workers
    from qbe.plots import check_plot
    from qbe.train.citation.data import read_split

    if options.plot:
        check_plot(options.plot)
    print(machine(threads, (*PACKAGES, "torch")))
    torch.set_num_threads(threads)
    with (
        open_index(options.index, threads=threads) as index,
        index.reading() as reader,
        Workers(threads) as workers,
    ):
        projection, years = held_back(options.work, reader.manifest.digest)
        late = last_years(
            read_split(reader, options.collection / "train.qrels"), Evidence(reader).years, years
        )
        train = feature_lists(reader, workers, projection, late)
        model = read_model(options.model or default_model())
        dev = feature_lists(
            reader, workers, model.projection, read_split(reader, options.collection / "dev.qrels")
        )
    print(f"{len(train)} queries to learn from, {len(dev)} of dev, {len(options.seeds)} seeds\n")
    balances = [learned(train, dev, negatives, options.seeds) for negatives in options.negatives]
    rows = [
        [
            each.name,
            f"{each.total:,}",
            mean_range(f1_of(each)),
            mean_range([figures.mrr for figures in each.figures]),
        ]
        for each in balances
    ]
    print(table(["negatives for each positive", "negatives", "F1@20", "MRR"], rows), end="\n\n")
    print(finding(balances))
    if options.plot:
        write_chart(options.plot, chart(balances))


if __name__ == "__main__":
    _cli.run("benchmarks.citation_balance", main)
