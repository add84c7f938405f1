"""``python -m benchmarks.encoding``: papers a second, against sentence-transformers on PyTorch.

Same weights, same texts, same threads. qbe's encoder passes title and abstract through the model once
and gives the vectors of all sentences and of the whole paper; sentence-transformers gives one vector a
text, so for sentence vectors it encodes sentence by sentence, without their context.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import interleaved, machine, papers, parsed, rate_table
from qbe.cli import common as _cli
from qbe.types import Paper
from qbe.util.work import thread_count

if TYPE_CHECKING:
    from qbe.models.cards import EncoderFiles, EncoderMetadata
    from qbe.models.encoder import Encoder

LARGE = "facet-encoder-large"
BATCHES = (1, 8, 32)
PACKAGES = ("torch", "transformers", "sentence-transformers", "onnxruntime", "tokenizers", "numpy")


def main(argv: list[str]) -> None:
    corpus = {"type": Path, "metavar": "FILE", "help": "default: CSFCube, else the sample of the tests"}
    large = {"action": "store_true", "help": f"{LARGE}, in place of all-MiniLM-L6-v2"}
    own: dict[str, Any] = {"corpus": corpus, "large": large, "papers": 300, "rounds": 5}
    options = parsed("encoding", __doc__, argv, **own, threads={}, peers={})
    threads = thread_count(options.threads)
    print(machine(threads, PACKAGES))

    from qbe.models.folders import BASE_ENCODER, resolve_encoder

    encoder = LARGE if options.large else BASE_ENCODER
    files = {precision: resolve_encoder(encoder, precision) for precision in ("int8", "fp32")}
    count_tokens = _token_counter(files["int8"])
    limit = files["int8"].metadata.max_tokens
    name, chosen = papers(options.corpus, options.papers, lambda paper: count_tokens(paper) <= limit)
    tokens = [count_tokens(paper) for paper in chosen]
    sentences = sum(len(paper.sentences) for paper in chosen)
    print(
        f"{name}: {len(chosen)} papers of at most {limit} tokens, {sum(tokens)} tokens, "
        f"{sentences} sentences\n"
    )
    _against_peer(files, chosen, tokens, threads, options.rounds, options.peers)


def _against_peer(
    files: dict[str, EncoderFiles],
    chosen: list[Paper],
    tokens: list[int],
    threads: int,
    rounds: int,
    peers: Path,
) -> None:
    import torch

    from benchmarks import floors
    from benchmarks.sides import onnx_rounds
    from qbe.models.encoder import Encoder

    torch.set_num_threads(threads)
    encoders = {precision: Encoder(file, threads) for precision, file in files.items()}
    original, bf16 = _peer(files["fp32"], "float32"), _peer(files["fp32"], "bfloat16")
    texts = [_text(paper) for paper in chosen]
    sentences = [sentence.text for paper in chosen for sentence in paper.sentences]
    actions: dict[str, Callable[[], object]] = {
        f"qbe {precision}": lambda encoder=encoder: list(encoder.encode(chosen))  # type: ignore[misc]
        for precision, encoder in encoders.items()
    }
    for label, model, inputs, sizes in (
        ("ST fp32, papers", original, texts, BATCHES),
        ("ST bf16, papers", bf16, texts, BATCHES),
        ("ST fp32, sentences", original, sentences, BATCHES[1:]),
    ):
        for size in sizes:
            actions[f"{label}, batch {size}"] = functools.partial(
                model.encode, inputs, batch_size=size, show_progress_bar=False
            )
    with tempfile.TemporaryDirectory() as place:
        weights = shutil.copytree(_weights(files["fp32"]), Path(place, "model"))
        actions |= onnx_rounds(peers, "bi-encoder", weights, texts, BATCHES, threads)
        before = floors.products(threads)
        times = interleaved(actions, rounds)
    after = floors.products(threads)
    print(rate_table(times, len(chosen), "papers"))
    _agreement(encoders, original, bf16, chosen)
    _floor(files["int8"].metadata, tokens, {name: max(rate, after[name]) for name, rate in before.items()})


def _agreement(encoders: dict[str, Encoder], original: Any, bf16: Any, chosen: list[Paper]) -> None:
    import numpy as np

    texts = [_text(paper) for paper in chosen]
    expected, reduced = (
        model.encode(texts, batch_size=8, show_progress_bar=False).astype(np.float32)
        for model in (original, bf16)
    )
    by_side = {"ST bf16": reduced}
    for precision, encoder in encoders.items():
        by_side[f"qbe {precision}"] = np.stack([vectors.whole for vectors in encoder.encode(chosen)])
    print()
    for name, vectors in by_side.items():
        norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
        cosines = (vectors * expected).sum(axis=1) / norms
        print(
            f"cosine of whole-paper vectors with ST fp32, {name}: "
            f"median {np.median(cosines):.4f}, min {cosines.min():.4f}"
        )


def _floor(model: EncoderMetadata, tokens: list[int], rates: dict[str, float]) -> None:
    products = (flops(count, model.layers, model.dimension) for count in tokens)
    by_weights, by_states = (sum(column) / len(tokens) for column in zip(*products, strict=True))
    print(
        f"\nmatrix products of one pass: {by_weights / 1e9:.2f} GFLOP a paper with weights, "
        f"{by_states / 1e9:.2f} of attention"
    )
    for name, rate in rates.items():
        most = rate / (by_weights + by_states)
        print(f"measured {name} product: {rate / 1e9:,.0f} GFLOP/s, so at most {most:,.0f} papers/s")
    # Dynamic quantization is of products with weights; tokens attend to each other in fp32.
    mixed = 1 / (by_weights / rates["int8"] + by_states / rates["fp32"])
    print(f"weights in int8, attention in fp32: at most {mixed:,.0f} papers/s")


def flops(tokens: int, layers: int, hidden: int) -> tuple[int, int]:
    """FLOPs of the matrix products of one pass, two a multiply-add: with weights, and of attention.

    A token costs a layer 12 H^2 multiply-adds in its projections (4 H^2 in attention, 8 H^2 in the
    feed-forward part of width 4 H) and 2 T H in its attention to T tokens.
    """
    passes = 2 * layers * tokens
    return passes * 12 * hidden**2, passes * 2 * tokens * hidden


def _weights(files: EncoderFiles) -> Path:
    from qbe.models.folders import MINILM, packaged_weights, weights_folder
    from qbe.util.files import sha256

    is_large = files.metadata.name == LARGE
    folder = weights_folder() if is_large else packaged_weights(MINILM)
    assert sha256(folder / "model.safetensors") == files.metadata.weights_sha256
    return folder


def _peer(files: EncoderFiles, dtype: str) -> Any:
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    model = SentenceTransformer(
        str(_weights(files)),
        device="cpu",
        local_files_only=True,
        model_kwargs={"dtype": dtype, "use_safetensors": True},
    )
    model.max_seq_length = files.metadata.max_tokens
    return model


def _token_counter(files: EncoderFiles) -> Callable[[Paper], int]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(files.tokenizer))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda paper: len(tokenizer.encode(_text(paper)).ids)


def _text(paper: Paper) -> str:
    return f"{paper.title} {paper.abstract}"


if __name__ == "__main__":
    _cli.run("benchmarks.encoding", main)
