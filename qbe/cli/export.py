"""``qbe export``: turn PyTorch weights into the ONNX models that qbe runs."""

from __future__ import annotations

import argparse

from qbe.cli import common

TYPE_CHECKING = False
if TYPE_CHECKING:
    from qbe.models.formats import EncoderFormat

KINDS = {
    "encoder": "a sentence encoder of the BERT family",
    "cross-encoder": "a reranker: a BERT-family sequence classifier of text pairs",
}
OPTIONS = """
--model DIR!  folder with config.json, model.safetensors (of an encoder also pytorch_model.bin),
  tokenizer.json (of an encoder also vocab.txt)
--output DIR!  folder to create (replaced when it exists)
--name NAME  name of the model (default: the folder's name)
--source TEXT  where the weights come from, for the metadata (default: the folder)
"""
OF_ENCODERS = """
--graph FILE  the traced model without its weights, as qbe train large-encoder writes it; then PyTorch is not
  needed
# encoder format (default: as a sentence-transformers folder declares it, else the first)
--layout title-abstract|title-sep-abstract|sentences  input of a pass: title and abstract, the same with [SEP]
  between them, or single sentences
--pooling mean|cls  of a whole paper, and of single sentences: mean of the tokens, or the first ([CLS])
--similarity cosine|l2  cosine of vectors of unit length, or minus the distance of unscaled vectors
--max-tokens N  limit of a pass (default: as the folder declares it, else 0: the model's number of positions)
--adapter DIR  a bottleneck adapter of the adapters library
"""
PARSER = common.commands_parser(
    "qbe export",
    "Turn PyTorch weights into the ONNX models that qbe runs.",
    {
        kind: (about, f"Export {about}.", OPTIONS + (OF_ENCODERS.lstrip() if kind == "encoder" else ""))
        for kind, about in KINDS.items()
    },
)


def main(arguments: list[str]) -> None:
    """Export, and print how far the exported model is from the original."""
    options = PARSER.parse_args(arguments)
    from pathlib import Path

    model, output = Path(options.model), Path(options.output)
    name, source = options.name or model.resolve().name, options.source or str(model)
    if options.command == "encoder":
        encoder_format = format_of(options)
        from qbe.models.export.encoder import export_encoder

        adapter, graph = (Path(path) if path else None for path in (options.adapter, options.graph))
        parity = export_encoder(model, name, source, output, encoder_format, adapter, graph).parity
        original = "fp32" if graph else "PyTorch"
        told = f"smallest cosine {{min_cosine:.5f}} against {original}"
    else:
        from qbe.models.export.encoder import export_cross_encoder

        parity = export_cross_encoder(model, name, source, output).parity
        told = "{share_of_spread:.2g} of the scores' standard deviation, against PyTorch"
    for precision, figures in parity.items():
        difference = f"largest difference {figures['max_abs_difference']:.2g}"
        print(f"{precision}: {difference}, {told.format(**figures)}")


def format_of(options: argparse.Namespace) -> EncoderFormat:
    """The format that the options give; the rest is as the folder declares it, else the default."""
    from pathlib import Path

    from qbe.models.formats import DEFAULT_FORMAT, EncoderFormat, declared_format

    base = DEFAULT_FORMAT
    if None in (options.layout, options.pooling, options.similarity, options.max_tokens):
        base = declared_format(Path(options.model)) or base
    return EncoderFormat.pooled(
        options.layout or base.layout,
        options.pooling or base.whole,
        options.similarity or base.similarity,
        (base.max_tokens if options.max_tokens is None else options.max_tokens) or None,
    )
