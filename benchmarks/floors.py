"""Rates of this machine that no program on it can beat: matrix products and reads from memory."""

import time
from collections.abc import Callable

SIZE = 2048  # side of the square matrices multiplied: large enough that the products run at their best rate

READ_BYTES = 1 << 28


def products(threads: int) -> dict[str, float]:
    """Operations/s of a matrix product, by number format."""
    return {
        "fp32": _torch_rate("float32", threads),
        "bf16": _torch_rate("bfloat16", threads),
        "int8": _int8_rate(threads),
    }


def _torch_rate(dtype: str, threads: int) -> float:
    import torch

    torch.set_num_threads(threads)
    a, b = (torch.rand(SIZE, SIZE).to(getattr(torch, dtype)) for _ in range(2))
    return 2 * SIZE**3 / _best(lambda: a @ b)


def _int8_rate(threads: int) -> float:
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

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
    a = random.integers(0, 255, (SIZE, SIZE), dtype=np.uint8)
    return 2 * SIZE**3 / _best(lambda: session.run(None, {"a": a}))


def read_rate() -> float:
    """Bytes/s of reading a large fp32 matrix once (a matrix-vector product in numpy)."""
    import numpy as np

    matrix = np.ones((READ_BYTES // 4096, 1024), np.float32)
    vector = np.ones(1024, np.float32)
    return READ_BYTES / _best(lambda: matrix @ vector)


def reading(what: str, size: float) -> str:
    """A line that says how long reading so many bytes once takes at least."""
    rate = read_rate()
    seconds = size / rate
    return f"floor of {what}: {size / 1e6:,.0f} MB, {1e3 * seconds:.1f} ms to read at {rate / 1e9:.0f} GB/s"


def _best(action: Callable[[], object], runs: int = 20) -> float:
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)
