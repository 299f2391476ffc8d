"""Configuration files: models, loading, the generated reference."""
