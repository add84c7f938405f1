"""Tiny models with random weights, in the layout of encoders published on the hub."""

import contextlib
import io
import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from qbe.types import Paper
from support.tiny import SPECIAL

HIDDEN, LAYERS, HEADS, INNER, POSITIONS, BOTTLENECK = 16, 2, 2, 32, 512, 4


def exported_here(command: list[str], **_: Any) -> SimpleNamespace:
    """Replace `qbe.util.work.run`: export in this process, which has loaded PyTorch."""
    from qbe.cli.export import main

    with contextlib.redirect_stdout(io.StringIO()):
        main(command[4:])
    return SimpleNamespace(returncode=0)


class Sizes(NamedTuple):
    """Of a BERT, its vocabulary (at least), and the bottleneck of an adapter on it."""

    hidden: int = HIDDEN
    layers: int = LAYERS
    heads: int = HEADS
    inner: int = INNER
    vocabulary: int = 0
    bottleneck: int = BOTTLENECK


TINY = Sizes()
# SciBERT's, of which SPECTER, SPECTER2, SciNCL and ASPIRE are made; of SPECTER2's adapters (by 16).
SCIBERT = Sizes(768, 12, 12, 3072, 31_090, 48)
NAME = "specter2_proximity"

# The settings that the adapters library writes for "pfeiffer", without those of other kinds.
ABSENT = (
    "adapter_residual_before_ln cross_adapter is_parallel ln_after ln_before mh_adapter phm_layer use_gating"
)
PRESENT = "original_ln_after original_ln_before output_adapter residual_before_ln"
PFEIFFER: dict[str, object] = {**dict.fromkeys(ABSENT.split(), False), **dict.fromkeys(PRESENT.split(), True)}
PFEIFFER |= {"dropout": 0.0, "inv_adapter": None, "leave_out": [], "non_linearity": "relu"}
PFEIFFER |= {"reduction_factor": 4, "scaling": 1.0}


def adapter_tensors(seed: int = 7, sizes: Sizes = TINY) -> dict[str, np.ndarray]:
    """Return weights of an adapter, named as in the files of allenai/specter2."""
    random = np.random.default_rng(seed)
    tensors = {}
    bottleneck, hidden = sizes.bottleneck, sizes.hidden
    for layer in range(sizes.layers):
        start = f"bert.encoder.layer.{layer}.output.adapters.{NAME}"
        for name, *shape in (
            ("adapter_down.0.weight", bottleneck, hidden),
            ("adapter_down.0.bias", bottleneck),
            ("adapter_up.weight", hidden, bottleneck),
            ("adapter_up.bias", hidden),
        ):
            tensors[f"{start}.{name}"] = 2 / hidden**0.5 * random.standard_normal(shape, np.float32)
    return tensors


def write_adapter(folder: Path, tensors: dict[str, np.ndarray], **changes: object) -> None:
    """Write adapter_config.json and pytorch_adapter.bin."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    up = (len(array) for name, array in tensors.items() if name.endswith("adapter_up.bias"))
    hidden = next(up, HIDDEN)
    config = {"config": PFEIFFER | changes, "hidden_size": hidden, "model_type": "bert", "name": NAME}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    weights = {name: torch.from_numpy(array) for name, array in tensors.items()}
    torch.save(weights, folder / "pytorch_adapter.bin")


def write_specter(folder: Path, words: Iterable[str], sizes: Sizes = TINY) -> None:
    """Write config.json, pytorch_model.bin, vocab.txt and tokenizer_config.json, as of allenai/specter.

    Its vocabulary is cased, but texts are lowercased.
    """
    import torch
    from transformers import BertConfig, BertModel

    folder.mkdir(parents=True)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    small = sorted({word.lower() for word in words})
    vocabulary = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *".,;:()-%$'"]
    longer = [word for word in small if len(word) > 1]
    vocabulary += [*longer, *(word.capitalize() for word in longer)]
    vocabulary += [f"[unused{number}]" for number in range(sizes.vocabulary - len(vocabulary))]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    settings = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=sizes.hidden,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.inner,
        max_position_embeddings=POSITIONS,
        architectures=["BertModel"],
    )
    (folder / "config.json").write_text(config.to_json_string(use_diff=False))
    random, scale = np.random.default_rng(3), 1.2 / sizes.hidden**0.5
    weights = {
        name: scale * random.standard_normal(tuple(value.shape)) + ("LayerNorm.weight" in name)
        for name, value in BertModel(config).state_dict().items()
        if value.is_floating_point()
    }
    weights = {name: torch.from_numpy(array.astype(np.float32)) for name, array in weights.items()}
    torch.save(weights, folder / "pytorch_model.bin")


def write_mpnet(folder: Path, papers: Iterable[Paper]) -> None:
    """Write a tiny MPNet in the format of Hugging Face, which reads 40 of 64 tokens."""
    from tokenizers import Tokenizer, normalizers, pre_tokenizers
    from tokenizers import models as token_models
    from tokenizers.processors import RobertaProcessing
    from transformers import MPNetConfig, MPNetModel, PreTrainedTokenizerFast

    special = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"]
    words = (word for paper in papers for word in paper.abstract.split() if word.isalpha())
    common = sorted({word.lower() for word in words})[:300]
    pieces = {piece: number for number, piece in enumerate([*special, *".,", *common])}
    tokenizer = Tokenizer(token_models.WordPiece(pieces, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = {"cls": "<s>", "bos": "<s>", "sep": "</s>", "eos": "</s>", "pad": "<pad>", "unk": "[UNK]"}
    config = MPNetConfig(
        vocab_size=len(pieces),
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
        max_position_embeddings=66,
    )
    model = MPNetModel(config)
    random = np.random.default_rng(4)
    for name, parameter in model.named_parameters():
        noise = 0.3 * random.standard_normal(tuple(parameter.shape), np.float32)
        parameter.data += parameter.new_tensor(noise) if "LayerNorm.weight" not in name else 0
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=40,
        model_input_names=["input_ids", "attention_mask"],
        **{f"{name}_token": token for name, token in names.items()},
    ).save_pretrained(folder)


def write_sentence_mpnet(folder: Path, papers: Iterable[Paper]) -> None:
    """Write the same as sentence-transformers does: mean pooling, unit length."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    plain = folder.with_name("plain")
    write_mpnet(plain, papers)
    modules = [Transformer(str(plain)), Pooling(HIDDEN, pooling_mode="mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder))
