"""``python -m qbe.export``: turn PyTorch weights into the ONNX models that qbe runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from qbe import _cli


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="python -m qbe.export", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    encoder = commands.add_parser("encoder", help="a sentence encoder of the BERT family")
    encoder.add_argument(
        "--model", type=Path, required=True, help="folder with config.json, model.safetensors, tokenizer.json"
    )
    encoder.add_argument(
        "--output", type=Path, required=True, help="folder to create (replaced when it exists)"
    )
    encoder.add_argument("--name", help="name of the encoder (default: the folder's name)")
    encoder.add_argument("--source", help="where the weights come from, for the card (default: the folder)")
    return parser


def main(argv: list[str]) -> None:
    options = parser().parse_args(argv)
    from qbe.export.encoder import export_encoder

    name = options.name or options.model.resolve().name
    card = export_encoder(options.model, name, options.source or str(options.model), options.output)
    for precision, figures in card.parity.items():
        print(
            f"{precision}: largest difference {figures['max_abs_difference']:.2g}, "
            f"smallest cosine {figures['min_cosine']:.5f} against PyTorch"
        )


if __name__ == "__main__":
    _cli.run("qbe.export", main)
