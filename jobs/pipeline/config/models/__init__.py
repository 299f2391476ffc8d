"""Models of the YAML files: the only place that knows what a configuration file may say.

Every model is frozen and refuses unknown keys. Each field's description becomes the configuration
reference in docs/configuration.md.
"""
