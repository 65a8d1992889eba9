"""`lock --upgrade`: what may be asked for, and which edits of the profile it becomes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from factories import catalog, components, profile

from cannery.catalog.compatibility import Row
from cannery.catalog.component import parse_component
from cannery.errors import FindingsError, NetworkError, UsageError
from cannery.recipe.recipe import Options
from cannery.recipe.select import select
from cannery.upgrade.edit import SetDate, SetVersion
from cannery.upgrade.upgrade import Editable, Wish, asked_names, checked_wishes, parse_wishes, upgrade_edits
from cannery.vocab import Arch

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

TODAY = "2026-06-01"
PINS = [
    {"name": "jemalloc"},
    {"name": "torch", "version": "2.8.0"},
    {"name": "torch-npu", "version": "2.8.0.post2"},
    {"name": "ray"},
    {"name": "tool", "version": "1.0"},
    {"name": "plugin-src", "release": "1.0"},
]


class Stock:
    """Every release is there, but those in `lacking`; uploaded on the day in `days`."""

    def __init__(self, days: dict[str, str] | None = None, lacking: tuple[str, ...] = (), newest: str = "9.9") -> None:
        self.days = days or {}
        self.lacking = lacking
        self.latest = newest
        self.trouble: dict[str, str] = {}

    def has(self, name: str, version: str) -> bool:
        return f"{name}=={version}" not in self.lacking

    def spelt(self, name: str, version: str) -> str:
        return f"{version}.0" if name == "ray" and version.count(".") == 1 else version

    def newest(self, name: str) -> str:
        return self.latest

    def newest_for(self, name: str, allowed: SpecifierSet) -> str | None:
        versions = [v for v in ("1.4", self.latest) if v and v <= self.latest and allowed.contains(v)]
        return versions[-1] if versions else None

    def uploaded(self, name: str, version: str) -> str:
        return self.days.get(f"{name}=={version}", "")


def subject(asks: tuple[str, ...] = (), **changes: object) -> Editable:
    known = {
        **components(),
        "tool": parse_component({"kind": "wheels", "summary": "x", "package": "The.Tool"}),
        "plugin-src": parse_component(
            {
                "kind": "source",
                "summary": "x",
                "package": "plugin",
                "install": "wheel",
                "releases": {"1.0": {"source": "made up", "requires": asks}},
            }
        ),
    }
    mine = catalog(profiles={"stack": profile(**{"components": PINS, **changes})}, components=known)
    recipe = select(mine, "stack", Options(), Arch.AMD64)
    return Editable(recipe, mine, ("3.11",), frozenset({"click", "ray", "torch"}))


def edits(*texts: str, stock: Stock | None = None, **changes: object) -> tuple[object, ...]:
    mine = subject(**changes)  # type: ignore[arg-type]
    wishes = checked_wishes(mine, parse_wishes(texts))
    return upgrade_edits(mine, wishes, stock or Stock(), TODAY).edits


def notes(*texts: str, stock: Stock | None = None, **changes: object) -> tuple[str, ...]:
    mine = subject(**changes)  # type: ignore[arg-type]
    found = upgrade_edits(mine, checked_wishes(mine, parse_wishes(texts)), stock or Stock(), TODAY)
    assert found.edits == ()
    return found.notes


def test_a_wish_is_a_name_or_one_version() -> None:
    assert parse_wishes(["Torch_NPU", "ray==2.50"]) == (Wish("torch-npu", None), Wish("ray", "2.50"))
    assert parse_wishes(["ray", "RAY"]) == (Wish("ray", None),)


@pytest.mark.parametrize("text", ["ray>=2", "ray[default]", "ray==2.*", "ray==1,==2", "", "ray @ file:///x", "ray; x"])
def test_anything_else_is_wrong_use(text: str) -> None:
    with pytest.raises(UsageError, match="neither NAME nor NAME==VERSION"):
        parse_wishes([text])


def test_one_name_at_two_versions() -> None:
    with pytest.raises(UsageError, match="ray is named twice, as ray==1 and ray==2"):
        parse_wishes(["ray==1", "ray==2"])


@pytest.mark.parametrize(
    ("text", "says", "where", "hint"),
    [
        ("clik", "clik is no package of profile stack", "", "did you mean click?"),
        ("libjemalloc2", "is no package", "", "known: "),
        ("jemalloc", r"comes from no package index \(system\)", "images/profiles/stack.yaml", "jemalloc.yaml"),
        ("plugin", r"comes from no package index \(source\)", "images/profiles/stack.yaml", "plugin-src.yaml"),
        ("plugin-src", "plugin comes from no package index", "images/profiles/stack.yaml", "plugin-src.yaml"),
    ],
)
def test_what_no_edit_can_upgrade(text: str, says: str, where: str, hint: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        checked_wishes(subject(), parse_wishes([text]))
    assert caught.value.where == where
    assert hint in caught.value.hint


def test_an_override_decides() -> None:
    override = [{"requirement": "ray==2.50.0", "reason": "a reason of ours"}]
    with pytest.raises(UsageError, match=r"the override ray==2\.50\.0 decides about ray") as caught:
        checked_wishes(subject(overrides=override), parse_wishes(["ray"]))
    assert caught.value.where == "images/profiles/stack.yaml"


def test_what_follows_a_pin_by_the_table_is_not_upgraded_by_itself() -> None:
    pins = [{"name": "torch"}, {"name": "torch-npu", "version": "2.8.0.post2"}]
    with pytest.raises(UsageError, match=r"torch follows torch-npu by the .*: torch==2\.8\.0") as caught:
        checked_wishes(subject(components=pins), parse_wishes(["torch"]))
    assert caught.value.where == "images/profiles/stack.yaml"
    assert caught.value.hint == "upgrade torch-npu, and it moves along"


def test_a_pin_takes_its_companions_along_and_a_date_where_it_is_needed() -> None:
    pair = (SetVersion("torch-npu", "2.9.0"), SetVersion("torch", "2.9.0"))
    assert edits("torch-npu") == pair
    assert set(edits("torch", "torch-npu")) == {*pair}
    late = Stock({"torch-npu==2.9.0": "2026-01-03", "torch==2.9.0": "2026-01-02"})
    assert edits("torch-npu", stock=late) == (pair[0], SetDate("torch-npu", TODAY), pair[1])


def test_a_pin_outside_the_table_takes_the_newest_for_every_target() -> None:
    assert edits("the-tool") == edits("tool") == (SetVersion("tool", "9.9"),)
    late = Stock({"the-tool==9.9": "2026-05-01"})
    assert edits("tool", stock=late) == (SetVersion("tool", "9.9"), SetDate("the-tool", TODAY))
    words = "no index has a newer one that the rest of the profile allows, for every Python and arch of it"
    stays = (f"the-tool stays at 1.0: {words}",)
    assert notes("tool", stock=Stock(newest="1.0")) == notes("tool", stock=Stock(newest="")) == stays


def test_an_index_that_was_not_asked_is_said_in_the_place_of_what_it_may_have() -> None:
    stock = Stock(newest="")
    stock.trouble["the-tool"] = "index elsewhere: no answer"
    with pytest.raises(NetworkError) as caught:
        notes("tool", stock=stock)
    words = "whether there is a newer one is not known: index elsewhere: no answer"
    assert caught.value.what == f"the-tool: {words}"
    absent = Stock({"the-tool==9.9": "2026-01-02"}, newest="")
    absent.trouble["the-tool"] = "index elsewhere: no answer"
    absent.has = lambda _name, _version, *_: False  # type: ignore[method-assign] # an extra place lists other versions
    with pytest.raises(NetworkError, match=r"whether there is the-tool==2\.0 is not known: index elsewhere"):
        edits("tool==2.0", stock=absent)
    assert edits("tool==2.0", stock=stock) == (SetVersion("tool", "2.0"),)


def test_constraints_and_known_wishes_of_sources_are_not_passed_by() -> None:
    bound = [{"requirement": "the-tool<2", "reason": "a reason of ours"}]
    assert edits("tool", constraints=bound) == (SetVersion("tool", "1.4"),)
    pair = [{"requirement": "torch<2.9", "reason": "a reason of ours"}]
    words = "torch-npu stays at 2.8.0.post2: no row of the table for CANN 8.5.0 that fits the rest is newer"
    assert notes("torch-npu", constraints=pair) == (words,)
    assert edits("tool", asks=("the-tool<2",)) == (SetVersion("tool", "1.4"),)
    asked = [{"requirement": "the-tool==1.0", "reason": "a reason of ours"}]
    with pytest.raises(UsageError, match="the override the-tool==1"):
        edits("tool", asks=("the-tool<2",), overrides=asked)


def test_what_is_not_pinned_gets_a_later_date() -> None:
    assert edits("ray", "click") == (SetDate("ray", TODAY), SetDate("click", TODAY))
    later = {"click": {"date": TODAY, "reason": "a reason of ours"}}
    assert notes("click", exclude_newer_packages=later) == (f"click: uploads up to {TODAY} count already",)
    assert notes("ray", exclude_newer="2027-01-01") == ("ray: uploads up to 2027-01-01 count already",)


def test_an_exact_version_is_a_pin_of_a_component() -> None:
    assert edits("ray==2.51.1") == (SetVersion("ray", "2.51.1"),)
    late = Stock({"ray==2.51.1": "2026-01-03"})
    assert edits("ray==2.51.1", stock=late) == (SetVersion("ray", "2.51.1"), SetDate("ray", TODAY))
    with pytest.raises(UsageError, match="click is no component") as caught:
        edits("click==8.0")
    assert 'constraints: [{requirement: "click==8.0"' in (caught.value.hint or "")


def test_a_version_is_written_as_its_index_writes_it() -> None:
    assert edits("ray==2.51") == (SetVersion("ray", "2.51.0"),)


# torch has rows of its own (its Pythons), but for 2.11.0, which torch_npu's row names.
BARE = [
    *({"of": f"torch=={v}", "fits": {"python": ">=3.10,<3.13"}, "source": "table"} for v in ("2.8.0", "2.9.0")),
    {"of": "torch-npu==2.11.0", "fits": {"torch": "2.11.0", "cann": "8.5.0"}, "source": "table"},
]


def bare(pins: str) -> Editable:
    mine = catalog()
    rows = (*mine.compatibility.rows, *map(Row.model_validate, BARE))
    table = mine.compatibility.model_copy(update={"rows": rows})
    listed = [{"name": "torch", "version": pins}, {"name": "torch-npu", "version": pins}]
    found = subject(components=listed)
    return replace(found, catalog=replace(found.catalog, compatibility=table))


def test_a_row_that_names_a_release_without_a_row_of_its_own_is_taken_when_it_is_asked_for() -> None:
    pair = (SetVersion("torch-npu", "2.11.0"), SetVersion("torch", "2.11.0"))
    found = upgrade_edits(bare("2.9.0"), parse_wishes(["torch-npu==2.11.0"]), Stock(), TODAY)
    assert found.edits == pair
    assert upgrade_edits(bare("2.9.0"), parse_wishes(["torch==2.11.0"]), Stock(), TODAY).edits == pair[::-1]


def test_without_being_asked_for_such_a_row_is_not_taken() -> None:
    words = "torch-npu stays at 2.9.0: no row of the table for CANN 8.5.0 that fits the rest is newer"
    found = upgrade_edits(bare("2.9.0"), parse_wishes(["torch-npu"]), Stock(), TODAY)
    assert (found.edits, found.notes) == ((), (words,))


def test_an_exact_version_of_a_pin_moves_with_its_row_or_alone() -> None:
    assert edits("torch-npu==2.7.1.post2") == (SetVersion("torch-npu", "2.7.1.post2"), SetVersion("torch", "2.7.1"))
    assert edits("torch-npu==2.8.1") == (SetVersion("torch-npu", "2.8.1"),)
    assert edits("tool==0.5") == (SetVersion("tool", "0.5"),)
    assert notes("torch-npu==2.8.0.post2") == ("torch-npu: pinned to 2.8.0.post2 already",)


def test_a_version_that_no_index_has() -> None:
    with pytest.raises(FindingsError, match=r"no index has ray==2\.51\.0 for every Python and arch") as caught:
        edits("ray==2.51", stock=Stock(lacking=("ray==2.51.0",)))
    assert caught.value.hint == "the newest release is 9.9"


def test_two_wishes_that_cannot_both_be() -> None:
    with pytest.raises(UsageError, match=r"torch-npu==2\.9\.0 goes with torch 2\.9\.0, not with torch==2\.7\.1"):
        edits("torch-npu==2.9.0", "torch==2.7.1")
    assert edits("torch-npu==2.9.0", "torch==2.9.0") == (SetVersion("torch-npu", "2.9.0"), SetVersion("torch", "2.9.0"))


def test_no_newer_row_is_said() -> None:
    pins = [{"name": "torch", "version": "2.9.0"}, {"name": "torch-npu", "version": "2.9.0"}]
    words = "torch-npu stays at 2.9.0: no row of the table for CANN 8.5.0 that fits the rest is newer"
    assert notes("torch-npu", components=pins) == (words,)


def test_only_what_matters_is_asked_for() -> None:
    assert asked_names(subject(), [Wish("ray", None)]) == ("ray",)
    assert asked_names(subject(), [Wish("torch", None)]) == ("torch", "torch-npu")
