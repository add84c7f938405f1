"""``qbe doctor``: what this machine and this installation are, and what they lack."""

from __future__ import annotations

from qbe import _cli
from qbe.doctor.options import PROGRAM, parser

OPTIONS: dict[str, str] = {}


def main(arguments: list[str]) -> None:
    options = parser().parse_args(arguments)

    import json

    from qbe.doctor.check import require_all
    from qbe.doctor.report import all_checks, to_record, to_text

    checks = all_checks()
    print(
        json.dumps(to_record(checks), indent=1, allow_nan=False) if options.json else to_text(checks),
        flush=True,
    )
    require_all(checks)


if __name__ == "__main__":
    _cli.run(PROGRAM, main, OPTIONS)
