"""The command line: `qbe` imports the module of the chosen command, and of no other.

Each command is a module ``qbe.cli.NAME`` with a function ``main(arguments)``; a module of two commands has
for each a function ``NAME_main``. Their options are in `qbe.cli.options`.
"""

from __future__ import annotations

import sys

from qbe.cli import common
from qbe.cli.parser import parser_of

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
    "demo": "search real papers that are part of the package",
    "cluster": "index, search or serve on several machines",
    "doctor": "show what this machine and installation are, and lack",
    "completion": "print a script that completes commands in a shell",
}
SHARED = {"list": "papers", "show": "papers", "pack": "share", "pull": "share"}
"""The modules that hold two commands."""

ABOUT = "Find papers like this one, for its problem, its method or its findings."
_LIST = "\n".join(f"    {name:<12} {line}" for name, line in COMMANDS.items())
HELP = f"""\
usage: qbe [-h] [-V] COMMAND ...

{ABOUT}

options:
  -h, --help     show this help message and exit
  -V, --version  print the version and exit

commands:
{_LIST}

qbe COMMAND --help shows the options of a command."""


def main(command_name: str | None = None) -> None:
    """Run ``qbe``, or one of its commands, with the arguments of the process, and end the process."""
    command, *rest = [command_name, *sys.argv[1:]] if command_name else sys.argv[1:] or [""]
    if command not in COMMANDS:
        common.run("qbe", _without_command, [command])

    def carry_out(arguments: list[str]) -> None:
        if "-h" in arguments or "--help" in arguments:
            parser_of(command).parse_args(arguments)
        # As importlib.import_module does; importlib itself would cost the help a tenth of its time.
        module = __import__(f"qbe.cli.{SHARED.get(command, command)}", fromlist=("main",))
        getattr(module, f"{command}_main" if command in SHARED else "main")(arguments)

    common.run(f"qbe {command}", carry_out, rest)


def _without_command(arguments: list[str]) -> None:
    """Print the help or the version; anything else is an error."""
    name = arguments[0]
    if name in ("-h", "--help"):
        print(HELP)
    elif name in ("-V", "--version"):
        from importlib.metadata import version

        print(f"qbe {version('qbe')}")
    else:
        from qbe.errors import UsageError, did_you_mean

        if not name or name.startswith("-"):
            raise UsageError(f"expected a command, found {name or 'none'}; qbe --help lists them")
        hint = did_you_mean(name, COMMANDS, "qbe --help lists them")
        raise UsageError(f"expected one of qbe's commands, found {name!r}; {hint}")
