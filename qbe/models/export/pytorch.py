"""PyTorch models: loaded from folders in the Hugging Face format, with adapters, and traced to ONNX files."""

import json
import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from qbe.errors import ModelError, check_package
from qbe.models import reading
from qbe.models.cards import TOKENIZER
from qbe.models.folders import ADAPTER_CONFIG, adapter_weights


def load_model(
    folder: Path, architecture: str, expected: str, parameter: str = "`folder`", **settings: Any
) -> tuple[Any, Collection[str]]:
    """Load a model by an automatic class of transformers, and name the weights that are missing.

    ``settings`` change its configuration. Only tensors are unpickled, and no code of the model's is run.
    """
    transformers = check_package("transformers")
    pickled = not (folder / "model.safetensors").exists() and (folder / "pytorch_model.bin").is_file()
    with reading(folder, expected, f"check {parameter}"):
        model, report = getattr(transformers, architecture).from_pretrained(
            folder,
            use_safetensors=not pickled,
            weights_only=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            **{"attn_implementation": "eager", **settings},
        )
    return model.eval().float(), report["missing_keys"]


def load_encoder(folder: Path, parameter: str = "`folder`", **settings: Any) -> Any:
    model, missing = load_model(folder, "AutoModel", "a BERT-family model", parameter, **settings)
    lacking = sorted(name for name in missing if "pooler" not in name)  # no vector comes from a pooler
    if lacking:  # transformers would go on with random numbers in their place
        raise ModelError(
            f"{folder}: expected the weights of a BERT-family model, found none for {lacking[0]} and "
            f"{len(lacking) - 1} more; give the folder of a trained encoder"
        )
    return model


def positions(model: Any) -> int:
    """Return the most tokens of a pass; RoBERTa and MPNet count positions after that of padding."""
    padding = getattr(getattr(model, "embeddings", None), "padding_idx", None)
    return int(model.config.max_position_embeddings) - (0 if padding is None else padding + 1)


def write_tokenizer(folder: Path, path: Path) -> None:
    """Write the tokenizer in ``folder``, converted from vocab.txt where there is no other."""
    if (folder / TOKENIZER).is_file():
        shutil.copyfile(folder / TOKENIZER, path)
        return
    from transformers import AutoTokenizer

    expected = "the word pieces of a BERT tokenizer"
    with reading(folder / "vocab.txt", expected, "give the folder of another model"):
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        tokenizer.backend_tokenizer.save(str(path))


# The settings of a supported adapter, as the adapters library calls them, and those that a file must have;
# for the others the library's default is the value here.
_FALSE = ("mh_adapter", "adapter_residual_before_ln", "ln_before", "ln_after", "is_parallel", "use_gating")
_TRUE = ("output_adapter", "original_ln_before", "original_ln_after", "residual_before_ln")
_ADAPTER = {**dict.fromkeys(_FALSE, False), **dict.fromkeys(_TRUE, True), "non_linearity": "relu"}
_ADAPTER |= {"scaling": 1.0, "phm_layer": False, "inv_adapter": None, "cross_adapter": False, "leave_out": []}
_REQUIRED = ("mh_adapter", "output_adapter", "non_linearity", "original_ln_before")
_TENSOR = re.compile(
    r"(?:bert\.)?encoder\.layer\.(\d+)\.output\.adapters\.[^.]+\.adapter_(down|up)(?:\.0)?\.(weight|bias)"
)


def apply_adapter(model: Any, folder: Path) -> None:
    """Put a bottleneck adapter, such as SPECTER2's, into every layer of a BERT-family model.

    With x the output of the feed-forward network, r its input, and N the normalization, a layer computes
    N(x + up(relu(down(N(x + r)))) + r) in place of N(x + r) (Pfeiffer et al., AdapterFusion, EACL 2021).
    """
    import torch
    from safetensors.torch import load_file

    class Adapted(torch.nn.Module):
        def __init__(self, output: Any, tensors: dict[str, Any]) -> None:
            super().__init__()
            hidden, bottleneck = model.config.hidden_size, len(tensors["down.bias"])
            self.output = output
            self.down, self.up = torch.nn.Linear(hidden, bottleneck), torch.nn.Linear(bottleneck, hidden)
            for side in ("down", "up"):
                state = {name: tensors[f"{side}.{name}"] for name in ("weight", "bias")}
                getattr(self, side).load_state_dict(state)

        def forward(self, hidden_states: torch.Tensor, input_tensor: torch.Tensor) -> torch.Tensor:
            fed = self.output.dense(hidden_states)
            normalized = self.output.LayerNorm(fed + input_tensor)
            adapted = fed + self.up(torch.relu(self.down(normalized)))
            result: torch.Tensor = self.output.LayerNorm(adapted + input_tensor)
            return result

    path, settings = adapter_weights(folder), folder / ADAPTER_CONFIG
    remedy = "give another `adapter`"
    with reading(settings, "the settings of a bottleneck adapter", remedy):
        given = json.loads(settings.read_text(encoding="utf-8"))["config"]
        actual = {name: given[name] for name in _ADAPTER if name in given or name in _REQUIRED}
    for name, value in actual.items():
        if value != _ADAPTER[name]:
            expected = f"{settings}: expected an adapter of Pfeiffer's kind, with {name} {_ADAPTER[name]}"
            raise ModelError(f"{expected}, found {value}; {remedy}")
    with reading(path, "the weights of a bottleneck adapter", "give one of this model as `adapter`"):
        pickled = path.suffix != ".safetensors"
        tensors = torch.load(path, map_location="cpu", weights_only=True) if pickled else load_file(path)
        layers: dict[int, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            match = _TENSOR.fullmatch(name)
            if match is None:
                raise ValueError(f"a tensor {name}")
            layers.setdefault(int(match[1]), {})[f"{match[2]}.{match[3]}"] = tensor.float()
        if set(layers) != set(range(len(model.encoder.layer))):
            raise ValueError(f"{len(layers)} layers, where the model has {len(model.encoder.layer)}")
        for number, layer in enumerate(model.encoder.layer):
            layer.output = Adapted(layer.output, layers[number]).eval()
