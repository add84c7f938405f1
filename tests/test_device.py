"""Which device encodes: what is chosen of what ONNX Runtime offers, and what is refused."""

import onnxruntime
import pytest

from qbe.encode.encoder import Encoder
from qbe.errors import MissingDependencyError, UsageError
from qbe.index.__main__ import main
from qbe.index.building.settings import BuildSettings
from qbe.index.options import encoder, parser
from qbe.models.encoder_files import resolve_encoder
from qbe.models.session import providers

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def test_providers_are_those_of_the_device():
    assert providers("cpu", [CUDA, CPU]) == [CPU]
    assert providers("cuda", ["TensorrtExecutionProvider", CUDA, CPU]) == [(CUDA, {"use_tf32": "0"}), CPU]
    with pytest.raises(
        MissingDependencyError, match=rf"with {CUDA} .*, found {CPU}; install onnxruntime-gpu"
    ):
        providers("cuda", [CPU])


def test_a_gpu_encodes_in_full_precision(tiny_encoder):
    with pytest.raises(UsageError, match="`device` cuda runs models in fp32, found `precision` int8"):
        Encoder(resolve_encoder(str(tiny_encoder)), device="cuda")
    options = ["--corpus", "x", "--output", "y"]
    for more, expected in (
        ([], (None, "int8")),
        (["--device", "cuda"], (None, "fp32")),
        (["--encoder", "a/b:fp32"], ("a/b", "fp32")),
        (["--encoder", ":fp32"], (None, "fp32")),
        (["--encoder", "c:x"], ("c:x", "int8")),
    ):
        assert encoder(parser().parse_args([*options, *more])) == expected


def test_without_a_gpu_a_build_is_refused_before_the_corpus_is_read(tmp_path, tiny_encoder):
    if CUDA in onnxruntime.get_available_providers():
        pytest.skip("skipped: this ONNX Runtime has CUDA")
    arguments = ["--corpus", "absent", "--output", str(tmp_path / "index"), "--encoder", str(tiny_encoder)]
    with pytest.raises(MissingDependencyError, match="install onnxruntime-gpu in place of onnxruntime"):
        main([*arguments, "--device", "cuda"])
    assert not any(tmp_path.iterdir())


def test_an_index_tells_of_a_gpu_and_keeps_silent_about_the_cpu():
    assert "device" not in BuildSettings().record(["x"])
    assert BuildSettings(device="cuda", precision="fp32").record(["x"])["device"] == "cuda"
