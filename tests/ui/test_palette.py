"""One palette for both themes, safe for colour-blind eyes."""

import math
from itertools import combinations

import pytest

from ui import palette

# Simulated deficiencies on linear light (Machado, Oliveira and Fernandes 2009, severity 1).
DEFICIENCIES = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def oklab(colour: str, deficiency: str | None) -> tuple[float, float, float]:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    if deficiency:
        r, g, b = (max(0.0, x * r + y * g + z * b) for x, y, z in DEFICIENCIES[deficiency])
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    middle = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.793617785 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.428592205 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.808675766 * short,
    )


@pytest.mark.parametrize("deficiency", [None, *DEFICIENCIES])
def test_any_two_models_differ_for_every_eye(deficiency):
    """0.05 in OKLab is more than twice what side-by-side patches need to be told apart."""
    for first, second in combinations(palette.SOLIDS, 2):
        assert math.dist(oklab(first, deficiency), oklab(second, deficiency)) > 0.05, (first, second)


@pytest.mark.parametrize("colour", [*palette.SOLIDS, palette.NEUTRAL])
def test_marks_stand_out_from_both_pages(colour):
    assert palette.contrast(colour, palette.LIGHT_PAGE) >= 3
    assert palette.contrast(colour, palette.DARK_PAGE) >= 3


@pytest.mark.parametrize("colour", palette.SOLIDS)
def test_text_on_a_token_is_readable_in_both_themes(colour):
    assert palette.contrast(palette.LIGHT_TEXT, palette.mix(colour, palette.LIGHT_PAGE, palette.LIGHT_TINT)) >= 4.5
    assert palette.contrast(palette.DARK_TEXT, palette.mix(colour, palette.DARK_PAGE, palette.DARK_TINT)) >= 4.5


def test_muted_text_is_readable_in_both_themes():
    assert palette.contrast(palette.LIGHT_MUTED, palette.LIGHT_PAGE) >= 4.5
    assert palette.contrast(palette.DARK_MUTED, palette.DARK_PAGE) >= 4.5


def test_contrast_of_known_pairs():
    assert palette.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert palette.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_a_model_keeps_its_colour_in_every_figure():
    every = ("prompt-lookup", "early-exit:10", "quantized:int4", "quantized:int8", "smollm2-135m")
    for some in (every[1:], (every[2], every[4]), every[::-1][1:] + every[-1:]):
        for model in some:
            assert palette.slot_of(model, some) == palette.slot_of(model, every)
    assert palette.slot_of("smollm2-135m", every) == 0


def test_models_of_one_hierarchy_never_share_a_colour_while_there_are_enough():
    models = ("early-exit:4", "early-exit:8", "a/b", "c/d", "e/f", "g/h", "i/j", "target")
    assert len({palette.slot_of(model, models) for model in models}) == len(palette.SOLIDS)
    many = (*(f"m{i}" for i in range(20)), "target")
    assert all(0 < palette.slot_of(model, many) < len(palette.SOLIDS) for model in many[:-1])
