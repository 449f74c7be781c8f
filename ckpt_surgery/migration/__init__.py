"""Recipes made from what other libraries call transformations."""
