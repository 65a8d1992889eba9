"""Data as YAML text that every reader takes for the same: readers of 1.1 and 1.2 differ in what a plain word is."""

from __future__ import annotations

import re
from typing import Any

import yaml

# Words that no reader takes for a number, a date or a time. `1e-6` is a text to PyYAML and a number to Kubernetes.
PLAIN = re.compile(r"[A-Za-z/][\w./:@+-]*", re.ASCII)
# Truth values of 1.1 that PyYAML itself does not quote.
TRUTHS = frozenset({"y", "n"})


class _Dumper(yaml.SafeDumper):
    """Quotes every text that is not plainly one, and writes no anchors: people edit what is printed."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401, ARG002 - PyYAML's
        """Say that no value is worth an anchor."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    is_plain = PLAIN.fullmatch(value) and value.lower() not in TRUTHS
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if is_plain else "'")


_Dumper.add_representer(str, _text)


def yaml_output(value: Any) -> str:  # noqa: ANN401 - YAML
    """Return `value` (of dicts, lists and scalars) as YAML, its keys in their order, with a line end."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return str(text)
