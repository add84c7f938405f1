"""ONNX Runtime sessions, opened the same way everywhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from qbe.errors import MissingDependencyError, ModelError, UsageError, check_package

log = logging.getLogger(__name__)

CPU, CUDA, AUTO = "cpu", "cuda", "auto"
DEVICES = (CPU, CUDA, AUTO)
"""What runs a model; ``auto`` is CUDA where ONNX Runtime can use it, else the CPU (`chosen_device`)."""

_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_SLOW = ["SkipLayerNormFusion"]
"""Optimizations of ONNX Runtime that are switched off on a CPU: its fused operator for a sum and its
normalization takes four times as long there as the two operators that it replaces, a tenth of a pass.
"""

_REMEDY = "install qbe[gpu] as docs/indexing.md says, or use `device` cpu"
_OPTIONS = {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}
"""Of CUDA: products of single precision are made in full, and no operator is tried out at each new length."""


def providers(device: str, available: Sequence[str]) -> list[Any]:
    """ONNX Runtime's execution providers for one of DEVICES, in the order of preference.

    On a GPU products of single precision are made in full, as on the CPU. Raises MissingDependencyError where
    CUDA is wanted and missing in ``available``, the providers of the installed ONNX Runtime.

    >>> providers("cpu", ["CUDAExecutionProvider", "CPUExecutionProvider"])
    ['CPUExecutionProvider']
    >>> providers("cuda", ["CUDAExecutionProvider", "CPUExecutionProvider"])
    [('CUDAExecutionProvider', {'use_tf32': '0', ...}), 'CPUExecutionProvider']
    """
    if device == CPU:
        return [_CPU]
    if _CUDA not in available:
        raise MissingDependencyError(
            f"expected an ONNX Runtime with {_CUDA} for `device` cuda, found {', '.join(available)}; "
            f"{_REMEDY}"
        )
    return [(_CUDA, dict(_OPTIONS)), _CPU]


# A model that gives what it takes, by which a device is tried.
_IDENTITY = bytes.fromhex(
    "080812003a370a100a017812017922084964656e746974791201675a0f0a0178120a0a08080112040a020801620f0a01"
    "79120a0a08080112040a02080142040a001011"
)


@cache
def chosen_device(device: str) -> str:
    """What one of DEVICES comes to on this machine, CPU or CUDA; of ``auto`` a line is logged, once.

    Raises UsageError for another device, MissingDependencyError without ONNX Runtime.

    >>> chosen_device("cpu")
    'cpu'
    """
    if device not in DEVICES:
        raise UsageError(f"expected `device` of {', '.join(DEVICES)}, found {device!r}")
    if device != AUTO:
        return device
    try:
        try_device(CUDA)
    except (MissingDependencyError, ModelError) as error:
        log.info("device auto: the CPU (%s)", str(error).partition(";")[0])
        return CPU
    log.info("device auto: CUDA")
    return CUDA


def try_device(device: str) -> None:
    """Run a model of one operator on a device; raises MissingDependencyError or ModelError where none runs.

    >>> try_device("cpu")
    """
    _session(_IDENTITY, device)


@cache
def _load_libraries() -> None:
    """Load the libraries of CUDA and cuDNN that pip installed beside ONNX Runtime, if any."""
    import contextlib
    import io

    import onnxruntime

    preload = getattr(onnxruntime, "preload_dlls", None)
    if preload is not None:
        noted = io.StringIO()
        with contextlib.redirect_stdout(noted):  # it prints what it does not find
            preload()
        if text := noted.getvalue().strip():
            log.debug("%s", text)


def open_session(model: Path, device: str = CPU) -> Any:
    """An ``onnxruntime.InferenceSession`` that uses one thread inside one call on the CPU.

    So a call's result does not depend on the machine; calls from several Python threads run side by side,
    since ONNX Runtime releases the interpreter's lock.
    Raises ModelError when the file is no ONNX model, MissingDependencyError where there is no such device or
    no ONNX Runtime.
    """
    return _session(str(model), device)


def _session(model: str | bytes, device: str) -> Any:
    check_package("onnxruntime")
    import onnxruntime

    preferred = providers(device, onnxruntime.get_available_providers())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    slow: dict[str, Any] = {"disabled_optimizers": _SLOW}
    if device == CUDA:
        _load_libraries()
        slow = {}
    try:
        session = onnxruntime.InferenceSession(model, options, providers=preferred, **slow)
    except Exception as error:
        reason, name = str(error).splitlines()[0], "a model" if isinstance(model, bytes) else model
        raise ModelError(f"{name}: expected an ONNX model, found: {reason}; export it again") from error
    if device == CUDA and _CUDA not in session.get_providers():  # it falls back to the CPU without an error
        raise MissingDependencyError(f"expected a GPU that ONNX Runtime can use, found none; {_REMEDY}")
    return session
