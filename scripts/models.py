"""Trains the models that ship again, from public data, in the order of what each needs.

    python scripts/models.py --dry-run     # the order, hours, what is needed, and the commands
    python scripts/models.py [MODEL ...]   # trains them (default: all) in the folder models; goes on there

Commands and sources of each model are those of ``qbe/models/manifest.json``. A source with another digest
than the manifest's is stale, and nothing is trained from it, unless ``--accept`` names it: arXiv's snapshot
and CSFCube's release differ from the files that the models were trained from. What a model needs of other
models is what ships. The facet encoder's recipe has retired: the manifest names the last commit that has it.
Data: ``data/`` of the repository, and $QBE_DATA with csabstruct, csfcube (whose papers are left out),
citations, and arxiv-cs (``qbe datasets arxiv-cs``).
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from qbe.util.files import sha256, write_text

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "qbe" / "models"

HOURS: Mapping[str, float] = {
    "facet-tagger": 1.2,
    "facet-encoder-large": 60,
    "facet-projections-large": 0,
    "facet-projections": 0.5,
    "technique-words": 0.1,
    "grades": 0.6,
    "citation": 1,
    "grades-large": 2.5,
    "joint-grades": 200,
    "citation-large": 0.7,
}
"""About how long each takes on two cores without AMX, its index included. Measured are the tagger and the
small projections (10 minutes without their index); the others follow from the number of passes and the speed
of one. The large encoder, with which its projections come, and joint grades were trained on a GPU (--device
cuda in their commands), in three and fifteen minutes.
"""

TAGGER = "facet-tagger"


def needed_models(name: str, manifest: Mapping[str, Any]) -> list[str]:
    """The models that one is trained from; whatever is indexed is tagged."""
    sources = manifest["models"][name]["trained_from"]
    return [each for each in manifest["models"] if each in sources or (each == TAGGER and "index" in sources)]


def in_order(names: Iterable[str], manifest: Mapping[str, Any]) -> list[str]:
    """Models after those that they are trained from, of these the ones that are asked for too."""
    wanted, ordered = list(names), list[str]()

    def add(name: str) -> None:
        for other in needed_models(name, manifest):
            add(other)
        if name in wanted and name not in ordered:
            ordered.append(name)

    for name in wanted:
        add(name)
    return ordered


def problems(
    name: str, manifest: Mapping[str, Any], places: Iterable[Path], accepted: Iterable[str] = ()
) -> tuple[list[str], list[str]]:
    """What is absent, and what is stale, of the sources of a model, a line each."""
    absent, stale = [], []
    for source, digest in manifest["models"][name]["trained_from"].items():
        if source == "index" or digest in manifest["superseded"]:
            continue
        if "/" in source:
            path = next((place / source for place in places if (place / source).is_file()), None)
            actual = sha256(path) if path else ""
            if path is None:
                absent.append(f"{source}: expected in data or $QBE_DATA, found in neither")
            elif source.partition("/")[0] in accepted:
                continue
        elif source in manifest["bases"]:
            actual = manifest["bases"][source]
        else:
            actual = digest if digest in _digests(source, manifest) else "another"
        if actual and actual != digest:
            stale.append(f"{source}: expected the digest {digest[:12]}, found {actual[:12]}")
    return absent, stale


def _digests(name: str, manifest: Mapping[str, Any]) -> set[str]:
    model = manifest["models"][name]
    files = model["files"]
    if any(sha256(MODELS / name / file) != digest for file, digest in files.items()):
        return set()
    return {*files.values(), model.get("weights", "")}


def train(name: str, commands: Iterable[str], work: Path) -> None:
    """Run the commands of a model in the folder; those that have run there are left out."""
    done = work / "done.json"
    for line in commands:
        finished = json.loads(done.read_text(encoding="utf-8")) if done.exists() else []
        if line in finished:
            continue
        print(f"{name}$ {line}", flush=True)
        arguments = [os.path.expandvars(word) for word in shlex.split(line)]
        subprocess.run([sys.executable, "-m", *arguments], cwd=work, check=True)
        write_text(done, json.dumps([*finished, line], indent=1))


def main() -> None:
    manifest = json.loads((MODELS / "manifest.json").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("models", nargs="*", metavar="MODEL", help="default: all")
    add("--dry-run", action="store_true", help="print the plan, train nothing")
    add("--work", default="models", metavar="DIR", help="where to train (default: models)")
    add("--accept", nargs="+", default=[], metavar="DATA", help="data that may be others: arxiv-cs, csfcube")
    options = parser.parse_args()
    trained = [name for name, model in manifest["models"].items() if model["commands"]]
    if unknown := set(options.models) - set(trained):
        parser.error(f"expected models of {', '.join(trained)}, found {min(unknown)}")
    data = os.environ.get("QBE_DATA")
    places = [ROOT / "data", *([Path(data)] if data else [])]
    order = in_order(options.models or trained, manifest)
    failed = False
    for name in order:
        absent, stale = problems(name, manifest, places, options.accept)
        failed |= bool(stale or (absent and not options.dry_run))
        needs = ", ".join(needed_models(name, manifest)) or "no other model"
        print(f"{name}: about {HOURS.get(name, 1):g} h; needs {needs}")
        commands = manifest["models"][name]["commands"] if options.dry_run else ()
        for line in (
            *commands,
            *(f"absent: {each}" for each in absent),
            *(f"stale: {each}" for each in stale),
        ):
            print(f"  {line}")
    print(f"about {sum(HOURS.get(name, 1) for name in order):g} h in all, on two cores without AMX")
    if failed:
        sys.exit("expected the sources of the manifest, found others (above): restore or --accept them")
    if not options.dry_run:
        work = Path(options.work).resolve()
        work.mkdir(parents=True, exist_ok=True)
        if not (work / "data").exists():
            (work / "data").symlink_to(ROOT / "data")
        if data:
            os.environ["QBE_DATA"] = str(Path(data).resolve())
        for name in order:
            train(name, manifest["models"][name]["commands"], work)
            model = manifest["models"][name]
            folder, shipped = work / model.get("folder", name), model["files"]
            files = {each: sha256(folder / each) for each in shipped if (folder / each).is_file()}
            print(f"{folder}: {'the' if files == shipped else 'other files than the'} files that ship")


if __name__ == "__main__":
    main()
