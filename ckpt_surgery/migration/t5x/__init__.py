"""Recipes from T5X's assignment maps, and from translators of its importer."""
