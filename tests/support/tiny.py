"""Really tiny BERTs with fixed random weights, and what they compute."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

HIDDEN, LAYERS, HEADS, INNER, MAX_TOKENS = 16, 2, 2, 32, 128
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write_model(folder: Path, texts: Iterable[str], seed: int = 0) -> None:
    """Write config.json, model.safetensors and tokenizer.json; ``texts`` give the vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = _vocabulary(texts)
    write_weights(folder, Sizes(len(vocabulary), HIDDEN, LAYERS, HEADS, INNER, MAX_TOKENS), seed)
    pieces = {piece: i for i, piece in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.save(str(folder / "tokenizer.json"))


def _vocabulary(texts: Iterable[str]) -> list[str]:
    words = Counter(word for text in texts for word in re.findall("[a-z]+", text.lower()))
    counts = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    common = [word for word, _ in counts if len(word) > 1]
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    return [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *".,;:()-%$'", *common[:300]]


class Sizes(NamedTuple):
    """The sizes of a BERT."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    inner: int
    positions: int


def write_weights(
    folder: Path, sizes: Sizes, seed: int, *, pooler: bool = True, spread: float = 0.3, words: float = 0.3
) -> None:
    """Write config.json and model.safetensors of a BERT, its weights random numbers of a ``spread``, those of
    words of another.
    """
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": sizes.vocabulary,
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": sizes.inner,
        "max_position_embeddings": sizes.positions,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
    }
    (folder / "config.json").write_text(json.dumps(config))
    hidden, inner = sizes.hidden, sizes.inner
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (sizes.vocabulary, hidden),
        "embeddings.position_embeddings.weight": (sizes.positions, hidden),
        "embeddings.token_type_embeddings.weight": (2, hidden),
        "embeddings.LayerNorm.weight": (hidden,),
        "embeddings.LayerNorm.bias": (hidden,),
    }
    if pooler:
        shapes |= {"pooler.dense.weight": (hidden, hidden), "pooler.dense.bias": (hidden,)}
    for layer in (f"encoder.layer.{number}" for number in range(sizes.layers)):
        for name, rows, columns in (
            *((f"attention.self.{part}", hidden, hidden) for part in ("query", "key", "value")),
            ("attention.output.dense", hidden, hidden),
            ("intermediate.dense", inner, hidden),
            ("output.dense", hidden, inner),
        ):
            shapes |= {f"{layer}.{name}.weight": (rows, columns), f"{layer}.{name}.bias": (rows,)}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{layer}.{name}.{kind}": (hidden,) for kind in ("weight", "bias")}
    random = np.random.default_rng(seed)
    weights = {
        name: (words if "word" in name else spread) * random.standard_normal(shape)
        + name.endswith("Norm.weight")
        for name, shape in shapes.items()
    }
    single = {name: array.astype(np.float32) for name, array in weights.items()}
    save_file(single, folder / "model.safetensors", {"format": "pt"})


@cache
def _opened(folder: Path) -> Any:
    from transformers import BertModel

    return BertModel.from_pretrained(folder, local_files_only=True).eval()


def layer_states(folder: Path, ids: list[int]) -> list[np.ndarray]:
    """States (tokens, HIDDEN) of one unpadded text, of the embeddings and behind each layer, as transformers
    computes them.
    """
    import torch

    with torch.inference_mode():
        output = _opened(folder)(torch.tensor([ids]), output_hidden_states=True)
    return [states[0].numpy() for states in output.hidden_states]
