"""The record of how a checkpoint was made, and reading back what was written."""
