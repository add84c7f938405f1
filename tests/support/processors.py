"""What the processor makes of int8 models."""

import pytest

from qbe.cli.doctor import machine_checks

INT8_IS_EXACT = not any(check["name"] == "instructions" and check["advice"] for check in machine_checks())
"""Whether sums of products of bytes do not overflow; without VNNI they may, which moves near ties."""

exact_int8 = pytest.mark.skipif(not INT8_IS_EXACT, reason="int8 is not exact on this processor (no VNNI)")
"""For figures and orders of near ties by the encoder that ships, which is int8."""
