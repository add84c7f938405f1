"""``python -m benchmarks.reranking``: pairs a second, against sentence-transformers on PyTorch.

Same weights (the packaged encoder with a random head), same pairs of papers that no side cuts, same threads.
sentence-transformers gets all pairs at once and batches them by length; qbe reranks query by query.
"""

import functools
import math
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import Stage, machine, papers, parsed, spread
from qbe.cli import common as _cli
from qbe.models.encoding import EncodedAspect
from qbe.query import Aspect
from qbe.search.rank import Reranker, RerankRequest
from qbe.search.rerankers import SIDE_TOKENS, closed
from qbe.types import Facet, Paper
from qbe.util.work import thread_count

BATCHES = (8, 16, 32)
CANDIDATES = 100


def write_classifier(folder: Path) -> None:
    """Write the packaged encoder as a sequence classifier of one label, its head random from a fixed seed."""
    import torch
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    from qbe.models.folders import MINILM, packaged_weights

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity(logging.ERROR)  # it would warn that the head is new, as meant here
    source = packaged_weights(MINILM)
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(str(source), num_labels=1)
    model.save_pretrained(str(folder))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / name, folder / name)


def _text(paper: Paper, positions: Iterable[int] | None = None) -> str:
    """Return a side of a pair, in the layout of the tokens in `qbe.search.rerankers`."""
    chosen = range(len(paper.sentences)) if positions is None else sorted(positions)
    return " ".join([closed(paper.title), *paper.texts(chosen)])


def main(argv: list[str]) -> None:
    options = parsed("reranking", __doc__, argv, pairs=300, rounds=5, threads={}, peers={})
    threads = thread_count(options.threads)

    import torch
    from sentence_transformers import CrossEncoder

    from benchmarks import floors
    from benchmarks.sides import PACKAGES, against_peers, onnx_rounds, token_counter
    from qbe.models.export.encoder import export_cross_encoder
    from qbe.search.rerankers import open_reranker
    from qbe.util.work import Workers

    print(machine(threads, PACKAGES))
    with tempfile.TemporaryDirectory() as place:
        classifier, exported = Path(place, "classifier"), Path(place, "exported")
        write_classifier(classifier)
        export_cross_encoder(classifier, "MiniLM, random head", "built here", exported)
        count_tokens = token_counter(classifier / "tokenizer.json")
        queries = math.ceil(options.pairs / CANDIDATES)
        # A query is cut to two tokens less, those of its [CLS] and [SEP], which are counted here.
        name, chosen = papers(
            None, queries + options.pairs, lambda paper: count_tokens(_text(paper)) <= SIDE_TOKENS
        )
        tasks = [
            RerankRequest(EncodedAspect.of(Aspect(paper, Facet.METHOD)), chosen[first : first + CANDIDATES])
            for paper, first in zip(chosen, range(queries, len(chosen), CANDIDATES), strict=False)
        ]
        texts = [
            (_text(query.aspect.paper, query.positions), _text(paper))
            for query, some in tasks
            for paper in some
        ]
        told = f"{len(tasks)} queries, {len(tasks[0].papers)} candidates"
        print(f"{name}: {len(texts)} pairs ({told}), {options.rounds} rounds\n")
        rerankers = {
            f"qbe {precision}": open_reranker(str(exported), precision=precision, workers=Workers(threads))
            for precision in ("int8", "fp32")
        }
        actions: dict[str, Stage] = {
            side: functools.partial(_scores, reranker, tasks) for side, reranker in rerankers.items()
        }
        model = CrossEncoder(
            str(classifier), device="cpu", local_files_only=True, model_kwargs={"dtype": "float32"}
        )
        peer = functools.partial(
            model.predict, texts, activation_fn=torch.nn.Identity(), show_progress_bar=False
        )
        for size in BATCHES:
            actions[f"ST fp32, batch {size}"] = functools.partial(peer, batch_size=size)
        actions |= onnx_rounds(options.peers, "cross-encoder", classifier, texts, BATCHES, threads)
        rates = against_peers("pairs", len(texts), actions, options.rounds, threads)
        _agreement(rerankers, tasks, peer(batch_size=BATCHES[0]))
        # The second text of a pair has no [CLS] of its own.
        lengths = [count_tokens(query) + count_tokens(paper) - 1 for query, paper in texts]
    work = sum(sum(floors.flops(length, layers=6, hidden=384)) for length in lengths) / len(lengths)
    print(
        f"\n{sum(lengths) / len(lengths):.0f} tokens a pair; matrix products of one pass of the "
        f"cross-encoder: {work / 1e9:.2f} GFLOP a pair"
    )
    print(floors.bounds(work, rates, "pairs"))


def _scores(reranker: Reranker, tasks: Sequence[RerankRequest]) -> list[list[float]]:
    return [[entry.score for entry in reranker.batch_score([task])[0]] for task in tasks]


def _agreement(rerankers: Mapping[str, Reranker], tasks: Sequence[RerankRequest], expected: Any) -> None:
    import numpy as np
    from scipy.stats import spearmanr

    print(f"\nscores of ST fp32: standard deviation {np.std(expected):.4f}")
    for side, reranker in rerankers.items():
        by_query = _scores(reranker, tasks)
        largest = np.abs(np.concatenate(by_query) - expected).max()
        originals = np.split(expected, np.cumsum([len(scores) for scores in by_query])[:-1])
        correlations = [float(spearmanr(*pair).statistic) for pair in zip(by_query, originals, strict=True)]
        print(
            f"{side} with ST fp32: largest difference {largest:.6f}, Spearman within a query "
            f"{spread(correlations, '{:.4f}')}"
        )


if __name__ == "__main__":
    _cli.run("benchmarks.reranking", main)
