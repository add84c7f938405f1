"""Former place of `qbe.index.build`."""

from qbe.index.build import build as build
