"""Learned corrections of released answers."""
