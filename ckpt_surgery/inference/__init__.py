"""Recipes that write themselves: what one checkpoint has to do with another, as rules."""
