"""A real browser; test files that import this are skipped where there is none."""

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

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
SECONDS = 30.0
expect.set_options(timeout=SECONDS * 1000)


@contextlib.contextmanager
def opened() -> Iterator[Any]:
    """A browser that opens all pages in one process, and moves nothing, which would take time."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        size = {"width": 1280, "height": 800}
        context = browser.new_context(viewport=size, locale="en", reduced_motion="reduce")
        context.set_default_timeout(SECONDS * 1000)
        yield context
        browser.close()
