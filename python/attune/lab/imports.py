"""Packages and modules that may not be there."""

from __future__ import annotations

import importlib

from attune.lab.errors import Absent, first_line


def imported(name: str):
    try:
        return importlib.import_module(name)
    except Exception as error:  # a package built for another torch fails in many ways
        raise Absent(f"{name} cannot be imported: {first_line(error)}") from error
