"""The command line: `qbe` imports the module of the chosen command, and of no other.

Each command is a module ``qbe.cli.NAME`` with a function ``main(arguments)``; a module of two commands has
for each a function ``NAME_main``. Their options are in `qbe.cli.options`.
"""

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
    is_known = command in COMMANDS

    def carry_out(arguments: list[str]) -> None:
        if command in ("-h", "--help"):
            print(HELP)
        elif command in ("-V", "--version"):
            from importlib.metadata import version

            print(f"qbe {version('qbe')}")
        elif not is_known:
            from qbe.errors import UsageError, did_you_mean

            if not command or command.startswith("-"):
                raise UsageError(f"expected a command, found {command or 'none'}; qbe --help lists them")
            hint = did_you_mean(command, COMMANDS, "qbe --help lists them")
            raise UsageError(f"expected one of qbe's commands, found {command!r}; {hint}")
        else:
            if "-h" in arguments or "--help" in arguments:
                parser_of(command).parse_args(arguments)
            # As importlib.import_module does; importlib itself would cost the help a tenth of its time.
            module = __import__(f"qbe.cli.{SHARED.get(command, command)}", fromlist=("main",))
            getattr(module, f"{command}_main" if command in SHARED else "main")(arguments)

    common.run(f"qbe {command}" if is_known else "qbe", carry_out, rest if is_known else [command])
