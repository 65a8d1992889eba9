"""Read the requirements of a release or a commit, and the environment of the images of a CANN version.

Requirements come from METADATA of a wheel, the files of an sdist, or the tree in the git cache; the environment comes
from image configurations in a registry, or Dockerfiles in a checkout.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import zipfile
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import requests
from urllib3.exceptions import HTTPError

from cannery.authoring.base_line import TAG, Made, read_dockerfile
from cannery.authoring.facts import Tree
from cannery.engine.io.registry import Access, Repository, read_login
from cannery.engine.oci import RefusedError
from cannery.errors import NetworkError, UnableError, UsageError
from cannery.lock.io.indexes import ask_all, bound_places, default_place, extra_places, url_path
from cannery.lock.io.wheels import wheel_metadata
from cannery.sources.io.export import TreeReader, requirement_texts
from cannery.sources.io.git import read
from cannery.sources.io.git_cache import GitCache
from cannery.sources.plan import COMMIT
from cannery.sources.requires import is_requirement_file
from cannery.util.addresses import parse_reference
from cannery.util.io.http import HostSession

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cannery.catalog.catalog import Catalog
    from cannery.catalog.component import FromSource, PatchSets
    from cannery.lock.io.indexes import Listed
    from cannery.sources.io.fetch import SourceStore
    from cannery.util.io.pip_settings import PipSettings

TIMEOUT, ANSWERS = 60.0, 20.0
PKG_INFO = "PKG-INFO"
# Files that may hold a tree's version.
VERSION_FILES = {"version", "version.txt", "VERSION", "version.py", "__init__.py"}


def listed_files(
    settings: PipSettings, catalog: Catalog, package: str, versions: tuple[str, ...], index: str
) -> tuple[Listed, ...]:
    """Return the files of a release, one of `versions`, from its index or else from the indexes of the host's pip.

    Raises `NetworkError` if none has the release.
    """
    own = bound_places(index, catalog.indexes) if index else ()
    answers = ask_all(
        [(place, package) for place in (*own, default_place(settings), *extra_places(settings))], settings, ANSWERS
    )
    by_place = [[file for file in answer.files if file.version in versions] for answer in answers]
    found = next((files for files in by_place if files), None)
    if not found:
        raise NetworkError(f"{package} {versions[0]} is on no index: {'; '.join(map(str, answers))}")
    return tuple(found)


def release_tree(settings: PipSettings, files: Iterable[Listed], *, sdist: bool) -> Tree:
    """Read the METADATA of a wheel, or, with `sdist` or if there is no wheel, the files of the source distribution."""
    wheels = [file for file in files if file.file.endswith(".whl")]
    sdists = [file for file in files if file.file.endswith(".tar.gz")]
    session = HostSession(settings)
    # Of several builds, use the one for arm64: the others may require CUDA's libraries.
    wheels.sort(key=lambda wheel: "aarch64" not in wheel.file)
    chosen = next(iter(sdists if sdist or not wheels else wheels), None)
    if chosen is None:
        raise UsageError("the release has no source distribution (.tar.gz)", where=", ".join(f.file for f in files))
    what = chosen.file + (f" (sha256 {chosen.sha256})" if chosen.sha256 else "")
    try:
        if chosen in wheels:
            return Tree(what, metadata=_wheel_metadata(chosen, session), date=chosen.uploaded)
        with _fetched(chosen, session) as path, closing(TreeReader(path)) as tree:
            about = (tree.read(PKG_INFO) or b"").decode(errors="replace")
            return Tree(what, requirement_texts(tree) | {PKG_INFO: about}, about, chosen.uploaded)
    except (requests.RequestException, HTTPError, OSError, UnableError, zipfile.BadZipFile) as error:
        raise NetworkError(f"{chosen.file} cannot be read: {error}", where=str(chosen.place)) from error


def _wheel_metadata(wheel: Listed, session: requests.Session) -> str:
    """Return METADATA from the file beside the wheel on the index (PEP 658), or else from the wheel itself."""
    is_local = wheel.url.startswith("file:")
    beside = None if is_local else session.get(f"{wheel.url}.metadata", timeout=TIMEOUT)
    if beside is not None and beside.ok and beside.text.startswith("Metadata-Version:"):
        return beside.text
    with _fetched(wheel, session) as path, zipfile.ZipFile(path) as archive:
        return wheel_metadata(archive)


@contextmanager
def _fetched(file: Listed, session: requests.Session) -> Iterator[Path]:
    """Yield the path of a release's file; a file in a folder is read in place, any other is downloaded."""
    if file.url.startswith("file:"):
        yield url_path(file.url)
        return
    with tempfile.TemporaryDirectory() as folder, session.get(file.url, stream=True, timeout=TIMEOUT) as answer:
        answer.raise_for_status()
        path = Path(folder, Path(file.file).name)
        with path.open("wb") as target:
            shutil.copyfileobj(answer.raw, target)
        yield path


def commit_tree(store: SourceStore, name: str, component: FromSource, commit: str) -> Tree:
    """Read a commit's tree from GIT_MIRROR or the git cache; fetch it if it is missing. Raises `NetworkError`."""
    cache = GitCache(store.cache.absolute(), store.hosts, store.env, store.mirror, store.say, threading.Event())
    found = cache.obtain(name, commit, component.hosts)
    git = f"--git-dir={found.git_dir}"
    entries = read((git, "ls-tree", "-r", "-z", commit), store.env).decode(errors="replace").split("\0")
    kinds = {path: head.split() for head, _, path in (entry.partition("\t") for entry in entries if entry)}
    top = f"{component.subdirectory}/" if component.subdirectory else ""
    texts = {}
    for path in kinds:
        inner = path.removeprefix(top) if path.startswith(top) else ""
        has_version = inner.rpartition("/")[2] in VERSION_FILES and inner.count("/") <= 2
        if is_requirement_file(inner) or has_version:
            texts[inner] = read((git, "cat-file", "blob", kinds[path][2]), store.env).decode(errors="replace")
    links = {path: head[2] for path, head in kinds.items() if head[0] == "160000"}
    modules = read((git, "show", f"{commit}:.gitmodules"), store.env).decode() if ".gitmodules" in kinds else ""
    date = read((git, "show", "-s", "--format=%cs", commit), store.env).decode().strip()
    return Tree(
        f"{found.repository.partition('/')[2]} at {commit}",
        texts,
        date=date,
        submodules=_submodules(modules, links),
        patches=_patches(component.patch_sets, kinds),
    )


def _submodules(text: str, links: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the submodules of .gitmodules by path; `links` are their commits."""
    found, path = {}, ""
    for line in text.splitlines():
        key, _, value = (part.strip() for part in line.partition("="))
        path = value if key == "path" else path
        if key == "url" and path in links:
            repository = "/".join(value.removesuffix(".git").replace(":", "/").split("/")[-2:])
            found[path] = {"repository": repository, "commit": links[path]}
    return found


def _patches(sets: PatchSets | None, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return {component: commits} for which a tree has patch sets."""
    if sets is None:
        return {}
    found: dict[str, set[str]] = {}
    for path in paths:
        match = re.fullmatch(rf"{re.escape(sets.folder)}/([^/]+)/({COMMIT.pattern})/[^/]+", path)
        if match and match[1] in sets.repos:
            found.setdefault(sets.repos[match[1]], set()).add(match[2])
    return {name: tuple(sorted(revisions)) for name, revisions in found.items()}


def registry_images(text: str, cann: str, settings: PipSettings, env: Mapping[str, str]) -> tuple[dict[str, Made], str]:
    """Return the images of `cann` in the repository of the reference `text`, by tag, and where they were read.

    These are all listed tags and the reference's own. Raises `NetworkError` if the registry refuses.
    """
    wanted = parse_reference(text)
    found: dict[str, Made] = {}
    try:
        with Repository(text, Access(settings, partial(read_login, env=env))) as repository:
            listed = [tag for tag in repository.tags() if tag.startswith(f"{cann}-") and TAG.fullmatch(tag)]
            for tag in dict.fromkeys([wanted.tag, *listed]):
                if not TAG.fullmatch(tag):
                    what = f"{tag!r} does not name a chip, an OS and a Python"
                    raise UsageError(what, hint=f"name a tag such as {cann}-910b-ubuntu22.04-py3.11")
                entry = repository.published(tag).entries[0]
                config = repository.config(repository.manifest(entry.manifest).config)
                found[tag] = Made(tuple(config.env.items()))
            digest = repository.published(wanted.tag).digest
    except RefusedError as error:
        raise NetworkError(f"{text}: {error}", hint="`docker login` there, and check the name") from error
    return found, f"configurations of {wanted.name}, {wanted.tag} at {digest}"


def checkout_images(folder: Path, cann: str) -> tuple[dict[str, Made], str]:
    """Return the images with a `<tag>/Dockerfile` below a folder, by tag, and where they were read.

    Raises `UsageError` for a folder without any.
    """
    paths = sorted(folder.glob(f"**/{cann}-*/Dockerfile"))
    found = {path.parent.name: path for path in paths if TAG.fullmatch(path.parent.name)}
    if not found:
        raise UsageError(f"no {cann}-<chip>-<os>-py<python>/Dockerfile in it", where=str(folder))
    texts = {tag: path.read_text(encoding="utf-8", errors="replace") for tag, path in found.items()}
    return {tag: read_dockerfile(text) for tag, text in texts.items()}, f"Dockerfiles of {folder.name}"
