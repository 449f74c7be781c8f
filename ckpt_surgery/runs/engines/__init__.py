"""Engines that run shards of a plan on other machines."""
