"""Training of the models that qbe ships: beside ``qbe.models.export``, the only package that imports torch."""
