"""Which patches of the manifest a tree lacks. Standard library only, Python 3.10 and later; it can be loaded by path.

    python /opt/cannery/patched.py [--json]

prints one line a patch; exit code 0: all in force, 1: one is not, or the manifest cannot be read. `report` is for the
start of a process that uses the tree: silent when all is well, else one line a component on stderr, by the first rank
alone. VERL_PATH names the folder that has the tree of the package verl, as for the plugin's own setup.py.

Only files are read here: nothing is written, started or imported. What runs in the end is verify's to prove.
"""

import ast
import hashlib
import importlib.util
import json
import os
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TextIO

MANIFEST = "/opt/cannery/manifest.json"
RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
NEITHER = "has neither the patched nor the original content"


class Definition(NamedTuple):
    """A function of a module or a class, in the text of a file. `line` is its first decorator's, from 1.

    `conditional`: it is under if, try or the like, so a process may be without it, or have one from elsewhere.
    `adds`: it is decorated by what has its name already (`@name.setter`), which it adds to and does not replace.
    """

    name: str
    line: int
    sha256: str
    decorated: bool
    conditional: bool
    adds: bool


class Look(NamedTuple):
    """One file of a patch as it was found at `path`; `whole`: all that the patch put there is in it."""

    patch: Mapping[str, Any]
    file: Mapping[str, Any]
    path: str
    fault: str
    whole: bool


def definitions(data: bytes) -> list[Definition]:
    """The functions and methods that a file defines, those within functions left out. SyntaxError, ValueError."""
    lines = importlib.util.decode_source(data).split("\n")

    def inside(node: ast.AST, prefix: str, *, conditional: bool) -> Iterator[Definition]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([child.lineno, *(item.lineno for item in child.decorator_list)])
                text = textwrap.dedent("\n".join(lines[first - 1 : child.end_lineno]))
                text = "\n".join(line.rstrip() for line in text.split("\n"))
                digest = hashlib.sha256(text.encode()).hexdigest()
                adds = any(
                    isinstance(item, ast.Attribute) and isinstance(item.value, ast.Name) and item.value.id == child.name
                    for item in child.decorator_list
                )
                yield Definition(prefix + child.name, first, digest, bool(child.decorator_list), conditional, adds)
            elif isinstance(child, ast.ClassDef):
                yield from inside(child, f"{prefix}{child.name}.", conditional=conditional)
            elif not isinstance(child, ast.expr):
                always = isinstance(child, (ast.With, ast.AsyncWith))
                yield from inside(child, prefix, conditional=conditional or not always)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "\\d" in a plain text and the like: the file's own affair
        return list(inside(ast.parse(data), "", conditional=False))


def deleted(data: bytes) -> set[str]:
    """The names that a file itself takes away again (`del name` of a module or a class). SyntaxError, ValueError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = (node for node in ast.walk(ast.parse(data)) if isinstance(node, ast.Delete))
        return {target.id for node in found for target in node.targets if isinstance(target, ast.Name)}


def recorded(patches: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[str]]:
    """(Path, function) → hashes that its text may have: of the last patch that names it, should several do."""
    found: dict[tuple[str, str], list[str]] = {}
    for patch in patches:
        for file in patch["files"]:
            mine: dict[tuple[str, str], list[str]] = {}
            for item in file.get("functions", ()):
                mine.setdefault((file["path"], item["name"]), []).append(item["sha256"].rpartition(":")[2])
            found.update(mine)
    return found


def looks(patches: Sequence[Mapping[str, Any]], place: Callable[[str], str]) -> list[Look]:
    """Every file of every patch, in order. `place` gives where a path of the manifest is to be looked for."""
    rows = [(patch, file) for patch in patches for file in patch["files"]]
    chains: dict[str, list[str | None]] = {}
    at: list[int] = []  # of each row: its place among the states of its path
    for _, file in rows:
        chain = chains.setdefault(file["path"], [bare(file["before"])])
        at.append(len(chain))
        chain.append(bare(file["after"]))
    functions, result = recorded(patches), []
    for (patch, file), index in zip(rows, at, strict=True):
        path = place(file["path"])
        content = read(path)
        fault = file_fault(content, chains[file["path"]], index) or mode_fault(path, file.get("executable"))
        names = {item["name"]: functions[file["path"], item["name"]] for item in file.get("functions", ())}
        whole = not fault or (fault == NEITHER and isinstance(content, bytes) and holds(content, names))
        result.append(Look(patch, file, path, fault, whole))
    return result


def bare(digest: str | None) -> str | None:
    """A digest without the algorithm in front."""
    return digest.rpartition(":")[2] if digest else None


def read(path: str) -> bytes | OSError:
    """A file's bytes, or why there are none."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError as error:
        return error


def file_fault(content: bytes | OSError, chain: Sequence[str | None], at: int) -> str:
    """How a file departs from its state after a patch; "" when it does not.

    `chain` has the hashes that it had before the first patch and after each (None: it was not there), `at` this one's.
    """
    gone = isinstance(content, (FileNotFoundError, NotADirectoryError))
    if isinstance(content, OSError) and not gone:
        return f"cannot be read ({content.strerror})"
    found = hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else None
    reached = max((index for index, state in enumerate(chain) if state == found), default=-1)
    if reached >= at:
        return ""
    if gone:
        return "does not exist"
    if chain[at] is None:
        return "still exists, the patch removes it"
    return "is not patched" if reached >= 0 else NEITHER


def mode_fault(path: str, executable: object) -> str:
    """How the owner's right to execute a file departs from the patch; "" where the patch does not set it."""
    if not isinstance(executable, bool) or bool(os.stat(path).st_mode & 0o100) == executable:
        return ""
    return "cannot be executed, the patch lets it" if executable else "can be executed, the patch takes that away"


def holds(data: bytes, names: Mapping[str, Sequence[str]]) -> bool:
    """Whether a file of other content has every function that a patch put there; False when it put none there.

    Of several definitions of a name the last counts, and those that follow the patched one only where they need not
    replace it: what is under a condition, and a property's other functions, as of `adds`.
    """
    try:
        found = definitions(data)
    except (SyntaxError, ValueError, RecursionError):
        return False
    for name, wanted in names.items():
        stem = re.sub(r"\.f(set|del)$", "", name)  # how the file calls a property's setter
        mine = [item for item in found if item.name in {name, stem}]
        last = max((at for at, item in enumerate(mine) if not item.conditional and not item.adds), default=0)
        if not set(wanted) <= {item.sha256 for item in mine[last:]}:
            return False
    return bool(names)


def root_of(file: Mapping[str, Any]) -> str:
    """The folder that has to be on the path for a file's module to be found; "" when it is no module."""
    module, path = file.get("module", "").replace(".", "/"), file["path"]
    ends = (f"/{module}.py", f"/{module}/__init__.py") if module else ()
    return next((path[: -len(end)] for end in ends if path.endswith(end)), "")


class Places:
    """Where the tree of one component is now, which may not be where the manifest has it.

    `note` reports that a process imported the package from elsewhere; `tree` is the folder to name.
    """

    def __init__(self, files: Sequence[Mapping[str, Any]], tree: str, verl: str, modules: Mapping[str, Any]) -> None:
        roots = {file["module"].partition(".")[0]: root for file in files if (root := root_of(file))}
        self.recorded = self.tree = tree or next(iter(roots.values()), "")
        self.note = ""
        self.moves: dict[str, str] = {}
        if verl and "verl" in roots and self.recorded:
            self.tree = os.path.abspath(verl)
            self.moves[self.recorded] = self.tree
        for package, root in roots.items():
            wanted, found = self.place(root), import_root(modules.get(package))
            if found and os.path.realpath(found) != os.path.realpath(wanted):
                self.note = f"{package} is imported from {found}/{package}, not from {wanted}/{package}"
                self.moves[root], self.tree = found, found

    def place(self, path: str) -> str:
        """Where a path of the manifest is looked for."""
        for start in sorted(self.moves, key=len, reverse=True):
            if path == start or path.startswith(f"{start}/"):
                return self.moves[start] + path[len(start) :]
        return path


def import_root(module: object) -> str:
    """The folder on the path from which a package was imported; "" when that is not known."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file:
        return ""
    folder = os.path.dirname(os.path.abspath(file))
    return os.path.dirname(folder) if os.path.basename(file).startswith("__init__.") else folder


class Component(NamedTuple):
    """What is known of the patches of one component."""

    name: str
    places: Places
    looks: list[Look]

    @property
    def patches(self) -> dict[str, list[Look]]:
        """The files that were looked at, by patch."""
        found: dict[str, list[Look]] = {}
        for look in self.looks:
            found.setdefault(look.patch["name"], []).append(look)
        return found

    @property
    def line(self) -> str:
        """What is wrong with it in one line; "" when all is well."""
        lacking = [name for name, files in self.patches.items() if not all(look.whole for look in files)]
        if not lacking:
            return self.places.note
        first = next(look for look in self.looks if not look.whole)
        tree = self.places.tree
        shown = os.path.relpath(first.path, tree) if tree and first.path.startswith(f"{tree}/") else first.path
        why = f"{shown} {first.fault}" + ("; …" if sum(not look.whole for look in self.looks) > 1 else "")
        count = f"{len(lacking)} of {len(self.patches)} patches: {', '.join(lacking)} ({why})"
        return f"{self.places.note + ': ' if self.places.note else ''}{tree or self.name} lacks {count}"


def components(
    manifest: Mapping[str, Any], env: Mapping[str, str], modules: Mapping[str, Any] | None = None
) -> list[Component]:
    """The patched components of a manifest, looked at where their trees are; `modules`: what a process imported."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for patch in manifest["patches"]:
        groups.setdefault(patch["component"], []).append(patch)
    trees = {item["component"]: item["path"] for item in manifest.get("sources", ()) if item["path"]}
    found = []
    for name, patches in groups.items():
        files = [file for patch in patches for file in patch["files"]]
        tree = trees.get(name, "")
        tree = tree if any(file["path"].startswith(f"{tree}/") for file in files) else ""
        places = Places(files, tree, env.get("VERL_PATH", ""), modules or {})
        found.append(Component(name, places, looks(patches, places.place)))
    return found


def report(
    manifest: str = MANIFEST,
    env: Mapping[str, str] | None = None,
    modules: Mapping[str, Any] | None = None,
    stream: TextIO | None = None,
) -> None:
    """Prints on stderr what the trees lack, one line a component; nothing when all is well or on another rank.

    Never raises: this runs when somebody's training starts.
    """
    with suppress(Exception):
        env = os.environ if env is None else env
        if is_first(env):
            for line in lines(manifest, env, sys.modules if modules is None else modules):
                print(f"cannery: {line}", file=stream or sys.stderr, flush=True)


def lines(manifest: str, env: Mapping[str, str], modules: Mapping[str, Any]) -> list[str]:
    """The lines that `report` prints."""
    try:
        return [line for item in components(load(manifest), env, modules) if (line := item.line)]
    except OSError as error:
        return [f"{manifest} cannot be read ({error.strerror}): whether the patches are in force is not known"]
    except Exception as error:  # a manifest of another form
        return [f"the patches could not be looked at ({type(error).__name__}: {error})"]


def load(path: str) -> Any:
    """The manifest. OSError, ValueError."""
    with open(path, "rb") as stream:
        return json.load(stream)


def is_first(env: Mapping[str, str]) -> bool:
    """Whether this is the first process of a job: no rank in the environment is another than 0."""
    return all(env.get(name, "").strip().lstrip("0") == "" or not env[name].strip().isdigit() for name in RANKS)


def document(manifest: Mapping[str, Any], found: Sequence[Component]) -> dict[str, Any]:
    """All of it as JSON values."""
    patches = [
        {
            "name": name,
            "component": item.name,
            "in_force": all(look.whole for look in files),
            "files": [{"path": look.path, "fault": look.fault} for look in files],
        }
        for item in found
        for name, files in item.patches.items()
    ]
    return {"schema": 1, "patches": patches, "left_out": list(manifest.get("patches_left_out", ()))}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit code."""
    import argparse  # noqa: PLC0415 - not for those who only want the report

    parser = argparse.ArgumentParser(description="Lists which patches of the manifest are in force in the trees.")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--manifest", default=MANIFEST, metavar="PATH", help=f"the manifest ({MANIFEST})")
    options = parser.parse_args(arguments)
    try:
        manifest = load(options.manifest)
        answer = document(manifest, components(manifest, os.environ))
    except (OSError, ValueError, LookupError, TypeError) as error:
        print(f"patched.py: {options.manifest}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(answer, indent=1))
    else:
        print("\n".join(report_lines(answer)))
    return 0 if all(item["in_force"] for item in answer["patches"]) else 1


def report_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """The lines for people: one a patch, then what was left out."""
    for item in answer["patches"]:
        faults = "; ".join(f"{file['path']} {file['fault']}" for file in item["files"] if file["fault"])
        more = f" ({faults}; its functions are there)" if item["in_force"] and faults else ""
        why = f"in force{more}" if item["in_force"] else f"NOT in force: {faults}"
        yield f"{item['name']} ({item['component']}): {why}"
    for item in answer["left_out"]:
        yield f"{item['name']} ({item['component']}): left out: {item['reason']}"
    if not answer["patches"] and not answer["left_out"]:
        yield "the manifest lists no patches"


if __name__ == "__main__":
    sys.exit(main())
