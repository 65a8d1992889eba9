"""Writes YAML that parsers of YAML 1.1 and 1.2 read the same way. They differ in how they read unquoted words."""

from __future__ import annotations

import re
from typing import Any

import yaml

# Words that no parser reads as a number, a date or a time. `1e-6` is a text for PyYAML and a number for Kubernetes.
PLAIN = re.compile(r"[A-Za-z/][\w./:@+-]*", re.ASCII)
# Booleans of YAML 1.1 that PyYAML does not quote.
TRUTHS = frozenset({"y", "n"})


class _Dumper(yaml.SafeDumper):
    """Quotes every text that could be read as another type, and writes no anchors, since users edit the output."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002 - PyYAML's
        """Return True: no anchors are written."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    is_plain = PLAIN.fullmatch(value) and value.lower() not in TRUTHS
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if is_plain else "'")


_Dumper.add_representer(str, _text)


def yaml_output(value: Any) -> str:  # noqa: ANN401 - YAML
    """Return `value` (dicts, lists and scalars) as YAML with a line end. The order of keys is kept."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return str(text)
