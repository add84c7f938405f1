"""Make the pictures of docs/serve.md: the page of ``qbe serve`` over ``mini``, on a screen and on a phone.

    python -m scripts.screenshots [--output docs/images] [--chromium PROGRAM]

Needs Playwright (``pip install playwright``) and Chromium. ``mini`` is indexed in the cache, as by
``qbe demo``.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SIZES = ((360, 1500), (1280, 940))  # width and height of the pictures

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
SECONDS = 120


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make the pictures of docs/serve.md.")
    parser.add_argument("--output", type=Path, default=Path("docs/images"))
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    options = parser.parse_args(arguments)
    if options.chromium is None:
        parser.error("expected Chromium on the PATH, found none; name the program with --chromium")

    from playwright.sync_api import sync_playwright

    from benchmarks.common import serving
    from qbe.cli.demo import open_demo_index

    options.output.mkdir(parents=True, exist_ok=True)
    with open_demo_index(lambda line: sys.stderr.write(f"{line}\n")) as index:
        folder = Path(index.folder)
    with (
        tempfile.TemporaryDirectory() as work,
        serving(folder, Path(work, "log")) as (port, _),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=options.chromium, args=FLAGS)
        for width, height in SIZES:
            take(browser, f"http://127.0.0.1:{port}/", width, height, options.output / f"serve-{width}.png")
        browser.close()


def take(browser: "Browser", address: str, width: int, height: int, path: Path) -> None:
    """Search with the sample abstract, look into the first hit, and write a picture."""
    from playwright.sync_api import expect

    page = browser.new_page(viewport={"width": width, "height": height}, locale="en", color_scheme="light")
    page.goto(address)
    page.get_by_role("button", name="Try the sample abstract").click()
    page.get_by_role("button", name="Same problem, other method").click()
    expect(page.locator("#note")).to_contain_text("final order", timeout=SECONDS * 1000)
    first = page.locator(".hit").first
    first.get_by_role("button", name="Add to basket").click()
    first.locator("summary").click()
    page.mouse.move(0, 0)
    page.evaluate("document.getElementById('results').scrollIntoView()")
    page.screenshot(path=path)
    page.close()


if __name__ == "__main__":
    main()
