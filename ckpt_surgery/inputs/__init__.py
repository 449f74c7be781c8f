"""From a request to a plan: recipes, opened sources and targets, warnings, saved plans."""
