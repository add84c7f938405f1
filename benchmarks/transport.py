"""``python -m benchmarks.transport``: pairs of papers per second in transport of sentences, against POT.

Sentence vectors are those of an index, the first ones of random papers. Costs and marginals are computed
beforehand, as for a query by facet; they are the same for all sides, and so is the tolerance, 1e-9. POT
solves pair by pair with ``ot.sinkhorn``, its usual function, and all pairs at once with ``ot.solve_batch``.
"""

from __future__ import annotations

import argparse
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.common import Stage, interleaved, machine, positive, ratio, spread, table
from qbe import _cli

if TYPE_CHECKING:
    from qbe.index.index import Index

SIZES = (6, 10)
SINGLE_PAIRS = 500
"""Number of pairs that POT solves one by one in a round; its time is scaled to that of all pairs."""

REGULARIZATION, TOLERANCE, ITERATIONS = 20.0, 1e-9, 100_000
PACKAGES = ("POT", "numpy", "scipy")
QBE = "qbe"


class Problems(NamedTuple):
    """Costs (pairs, size, size) and marginals (pairs, size), float64."""

    costs: Any
    rows: Any
    columns: Any


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.transport", description=__doc__.split("\n\n")[0])
    parser.add_argument("--index", type=Path, default=Path("indexes/csfcube"), metavar="DIR")
    parser.add_argument("--pairs", type=positive, default=20_000, help="default: %(default)s")
    parser.add_argument("--rounds", type=positive, default=5, help="runs of each side (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    return parser


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    for backend in ("PYTORCH", "JAX", "TENSORFLOW", "CUPY"):
        os.environ[f"POT_BACKEND_DISABLE_{backend}"] = "1"  # POT imports them when it is loaded
    print(machine(threads, PACKAGES))

    from qbe.index.opening import open_index

    with open_index(options.index) as index:
        for size in SIZES:
            problems = _problems(index, options.pairs, size)
            print(
                f"\n{options.index.name}: {options.pairs} pairs, {size} x {size}, {options.rounds} rounds\n"
            )
            _compare(problems, threads, options.rounds)


def _problems(index: Index, pairs: int, size: int) -> Problems:
    """Pairs of papers with at least ``size`` sentences, of which the first ``size`` are used.

    Raises UsageError where the index has none.
    """
    import numpy as np

    from qbe.errors import UsageError
    from qbe.rerank.matching import PART_TEMPERATURE, marginals

    starts = index.layout.starts
    long = np.flatnonzero(np.diff(starts) >= size)
    if not len(long):
        raise UsageError(f"expected papers of at least {size} sentences in the index, found none")
    chosen = np.random.default_rng(size).choice(long, (2, pairs))
    vectors = [index.sentence_vectors[starts[side][:, None] + np.arange(size)] for side in chosen]
    costs = np.empty((pairs, size, size))
    for place, (query, candidate) in enumerate(zip(*vectors, strict=True)):
        costs[place] = np.linalg.norm(query[:, None].astype(np.float64) - candidate, axis=2)
    everything = np.ones((pairs, size), np.bool_)
    return Problems(costs, *marginals(costs, everything, everything, PART_TEMPERATURE))


def _compare(problems: Problems, threads: int, rounds: int) -> None:
    import numpy as np

    from qbe.parallel import Workers
    from qbe.rerank.transport import entropic_transport

    solve = functools.partial(entropic_transport, *problems, REGULARIZATION, TOLERANCE)
    pairs = len(problems.costs)
    singles = min(SINGLE_PAIRS, pairs)
    actions: dict[str, Stage] = {
        QBE: functools.partial(solve, workers=Workers(threads)),
        f"{QBE}, 1 thread": solve,
        "ot.sinkhorn, pair by pair": functools.partial(_one_by_one, problems, singles),
        "ot.solve_batch, log domain": functools.partial(_batched, problems, "log_sinkhorn"),
        "ot.solve_batch": functools.partial(_batched, problems, "sinkhorn"),
    }
    times = interleaved(actions, rounds)
    times["ot.sinkhorn, pair by pair"] = [
        seconds * pairs / singles for seconds in times["ot.sinkhorn, pair by pair"]
    ]
    costs = (np.asarray(solve()) * problems.costs).sum(axis=(1, 2))
    rows = []
    for name, runs in times.items():
        plans = np.asarray(actions[name]())
        plan_costs = (plans * problems.costs[: len(plans)]).sum(axis=(1, 2))
        difference = np.abs(plan_costs / costs[: len(plans)] - 1).max()
        speed = spread([pairs / seconds for seconds in runs], "{:,.0f}")
        rows.append((name, speed, "1" if name == QBE else ratio(times, name, QBE), f"{difference:.1e}"))
    print(table(("side", "pairs/s", f"time / {QBE}", "largest relative difference of costs"), rows))


def _one_by_one(problems: Problems, count: int) -> list[Any]:
    import ot

    return [
        ot.sinkhorn(row, column, cost, 1 / REGULARIZATION, stopThr=TOLERANCE, numItermax=ITERATIONS)
        for cost, row, column in zip(*(array[:count] for array in problems), strict=True)
    ]


def _batched(problems: Problems, method: str) -> Any:
    import ot

    costs, rows, columns = problems
    result = ot.solve_batch(
        costs, 1 / REGULARIZATION, rows, columns, max_iter=ITERATIONS, tol=TOLERANCE, method=method
    )
    return result.plan


if __name__ == "__main__":
    _cli.run("benchmarks.transport", main)
