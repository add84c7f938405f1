"""Encoding, labelling and scoring on a GPU beside all cores: speed, memory, and whether they agree.

Reads CSFCube below QBE_DATA. Weights of facet-encoder-large are those in the cache; where there are none,
weights of its shape are drawn, which serve to measure speed alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import machine, positive, spread, table
from benchmarks.gpu_models import drawn_large, drawn_pairs
from qbe.cli import common as _cli
from qbe.errors import CorpusError, MissingDependencyError, QbeError
from qbe.models.cards import EncoderFiles
from qbe.models.encoder import Encoder
from qbe.models.folders import resolve_encoder
from qbe.models.pooling import EncodedAspect, PaperVectors
from qbe.models.session import CPU, CUDA, try_device
from qbe.models.tagger import Tagger, TaggingEncoder
from qbe.query import Aspect
from qbe.search.rank import RerankRequest
from qbe.search.rerankers import CrossEncoder
from qbe.types import Facet, Paper
from qbe.util.work import Workers, available_threads

SMALL, LARGE = "facet-encoder", "facet-encoder-large"
K = 20


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", choices=(CUDA, CPU), default=CUDA, help="cpu: to try the command out")
    parser.add_argument("--papers", type=positive, default=4096, metavar="N", help="encoded on the GPU")
    parser.add_argument("--cpu-papers", type=positive, default=1024, metavar="N", help="encoded on the CPU")
    parser.add_argument(
        "--large-papers", type=positive, default=64, metavar="N", help="by the large encoder there"
    )
    parser.add_argument(
        "--pairs", type=positive, default=4096, metavar="N", help="scored by the cross-encoder"
    )
    parser.add_argument("--budgets", type=positive, nargs="+", default=[8192, 24576, 65536], metavar="TOKENS")
    parser.add_argument("--rounds", type=positive, default=3, metavar="N")
    parser.add_argument("--threads", type=positive, default=available_threads(), metavar="N")
    parser.add_argument(
        "--seconds", type=positive, default=150, metavar="N", help="no part begins after these"
    )
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--output", type=Path, default=Path("runs/benchmarks/gpu.json"), metavar="FILE")
    return parser


@dataclass
class Benchmark:
    """What the parts share, and what they found: ``rows`` of the table, ``findings`` by name."""

    options: argparse.Namespace
    papers: list[Paper]
    begin: float = field(default_factory=time.perf_counter)
    rows: list[list[str]] = field(default_factory=list)
    findings: dict[str, Any] = field(default_factory=dict)
    tagger: Tagger = field(default_factory=Tagger.open)

    def some(self, count: int) -> list[Paper]:
        """So many papers, repeated where there are fewer."""
        return list(islice(cycle(self.papers), count))

    def measure(self, what: str, where: str, count: int, unit: str, action: Callable[[], object]) -> float:
        """Time an action after one that is not counted; returns the median of items a second."""
        action()
        rates = []
        for _ in range(self.options.rounds):
            begin = time.perf_counter()
            action()
            rates.append(count / (time.perf_counter() - begin))
        self.rows.append([what, where, spread(rates, "{:,.0f}"), unit])
        self.findings[f"{what} | {where}"] = {"rates": rates, "unit": f"{unit}/s", "items": count}
        print(f"  {what}, {where}: {spread(rates, '{:,.0f}')} {unit}/s", flush=True)
        return float(np.median(rates))

    def encoders(self, name: str, files: EncoderFiles, half: EncoderFiles, cpu_papers: int) -> None:
        """The rows of an encoder: on the CPU in the precision of ``files``, on the device in fp16."""
        options, threads = self.options, self.options.threads
        cpu, where = self.some(cpu_papers), f"CPU, {files.precision}, {threads} threads"
        tagging = self._tagging(Encoder(files, threads))
        self.measure(f"{name}, with labels", where, len(cpu), "papers", partial(_label, tagging, cpu))
        many = self.some(options.papers)
        best, rate = options.budgets[0], 0.0
        for budget in options.budgets:
            encoder = Encoder(half, threads, options.device, batch_tokens=budget)
            tagging = self._tagging(encoder)
            where = f"{options.device}, fp16, {budget:,} tokens"
            measured = self.measure(
                f"{name}, with labels", where, len(many), "papers", partial(_label, tagging, many)
            )
            best, rate = (budget, measured) if measured > rate else (best, rate)
        encoder = Encoder(half, threads, options.device, batch_tokens=best)
        where = f"{options.device}, fp16, {best:,} tokens"
        self.measure(
            f"{name}, vectors alone", where, len(many), "papers", lambda: _drain(encoder.encode(many))
        )
        windows = [window for paper in many for window in encoder.windows(paper)]
        tokens = sum(len(window.ids) for window in windows)
        model = encoder.batch_model
        self.measure(f"{name}, the model alone", where, len(many), "papers", lambda: model.run(windows))
        self.findings[f"{name}, tokens a paper"] = tokens / len(many)
        self.findings[f"{name}, GPU memory MiB"] = gpu_memory()

    def _tagging(self, encoder: Encoder) -> TaggingEncoder:
        return TaggingEncoder(encoder, self.tagger, "predicted")


def small(bench: Benchmark) -> None:
    bench.encoders(SMALL, resolve_encoder(SMALL), resolve_encoder(SMALL, "fp16"), bench.options.cpu_papers)


def large(bench: Benchmark) -> None:
    with _large() as (files, half, note):
        bench.findings["large weights"] = note
        print(f"  weights: {note}", flush=True)
        bench.encoders(LARGE, files, half, bench.options.large_papers)


@contextmanager
def _large() -> Iterator[tuple[EncoderFiles, EncoderFiles, str]]:
    """The large encoder for the CPU and for the device, and where its weights come from."""
    from qbe.models.cards import ENCODER
    from qbe.models.folders import cached_export
    from qbe.models.large import LARGE as ENTRY

    if (cached_export(ENCODER, LARGE, ENTRY.sha256) / ENCODER.metadata_file).is_file():
        yield resolve_encoder(LARGE), resolve_encoder(LARGE, "fp16"), "its own"
        return
    with tempfile.TemporaryDirectory() as folder:
        drawn_large(Path(folder, "drawn-large"))
        name = str(Path(folder, "drawn-large"))
        yield resolve_encoder(name, "fp32"), resolve_encoder(name, "fp16"), "drawn; the CPU's row is fp32"


def agreement(bench: Benchmark) -> None:
    """Vectors of the device beside those of the CPU, and the rankings that come of them."""
    options, papers = bench.options, bench.papers
    half = Encoder(resolve_encoder(SMALL, "fp16"), options.threads, options.device)
    int8 = Encoder(resolve_encoder(SMALL), options.threads)
    on_device, on_cpu = list(half.encode(papers, bench.tagger)), list(int8.encode(papers, bench.tagger))
    some = papers[:128]
    exact = Encoder(half.files, options.threads, CPU, half=False)
    single = list(exact.encode(some, bench.tagger))
    alone = [half.encode_paper(paper, bench.tagger) for paper in some]
    for name, left, right in (
        ("fp16 on the device beside fp32 on the CPU", on_device[: len(some)], single),
        ("fp16 in a batch beside fp16 alone", on_device[: len(some)], alone),
        ("fp16 on the device beside int8 on the CPU", on_device, on_cpu),
    ):
        cosines = np.concatenate(
            [_cosines(a.sentences, b.sentences) for a, b in zip(left, right, strict=True)]
        )
        found: dict[str, Any] = {
            "smallest cosine": float(cosines.min()),
            "mean cosine": float(cosines.mean()),
            "same labels": float(
                np.mean(np.concatenate([_same_labels(a, b) for a, b in zip(left, right, strict=True)]))
            ),
        }
        if len(left) == len(papers):
            found |= _rankings(papers, left, right)
        bench.findings[name] = found
        print(f"  {name}: " + ", ".join(f"{key} {value:.5f}" for key, value in found.items()), flush=True)


def _cosines(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosines: NDArray[Any] = (left * right).sum(axis=1) / lengths
    return cosines


def _same_labels(left: PaperVectors, right: PaperVectors) -> NDArray[np.bool_]:
    assert left.hook_values is not None
    assert right.hook_values is not None
    same: NDArray[np.bool_] = left.hook_values.argmax(axis=1) == right.hook_values.argmax(axis=1)
    return same


def _rankings(
    papers: Sequence[Paper], left: Sequence[PaperVectors], right: Sequence[PaperVectors]
) -> dict[str, float]:
    """CSFCube's pools, ranked by the mean of best matches of the query's sentences: overlap of the first K of
    both sides, and the mean NDCG at K (gains are grades) of each.
    """
    rows = {paper.paper_id: row for row, paper in enumerate(papers)}
    shared: list[float] = []
    gains: tuple[list[float], list[float]] = ([], [])
    for facet in Facet:
        file = Path(os.environ["QBE_DATA"], "csfcube", f"test-pid2anns-csfcube-{facet.value}.json")
        for query, judged in json.loads(file.read_text(encoding="utf-8")).items():
            paper = papers[rows[query]]
            positions, _ = paper.facet_positions(facet)
            candidates = [rows[candidate] for candidate in judged["cands"]]
            grades = np.array(judged["relevance_adju"])
            tops = []
            for side, found in zip((left, right), gains, strict=True):
                of_query = side[rows[query]].sentences[list(positions)]
                scores = [(of_query @ side[row].sentences.T).max(axis=1).mean() for row in candidates]
                order = np.argsort(-np.array(scores), kind="stable")[:K]
                tops.append(set(order.tolist()))
                discounts = 1 / np.log2(np.arange(2, K + 2))
                ideal = (np.sort(grades)[::-1][:K] * discounts[: len(grades)]).sum()
                found.append(float((grades[order] * discounts[: len(order)]).sum() / ideal))
            shared.append(len(tops[0] & tops[1]) / K)
    return {
        f"overlap@{K}": float(np.mean(shared)),
        f"NDCG@{K} of the device": float(np.mean(gains[0])),
        f"NDCG@{K} of the CPU": float(np.mean(gains[1])),
    }


def pairs(bench: Benchmark) -> None:
    """A cross-encoder of the small encoder's size, whose output is drawn."""
    options = bench.options
    with tempfile.TemporaryDirectory() as folder, Workers(options.threads) as workers:
        int8, half, single = drawn_pairs(Path(folder, "pairs"), bench.papers[:64])
        query = bench.papers[0]
        aspect = EncodedAspect.of(Aspect(query, None))

        def request(count: int) -> list[RerankRequest]:
            return [RerankRequest(aspect, bench.some(count + 1)[1:])]

        few = request(min(options.pairs, 512))
        on_cpu = CrossEncoder(int8, workers)
        where = f"CPU, int8, {options.threads} threads"
        count = len(few[0].papers)
        bench.measure("cross-encoder", where, count, "pairs", lambda: on_cpu.batch_score(few))
        many = request(options.pairs)
        on_device = CrossEncoder(half, workers, options.device)
        bench.measure(
            "cross-encoder",
            f"{options.device}, fp16",
            options.pairs,
            "pairs",
            lambda: on_device.batch_score(many),
        )
        some = request(64)
        exact = [each.score for each in CrossEncoder(single, workers).batch_score(some)[0]]
        rounded = [each.score for each in on_device.batch_score(some)[0]]
        difference = float(np.abs(np.array(exact) - rounded).max() / np.std(exact))
        bench.findings["cross-encoder, largest difference / deviation of scores"] = difference
        print(f"  largest difference from fp32 on the CPU: {difference:.5f} of the deviation", flush=True)


PARTS: dict[str, Callable[[Benchmark], None]] = {
    "small": small,
    "agreement": agreement,
    "pairs": pairs,
    "large": large,
}


def gpu_memory() -> str:
    """Memory in use on the GPUs, in MiB, as the driver says."""
    return _ask("memory.used") or "not known"


def _ask(what: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def _label(tagging: TaggingEncoder, papers: Sequence[Paper]) -> None:
    _drain(tagging.encode(papers))


def _drain(stream: Iterator[object]) -> None:
    for _ in stream:
        pass


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    folder = os.environ.get("QBE_DATA")
    if not folder or not Path(folder, "csfcube").is_dir():
        raise CorpusError("expected csfcube below QBE_DATA, found none; set QBE_DATA to a folder that has it")
    try:
        _try(options.device)
    except QbeError as error:
        raise MissingDependencyError(
            f"not run: it needs an NVIDIA GPU with CUDA 13 and cuDNN 9, and qbe[gpu] installed as "
            f"docs/indexing.md says ({error})"
        ) from error
    from qbe.corpus import read_corpus

    papers = list(read_corpus([str(Path(folder, "csfcube", "abstracts-csfcube-preds.jsonl"))]))
    bench = Benchmark(options, papers)
    described = machine(options.threads, ["numpy", "tokenizers"])
    import onnxruntime

    described = (
        f"{_ask('name,driver_version') or 'no GPU'}; ONNX Runtime {onnxruntime.__version__}; {described}"
    )
    bench.findings["machine"] = described
    print(described, flush=True)
    for name in options.parts:
        spent = time.perf_counter() - bench.begin
        if spent > options.seconds:
            print(f"{name}: left out, since {spent:.0f} of {options.seconds} seconds are over", flush=True)
            continue
        print(f"{name} ({spent:.0f} s)", flush=True)
        try:
            PARTS[name](bench)
        except Exception:  # the other parts are worth having
            bench.findings[f"{name}, failed"] = traceback.format_exc()
            traceback.print_exc(file=sys.stdout)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(bench.findings, indent=1) + "\n", encoding="utf-8")
    print(f"\n{table(['', 'where', 'a second: median (range)', 'of'], bench.rows)}")
    print(f"\n{time.perf_counter() - bench.begin:.0f} s; written to {options.output}")


def _try(device: str) -> None:
    """Raise where nothing runs on a device; PyTorch brings libraries that may be missing."""
    try:
        try_device(device)
    except MissingDependencyError:
        with suppress(ImportError):
            import torch  # noqa: F401
        try_device(device)


if __name__ == "__main__":
    _cli.run("benchmarks.gpu", main)
