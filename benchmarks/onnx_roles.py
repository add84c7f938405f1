"""The ONNX back end of sentence-transformers, for `benchmarks.encoding` and `benchmarks.reranking`.

A process of its own: KIND (bi-encoder, cross-encoder) FOLDER TEXTS PRECISION THREADS. A round passes all
texts, in batches of the size that the line read gives. Run by the Python of the peers' environment. int8 is
what sentence-transformers' own ``export_dynamic_quantized_onnx_model`` makes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.answering import say

TOKENS = 512


def load(kind: str, folder: str, threads: int, work: str, precision: str) -> Any:
    """The model, exported by its own library."""
    import onnxruntime
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from sentence_transformers.backend import export_dynamic_quantized_onnx_model

    model_class = SentenceTransformer if kind == "bi-encoder" else CrossEncoder
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    options: dict[str, Any] = {"provider": "CPUExecutionProvider", "session_options": settings}
    model = model_class(folder, backend="onnx", device="cpu", model_kwargs=options)
    if precision == "int8":
        model.save_pretrained(work)
        export_dynamic_quantized_onnx_model(model, "avx512_vnni", work)
        (file,) = Path(work).rglob("*_qint8_*.onnx")
        options["file_name"] = str(file.relative_to(work))
        model = model_class(work, backend="onnx", device="cpu", model_kwargs=options)
    model.max_seq_length = TOKENS
    return model


def main(kind: str, folder: str, texts: str, precision: str, threads: str) -> None:
    inputs = json.loads(Path(texts).read_text())
    with tempfile.TemporaryDirectory() as work:
        model = load(kind, folder, int(threads), work, precision)
        call = model.encode if kind == "bi-encoder" else model.predict
        say(ready=True)
        for line in sys.stdin:
            outputs = call(inputs, batch_size=int(line), show_progress_bar=False)
            first = outputs[0] if kind == "bi-encoder" else outputs[:1]
            say(first=[float(number) for number in first])


if __name__ == "__main__":
    main(*sys.argv[1:])
