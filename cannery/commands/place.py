"""Where the image of a command is: the engine of this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cannery.build.io.place import EnginePlace
from cannery.engine.io.find import docker_client, find_engine

if TYPE_CHECKING:
    from cannery.context import Context


def engine_place(context: Context) -> EnginePlace:
    """Return the engine to use; Cannery's own is started where no other answers. Raises as `find_engine`."""
    engine = find_engine(context.env, context.cache, start=True, say=context.say)
    return EnginePlace(engine, docker_client(engine), engine.client_env(context.env))
