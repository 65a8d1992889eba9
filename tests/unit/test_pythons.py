from __future__ import annotations

from factories import base_line, profile

from cannery.catalog.catalog import further_pythons

TARGET = {"cann": "8.5.0", "chip": "910b", "os": "ubuntu22.04", "python": "3.11"}


def test_a_further_python_is_on_the_profiles_own_os_where_that_has_it() -> None:
    line = base_line()
    stack = profile(target={**TARGET, "pythons": ["3.10", "3.12"]})
    assert [*further_pythons(stack, line)] == [("3.10", "ubuntu22.04"), ("3.12", "")]
    fewer = {tag: value for tag, value in line.tags.items() if tag != "8.5.0-910b-ubuntu22.04-py3.10"}
    line = line.model_copy(update={"tags": fewer})
    assert [*further_pythons(stack, line)] == [("3.10", "openeuler24.03"), ("3.12", "")]
    assert [*further_pythons(profile(), line)] == []
