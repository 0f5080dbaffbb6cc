"""The context of a process: facts beyond the address that explain a miss."""

from __future__ import annotations

from cachesvc.core.components import Components

OPS = "ops "
"""What begins the component of each package that registers operators."""


def op_packages(context: Components) -> Components:
    """The part of a context that names the packages that register operators."""
    return Components.of({name: text for name, text in context.items() if name.startswith(OPS)})
