"""ONNX Runtime sessions, devices and precisions."""

import contextlib
import io
import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from qbe.errors import MissingDependencyError, ModelError, UsageError
from qbe.models import reading

log = logging.getLogger(__name__)

CPU, CUDA, AUTO = "cpu", "cuda", "auto"
DEVICES = (CPU, CUDA, AUTO)  # auto: CUDA where ONNX Runtime can use it, else the CPU (`chosen_device`)

HALF = "fp16"  # of each model, which `qbe.models.gpu` makes of fp32 or int8
PRECISIONS = ("int8", "fp32", HALF)

_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
# ONNX Runtime's fused operator for a sum and its normalization takes four times as long on a CPU as the two
# operators that it replaces, a tenth of a pass.
_SLOW_ON_CPU = ["SkipLayerNormFusion"]
# Single-precision products are made in full, and no convolution is tried out at each new length.
_CUDA_OPTIONS = {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}
# Unsigned weights, whose products are exact on every processor: on one with VNNI they take 2.5 times as long.
_UNSIGNED_WEIGHTS = "session.x64quantprecision"
PRODUCT_OF_BYTES = bytes.fromhex(  # MatMulInteger: x (2 by 64, uint8), w (64 by 16, int8) to y (int32)
    "08083a5c0a180a01780a0177120179220d4d61744d756c496e74656765721201615a130a0178120e0a0c080212080a02"
    "08020a0208405a130a0177120e0a0c080312080a0208400a02081062130a0179120e0a0c080612080a0208020a020810"
    "42040a001010"
)
_REMEDY = "install qbe[gpu] as docs/indexing.md says, or use `device` cpu"


def usual_precision(device: str) -> str:
    return "int8" if device == CPU else HALF


def check_precision(precision: str, device: str) -> None:
    """Raise UsageError for int8 on a GPU, which ONNX Runtime does not support."""
    if device != CPU and precision == "int8":
        expected = f"`device` {device} runs models in {HALF} or fp32"
        raise UsageError(f"{expected}, found `precision` int8; give `precision` {HALF}")


def providers(device: str, available: Sequence[str]) -> list[Any]:
    """Return ONNX Runtime's providers of a device; raises MissingDependencyError for one that it lacks."""
    if device == CPU:
        return [_CPU]
    if _CUDA not in available:
        expected = f"expected an ONNX Runtime with {_CUDA} for `device` cuda"
        raise MissingDependencyError(f"{expected}, found {', '.join(available)}; {_REMEDY}")
    return [(_CUDA, dict(_CUDA_OPTIONS)), _CPU]


@cache
def chosen_device(device: str) -> str:
    """Resolve one of DEVICES to CPU or CUDA; raises UsageError for another one."""
    if device not in DEVICES:
        raise UsageError(f"expected `device` of {', '.join(DEVICES)}, found {device!r}")
    if device != AUTO:
        return device
    try:
        open_session(PRODUCT_OF_BYTES, CUDA)
    except (MissingDependencyError, ModelError) as error:
        log.info("device auto: the CPU (%s)", str(error).partition(";")[0])
        return CPU
    log.info("device auto: CUDA")
    return CUDA


@cache
def _saturates() -> bool:
    """Whether this processor (x86 without VNNI) adds two products of bytes in 16 bits, which overflow."""
    import numpy as np
    import onnxruntime

    x, w = np.full((2, 64), 255, np.uint8), np.full((64, 16), 127, np.int8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(PRODUCT_OF_BYTES, options, providers=[_CPU])
    return bool((session.run(None, {"x": x, "w": w})[0] != 255 * 127 * 64).any())


@cache
def _load_cuda_libraries() -> None:
    import onnxruntime

    with contextlib.redirect_stdout(io.StringIO()) as noted:  # it prints what it does not find
        onnxruntime.preload_dlls()
    log.debug("%s", noted.getvalue().strip())


def open_session(
    model: Path | bytes, device: str = CPU, *, inputs: Sequence[str] = (), outputs: Sequence[str] = ()
) -> Any:
    """Open a session of one thread a call, so that results do not depend on the machine.

    Raises ModelError for a file that is no ONNX model of these ``inputs`` and ``outputs``, if any are given.
    """
    name, source = ("a model", model) if isinstance(model, bytes) else (model, str(model))
    with reading(name, "an ONNX model", "export it again"):
        import onnxruntime

        preferred = providers(device, onnxruntime.get_available_providers())
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if device == CPU and _saturates():
            options.add_session_config_entry(_UNSIGNED_WEIGHTS, "1")
        settings: dict[str, Any] = {"disabled_optimizers": _SLOW_ON_CPU}
        if device == CUDA:
            settings = {}
            _load_cuda_libraries()
        session = onnxruntime.InferenceSession(source, options, providers=preferred, **settings)
    if device == CUDA and _CUDA not in session.get_providers():  # it falls back to the CPU without an error
        raise MissingDependencyError(f"expected a GPU that ONNX Runtime can use, found none; {_REMEDY}")
    taken, given = ([one.name for one in values] for values in (session.get_inputs(), session.get_outputs()))
    if inputs and (set(taken) != set(inputs) or not set(outputs) <= set(given)):
        raise ModelError(
            f"{name}: expected a model of {', '.join(inputs)} to {', '.join(outputs)}, found a model of "
            f"{', '.join(taken)} to {', '.join(given)}; export or train it again"
        )
    return session
