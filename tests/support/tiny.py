"""A really tiny BERT with fixed random weights, and what it computes, in plain numpy."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

HIDDEN, LAYERS, HEADS, INNER, MAX_TOKENS = 16, 2, 2, 32, 128
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write_model(folder: Path, texts: Iterable[str], seed: int = 0) -> None:
    """Write config.json, model.safetensors and tokenizer.json; ``texts`` give the vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = _vocabulary(texts)
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": len(vocabulary),
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
        "max_position_embeddings": MAX_TOKENS,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(_weights(len(vocabulary), seed), folder / "model.safetensors", {"format": "pt"})
    tokenizer = Tokenizer(
        models.WordPiece({piece: i for i, piece in enumerate(vocabulary)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.save(str(folder / "tokenizer.json"))


def _vocabulary(texts: Iterable[str]) -> list[str]:
    words = Counter(word for text in texts for word in re.findall("[a-z]+", text.lower()))
    common = [
        word for word, _ in sorted(words.items(), key=lambda item: (-item[1], item[0])) if len(word) > 1
    ]
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    return [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *".,;:()-%$'", *common[:300]]


def _weights(vocabulary: int, seed: int) -> dict[str, np.ndarray]:
    shapes = {
        "embeddings.word_embeddings.weight": (vocabulary, HIDDEN),
        "embeddings.position_embeddings.weight": (MAX_TOKENS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        "embeddings.LayerNorm.weight": (HIDDEN,),
        "embeddings.LayerNorm.bias": (HIDDEN,),
        "pooler.dense.weight": (HIDDEN, HIDDEN),
        "pooler.dense.bias": (HIDDEN,),
    }
    for layer in range(LAYERS):
        for name, rows, columns in (
            ("attention.self.query", HIDDEN, HIDDEN),
            ("attention.self.key", HIDDEN, HIDDEN),
            ("attention.self.value", HIDDEN, HIDDEN),
            ("attention.output.dense", HIDDEN, HIDDEN),
            ("intermediate.dense", INNER, HIDDEN),
            ("output.dense", HIDDEN, INNER),
        ):
            shapes[f"encoder.layer.{layer}.{name}.weight"] = (rows, columns)
            shapes[f"encoder.layer.{layer}.{name}.bias"] = (rows,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{layer}.{name}.weight"] = (HIDDEN,)
            shapes[f"encoder.layer.{layer}.{name}.bias"] = (HIDDEN,)
    random = np.random.default_rng(seed)
    return {
        name: (0.3 * random.standard_normal(shape) + name.endswith("LayerNorm.weight")).astype(np.float32)
        for name, shape in shapes.items()
    }


def token_states(folder: Path, ids: list[int]) -> np.ndarray:
    """Last hidden states (tokens, HIDDEN) of one unpadded text."""
    return layer_states(folder, ids)[-1]


def layer_states(folder: Path, ids: list[int]) -> list[np.ndarray]:
    """States (tokens, HIDDEN) of one unpadded text, of the embeddings and behind each layer.

    BERT as its paper has it, in float64.
    """
    weights = {
        name: array.astype(np.float64) for name, array in load_file(folder / "model.safetensors").items()
    }

    def linear(states: np.ndarray, name: str) -> np.ndarray:
        return states @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(states: np.ndarray, name: str) -> np.ndarray:
        centred = states - states.mean(axis=1, keepdims=True)
        scaled = centred / np.sqrt(centred.var(axis=1, keepdims=True) + 1e-12)
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def heads(states: np.ndarray) -> np.ndarray:
        return states.reshape(len(ids), HEADS, HIDDEN // HEADS).swapaxes(0, 1)

    states = weights["embeddings.word_embeddings.weight"][ids]
    states = states + weights["embeddings.position_embeddings.weight"][: len(ids)]
    states = norm(states + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    found = [states]
    for layer in (f"encoder.layer.{i}" for i in range(LAYERS)):
        query, key, value = (
            heads(linear(states, f"{layer}.attention.self.{part}")) for part in ("query", "key", "value")
        )
        attention = np.exp(query @ key.swapaxes(1, 2) / math.sqrt(HIDDEN // HEADS))
        context = (attention / attention.sum(axis=2, keepdims=True)) @ value
        attended = linear(context.swapaxes(0, 1).reshape(len(ids), HIDDEN), f"{layer}.attention.output.dense")
        states = norm(states + attended, f"{layer}.attention.output.LayerNorm")
        inner = linear(states, f"{layer}.intermediate.dense")
        inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        states = norm(states + linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
        found.append(states)
    return found
