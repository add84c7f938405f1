"""The teacher of the facet tagger: a head and the encoder below it, trained together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from qbe.train.tagger.network import Chain, Head, layout
from qbe.train.tagger.states import Tokens

ENCODER_RATE = 0.1
"""The encoder's learning rate as a share of the head's: the encoder is pretrained."""


class TokenBatch(NamedTuple):
    """Papers padded to one shape: ``ids`` (papers, tokens) int64, 0 for padding; the rest as in `Batch`."""

    ids: Tensor
    spans: Tensor
    present: Tensor


class Teacher(nn.Module):
    """A head on the states of an encoder whose layers are trained too (its embeddings are frozen)."""

    def __init__(self, folder: Path, layers: Sequence[int]) -> None:
        """Load the encoder's weights from a folder with config.json and model.safetensors."""
        super().__init__()
        from transformers import AutoModel

        self.trunk: Any = AutoModel.from_pretrained(
            folder, use_safetensors=True, local_files_only=True, attention_probs_dropout_prob=0.0
        )  # dropout on attention takes longer than attention itself, on a CPU
        self.trunk.embeddings.requires_grad_(False)
        self.layers = tuple(layers)
        self.head = Head(len(layers) * self.trunk.config.hidden_size)

    @property
    def chain(self) -> Chain:
        """The head's chain of labels."""
        return self.head.chain

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Parameters for an optimizer, in groups with their learning rates."""
        encoder = [parameter for parameter in self.trunk.parameters() if parameter.requires_grad]
        return [
            {"params": encoder, "lr": learning_rate * ENCODER_RATE},
            *self.head.parameter_groups(learning_rate),
        ]

    @staticmethod
    def collate(papers: Sequence[Tokens]) -> TokenBatch:
        """Pad papers to the longest."""
        spans, present = layout(papers)
        ids = torch.zeros(len(papers), spans.shape[2], dtype=torch.long)
        for row, paper in zip(ids, papers, strict=True):
            row[: len(paper.ids)] = torch.from_numpy(paper.ids)
        return TokenBatch(ids, spans, present)

    def forward(self, ids: Tensor, spans: Tensor, present: Tensor) -> Tensor:
        """Scores (papers, sentences, labels) before the chain."""
        output = self.trunk(input_ids=ids, attention_mask=(ids > 0).long(), output_hidden_states=True)
        chosen = [output.hidden_states[layer].float() for layer in self.layers]
        states = torch.cat([functional.layer_norm(state, state.shape[-1:]) for state in chosen], -1)
        scores: Tensor = self.head(states, spans, present)
        return scores
