"""Training of the models that qbe ships: beside ``qbe.export``, the only room that imports torch."""
