"""Which version of the tool this is: saved plans are carried out by the one that made them."""

VERSION = "0.1.0"
