"""A new profile from another one: its text with comments, under another summary."""

from __future__ import annotations

import yaml
from ruamel.yaml.nodes import ScalarNode

from cannery.errors import UsageError
from cannery.util.yaml_edit import applied, node_at, over, root_node


def profile_like(text: str, name: str, where: str, summary: str = "") -> str:
    """Return the text of a profile like the one of `text`, profile `name`: with a summary of its own, all else kept.

    Raises `UsageError`, with `where`, for a text whose summary cannot be edited.
    """
    node = node_at(root_node(text), ("summary",))
    old = str(yaml.safe_load(text).get("summary", ""))
    new = summary or f"like {name}: {old}"
    if node is None:
        return f'summary: "{new}"\n{text}'
    if not isinstance(node, ScalarNode):
        raise UsageError("summary is no text", where=where)
    return applied(text, [over(text, node, new)])
