"""Rates of this machine that no program on it can beat: matrix products and reads from memory."""

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.common import interleaved

SIZE = 2048  # side of the square matrices multiplied: large enough that the products run at their best rate
READ_BYTES = 1 << 28


def products(threads: int) -> dict[str, float]:
    """Operations/s of a matrix product, by number format."""
    import onnxruntime
    import torch
    from onnx import TensorProto, helper, numpy_helper

    torch.set_num_threads(threads)
    a, b = torch.rand(2, SIZE, SIZE)
    half = a.bfloat16(), b.bfloat16()
    random = np.random.default_rng(0)
    weights = numpy_helper.from_array(random.integers(-64, 64, (SIZE, SIZE), dtype=np.int8), "b")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["c"])],
        "product",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, [SIZE, SIZE])],
        [helper.make_tensor_value_info("c", TensorProto.INT32, [SIZE, SIZE])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    inputs = {"a": random.integers(0, 255, (SIZE, SIZE), dtype=np.uint8)}
    actions: dict[str, Callable[[], object]] = {
        "fp32": lambda: a @ b,
        "bf16": lambda: half[0] @ half[1],
        "int8": lambda: session.run(None, inputs),
    }
    return {name: 2 * SIZE**3 / _best(action) for name, action in actions.items()}


def flops(tokens: int, layers: int, hidden: int) -> tuple[int, int]:
    """FLOPs of the matrix products of one pass, two a multiply-add: with weights, and of attention.

    A token costs a layer 12 H^2 multiply-adds in its projections (4 H^2 in attention, 8 H^2 in the
    feed-forward part of width 4 H) and 2 T H in its attention to T tokens.
    """
    passes = 2 * layers * tokens
    return passes * 12 * hidden**2, passes * 2 * tokens * hidden


def bounds(work: float, rates: Mapping[str, float], unit: str) -> str:
    """Say how many items of so much work, in FLOP, each product allows at most in a second."""
    return "\n".join(
        f"measured {name} product: {rate / 1e9:,.0f} GFLOP/s, so at most {rate / work:,.0f} {unit}/s"
        for name, rate in rates.items()
    )


def reading(what: str, size: float) -> str:
    """Say how long reading so many bytes once takes at least, as fast as a matrix-vector product in numpy."""
    matrix, vector = np.ones((READ_BYTES // 4096, 1024), np.float32), np.ones(1024, np.float32)
    rate = READ_BYTES / _best(lambda: matrix @ vector)
    milliseconds = 1e3 * size / rate
    return f"floor of {what}: {size / 1e6:,.0f} MB, {milliseconds:.1f} ms to read at {rate / 1e9:.0f} GB/s"


def _best(action: Callable[[], object]) -> float:
    return min(interleaved({"": [action]}, 20)[""])
