"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def qbe_data() -> Path:
    """The folder of real data; tests that need it are skipped where it is absent."""
    folder = os.environ.get("QBE_DATA")
    if not folder:
        pytest.skip("skipped: QBE_DATA is not set")
    return Path(folder).resolve()
