from __future__ import annotations

import subprocess

import pytest
from factories import catalog, components, profile, recipe
from hypothesis import given, settings
from hypothesis import strategies as st

from cannery.core.environment import docker_quote, image_environment, profile_script, shell_quote

BASE = {"PATH": "/usr/local/python3.11.14/bin:/usr/bin", "LD_LIBRARY_PATH": "/lib64"}
names = st.text("ABC_019", max_size=4).map(lambda n: f"X_{n}")
values = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=20)


def test_base_then_venv_then_components_then_profile() -> None:
    env = image_environment(recipe(), BASE)
    assert env["PATH"] == "/opt/venv/bin:/usr/local/python3.11.14/bin:/usr/bin"
    assert env["VIRTUAL_ENV"] == "/opt/venv"
    assert env["LD_PRELOAD"] == "/usr/local/lib/libjemalloc.so.2"
    assert env["MORE_PATH"] == "/lib64:/opt/more"
    assert list(env)[:3] == ["PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV"]


def test_no_empty_segment_is_left_for_the_working_directory() -> None:
    env = image_environment(recipe(), {**BASE, "LD_LIBRARY_PATH": "/a::/lib64:"})
    assert (env["LD_LIBRARY_PATH"], env["MORE_PATH"]) == ("/a:/lib64", "/a:/lib64:/opt/more")


def test_a_value_may_refer_to_what_was_set_before_and_an_unset_name_is_empty() -> None:
    parts = {
        **components(),
        "ray": components()["ray"].model_copy(update={"env": {"A": "${LD_PRELOAD}!", "B": "[${NO}]"}}),
    }
    found = recipe(found=catalog(components=parts, profiles={"stack": profile(env={"C": "${A}${B}", "D": "$A"})}))
    env = image_environment(found, BASE)
    assert env["C"] == "/usr/local/lib/libjemalloc.so.2![]"
    assert env["D"] == "$A", "only braces refer"


def exported(shell: str, script: str, env: dict[str, str]) -> dict[str, str]:
    """What a program sees that is started after the script was sourced under `set -eu`."""
    command = [shell, "-eu", "-c", f"{script}\nexec /usr/bin/env -0"]
    done = subprocess.run(command, capture_output=True, check=True, env=env)
    assert done.stderr == b""
    return dict(entry.split("=", 1) for entry in done.stdout.decode().split("\0")[:-1])


@pytest.mark.parametrize("shell", ["sh", "bash"])
@given(st.dictionaries(names, values, max_size=6), values, st.dictionaries(names, values, max_size=3))
@settings(deadline=None, max_examples=25)
def test_a_login_shell_gets_the_same_values_and_keeps_what_it_was_given(
    shell: str, table: dict[str, str], path: str, given_by_user: dict[str, str]
) -> None:
    shell = f"/bin/{shell}"
    script = profile_script({"VIRTUAL_ENV": "/opt/venv", **table, "PATH": path})
    reset = {"PATH": "/reset/by/etc/profile"}
    seen = exported(shell, script, {**reset, "VIRTUAL_ENV": "/opt/venv", **table, **given_by_user})
    assert seen["PATH"] == path
    assert {name: seen[name] for name in table} == {**table, **{n: v for n, v in given_by_user.items() if n in table}}
    # Without the image's environment, whatever the base's own scripts set before: all of it.
    seen = exported(shell, script, {**reset, **dict.fromkeys(table, "/set/by/the/base")})
    assert {name: seen[name] for name in table} == table


@given(values)
def test_shell_quote_is_one_word(value: str) -> None:
    quoted = shell_quote(value)
    assert quoted.startswith("'")
    assert quoted[1:-1].replace("'\\''", "'") == value


def dockerfile_word(text: str) -> str:
    """Read one double-quoted word as BuildKit's lexer (frontend/dockerfile/shell) does: `\\` before `"`, `$`, `\\`."""
    assert text[0] == text[-1] == '"'
    out, rest = "", list(text[1:-1])
    while rest:
        char = rest.pop(0)
        assert char not in '"$', "would end the word or expand"
        out += rest.pop(0) if char == "\\" and rest[0] in '"$\\' else char
    return out


@given(values)
def test_docker_quote_is_one_word_that_expands_to_nothing_else(value: str) -> None:
    assert dockerfile_word(docker_quote(value)) == value


def test_docker_quote_of_a_trailing_backslash_does_not_join_lines() -> None:
    assert docker_quote("a\\") == '"a\\\\"'
