"""Configurations of mergekit: what they say, and the recipes that do it."""
