"""``python -m benchmarks.gpu``: encoding, labelling and scoring on a GPU beside all cores.

Reads CSFCube below QBE_DATA. Where the cache lacks facet-encoder-large, weights of its shape are drawn, which
serve to measure speed alone.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import interleaved, machine, parsed, positive, spread, table
from qbe.cli import common as _cli
from qbe.errors import CorpusError, MissingDependencyError, QbeError
from qbe.models.cards import ENCODER, EncoderFiles
from qbe.models.encoder import Encoder
from qbe.models.encoding import EncodedAspect, PaperVectors
from qbe.models.folders import LARGE_SHA256, cached_export, resolve_encoder
from qbe.models.session import CPU, CUDA, PRODUCT_OF_BYTES, open_session
from qbe.models.tagger import Tagger, TaggingEncoder
from qbe.query import Aspect
from qbe.search.rank import RerankRequest
from qbe.search.rerankers import CrossEncoder
from qbe.types import Paper
from qbe.util.work import Workers, available_threads

SMALL, LARGE = "facet-encoder", "facet-encoder-large"


class Benchmark:
    """The papers and options of all parts, and the ``rows`` of the table."""

    def __init__(self, options: argparse.Namespace, papers: list[Paper]) -> None:
        self.options, self.papers, self.tagger = options, papers, Tagger.open()
        self.rows: list[list[str]] = []

    def some(self, count: int) -> list[Paper]:
        """Return so many papers, repeated where there are fewer."""
        return list(islice(cycle(self.papers), count))

    def measure(self, what: str, where: str, count: int, unit: str, action: Callable[[], object]) -> float:
        """Time an action after one that is not counted; return the median of items a second."""
        rates = [count / each for each in interleaved({what: [action]}, self.options.rounds)[what]]
        self.rows.append([what, where, spread(rates, "{:,.0f}"), unit])
        print(f"  {what}, {where}: {self.rows[-1][2]} {unit}/s", flush=True)
        return float(np.median(rates))

    def encoders(self, name: str, files: EncoderFiles, half: EncoderFiles, cpu_papers: int) -> None:
        """Measure an encoder: on the CPU in the precision of ``files``, on the device in fp16."""
        options = self.options

        def label(encoder: Encoder, papers: list[Paper], where: str) -> float:
            tagging = TaggingEncoder(encoder, self.tagger, "predicted")
            what = f"{name}, with labels"
            return self.measure(what, where, len(papers), "papers", lambda: list(tagging.encode(papers)))

        where = f"CPU, {files.precision}, {options.threads} threads"
        label(Encoder(files, options.threads), self.some(cpu_papers), where)
        many, rates = self.some(options.papers), dict[int, float]()
        for budget in options.budgets:
            encoder = Encoder(half, options.threads, options.device, batch_tokens=budget)
            rates[budget] = label(encoder, many, f"{options.device}, fp16, {budget:,} tokens")
        best = max(rates, key=lambda budget: rates[budget])
        encoder = Encoder(half, options.threads, options.device, batch_tokens=best)
        where = f"{options.device}, fp16, {best:,} tokens"
        self.measure(f"{name}, vectors alone", where, len(many), "papers", lambda: list(encoder.encode(many)))
        windows = [window for paper in many for window in encoder.windows(paper)]
        run = partial(encoder.batch_model.run, windows)
        self.measure(f"{name}, the model alone", where, len(many), "papers", run)
        tokens = sum(len(each.ids) for each in windows) / len(many)
        print(f"  {tokens:.0f} tokens a paper; memory of the GPU: {nvidia('memory.used')}", flush=True)


def small(bench: Benchmark) -> None:
    bench.encoders(SMALL, resolve_encoder(SMALL), resolve_encoder(SMALL, "fp16"), bench.options.cpu_papers)


def large(bench: Benchmark) -> None:
    with tempfile.TemporaryDirectory() as place:
        name, precision = LARGE, "int8"
        if not (cached_export(ENCODER, LARGE, LARGE_SHA256) / ENCODER.metadata_file).is_file():
            import torch
            from transformers import BertConfig, BertModel

            print("  weights: drawn", flush=True)
            torch.manual_seed(0)
            BertModel(BertConfig()).save_pretrained(place)  # as large: 12 layers, 768 wide
            shutil.copy(resolve_encoder().tokenizer, Path(place, "tokenizer.json"))
            name, precision = place, "fp32"
        files = resolve_encoder(name, precision)
        bench.encoders(LARGE, files, resolve_encoder(name, "fp16"), bench.options.large_papers)


def agreement(bench: Benchmark) -> None:
    """Compare vectors of the device with those of the CPU."""
    options, papers, tagger = bench.options, bench.papers, bench.tagger
    half = Encoder(resolve_encoder(SMALL, "fp16"), options.threads, options.device)
    int8 = Encoder(resolve_encoder(SMALL), options.threads)
    exact = Encoder(half.files, options.threads, CPU, half=False)
    on_device, on_cpu = list(half.encode(papers, tagger)), list(int8.encode(papers, tagger))
    some = papers[:128]
    for name, left, right in (
        ("fp16 on the device beside fp32 on the CPU", on_device[:128], list(exact.encode(some, tagger))),
        (
            "fp16 in a batch beside fp16 alone",
            on_device[:128],
            [half.encode_paper(paper, tagger) for paper in some],
        ),
        ("fp16 on the device beside int8 on the CPU", on_device, on_cpu),
    ):
        compared = [_compared(a, b) for a, b in zip(left, right, strict=True)]
        cosines, same = (np.concatenate(values) for values in zip(*compared, strict=True))
        told = f"smallest cosine {cosines.min():.5f}, mean cosine {cosines.mean():.5f}"
        print(f"  {name}: {told}, same labels {same.mean():.5f}", flush=True)


def _compared(left: PaperVectors, right: PaperVectors) -> tuple[NDArray[Any], NDArray[Any]]:
    a, b = left.sentences, right.sentences
    assert left.hook_values is not None
    assert right.hook_values is not None
    same = left.hook_values.argmax(axis=1) == right.hook_values.argmax(axis=1)
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1), same


def pairs(bench: Benchmark) -> None:
    """Score pairs by a cross-encoder of the small encoder's size, with a random head."""
    from benchmarks.reranking import write_classifier
    from qbe.models.export.encoder import export_cross_encoder
    from qbe.models.folders import resolve_reranker

    options, aspect = bench.options, EncodedAspect.of(Aspect(bench.papers[0], None))

    def request(count: int) -> list[RerankRequest]:
        return [RerankRequest(aspect, bench.some(count + 1)[1:])]

    with tempfile.TemporaryDirectory() as place, Workers(options.threads) as workers:
        classifier, exported = Path(place, "classifier"), Path(place, "exported")
        write_classifier(classifier)
        export_cross_encoder(classifier, "MiniLM, random head", "built here", exported)
        int8, half, single = (resolve_reranker(str(exported), each) for each in ("int8", "fp16", "fp32"))
        on_cpu, on_device = CrossEncoder(int8, workers), CrossEncoder(half, workers, options.device)
        few, many = min(options.pairs, 512), options.pairs
        where = f"CPU, int8, {options.threads} threads"
        bench.measure("cross-encoder", where, few, "pairs", partial(on_cpu.batch_score, request(few)))
        where = f"{options.device}, fp16"
        bench.measure("cross-encoder", where, many, "pairs", partial(on_device.batch_score, request(many)))
        exact, rounded = (
            np.array([hit.score for hit in side.batch_score(request(64))[0]])
            for side in (CrossEncoder(single, workers), on_device)
        )
    difference = float(np.abs(exact - rounded).max() / np.std(exact))
    print(f"  largest difference from fp32 on the CPU: {difference:.5f} of the deviation", flush=True)


PARTS: dict[str, Callable[[Benchmark], None]] = {
    each.__name__: each for each in (small, agreement, pairs, large)
}


def nvidia(what: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"]
    with suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return "not known"


def main(argv: list[str]) -> None:
    begin, budgets = time.perf_counter(), [8192, 24576, 65536]
    options = parsed(
        "gpu",
        __doc__,
        argv,
        device={"choices": (CUDA, CPU), "default": CUDA, "help": "cpu: to try the command out"},
        papers=4096,
        cpu_papers=1024,
        large_papers=64,
        pairs=4096,
        rounds=3,
        threads=available_threads(),
        seconds={"type": positive, "default": 150, "help": "after which no part begins"},
        budgets={"type": positive, "nargs": "+", "default": budgets, "help": "tokens of a batch"},
        parts={"nargs": "+", "choices": list(PARTS), "default": list(PARTS)},
    )
    folder = os.environ.get("QBE_DATA")
    if not folder or not Path(folder, "csfcube").is_dir():
        raise CorpusError("expected csfcube below QBE_DATA, found none; set QBE_DATA to a folder that has it")
    with suppress(ImportError):
        import torch  # noqa: F401  # it brings libraries that ONNX Runtime may miss
    try:
        open_session(PRODUCT_OF_BYTES, options.device)
    except QbeError as error:
        raise MissingDependencyError(
            f"not run: it needs an NVIDIA GPU with CUDA 13 and cuDNN 9, and qbe[gpu] installed as "
            f"docs/indexing.md says ({error})"
        ) from error
    from qbe.corpus.reading import read_corpus

    bench = Benchmark(
        options, list(read_corpus([str(Path(folder, "csfcube", "abstracts-csfcube-preds.jsonl"))]))
    )
    print(nvidia("name,driver_version"), machine(options.threads, ["numpy", "tokenizers"]), sep="; ")
    for name in options.parts:
        spent = time.perf_counter() - begin
        print(f"{name} ({spent:.0f} s)", flush=True)
        if spent > options.seconds:
            print(f"  left out, since {options.seconds} seconds are over", flush=True)
            continue
        try:
            PARTS[name](bench)
        except Exception:  # the other parts are worth having
            traceback.print_exc(file=sys.stdout)
    print(f"\n{table(['', 'where', 'a second: median (range)', 'of'], bench.rows)}")
    print(f"\n{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    _cli.run("benchmarks.gpu", main)
