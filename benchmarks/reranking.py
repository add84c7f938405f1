"""``python -m benchmarks.reranking``: pairs a second, against sentence-transformers on PyTorch.

Same weights (the packaged encoder with a random head), same pairs, same token budgets, same threads. Texts
are cut to the budgets beforehand, so that all sides read the same tokens. sentence-transformers gets all
pairs at once, sorts them by length and batches them; qbe reranks query by query. ``--latency`` times whole
texts, query by query, instead.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import (
    Stage,
    interleaved,
    machine,
    median_p95,
    peers_option,
    positive,
    rate_table,
    spread,
    table,
    time_stages,
)
from benchmarks.reranking_inputs import Task, fitted, tasks, write_classifier
from qbe.cli import common as _cli
from qbe.search.rank import Reranker

BATCHES = (8, 16, 32)
CANDIDATES = 100
PACKAGES = ("torch", "transformers", "sentence-transformers", "onnxruntime", "tokenizers", "numpy")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.reranking", description=__doc__.split("\n\n")[0])
    parser.add_argument("--pairs", type=positive, default=300, help="default: %(default)s")
    parser.add_argument("--rounds", type=positive, default=5, help="runs of each side (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="default: all processors this process may use")
    peers_option(parser)
    parser.add_argument(
        "--latency",
        action="store_true",
        help=f"seconds for the {CANDIDATES} candidates of one query instead",
    )
    return parser


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    threads = _cli.threads(options.threads)
    print(machine(threads, PACKAGES))

    from qbe.models.export.encoder import export_cross_encoder
    from qbe.search.rerankers import open_reranker
    from qbe.util.work import Workers

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        name, chosen = tasks(folder / "collection", options.pairs, CANDIDATES)
        total, each = sum(len(task.papers) for task in chosen), len(chosen[0].papers)
        print(f"{name}: {total} pairs ({len(chosen)} queries, {each} candidates), {options.rounds} rounds\n")
        write_classifier(folder / "classifier")
        exported = str(folder / "exported")
        export_cross_encoder(folder / "classifier", "MiniLM, random head", "built here", Path(exported))
        encoders: dict[str, Reranker] = {
            f"qbe {precision}": open_reranker(exported, precision=precision, workers=Workers(threads))
            for precision in ("int8", "fp32")
        }
        if options.latency:
            _latency(encoders, chosen, options.rounds)
        else:
            _against_peer(encoders, folder / "classifier", chosen, threads, options.rounds, options.peers)


def _latency(rerankers: Mapping[str, Reranker], chosen: Sequence[Task], rounds: int) -> None:
    stages: list[dict[str, Stage]] = [
        {
            name: functools.partial(reranker.batch_score, [task.request])
            for name, reranker in rerankers.items()
        }
        for task in chosen
    ]
    times = time_stages(stages, rounds)
    rows = [(name, *median_p95(runs, 1.0), f"{max(runs):.2f}") for name, runs in times.items()]
    print(table(("seconds a query", "median", "p95", "max"), rows))


def _against_peer(
    encoders: Mapping[str, Reranker],
    classifier: Path,
    chosen: Sequence[Task],
    threads: int,
    rounds: int,
    peers: Path,
) -> None:
    import torch
    from tokenizers import Tokenizer

    from benchmarks import floors
    from benchmarks.sides import onnx_rounds

    torch.set_num_threads(threads)
    tokenizer = Tokenizer.from_file(str(classifier / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    same = [fitted(task, tokenizer) for task in chosen]
    texts = [pair for task in same for pair in task.texts()]
    peer = _peer(classifier)
    actions: dict[str, Stage] = {
        name: functools.partial(_scores, reranker, same) for name, reranker in encoders.items()
    }
    for size in BATCHES:
        actions[f"ST fp32, batch {size}"] = functools.partial(peer, texts, batch_size=size)
    actions |= onnx_rounds(peers, "cross-encoder", classifier, texts, BATCHES, threads)
    before = floors.products(threads)
    times = interleaved(actions, rounds)
    after = floors.products(threads)
    print(rate_table(times, len(texts), "pairs"))
    _agreement(encoders, same, peer(texts, batch_size=BATCHES[0]))
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch(texts)]
    _floor(lengths, {name: max(rate, after[name]) for name, rate in before.items()})


def _scores(reranker: Reranker, chosen: Sequence[Task]) -> list[list[float]]:
    """Scores by query and candidate."""
    return [[entry.score for entry in reranker.batch_score([task.request])[0]] for task in chosen]


def _agreement(encoders: Mapping[str, Reranker], chosen: Sequence[Task], expected: Any) -> None:
    """Differences from the original's scores (pairs,), and rank correlations with them within each query."""
    import numpy as np
    from scipy.stats import spearmanr

    print(f"\nscores of ST fp32: standard deviation {np.std(expected):.4f}")
    for name, reranker in encoders.items():
        by_query = _scores(reranker, chosen)
        largest = np.abs(np.concatenate(by_query) - expected).max()
        first, correlations = 0, []
        for scores in by_query:
            original = expected[first : first + len(scores)]
            correlations.append(float(spearmanr(scores, original).statistic))
            first += len(scores)
        print(
            f"{name} with ST fp32: largest difference {largest:.6f}, Spearman within a query "
            f"{spread(correlations, '{:.4f}')}"
        )


def _floor(lengths: Sequence[int], rates: Mapping[str, float]) -> None:
    from benchmarks.encoding import flops

    work = sum(sum(flops(length, layers=6, hidden=384)) for length in lengths) / len(lengths)
    print(
        f"\n{sum(lengths) / len(lengths):.0f} tokens a pair; matrix products of one pass of the "
        f"cross-encoder: {work / 1e9:.2f} GFLOP a pair"
    )
    for name, rate in rates.items():
        print(f"measured {name} product: {rate / 1e9:,.0f} GFLOP/s, so at most {rate / work:,.0f} pairs/s")


def _peer(classifier: Path) -> Any:
    """sentence-transformers' ``predict`` on the same weights, its scores the logits."""
    import torch
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(
        str(classifier), device="cpu", local_files_only=True, model_kwargs={"dtype": "float32"}
    )
    return functools.partial(model.predict, activation_fn=torch.nn.Identity(), show_progress_bar=False)


if __name__ == "__main__":
    _cli.run("benchmarks.reranking", main)
