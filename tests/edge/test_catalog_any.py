"""Any word in the place of any scalar of images/: the catalog is refused with file and line, or all that is made of it
can be made.

A user's slip is never a defect of ours: exit code 2 (or a finding), and no other exception.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from functools import cache
from typing import TYPE_CHECKING

import pytest
import yaml
from checkouts import FROZEN
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cannery.catalog.errors import CatalogError
from cannery.catalog.io.read import load_catalog
from cannery.compat.rules import check_recipe
from cannery.errors import CanneryError, ExitCode
from cannery.lock.request import lock_request, tools_request
from cannery.lock.uv import UvIndex, project_text, settings_text
from cannery.recipe.recipe import Options
from cannery.recipe.select import select
from cannery.vocab import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cannery.catalog.catalog import Catalog

FILES = (
    "profiles/quickstart.yaml",
    "profiles/verl-npu.yaml",
    "components/torch.yaml",
    "components/vllm-ascend.yaml",
    "components/verl-src.yaml",
    "components/jemalloc.yaml",
    "bases/8.5.0.yaml",
    "bases/registries.yaml",
    "indexes.yaml",
    "hosts.yaml",
    "tools.yaml",
    "chips.yaml",
    "standin/recipe.yaml",
    "compatibility.yaml",
    "drivers.yaml",
)
SECRET = "s3cr3t"
# As they are written in YAML.
WORDS = (
    '!!int ""',
    '!!float ""',
    "!!bool xx",
    "!!timestamp abc",
    "!!str 3.10",
    "!!binary AA==",
    "!!set {a}",
    "[]",
    "{}",
    "[[]]",
    "{a: [b]}",
    "~",
    "true",
    "3",
    "-1",
    "0",
    "1e400",
    ".inf",
    ".nan",
    "99999999999999999999999999",
    "2026-11-20",
    '""',
    '" "',
    '" 2.13.0"',
    '"2.13.0\\n"',
    '"2.13.0\\0"',
    '"\\u2028"',
    '"===weird"',
    '"torch===weird"',
    '"torch==2.*"',
    '"torch==99999999999999999999999"',
    '"torch; python_version > \\"3.x\\""',
    '"torch; sys_platform in 3"',
    '">=2,<1"',
    '"1!2.0"',
    '"v2.13.0"',
    '"2.13.0-1"',
    '"9999-12-31"',
    '"0001-01-01"',
    '"9.9.9.9.9.rc1"',
    '"25.0.rc1.1"',
    '">=25.0.rc1.1"',
    '"default"',
    '"../x"',
    '"/"',
    '"${x"',
    '"{x}"',
    '"a b"',
    '"http://[bad/simple"',
    '"https://h:99999999/simple"',
    '"https://h/{x}"',
    '"(?P<n>"',
    '"a{9999999999}"',
    '"\\ud83d\\ude00"',
    f'"https://user:{SECRET}@host/simple"',
    f'"https://{SECRET}@host/simple"',
    f'"https://user:pw/{SECRET}@host/x"',
    f'"https://user:pw#{SECRET}@host/x"',
    f'"https://user:pw@{SECRET}@host/x"',
    f'"user:{SECRET}@host/{{repository}}"',
    f'"https://user:{SECRET}@host/{{repository}}.git"',
    f'"ray @ https://user:{SECRET}@host/ray-1-py3-none-any.whl"',
    f'"ray @ user:{SECRET}@host/x"',
)


@cache
def text_of(name: str) -> str:
    return (FROZEN / name).read_text(encoding="utf-8")


@cache
def places(name: str) -> tuple[tuple[int, int], ...]:
    """Where the scalars of a file stand, keys among them."""

    def below(node: yaml.Node) -> Iterator[yaml.Node]:
        if isinstance(node, yaml.ScalarNode):
            yield node
        for item in node.value if isinstance(node, yaml.SequenceNode) else ():
            yield from below(item)
        for pair in node.value if isinstance(node, yaml.MappingNode) else ():
            yield from below(pair[0])
            yield from below(pair[1])

    root = yaml.compose(text_of(name), Loader=yaml.SafeLoader)
    return tuple(dict.fromkeys((node.start_mark.index, node.end_mark.index) for node in below(root)))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy whose profiles are those of FILES."""
    images = tmp_path_factory.mktemp("any") / "images"
    shutil.copytree(FROZEN, images)
    for path in (images / "profiles").iterdir():
        if f"profiles/{path.name}" not in FILES:
            path.unlink()
    return images


def make_all(catalog: Catalog) -> None:
    """Bind every profile, hold it against the rules, and write what the resolver is given."""
    for name in catalog.profiles:
        try:
            recipe = select(catalog, name, Options(), Arch.AMD64)
            check_recipe(recipe, catalog)
            requests = [lock_request(recipe), tools_request(catalog, recipe.target.python, Arch.AMD64)]
        except CanneryError as error:
            assert error.code in {ExitCode.USAGE, ExitCode.FINDINGS}  # noqa: PT017 - either is right here
            continue
        index = UvIndex("bound", "https://host/simple", explicit=True)
        for request in requests:
            bound = {package: index for package, _ in request.bindings}
            tomllib.loads(project_text(request, bound))
            tomllib.loads(settings_text(request, bound, [UvIndex("shared", "https://host/simple")]))


def refusal(images: Path, name: str, changed: str) -> CanneryError | None:
    """What is said of the catalog with one file changed; None when it is taken, and everything can be made of it."""
    path = images / name
    path.write_text(changed, encoding="utf-8")
    try:
        catalog = load_catalog(images)
        make_all(catalog)
    except CatalogError as error:
        return error
    finally:
        path.write_text(text_of(name), encoding="utf-8")
    return CatalogError(catalog.problems) if catalog.problems else None


def check(images: Path, name: str, number: int, word: str) -> None:
    start, end = places(name)[number % len(places(name))]
    error = refusal(images, name, text_of(name)[:start] + word + text_of(name)[end:])
    if error is None:
        # Without a scheme it is a text like any other, where a text is what is wanted.
        assert SECRET not in word or "://" not in word
        return
    assert error.code is ExitCode.USAGE
    assert error.where.startswith("images/")
    assert error.hint
    assert SECRET not in str(error)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FILES), st.integers(0, 5000), st.sampled_from(WORDS) | st.text(max_size=12).map(json.dumps))
@example("compatibility.yaml", 0, '"a b"')
def test_any_word_anywhere_is_refused_or_can_be_worked_with(images: Path, name: str, number: int, word: str) -> None:
    check(images, name, number, word)


@pytest.mark.parametrize("word", WORDS)
def test_every_odd_word_in_a_few_places_of_a_profile(images: Path, word: str) -> None:
    for number in range(len(word) % 30, len(places("profiles/quickstart.yaml")), 30):
        check(images, "profiles/quickstart.yaml", number, word)
