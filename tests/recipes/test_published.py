"""Every size of every published model, in every layout: planned there and back on the names of its files."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ckpt_surgery import api
from ckpt_surgery.models import MODELS, Layout, Model
from ckpt_surgery.planner.plan import Plan
from tests.recipes.keytables import keytable
from tests.recipes.published_sizes import PUBLISHED
from tests.support.linked_sources import safetensors_header

OFTEN = ("qwen3-0.6b jax",)
"""What is planned with every run of the tests; the others with the slow ones."""
