"""``qbe doctor``: what this machine and this installation are, and what they lack."""

from __future__ import annotations

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

PROGRAM = "qbe doctor"
OPTIONS = {"folder": "--index"}

EPILOG = """\
Each line is OK, advice (searching works, something is slower or absent) or MISSING (searching needs it).
Nothing is loaded, started, written or sent. The exit code is 0 if searching can work, and 1 if not. With
--index only that index is looked at: each of its files is read, and a line names each that is DAMAGED; the
exit code is 1 if one is.
"""


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = _cli.parser(PROGRAM, "Show what this machine and this installation are, and what they lack.")
    parser.epilog = EPILOG
    parser.add_argument("--index", metavar="DIR", help="compare all files of this index with their digests")
    parser.add_argument(
        "--save", metavar="FILE", help="write the index's intact papers, without deleted ones, to a corpus"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    return parser


def main(arguments: list[str]) -> None:
    """Look, print what was found, and raise where something is missing or damaged."""
    options = parser().parse_args(arguments)

    import json
    from pathlib import Path

    from qbe.cli.doctor_check import require_all, to_record, to_text
    from qbe.errors import UsageError

    if options.index is not None:
        from qbe.cli.doctor_index import index_checks
        from qbe.index.share import local_folder

        checks = index_checks(local_folder(options.index), options.save and Path(options.save))
    elif options.save is not None:
        raise UsageError("`save` goes with `folder`, the index to save papers of; give it, or drop `save`")
    else:
        from qbe.cli.doctor_installation import installation_checks
        from qbe.cli.doctor_machine import machine_checks

        checks = [*installation_checks(), *machine_checks()]
    text = json.dumps(to_record(checks), indent=1, allow_nan=False) if options.json else to_text(checks)
    print(text, flush=True)
    require_all(checks)


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
