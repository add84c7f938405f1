"""ONNX Runtime sessions, opened the same way everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qbe.errors import ModelError


def open_session(model: Path, threads: int = 1) -> Any:
    """An ``onnxruntime.InferenceSession`` on the CPU with that many threads inside one call.

    With the default of one thread a call's result does not depend on the machine; calls from several
    Python threads run side by side, since ONNX Runtime releases the interpreter's lock.
    Raises ModelError when the file is no ONNX model.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{model}: expected an ONNX model, found: {reason}; export it again") from error
