"""Former place of `qbe.index.build` and others."""
