"""A tiny BERT that classifies pairs of texts: the tiny model's body under a random head."""

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file


def write_classifier(folder: Path, model: Path, labels: int = 1, seed: int = 0) -> None:
    """Write the folder of a ``BertForSequenceClassification`` from that of a ``BertModel``."""
    folder.mkdir(parents=True)
    shutil.copyfile(model / "tokenizer.json", folder / "tokenizer.json")
    config = json.loads((model / "config.json").read_text())
    config |= {
        "architectures": ["BertForSequenceClassification"],
        "id2label": {str(i): f"LABEL_{i}" for i in range(labels)},
        "label2id": {f"LABEL_{i}": i for i in range(labels)},
    }
    (folder / "config.json").write_text(json.dumps(config))
    weights = {f"bert.{name}": array for name, array in load_file(model / "model.safetensors").items()}
    random = np.random.default_rng(seed)
    weights["classifier.weight"] = random.standard_normal((labels, config["hidden_size"]), np.float32)
    weights["classifier.bias"] = random.standard_normal(labels, np.float32)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
