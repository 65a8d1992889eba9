"""How each source of a recipe comes into the image: a layer of its own, from a tree or from a source distribution."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from cannery.catalog.component import Native
from cannery.recipe.recipe import SOURCES_HOME, is_left_out
from cannery.vocab import Install

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cannery.lock.lock import Lock
    from cannery.plan.patched import OverlayFile, PatchedBy
    from cannery.recipe.recipe import ChosenSource, Recipe


@dataclass(frozen=True)
class LocalTree:
    """A folder of the user's in place of a commit: digest of its content, HEAD, and whether it differs from HEAD."""

    digest: str
    commit: str | None
    dirty: bool


@dataclass(frozen=True)
class SourceStep:
    """One source's layer.

    `file` is its name below sources/ in the rendered folder, `content` what decides its bytes: the commit, the digest
    of a local tree, or the hash of a source distribution. `env` are the build's variables, `stubs` modules that its
    setup.py imports without use, `before` commands that run at the tree's top ahead of a native build, `native` that it
    is compiled on the target's platform, `without` why native parts are left out ("" when they are not), `patched_by`
    who brings patches for it.
    """

    name: str
    package: str
    version: str
    install: Install
    subdirectory: str
    env: tuple[tuple[str, str], ...]
    stubs: tuple[str, ...]
    before: tuple[tuple[str, ...], ...]
    file: str
    content: str
    commit: str | None = None
    release: str | None = None
    dirty: bool = False
    native: bool = False
    without: str = ""
    patched_by: tuple[PatchedBy, ...] = ()

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of the user's."""
        return self.release is None and self.content != self.commit

    @property
    def is_tree(self) -> bool:
        """Whether it comes into the image as it is: nothing is built, and its file is a plain tar."""
        return self.install is Install.TREE and self.release is None

    @property
    def path(self) -> str:
        """Where the tree is in the image; the distribution alone is there when a wheel was made of it."""
        return f"{SOURCES_HOME}/{self.name}"

    def text(self, patched: Sequence[OverlayFile] = ()) -> str:
        """Return what templates/tools/source.py reads, as JSON; `patched` are the files that are laid over the tree."""
        wanted = ("name", "package", "version", "install", "stubs", "native") + (("before",) if self.before else ())
        value = {key: item for key, item in asdict(self).items() if key in wanted}
        value |= {"subdirectory": self.subdirectory, "env": dict(self.env)}
        value |= {"patched": [file.described for file in patched]} if patched else {}
        return json.dumps(value, indent=1) + "\n"


def source_steps(
    recipe: Recipe, lock: Lock, socs: tuple[str, ...], local: Mapping[str, LocalTree]
) -> Iterator[SourceStep]:
    """Give the steps of `recipe` in the profile's order; releases that are wheels are no steps but packages.

    What is left out of a stand-in has no step there.
    `socs` are the chip's names in native builds, `local` the trees that take the place of commits.
    """
    sdists = {package.name: package for package in lock.packages if package.is_sdist}
    for chosen in recipe.sources:
        if is_left_out(recipe, chosen):
            continue
        mine = local.get(chosen.name)
        package = sdists.get(chosen.package) if chosen.release and mine is None else None
        if package is not None:
            yield _step(recipe, chosen, socs, package.file, package.sha256, None)
        elif chosen.commit or mine is not None:
            content = mine.digest if mine else chosen.commit or ""
            yield _step(recipe, chosen, socs, f"{chosen.name}.tar", content, mine)


def _step(  # noqa: PLR0913, PLR0917 - what a step is made of
    recipe: Recipe, chosen: ChosenSource, socs: tuple[str, ...], file: str, content: str, mine: LocalTree | None
) -> SourceStep:
    component = chosen.component
    standin = recipe.standin_of(chosen)
    env = {**component.build_env, **(standin.build_env if standin else {})}
    native = component if isinstance(component, Native) else None
    if native and native.soc_variable and socs:
        env.setdefault(native.soc_variable, socs[0])
    install = recipe.install_of(chosen)
    # Nothing is made of a tree.
    is_native = native is not None and standin is None and install is not Install.TREE
    return SourceStep(
        name=chosen.name,
        package=chosen.package,
        version=chosen.version or "0",
        install=install,
        subdirectory=component.subdirectory or "",
        env=tuple(sorted(env.items())),
        stubs=component.stubs,
        before=_before(recipe, native, env) if native and is_native else (),
        file=file,
        content=content,
        commit=mine.commit if mine else chosen.commit,
        release=None if mine else chosen.release,
        dirty=mine.dirty if mine else False,
        native=is_native,
        without=standin.reason if standin else "",
    )


def _before(recipe: Recipe, component: Native, env: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return the commands ahead of a native build, with what the plan knows filled in; the rest is the stage's."""
    known = {"{soc}": env.get(component.soc_variable or "", ""), "{toolkit_home}": recipe.base.line.toolkit_home}

    def filled(word: str) -> str:
        for name, value in known.items():
            word = word.replace(name, value)
        return word

    return tuple(tuple(map(filled, command)) for command in component.before)
