"""Corrections of released counts by regressions that were trained on public counts."""
