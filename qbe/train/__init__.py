"""Training of the models that qbe ships: beside ``qbe.export``, the only package that imports torch."""
