"""Recipes made from transformations of other libraries, and from functions."""
