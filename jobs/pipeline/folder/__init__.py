"""The run folder: its owner, the progress of stages, draws of noise, and solutions."""
