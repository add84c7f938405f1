"""ONNX Runtime sessions, opened the same way everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qbe.errors import MissingDependencyError, ModelError, check_package

CPU, CUDA = "cpu", "cuda"
DEVICES = (CPU, CUDA)

_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_SLOW = ["SkipLayerNormFusion"]
"""Optimizations of ONNX Runtime that are switched off: its fused operator for a sum and its normalization
takes four times as long on a CPU as the two operators that it replaces, a tenth of a pass.
"""

_REMEDY = "install onnxruntime-gpu in place of onnxruntime, with CUDA and cuDNN, or use `device` cpu"


def providers(device: str, available: Sequence[str]) -> list[Any]:
    """ONNX Runtime's execution providers for one of DEVICES, in the order of preference.

    On a GPU products are made in full single precision, as on the CPU. Raises MissingDependencyError where
    CUDA is wanted and missing in ``available``, the providers of the installed ONNX Runtime.

    >>> providers("cpu", ["CUDAExecutionProvider", "CPUExecutionProvider"])
    ['CPUExecutionProvider']
    >>> providers("cuda", ["CUDAExecutionProvider", "CPUExecutionProvider"])
    [('CUDAExecutionProvider', {'use_tf32': '0'}), 'CPUExecutionProvider']
    """
    if device == CPU:
        return [_CPU]
    if _CUDA not in available:
        raise MissingDependencyError(
            f"expected an ONNX Runtime with {_CUDA} for `device` cuda, found {', '.join(available)}; "
            f"{_REMEDY}"
        )
    return [(_CUDA, {"use_tf32": "0"}), _CPU]


def open_session(model: Path, threads: int = 1, device: str = CPU) -> Any:
    """An ``onnxruntime.InferenceSession`` that uses ``threads`` threads inside one call on the CPU.

    With the default of one thread a call's result does not depend on the machine; calls from several
    Python threads run side by side, since ONNX Runtime releases the interpreter's lock.
    Raises ModelError when the file is no ONNX model, MissingDependencyError where there is no such device or
    no ONNX Runtime.
    """
    check_package("onnxruntime")
    import onnxruntime

    preferred = providers(device, onnxruntime.get_available_providers())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(
            str(model), options, providers=preferred, disabled_optimizers=_SLOW
        )
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{model}: expected an ONNX model, found: {reason}; export it again") from error
    if device == CUDA and _CUDA not in session.get_providers():  # it falls back to the CPU without an error
        raise MissingDependencyError(f"expected a GPU that ONNX Runtime can use, found none; {_REMEDY}")
    return session
