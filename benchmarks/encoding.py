"""``python -m benchmarks.encoding``: papers a second, against sentence-transformers on PyTorch.

Same weights, same texts, same threads. qbe's encoder passes title and abstract through the model once
and gives the vectors of all sentences and of the whole paper; sentence-transformers gives one vector a
text, so for sentence vectors it encodes sentence by sentence, without their context.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import Stage, machine, papers, parsed
from qbe.cli import common as _cli
from qbe.types import Paper
from qbe.util.work import thread_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qbe.models.cards import EncoderFiles, EncoderMetadata
    from qbe.models.encoder import Encoder

LARGE = "facet-encoder-large"
BATCHES = (1, 8, 32)


def main(argv: list[str]) -> None:
    corpus = {"type": Path, "metavar": "FILE", "help": "default: CSFCube, else the sample of the tests"}
    large = {"action": "store_true", "help": f"{LARGE}, in place of all-MiniLM-L6-v2"}
    own: dict[str, Any] = {"corpus": corpus, "large": large, "papers": 300, "rounds": 5}
    options = parsed("encoding", __doc__, argv, **own, threads={}, peers={})
    threads = thread_count(options.threads)

    from benchmarks.sides import PACKAGES, against_peers, onnx_rounds, token_counter
    from qbe.models.encoder import Encoder
    from qbe.models.folders import BASE_ENCODER, resolve_encoder

    print(machine(threads, PACKAGES))
    encoder = LARGE if options.large else BASE_ENCODER
    files = {precision: resolve_encoder(encoder, precision) for precision in ("int8", "fp32")}
    model, count_tokens = files["int8"].metadata, token_counter(files["int8"].tokenizer)
    limit = model.max_tokens
    name, chosen = papers(options.corpus, options.papers, lambda paper: count_tokens(_text(paper)) <= limit)
    texts = [_text(paper) for paper in chosen]
    tokens = [count_tokens(text) for text in texts]
    sentences = [sentence.text for paper in chosen for sentence in paper.sentences]
    told = f"papers of at most {limit} tokens, {sum(tokens)} tokens, {len(sentences)} sentences"
    print(f"{name}: {len(chosen)} {told}\n")

    encoders = {f"qbe {precision}": Encoder(file, threads) for precision, file in files.items()}
    actions: dict[str, Stage] = {
        side: lambda encoder=encoder: list(encoder.encode(chosen))  # type: ignore[misc]
        for side, encoder in encoders.items()
    }
    original, bf16 = (
        partial(_peer(files["fp32"], dtype).encode, show_progress_bar=False)
        for dtype in ("float32", "bfloat16")
    )
    for label, encode, inputs, sizes in (
        ("ST fp32, papers", original, texts, BATCHES),
        ("ST bf16, papers", bf16, texts, BATCHES),
        ("ST fp32, sentences", original, sentences, BATCHES[1:]),
    ):
        for size in sizes:
            actions[f"{label}, batch {size}"] = partial(encode, inputs, batch_size=size)
    with tempfile.TemporaryDirectory() as place:
        weights = shutil.copytree(_weights(files["fp32"]), Path(place, "model"))
        actions |= onnx_rounds(options.peers, "bi-encoder", weights, texts, BATCHES, threads)
        rates = against_peers("papers", len(chosen), actions, options.rounds, threads)
    _agreement(encoders, chosen, *(encode(texts, batch_size=8) for encode in (original, bf16)))
    _floor(model, tokens, rates)


def _agreement(encoders: dict[str, Encoder], chosen: list[Paper], expected: Any, reduced: Any) -> None:
    import numpy as np

    by_side = {"ST bf16": reduced}
    for side, encoder in encoders.items():
        by_side[side] = np.stack([vectors.whole for vectors in encoder.encode(chosen)])
    print()
    for side, vectors in by_side.items():
        norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
        cosines = (vectors * expected).sum(axis=1) / norms
        median, least = np.median(cosines), cosines.min()
        print(f"cosine of whole-paper vectors with ST fp32, {side}: median {median:.4f}, min {least:.4f}")


def _floor(model: EncoderMetadata, tokens: list[int], rates: Mapping[str, float]) -> None:
    from benchmarks import floors

    products = (floors.flops(count, model.layers, model.dimension) for count in tokens)
    by_weights, by_states = (sum(column) / len(tokens) for column in zip(*products, strict=True))
    print(
        f"\nmatrix products of one pass: {by_weights / 1e9:.2f} GFLOP a paper with weights, "
        f"{by_states / 1e9:.2f} of attention"
    )
    print(floors.bounds(by_weights + by_states, rates, "papers"))
    # Dynamic quantization is of products with weights; tokens attend to each other in fp32.
    mixed = 1 / (by_weights / rates["int8"] + by_states / rates["fp32"])
    print(f"weights in int8, attention in fp32: at most {mixed:,.0f} papers/s")


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
    settings = {"dtype": dtype, "use_safetensors": True}
    model = SentenceTransformer(
        str(_weights(files)), device="cpu", local_files_only=True, model_kwargs=settings
    )
    model.max_seq_length = files.metadata.max_tokens
    return model


def _text(paper: Paper) -> str:
    return f"{paper.title} {paper.abstract}"


if __name__ == "__main__":
    _cli.run("benchmarks.encoding", main)
