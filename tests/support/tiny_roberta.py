"""A tiny RoBERTa with random weights: byte pairs, positions from 2, an encoder or a classifier of pairs."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

POSITIONS = 254


def write_roberta(folder: Path, texts: Iterable[str], labels: int | None = None) -> None:
    """Write config.json, model.safetensors and tokenizer.json, of a classifier where there are ``labels``."""
    from tokenizers import ByteLevelBPETokenizer
    from tokenizers.processors import RobertaProcessing
    from transformers import RobertaConfig, RobertaForSequenceClassification, RobertaModel

    folder.mkdir(parents=True)
    tokenizer = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(texts, vocab_size=600, special_tokens=special, show_progress=False)
    tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = RobertaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=POSITIONS + 2,
        type_vocab_size=1,
    )
    config.num_labels = labels or 1
    model = RobertaForSequenceClassification(config) if labels else RobertaModel(config)
    random = np.random.default_rng(5)
    for name, parameter in model.named_parameters():
        noise = 0.3 * random.standard_normal(tuple(parameter.shape), np.float32)
        parameter.data += parameter.new_tensor(noise) if "LayerNorm.weight" not in name else 0
    model.save_pretrained(folder)
