"""``qbe doctor``: what this machine and this installation are, and what they lack."""

from __future__ import annotations

from qbe import _cli
from qbe.doctor.options import PROGRAM, parser

OPTIONS = {"folder": "--index"}


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)

    import json
    from pathlib import Path

    from qbe.doctor.check import require_all
    from qbe.doctor.report import all_checks, to_record, to_text
    from qbe.errors import UsageError

    if options.index is None:
        if options.save is not None:
            raise UsageError(
                "`save` goes with `folder`, the index to save papers of; give it, or drop `save`"
            )
        checks = all_checks()
    else:
        from qbe.doctor.index import index_checks

        checks = index_checks(Path(options.index), options.save and Path(options.save))
    text = json.dumps(to_record(checks), indent=1, allow_nan=False) if options.json else to_text(checks)
    print(text, flush=True)
    require_all(checks)


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
