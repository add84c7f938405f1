"""The sentence encoder in PyTorch: from windows to vectors of sentences and of whole papers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from qbe.encode.tokenizer import Window
from qbe.export.encoder import load_encoder, positions
from qbe.train.encoder.loss import Vectors

MULTIPLE = 16
"""The tokens of a batch are padded to a multiple of this: oneDNN compiles its products for each shape."""


class EncoderNetwork(nn.Module):
    """A BERT-family encoder; all parameters are trained except its pooler, which no vector uses.

    A sentence's vector is the mean of its tokens' last hidden states, a paper's the mean of all tokens' (as
    in `qbe.encode.encoder`). Matrix products run in ``dtype``, everything else in single precision.
    """

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32, *, unit: bool = False) -> None:
        """Load the model in ``folder``; ``unit`` scales vectors to length 1, as an index does.

        Raises ModelError when it cannot be loaded.
        """
        from transformers.utils.logging import disable_progress_bar

        super().__init__()
        disable_progress_bar()  # type: ignore[no-untyped-call]  # it would take a second
        torch.manual_seed(0)  # for the random weights of a pooler that the folder lacks
        self.bert = load_encoder(folder, "`encoder`")
        self.dtype, self.unit = dtype, unit
        for name, part in self.bert.named_parameters():
            part.requires_grad_("pooler" not in name)

    @property
    def max_tokens(self) -> int:
        """The number of positions of the model."""
        return positions(self.bert)

    def forward(self, windows: Sequence[Window]) -> Vectors:
        """Vectors of papers, float32; see `Vectors` for their shapes."""
        longest = max(len(window.ids) for window in windows)
        length = min(-(-longest // MULTIPLE) * MULTIPLE, self.max_tokens)
        count = max(len(window.spans) for window in windows)
        ids = torch.zeros(len(windows), length, dtype=torch.int64)
        pooling = torch.zeros(len(windows), count + 1, length)
        for number, window in enumerate(windows):
            ids[number, : len(window.ids)] = torch.tensor(window.ids)
            for row, (begin, end) in enumerate(window.spans):
                pooling[number, row, begin:end] = 1 / (end - begin)
            pooling[number, count, : len(window.ids)] = 1 / len(window.ids)
        device = next(self.parameters()).device
        pooling = pooling.to(device)
        mask = (pooling[:, count] > 0).long()
        with torch.autocast(device.type, torch.bfloat16, enabled=self.dtype is torch.bfloat16):
            states: Tensor = self.bert(input_ids=ids.to(device), attention_mask=mask).last_hidden_state
        vectors = pooling @ states.float()
        if self.unit:
            vectors = F.normalize(vectors, dim=2)
        present = pooling[:, :count].amax(2) > 0
        return Vectors(vectors[:, :count], present, vectors[:, count])
