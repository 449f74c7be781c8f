"""Recipes from what T5X takes: assignment maps, and translators of its importer."""
