"""Which device encodes: what is chosen of what ONNX Runtime offers, and what is refused."""

import onnxruntime
import pytest

import qbe
from qbe.cli.index import build_settings, main
from qbe.cli.parser import parse
from qbe.errors import MissingDependencyError, UsageError
from qbe.index.build import build
from qbe.index.source import BuildSettings
from qbe.models.encoder import Encoder
from qbe.models.folders import resolve_encoder
from qbe.models.session import chosen_device, providers

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def test_providers_are_those_of_the_device():
    assert providers("cpu", [CUDA, CPU]) == [CPU]
    first, *others = providers("cuda", ["TensorrtExecutionProvider", CUDA, CPU])
    assert (first[0], first[1]["use_tf32"], others) == (CUDA, "0", [CPU])
    with pytest.raises(MissingDependencyError, match=rf"with {CUDA} .*, found {CPU}; install qbe\[gpu\]"):
        providers("cuda", [CPU])


def test_a_gpu_encodes_in_half_or_full_precision(tiny_encoder):
    with pytest.raises(UsageError, match="`device` cuda runs models in fp16 or fp32, found `precision` int8"):
        Encoder(resolve_encoder(str(tiny_encoder)), device="cuda")
    options = ["--corpus", "x", "--output", "y"]
    for more, expected in (
        ([], ("facet-encoder", "int8")),
        (["--device", "cuda"], ("facet-encoder", "fp16")),
        (["--encoder", "a/b:fp16"], ("a/b", "fp16")),
        (["--encoder", "a/b:fp32"], ("a/b", "fp32")),
        (["--encoder", ":fp32"], ("facet-encoder", "fp32")),
        (["--encoder", "c:x"], ("c:x", "int8")),
    ):
        settings = build_settings(parse("index", [*options, *more]))
        assert (settings.encoder, settings.precision) == expected


def test_without_a_gpu_a_build_is_refused_before_the_corpus_is_read(tmp_path, tiny_encoder):
    if CUDA in onnxruntime.get_available_providers():
        pytest.skip("skipped: this ONNX Runtime has CUDA")
    arguments = ["--corpus", "absent", "--output", str(tmp_path / "index"), "--encoder", str(tiny_encoder)]
    with pytest.raises(MissingDependencyError, match=r"install qbe\[gpu\] as docs"):
        main([*arguments, "--device", "cuda"])
    assert not any(tmp_path.iterdir())


def test_settings_of_a_build_tell_of_a_gpu_and_precision_follows_the_device():
    assert "device" not in BuildSettings().record(["x"])
    assert BuildSettings(device="cuda", precision="fp32").record(["x"])["device"] == "cuda"
    assert [BuildSettings(device=device).precision for device in ("cpu", "cuda")] == ["int8", "fp16"]
    # An index in int8 grows on the CPU, whatever there is: its vectors are of one precision.
    settings = BuildSettings(device="auto", precision="int8")
    assert (settings.device, settings.precision) == ("cpu", "int8")
    for wrong in ({"facets": "x"}, {"bm25": False, "positions": True}):
        with pytest.raises(UsageError, match=f"`{list(wrong)[-1]}`"):
            BuildSettings(**wrong)


def test_auto_is_the_cpu_where_no_gpu_can_be_used_and_says_so_once(caplog):
    if CUDA in onnxruntime.get_available_providers():
        pytest.skip("skipped: this ONNX Runtime has CUDA")
    chosen_device.cache_clear()
    with caplog.at_level("INFO", "qbe"):
        assert [chosen_device("auto"), chosen_device("auto"), chosen_device("cuda")] == ["cpu", "cpu", "cuda"]
    (line,) = [record.message for record in caplog.records]
    assert line.startswith(f"device auto: the CPU (expected an ONNX Runtime with {CUDA}")
    with pytest.raises(UsageError, match="expected `device` of cpu, cuda, auto, found 'gpu'"):
        chosen_device("gpu")


def test_an_index_in_half_precision_is_searched_without_a_gpu(
    tmp_path, tiny_encoder, papers, cache, monkeypatch
):
    settings = BuildSettings(bm25=False, encoder=str(tiny_encoder), precision="fp16")
    build(tmp_path / "index", papers[:6], settings)
    with qbe.Index(tmp_path / "index") as index:
        assert index.manifest.dense["encoder"]["precision"] == "fp16"
        stored = index.encoder.encode_paper(papers[0])
        assert index.encoder.files.precision == "fp16"

    def missing(*_, **__):
        raise MissingDependencyError("expected the package onnx, found none")

    monkeypatch.setattr("qbe.models.gpu.BatchModel", missing)
    with qbe.Index(tmp_path / "index") as index:  # by the weights that fp16 was made of
        assert index.encoder.files.precision == "fp32"
        alike = index.encoder.encode_paper(papers[0]).whole @ stored.whole
        assert alike == pytest.approx(1, abs=1e-3)
