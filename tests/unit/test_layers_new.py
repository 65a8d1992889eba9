"""Which layers of a rebuilt image are new, by name."""

from __future__ import annotations

from factories import plan

from cannery.building import new_layers


def test_new_layers_are_named_by_the_plan() -> None:
    made = plan()
    names = [layer.name for layer in made.layers]
    layers = [f"base{n}" for n in range(3)] + [f"l{n}" for n in range(len(names))]
    assert new_layers(made, layers, layers) == ()
    assert new_layers(made, [one for one in layers if one not in {"l0", "l2"}], layers) == (names[0], names[2])
    assert new_layers(made, [], layers) == ("base", *names)
