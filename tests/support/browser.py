"""A real browser; test files that import this are skipped where there is none."""

from __future__ import annotations

import shutil

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="skipped: Playwright is not installed")
expect = sync_api.expect

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("skipped: no Chromium is on the PATH", allow_module_level=True)

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--process-per-site"),
]
SECONDS = 90.0
expect.set_options(timeout=SECONDS * 1000)
