"""What a command on an image works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    import docker

    from cannery.core.catalog import Catalog
    from cannery.core.plan import Plan
    from cannery.edge.context import Context
    from cannery.edge.engine import Engine


@dataclass(frozen=True)
class Work:
    """One run's surroundings, options, plan and engine: what building and verifying both need."""

    context: Context
    arguments: argparse.Namespace
    catalog: Catalog
    plan: Plan
    engine: Engine
    client: docker.DockerClient
