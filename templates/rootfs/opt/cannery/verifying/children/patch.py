"""In a worker's child: whether the functions of a module are, in that process, those that a file defines.

The child loads this by path; its folder is not in sys.path there.
"""

import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import EnumMeta
from types import FunctionType, MethodType, ModuleType
from typing import Any

MOST = 300  # objects that are looked at behind one name
FINE = frozenset({"wrapped", "unmet", "hidden", "deleted"})  # no faults, but worth a word
ABSENT = object()


def in_use(module: object, task: Mapping[str, Any], reader: Any) -> dict[str, Any]:
    """Where a module comes from, and of each function of the task that is not the recorded one, what is in its place.

    `path` of the task is the file that has the functions, `functions` gives their names with the hashes that the text
    may have; `reader` is patched.py, which reads the functions of a file.
    """
    file = getattr(module, "__file__", None) or ""
    answer: dict[str, Any] = {"file": file, "strange": [], "notes": []}
    if os.path.realpath(file) != os.path.realpath(task["path"]):
        return answer
    with open(task["path"], "rb") as stream:
        data = stream.read()
    known = reader.definitions(data)
    gone = reader.deleted(data)
    for name, wanted in task["functions"].items():
        found = judged(module, name, set(wanted), (task["path"], known))
        if found["how"] == "absent" and gone & set(name.split(".")):
            found["how"] = "deleted"
        if found["how"] != "same":
            answer["notes" if found["how"] in FINE else "strange"].append({"name": name, **found})
    return answer


def judged(module: object, name: str, wanted: set[str], source: tuple[str, Sequence[Any]]) -> Any:
    """What is in use under a name: `how` it compares, and where it comes from."""
    path, known = source
    thing, stem = by_name(module, name)
    here = [item for item in known if item.name == stem]
    lines = {item.line: item for item in here}
    text = next((item for item in here if item.sha256 in wanted), None)
    functions = list(behind(thing))
    mine = [item for item in functions if item.__code__.co_firstlineno in lines and is_of(item, path)]
    texts = {lines[item.__code__.co_firstlineno].sha256: item for item in mine}
    place = place_of((mine or functions)[0]) if functions else {"what": type(thing).__name__}
    if not wanted & set(texts):
        if text is not None and (text.conditional or (text.decorated and not functions and thing is not ABSENT)):
            return {"how": "unmet" if text.conditional else "hidden", **place}
        return {"how": "absent" if thing is ABSENT else "text" if texts else "other" if functions else "none", **place}
    bare = all(not lines[item.__code__.co_firstlineno].decorated for item in mine)
    return {"how": "wrapped", **place_of(functions[0])} if bare and functions[0] not in mine else {"how": "same"}


def by_name(module: object, name: str) -> tuple[object, str]:
    """The object of a qualified name as the class holds it (ABSENT: none), and the name by which the file defines it.

    Of a property, `C.p` is the getter; `C.p.fset` and `C.p.fdel` are the others, which the file calls `C.p` too.
    """
    thing, inside, stem = module, "", name
    for part in name.split("."):
        if isinstance(thing, property):
            thing, stem = getattr(thing, part, ABSENT), name.rpartition(".")[0]
            continue
        hidden = inside and part.startswith("__") and not part.endswith("__")
        key = f"_{inside.lstrip('_')}{part}" if hidden else part
        # A module may make its attributes when asked; of a class, what the descriptor gives would be another object.
        look = getattr if isinstance(thing, ModuleType) else inspect.getattr_static
        own = "_new_member_" if isinstance(thing, EnumMeta) and key == "__new__" else key  # Enum puts its own there
        thing, inside = look(thing, own, ABSENT), part
    thing = thing.fget if isinstance(thing, property) else thing
    if thing is None or thing is ABSENT:
        return ABSENT, re.sub(r"\.f(set|del)$", "", stem)
    return thing, stem


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
    """Which function it is, and where it is defined."""
    code = function.__code__
    return {"what": function.__qualname__, "file": code.co_filename, "line": code.co_firstlineno}
