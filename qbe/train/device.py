"""The device that a training runs on."""

from __future__ import annotations

import torch

from qbe.errors import UsageError


def fast_kind(device: str) -> torch.dtype:
    """The numbers that matrix products run in: bfloat16 where the processor multiplies in it.

    Raises UsageError for a GPU where torch sees none.
    """
    if device != "cpu" and not torch.cuda.is_available():
        raise UsageError(
            f"expected a GPU that torch sees for --device {device}, found none; take --device cpu"
        )
    fast = torch.cpu._is_avx512_bf16_supported() if device == "cpu" else torch.cuda.is_bf16_supported()
    return torch.bfloat16 if fast else torch.float32
