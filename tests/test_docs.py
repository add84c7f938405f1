"""What the README tells people to do is done here, as it stands there."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = ("datasets", "index", "search", "evaluate", "export", "tag", "train")
SUBCOMMANDS = {
    "datasets": ("csfcube",),
    "export": ("encoder",),
    "train": ("tagger", "encoder", "facet-encoder"),
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_commands_and_python_example_work_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    script = "set -euo pipefail\n" + "".join(blocks("bash"))
    assert script.count("python -m qbe.") >= 9
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (example,) = blocks("python")
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(example, "README.md", "exec"), {})
    lines = printed.getvalue().splitlines()
    assert len(lines) == 9
    assert "Masking Politicians' Words" in lines[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_in_the_readme_exists(command: str) -> None:
    """An option that the README shows with a command is in the command's help."""
    text = subprocess.run(
        [sys.executable, "-m", f"qbe.{command}", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for name in SUBCOMMANDS.get(command, ()):  # their options belong to subcommands
        text += subprocess.run(
            [sys.executable, "-m", f"qbe.{command}", name, "--help"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    used = re.findall(rf"python -m qbe\.{command}(.*)", README)
    options = {option for line in used for option in re.findall(r"--[a-z0-9-]+", line)}
    assert options, f"the README never shows qbe.{command} with an option"
    assert not {option for option in options if option not in text}


def test_every_dependency_has_its_line() -> None:
    names = re.findall(r"^    ([a-z0-9-]+)(?: [=><].*)?$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
    table = README[README.index("## Dependencies") :]
    assert len(names) > 15
    assert not [name for name in names if name not in table]
