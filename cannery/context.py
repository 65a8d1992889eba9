"""The settings of one run, read once at the start: environment, folders, host architecture, terminal."""

from __future__ import annotations

import functools
import os
import platform
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cannery.errors import UnableError, UsageError
from cannery.settings import EXAMPLE, Setting, Settings, merged, of_environment, of_file, with_mirrors
from cannery.util.io.files import OF_FOLDER, home_of, sha256_bytes, user_file
from cannery.vocab import ARCH_ALIASES, DEFAULT_INDEX, Arch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cannery.catalog.catalog import Catalog
    from cannery.patches.sets import PatchSet
    from cannery.sources.io.fetch import SourceStore
    from cannery.util.io.pip_settings import Downloads, PipSettings


# Where an installed program keeps the locks that its user makes, below the working folder.
OWN_LOCKS = "cannery-locks"
# The modules that install wheels; build stages use them too.
SHARED = Path(__file__).parent / "assemble/io"
# Caches and editors' files beside templates.
IGNORED = re.compile(r"(^|/)(__pycache__|\.[^/]+)(/|$)|(~|\.pyc|\.orig|\.rej)$")


@dataclass(frozen=True)
class Context:
    """The settings of one run.

    `root` holds images/ and templates/: the checkout, or the data of an installed package. `cache` holds wheels, layers
    and base rootfs, `wheelhouse` is a folder of the user's wheels. `work` is where an installed program writes locks
    and out/; None in a checkout, where `root` is used. `own` is the user's catalog, which extends images/.
    """

    root: Path
    cache: Path
    env: Mapping[str, str]
    arch: Arch
    is_terminal: bool
    is_json: bool = False
    is_verbose: bool = False
    work: Path | None = None
    own: Path | None = None
    wheelhouse: Path | None = None
    # GIT_MIRROR, PATCHES, and SRC_<component>: folder.
    mirror: Path | None = None
    patches: Path | None = None
    local: Mapping[str, Path] = field(default_factory=dict)
    # Warnings about the catalog, each once; they are printed when the command ends.
    warnings: dict[str, None] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)

    def say(self, text: str) -> None:
        """Print a line for the user on standard error, so that standard output stays data."""
        print(text, file=sys.stderr, flush=True)

    def shown(self, path: Path) -> Path:
        """Return a path as messages show it: relative to the checkout or the working folder, if it is in one."""
        homes = (self.work, self.root, Path.cwd() if self.own else None)
        home = next((folder for folder in homes if folder and path.is_relative_to(folder)), None)
        return path.relative_to(home) if home else path

    @property
    def out(self) -> Path:
        """The folder into which images are rendered."""
        return (self.work or self.root) / "out"

    @property
    def locks(self) -> Path:
        """The folder that `lock` writes to. If it does not have a lock, that of images/locks is used."""
        if self.own:
            return self.own / "locks"
        return self.work / OWN_LOCKS if self.work else self.root / "images/locks"

    @functools.cached_property
    def pip(self) -> PipSettings:
        """The host's pip settings, read once, since pip takes a good part of a second.

        The user's wheelhouse is added as the first find-links folder; a mirror of `default` becomes the main index.
        """
        from cannery.util.io.pip_settings import read_pip_settings

        found = read_pip_settings(self.env, self.cache)
        own = self.settings.mirrors("index").get(DEFAULT_INDEX, ())
        found = replace(found, index_url=own[0] if own else found.index_url, mirrors=self.settings.addresses)
        links = (str(self.wheelhouse), *found.find_links) if self.wheelhouse else found.find_links
        return replace(found, find_links=links)

    @property
    def downloads(self) -> Downloads:
        """What a download needs: the cache, `say`, and a function that reads pip's settings."""
        from cannery.util.io.pip_settings import Downloads

        return Downloads(self.cache, self.say, lambda: self.pip)

    def sources(self, catalog: Catalog) -> SourceStore:
        """Return where the sources of a catalog come from on this host."""
        from cannery.sources.io.fetch import SourceStore

        return SourceStore(self.cache, self.env, self.say, catalog.hosts, self.mirror, self.local)

    @functools.cached_property
    def patch_sets(self) -> tuple[PatchSet, ...]:
        """The patch sets of images/patches and of the user's folder, read once."""
        if self.patches is None and not (self.root / "images/patches").is_dir():
            return ()
        from cannery.patches.io.folders import folder_sets

        return folder_sets(self.root / "images", self.patches)

    @functools.cached_property
    def template_digests(self) -> dict[str, str]:
        """The hex SHA-256 of each template, by path."""
        return template_digests(self.templates)

    def catalog(self) -> Catalog:
        """Read images/ and the user's catalog; a warning about broken files is added to `warnings`."""
        from cannery.catalog.io.kept import load_catalog

        catalog = load_catalog(self.root / "images", self.own, self.cache)
        if catalog.problems:
            self.warnings[catalog.warning] = None
        return with_mirrors(catalog, self.settings)

    @functools.cached_property
    def templates(self) -> dict[str, str]:
        """{relative path: text} of templates/ and of the modules that build stages share with the host."""
        folder = self.root / "templates"
        paths = sorted(p for p in folder.rglob("*") if p.is_file() and not IGNORED.search(str(p.relative_to(folder))))
        shared = {f"tools/common/{name}": SHARED / name for name in ("bytecode.py", "wheel_files.py")}
        files = {**{str(p.relative_to(folder)): p for p in paths}, **shared}
        return {name: path.read_text(encoding="utf-8") for name, path in sorted(files.items())}


def read_context(root: Path, options: Mapping[str, Any] = MappingProxyType({}), work: Path | None = None) -> Context:
    """Return the settings of this run; `root` and `work` are those of `Context`, `options` are the command line's.

    Options that are not given come from the settings of this machine (`cannery.settings`). Raises `UnableError` on a
    CPU architecture without CANN images, `UsageError` for a folder that does not exist or settings that cannot be read.
    """
    env = dict(os.environ)
    settings = read_settings(env, Path())
    machine = platform.machine().lower()
    if machine not in ARCH_ALIASES:
        raise UnableError(
            f"no CANN image is made for {machine}", hint="there are images for amd64 (x86_64) and arm64 (aarch64)"
        )
    home = env.get("XDG_CACHE_HOME") or home_of(env)
    if not home and not settings.text("cache"):
        what = f"user id {os.geteuid()} has no name on this host, and HOME is not set: there is no folder for the cache"
        raise UnableError(what, hint="set HOME, or CANNERY_CACHE to a folder of yours")
    folder = "cannery" if env.get("XDG_CACHE_HOME") else ".cache/cannery"
    named = settings.text("cache") or Path(home or "/") / folder
    try:
        cache = Path(named).expanduser().absolute()
    except RuntimeError as error:
        raise UsageError(f"CANNERY_CACHE: {str(named)!r} names no user of this host", hint="name a folder") from error
    mine = home_of(env) or Path("/")
    if any(one.resolve().is_relative_to(cache.resolve()) for one in (mine, root / "images")):
        whose = "is your home directory: it " if cache.resolve() == mine.resolve() else ""
        what = (
            f"CANNERY_CACHE: {cache} {whose}is not a folder for the cache only: `clean` would remove your files in it"
        )
        raise UsageError(what, hint=f"name a separate folder, for example {cache / 'cannery-cache'}")
    return Context(
        root=root,
        cache=cache,
        env=env,
        arch=ARCH_ALIASES[machine],
        is_terminal=sys.stderr.isatty() and not options.get("quiet"),
        is_json=bool(options.get("json")),
        is_verbose=bool(options.get("verbose")),
        work=work,
        own=_folder("CATALOG", options.get("catalog") or settings.text("catalog"), "your profiles/ and components/"),
        wheelhouse=_folder("WHEELHOUSE", options.get("wheelhouse") or settings.text("wheelhouse"), "your wheels"),
        mirror=_folder("GIT_MIRROR", options.get("git_mirror") or settings.text("git-mirror"), "your git repositories"),
        patches=_folder("PATCHES", options.get("patches") or settings.text("patches"), "your patch sets"),
        local=named_folders(options.get("src", ())),
        settings=settings,
    )


def _folder(option: str, text: str | None, what: str) -> Path | None:
    if not text:
        return None
    try:
        folder = Path(text).expanduser().absolute()
    except RuntimeError:  # ~user of an unknown user
        folder = None
    if folder is None or not folder.is_dir():
        raise UsageError(f"{option}: {text!r} is not a folder", hint=f"name the folder that holds {what}")
    return folder


def named_folders(texts: Sequence[str]) -> dict[str, Path]:
    """Return {name: folder} of the texts `NAME=DIR`, trees that replace sources.

    Raises `UsageError` for any other form, a path that is not a folder, and a name with two folders.
    """
    found: dict[str, Path] = {}
    for text in texts:
        name, equals, folder = text.partition("=")
        path = _folder(f"SRC_{name}", folder, f"the source of {name}")
        if not name or not equals or path is None:
            raise UsageError(f"--src: {text!r} is not NAME=DIR", hint="for example --src verl-src=~/verl")
        if found.setdefault(name, path) != path:
            what = f"SRC_{name}: named twice, {str(found[name])!r} and {str(path)!r}"
            raise UsageError(what, hint="leave one out")
    return found


def template_digests(templates: Mapping[str, str]) -> dict[str, str]:
    """Return {path: SHA-256 in hex} of {path: text}."""
    return {name: sha256_bytes(text.encode()) for name, text in templates.items()}


def read_settings(env: Mapping[str, str], folder: Path) -> Settings:
    """Return this machine's settings: variables override `cannery.toml` in `folder`, which overrides the user's file.

    Raises `UsageError` for a file that cannot be read, and like `of_file` and `of_environment`.
    """
    return merged((of_environment(env), _read(folder / OF_FOLDER, OF_FOLDER), _read(user_file(env), "")))


def _read(path: Path, shown: str) -> dict[str, Setting]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"the settings cannot be read: {reason}", where=str(path)) from error
    import tomllib

    where = shown or str(path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"this file is not TOML: {error}", where=where, hint=EXAMPLE) from error
    # A relative folder is relative to the file that names it.
    return of_file(document, where, lambda named: named if named[:1] == "~" else str(path.parent.absolute() / named))
