"""In a worker's child: whether the functions of a module are, in that process, those that a file defines.

The child loads this by path; it stands in no sys.path there.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

MOST = 300  # objects that are looked at behind one name


def in_use(module: object, task: Mapping[str, Any], definitions: Callable[[bytes], Sequence[Any]]) -> dict[str, Any]:
    """Where a module comes from, and of each function of the task that is not the recorded one, what is in its place.

    `path` of the task is the file that has the functions, `functions` gives their names with the hashes that the text
    may have, `definitions` reads the functions of a file.
    """
    file = getattr(module, "__file__", None) or ""
    answer: dict[str, Any] = {"file": file, "strange": [], "notes": []}
    if os.path.realpath(file) != os.path.realpath(task["path"]):
        return answer
    with open(task["path"], "rb") as stream:
        data = stream.read()
    known = definitions(data)
    made = dict(compiled(compile(data, task["path"], "exec", dont_inherit=True)))
    for name, wanted in task["functions"].items():
        found = judged(module, name, set(wanted), (task["path"], known, made))
        answer["strange"] += (
            [{"name": name, **found}] if found["how"] not in {"same", "wrapped", "other branch"} else []
        )
        answer["notes"] += [{"name": name, **found}] if found["how"] in {"wrapped", "other branch"} else []
    return answer


def judged(
    module: object, name: str, wanted: set[str], source: tuple[str, Sequence[Any], Mapping[Any, CodeType]]
) -> Any:
    """What is in use under a name: `how` it compares, and where it comes from."""
    path, known, made = source
    try:
        thing = by_name(module, name)
    except AttributeError:
        return {"how": "absent"}
    functions = list(behind(thing))
    if not functions:
        return {"how": "no function", "what": type(thing).__name__}
    lines = {item.line: item for item in known if item.name == name}
    mine = [item for item in functions if item.__code__.co_firstlineno in lines and is_of(item, path)]
    texts = {lines[item.__code__.co_firstlineno].sha256: item for item in mine}
    every = isinstance(thing, property)  # getter and setter have one name, and are both in use
    if not (wanted <= set(texts) if every else wanted & set(texts)):
        return {"how": branch_or_other(texts, lines, wanted), **place_of(mine[0] if mine else functions[0])}
    for digest in wanted & set(texts):
        code = texts[digest].__code__
        if not same_code(code, made.get((code.co_name, code.co_firstlineno))):
            return {"how": "compiled", **place_of(texts[digest])}
    bare = all(not lines[item.__code__.co_firstlineno].decorated for item in mine)
    strange = bare and functions[0] not in mine
    return {"how": "wrapped", **place_of(functions[0])} if strange else {"how": "same"}


def branch_or_other(texts: Mapping[str, object], lines: Mapping[int, Any], wanted: set[str]) -> str:
    """`other branch` when the file defines the name more than once, the recorded text among them; else `other`.

    An if or try of the file chooses then, by what it finds on this machine.
    """
    there = {item.sha256 for item in lines.values()}
    if texts and wanted <= there:
        return "other branch"
    return "text" if texts else "other"


def by_name(module: object, name: str) -> object:
    """The object of a qualified name, as the class holds it. AttributeError names what lacks."""
    thing, inside = module, ""
    for part in name.split("."):
        hidden = inside and part.startswith("__") and not part.endswith("__")
        key = f"_{inside.lstrip('_')}{part}" if hidden else part
        # A module may make its attributes when asked; of a class, what the descriptor gives would be another object.
        thing = getattr(thing, key) if isinstance(thing, ModuleType) else inspect.getattr_static(thing, key)
        inside = part
    return thing


def behind(thing: object) -> Iterator[FunctionType]:
    """The functions that an object is made of, outermost first.

    Through methods, properties, partials, and decorators: what functools.wraps leaves, and else what they enclose or
    hold.
    """
    queue, seen = [thing], {id(thing): thing}
    while queue:
        item = queue.pop(0)
        inner: list[object] = []
        if isinstance(item, FunctionType):
            yield item
            inner = [item.__dict__.get("__wrapped__"), *enclosed(item)]
        elif isinstance(item, (staticmethod, classmethod, MethodType)):
            inner = [item.__func__]
        elif isinstance(item, property):
            inner = [item.fget, item.fset, item.fdel]
        elif not isinstance(item, (type, ModuleType)):
            inner = [getattr_or_none(item, "func"), *held(item)]  # partial has no __dict__ entry for it
        for other in inner:
            if other is not None and id(other) not in seen and len(seen) < MOST:
                seen[id(other)] = other  # held, so that its id stays its own
                queue.append(other)


def enclosed(function: FunctionType) -> Iterator[object]:
    """What a function encloses that can be called."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # a cell that is still empty
            if callable(cell.cell_contents) and not isinstance(cell.cell_contents, type):
                yield cell.cell_contents


def held(item: object) -> list[object]:
    """What an object holds that can be called."""
    names = getattr_or_none(item, "__dict__")
    values = list(names.values()) if isinstance(names, dict) else []
    return [value for value in values if callable(value) and not isinstance(value, (type, ModuleType))]


def getattr_or_none(item: object, name: str) -> object:
    """An attribute as object has it, past the class's own __getattr__; None when there is none."""
    with suppress(Exception):
        return object.__getattribute__(item, name)
    return None


def is_of(function: FunctionType, path: str) -> bool:
    """Whether a function was compiled from a file."""
    return os.path.realpath(function.__code__.co_filename) == os.path.realpath(path)


def place_of(function: FunctionType) -> dict[str, Any]:
    """Which function it is, and where it stands."""
    code = function.__code__
    return {"what": function.__qualname__, "file": code.co_filename, "line": code.co_firstlineno}


def compiled(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """All code in a code object, by name and first line."""
    for item in code.co_consts:
        if isinstance(item, CodeType):
            yield (item.co_name, item.co_firstlineno), item
            yield from compiled(item)


def same_code(one: object, other: object) -> bool:
    """Whether two code objects do the same: a .pyc that Python never compares may be of another source."""
    if not isinstance(one, CodeType) or not isinstance(other, CodeType):
        return type(one) is type(other) and one == other
    if (one.co_code, one.co_names) != (other.co_code, other.co_names) or len(one.co_consts) != len(other.co_consts):
        return False
    return all(same_code(*pair) for pair in zip(one.co_consts, other.co_consts, strict=True))
