"""`run` and `shell`: start a container with this host's NPUs, or print the text that starts one elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from cannery.commands import options_of
from cannery.commands.place import store_place
from cannery.engine.io.find import NoEngineError, docker_client, find_engine
from cannery.errors import ExitCode, UnableError, UsageError
from cannery.host.facts import full_model, parse_cards, wanted_paths
from cannery.host.io.look import pci_devices, read_host
from cannery.host.io.place import EnginePlace
from cannery.pipeline import planned
from cannery.run.container import (
    GIVEN,
    HOST_NETWORK,
    VISIBLE,
    Container,
    RunRequest,
    container_box,
    docker_arguments,
    docker_text,
    host_folder,
    make_container,
    parse_run_as,
)
from cannery.run.io.folders import ready_caches, start_warnings
from cannery.run.mounts import user_caches
from cannery.run.print import printed, printed_notes
from cannery.run.ray import ray_of
from cannery.sandbox.io.able import why_not
from cannery.ship.published import parse_registry, published_reference
from cannery.util.io.process import signals_held
from cannery.vocab import BaseKind, RunFormat

if TYPE_CHECKING:
    import argparse

    from cannery.catalog.catalog import Catalog
    from cannery.context import Context
    from cannery.plan import Plan
    from cannery.recipe.recipe import Recipe

NO_NPUS, ALL_NPUS = "none", "all"
SHELL = ("bash", "-l")
HOST_ROOT = Path("/")


def run(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Start a container with this host's NPUs, or print the text that starts one on a full machine of the chip."""
    form = _form(arguments)
    catalog, plan, _ = planned(context, arguments.profile, options_of(arguments))
    access = catalog.chips[plan.recipe.target.chip]
    host = read_host(wanted_paths(access), HOST_ROOT)
    request = _request(arguments, context, plan)
    if request.npu and plan.recipe.base.kind is BaseKind.STANDIN:
        context.say(f"note: {plan.recipe.name} is built on the stand-in base, which has no CANN: no NPU works in it")
    if plan.recipe.profile.several_hosts and request.npu and not request.is_multi_node:
        context.say(f"note: {plan.recipe.name} is for jobs on several hosts: --network host --interface NAME")
    if arguments.show:
        container = make_container(request, access, full_model(access, request.cards, host))
        container = _with_caches(container, arguments, context, plan, make=False) if form.is_local else container
        text = printed(form, container, access, plan)
        for note in printed_notes(form, container, access, host, ray_of(plan.lock.packages)):
            context.say(f"note: {note}")
        print(text, end="")
        return ExitCode.DONE
    if request.npu:
        refuse_other_chip(catalog, plan.recipe)
    container = make_container(request, access, host)
    return _start(arguments, context, plan, container)


def refuse_other_chip(catalog: Catalog, recipe: Recipe) -> None:
    """Raise `UnableError` if the PCI bus shows NPUs, but none of the image's chip."""
    shown = [catalog.drivers.pci[device] for device, _ in pci_devices(HOST_ROOT) or () if device in catalog.drivers.pci]
    if shown and recipe.target.chip not in shown:
        raise UnableError(
            f"the image is for chip {recipe.target.chip}, and this host has {shown[0]}",
            hint=f"CHIP={shown[0]}; kernels of one chip do not run on another (vllm-ascend issue 2725)",
        )


def shell(arguments: argparse.Namespace, context: Context) -> ExitCode:
    """Open a shell, or run a command, in a new container with this host's NPUs, or without an engine in a box."""
    arguments.run_command = arguments.run_command or list(SHELL)
    return run(arguments, context)


def _start(arguments: argparse.Namespace, context: Context, plan: Plan, container: Container) -> ExitCode:
    request = container.request
    if container.cards:
        by = f"the docker runtime {request.runtime}" if request.runtime else "single device nodes"
        context.say(f"NPUs: {container.cards}, by {by}")
    for note in container.notes:
        context.say(f"note: {note}")
    try:
        engine = find_engine(context.env)
    except NoEngineError as error:
        _start_without_engine(arguments, context, plan, container, error)
    for warning in (*container.warnings, *start_warnings(container, engine)):
        context.say(f"warning: {warning}")
    if request.runtime and request.runtime not in engine.runtimes:  # case D08
        what = f"the engine has no runtime {request.runtime!r}, only {', '.join(sorted(engine.runtimes)) or 'none'}"
        hint = "install the Ascend Docker runtime, or leave --runtime out: the devices are then passed one by one"
        raise UnableError(what, hint=hint)
    EnginePlace(engine, docker_client(engine), context.env).needed(plan.reference, arguments.profile)
    container = replace(container, request=replace(request, platform=engine.foreign(plan.recipe.target.arch)))
    words = docker_arguments(_with_caches(container, arguments, context, plan, make=True))
    sys.stdout.flush()
    # The container's exit code becomes ours, and the client gets signals and terminal directly.
    line = engine.command(*words)
    os.execve(line[0], line, context.env)  # noqa: S606 - no shell is wanted


def _start_without_engine(
    arguments: argparse.Namespace, context: Context, plan: Plan, container: Container, error: NoEngineError
) -> NoReturn:
    """Open a shell in a box. For a job, print the command for a host with an engine, and raise `UnableError`."""
    if arguments.command != "shell":
        print(docker_text(container))
        what = "no Docker engine is running, and a job needs one: on a host that has one, the command above starts it"
        npus = "" if container.request.npu else " --npus none"
        raise UnableError(what, hint=f"{error.hint}; `build.py shell {arguments.profile}{npus} -- COMMAND` needs none")
    if container.request.runtime:
        raise error
    if why := why_not(context.cache):
        raise UnableError(f"{error.what}, and images cannot run without one here: {why}", hint=error.hint)
    if named := [text for text in container.request.volumes if ":" in text and not host_folder(text)]:
        what = f"-v {named[0]}: this is a volume of Docker, and a shell without an engine has no such volumes"
        raise UnableError(what, hint=f"name a folder of this host: -v DIR:{named[0].partition(':')[2]}")
    place = store_place(context)
    image = place.needed(plan.reference, arguments.profile)
    volumes = tuple(map(_from_root, container.request.volumes))
    container = replace(container, request=replace(container.request, volumes=volumes))
    container = _with_caches(container, arguments, context, plan, make=True)
    box = container_box(container, place.store.lowers(image.id), place.attributes(image.id)["Config"])
    context.say(
        "no Docker engine is running: the command runs in a temporary sandbox; what it changes is lost when it ends"
    )
    with signals_held() as came:
        code = subprocess.run(place.command(replace(box, network=True)), env=context.env, check=False).returncode
        came.clear()  # they were for the shell
    sys.exit(code)


def _from_root(volume: str) -> str:
    """Return a volume with the absolute path of its folder: a box has another working directory."""
    folder = host_folder(volume)
    return f"{Path(folder).absolute()}{volume.removeprefix(folder)}" if folder else volume


def _form(arguments: argparse.Namespace) -> RunFormat:
    """Return the form to print. Raises `UsageError` for options that contradict each other."""
    form = RunFormat(arguments.format or RunFormat.DOCKER)
    if arguments.format and not arguments.show:
        raise UsageError(f"--format {form} is text, and starts nothing", hint="add --print (make: PRINT=1)")
    if form is not RunFormat.DOCKER and arguments.detach:
        raise UsageError(f"--detach is an option of docker's, and --format is {form}", hint="leave it out")
    if arguments.nodes is not None and not form.is_ray:
        what = f"--nodes is for raycluster and rayjob, not {form}"
        raise UsageError(what, hint="take --format raycluster --print, or leave it out")
    if arguments.registry and not arguments.show:
        hint = f"add --print (make: PRINT=1), or have it here: build.py pull {arguments.profile} --registry …"
        raise UsageError("--registry is only for what --print prints; run starts the image on this host", hint=hint)
    if arguments.interface and arguments.network != HOST_NETWORK:
        hint = "add --network host (make: NETWORK=host)"
        raise UsageError("--interface needs the host's network, and this container has its own", hint=hint)
    if arguments.interface and form.is_local and not Path("/sys/class/net", arguments.interface).exists():
        raise UsageError(f"--interface: this host has no {arguments.interface!r}", hint="`ip link` lists them")
    return form


def _request(arguments: argparse.Namespace, context: Context, plan: Plan) -> RunRequest:
    """Return the request to run, without the user's caches, which are checked last."""
    user = plan.recipe.profile.user
    registry = arguments.registry
    npus = _npus(arguments, plan)
    return RunRequest(
        image=plan.reference if registry is None else published_reference(parse_registry(registry), plan.reference),
        shm_size=plan.recipe.profile.shm_size,
        cards=None if npus in {ALL_NPUS, NO_NPUS} else parse_cards(npus),
        npu=npus != NO_NPUS,
        terminal=arguments.show or (sys.stdin.isatty() and sys.stdout.isatty()),
        detach=arguments.detach,
        name=arguments.name,
        nodes=arguments.nodes or 1,
        volumes=tuple(arguments.volume),
        env=tuple(_known_value(context, text) for text in arguments.env),
        command=tuple(arguments.run_command),
        runtime=arguments.runtime,
        network=arguments.network,
        interface=arguments.interface,
        workdir=arguments.workdir,
        user=user,
        run_as=None if arguments.user is None else parse_run_as(arguments.user, user),
    )


def _npus(arguments: argparse.Namespace, plan: Plan) -> str:
    """Return the NPUs for the container. By default, an image on the stand-in base gets none."""
    if arguments.npus is not None:
        return str(arguments.npus).lower()
    by_runtime = arguments.runtime is not None
    return NO_NPUS if plan.recipe.base.kind is BaseKind.STANDIN and not by_runtime else ALL_NPUS


def _with_caches(
    container: Container, arguments: argparse.Namespace, context: Context, plan: Plan, *, make: bool
) -> Container:
    """Return `container` with the user's caches, unless they are not wanted; `make` makes missing folders."""
    user, request = plan.recipe.profile.user, container.request
    is_another_host = arguments.registry is not None
    if arguments.no_caches or is_another_host or (user is None and not request.is_root):
        return container  # root's home is closed to others
    found = ready_caches(user_caches(context.env, user), context.say, make=make, user=request.run_as or user)
    return replace(container, request=replace(request, caches=tuple(found)))


def _known_value(context: Context, text: str) -> str:
    """Return a variable that names cards as `NAME=VALUE`, so that it is checked. Docker reads the values of others."""
    return f"{text}={context.env[text]}" if text in {GIVEN, VISIBLE} and text in context.env else text


COMMANDS = {"run": run, "shell": shell}
