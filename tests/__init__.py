"""Tests, by the kind of question they answer."""
