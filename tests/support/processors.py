"""What the processor makes of int8 models."""

import pytest

from qbe.doctor.machine import machine_checks

_ADVISED = any(check.name == "instructions" and check.advice for check in machine_checks())

exact_int8 = pytest.mark.skipif(
    _ADVISED, reason="sums of products of bytes overflow without VNNI, which moves what is nearly level"
)
"""For figures and orders of near ties by the encoder that ships, which is int8."""
