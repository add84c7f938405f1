"""The command ``qbe``: it imports the module of the chosen command, and of no other.

Each command is a module ``qbe.cli.NAME`` with ``PROGRAM`` ("qbe NAME"), ``OPTIONS`` (of each parameter
whose option has another name, that option), ``parser()`` and ``main(arguments)``.
"""

from __future__ import annotations

import sys

from qbe.cli import common as _cli

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

COMMANDS = {
    "index": "build an index from a corpus of papers, or change one",
    "harvest": "fetch arXiv's records, and update an index with them",
    "pack": "pack an index into one file, for others to pull",
    "pull": "pull an index from an address, or bring it up to date",
    "search": "find papers like a paper: by facet, sentences or abstract",
    "list": "list the papers of an index, all or some",
    "show": "show papers of an index, by id or words of the title",
    "cite": "recommend papers that a paper should cite",
    "watch": "keep searches, and report the papers that are new for them",
    "evaluate": "score runs against relevance judgements",
    "tag": "label each sentence of abstracts with its facet",
    "datasets": "write a test collection: corpus, topics, pools, judgements",
    "label": "grade pairs of papers by a language model; compare grades",
    "train": "train the models that qbe ships",
    "export": "convert PyTorch weights to the ONNX models that qbe runs",
    "serve": "serve an index: a page to search with, and HTTP for programs",
    "mcp": "serve an index to agents, by the Model Context Protocol",
    "demo": "search the sample that is part of the package",
    "cluster": "index, search or serve on several machines",
    "doctor": "show what this machine and installation are, and lack",
    "completion": "print a script that completes commands in a shell",
}


def main(command_name: str | None = None) -> None:
    """Run ``qbe``, or one of its commands, with the arguments of the process, and end the process."""
    arguments = [command_name, *sys.argv[1:]] if command_name else sys.argv[1:]
    if not arguments or arguments[0] not in COMMANDS:
        _cli.run("qbe", _without_command, arguments=arguments)
    # As importlib.import_module does; importlib itself would cost the help a tenth of its time.
    command = __import__(f"qbe.cli.{arguments[0]}", fromlist=("main",))
    _cli.run(command.PROGRAM, command.main, command.OPTIONS, arguments[1:])


def _without_command(arguments: list[str]) -> None:
    """Print the help or the version; anything else is an error."""
    if arguments[:1] in (["-h"], ["--help"]):
        parser().print_help()
        return
    from qbe.errors import UsageError

    if not arguments:
        raise UsageError("expected a command, found none; qbe --help lists them")
    if not arguments[0].startswith("-"):
        raise UsageError(_unknown(arguments[0]))
    if arguments not in (["-V"], ["--version"]):
        raise UsageError(f"expected a command, found {arguments[0]}; qbe --help lists them")
    import qbe

    print(f"qbe {qbe.__version__}")


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, COMMANDS, 1)
    hint = f"did you mean {close[0]}?" if close else "qbe --help lists them"
    return f"expected one of qbe's commands, found {name!r}; {hint}"


def parser(command_parser: Callable[[str], argparse.ArgumentParser] | None = None) -> argparse.ArgumentParser:
    """The parser of ``qbe`` with all its commands; see `qbe.cli.common.commands_parser`."""
    about = "Find papers like this one, for its problem, its method or its findings."
    root = _cli.commands_parser("qbe", about, COMMANDS, command_parser)
    root.add_argument("-V", "--version", action="store_true", help="print the version and exit")
    return root


if __name__ == "__main__":
    main()
