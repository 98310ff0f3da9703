import pytest

from pettingllms.grading.forms import base_in, unit_name, unwrapped, words_in, written


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("12 cm", "12", "cm"),
        ("12cm", "12", "cm"),
        ("12\\text{ centimeters}", "12", "cm"),
        ("12 \\mathrm{~km}", "12", "km"),
        ("12 eggs", "12", "egg"),
        ("$18", "18", "dollar"),
        ("18 dollars", "18", "dollar"),
        ("6abc", "6abc", ""),
        ("6 xy", "6 xy", ""),
        ("2 pi", "2 \\pi", ""),
        ("2 pi cm", "2 \\pi", "cm"),
        ("2\\pi\\text{ cm}^2", "2\\pi", "cm^2"),
        ("7 cm^2", "7", "cm^2"),
        ("7 sq. ft", "7", "ft^2"),
        ("€18", "18", "euro"),
        ("2.5 million dollars", "2500000.0", "dollar"),
        ("$2 million", "2000000", "dollar"),
        ("3 dozen eggs", "36", "egg"),
        ("2 thirds of a cup", "\\frac{2}{3}", "cup"),
        ("7 plus one", "7 plus one", ""),
        ("7 squared", "7 squared", ""),
        (f"{10**40 + 1} thousand", f"{10**40 + 1}000", ""),
    ],
)
def test_units_are_told_from_letters_of_a_formula(text: str, number: str, unit: str) -> None:
    found = written(text)
    assert (found.text.strip(), found.unit) == (number, unit)


def test_one_unit_has_one_name() -> None:
    assert unit_name("kilometers") == unit_name("km") == "km"
    assert unit_name("square inches") == unit_name("in", "2") == unit_name("inches squared")
    assert unit_name("square inches") != unit_name("in") != unit_name("cubic inches")
    assert unit_name("£") == unit_name("pounds") != unit_name("€")
    assert unit_name("minutes") != unit_name("hours")


@pytest.mark.parametrize(
    "text", ["5", "$5$", "\\boxed{5}", "\\(5\\)", " 5. ", "$\\boxed{5}$.", "\\[ 5 \\]"]
)
def test_what_stands_around_an_answer_goes(text: str) -> None:
    assert unwrapped(text) == "5"


def test_a_box_that_closes_early_is_no_wrapper() -> None:
    assert unwrapped("\\boxed{1} + \\frac{1}{2}") == "\\boxed{1} + \\frac{1}{2}"


def test_words_lose_their_size_and_letters_keep_it() -> None:
    assert words_in("\\text{Yes}") == "yes"
    assert words_in("(C)") == "C"
    assert words_in("c") == "c"
    assert words_in("x+1") is None


def test_bases_are_told() -> None:
    assert base_in("101_{2}") == ("101", "2")
    assert base_in("x_1y") is None
