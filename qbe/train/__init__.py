"""Training of models with PyTorch: one trainer (fit), one file of losses, one recipe a model."""
