"""Which layers of a rebuilt image are new, by name."""

from __future__ import annotations

from factories import inputs, plan, user_recipe

from cannery.making.image import new_layers
from cannery.plan.make import make_plan


def test_new_layers_are_named_by_the_plan() -> None:
    made = plan()
    names = [layer.name for layer in made.layers]
    layers = [f"base{n}" for n in range(3)] + [f"l{n}" for n in range(len(names))]
    assert new_layers(made, layers, layers) == ()
    assert new_layers(made, [one for one in layers if one not in {"l0", "l2"}], layers) == (names[0], names[2])
    assert new_layers(made, [], layers) == ("base", *names)


def test_a_folder_to_start_in_is_a_layer_on_the_foundation() -> None:
    recipe = user_recipe()
    made = make_plan(recipe, inputs(recipe))
    names = [layer.name for layer in made.layers]
    layers = ["base", *(f"l{n}" for n in range(len(names) + 1))]
    lower = len(made.foundation)
    assert new_layers(made, ["base"], layers) == (*names[:lower], "workdir", *names[lower:])
