"""What a command on an image works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    import docker

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.engine.io.find import Engine
    from cannery.plan.plan import Plan


@dataclass(frozen=True)
class Work:
    """One run's surroundings, options, plan and engine: what building and verifying both need."""

    context: Context
    arguments: argparse.Namespace
    catalog: Catalog
    plan: Plan
    engine: Engine
    client: docker.DockerClient
