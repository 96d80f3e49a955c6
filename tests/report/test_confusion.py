"""The confusion matrix as a picture."""

import xml.etree.ElementTree as ET

import pytest

from headstart.report.confusion import confusion_picture


def test_it_shows_labels_and_counts_of_any_script_and_no_formula():
    svg = confusion_picture(["<b>", "été", "$x$"], [[1_234, 0, 5], [7, 89, 0], [0, 1, 2]], "svg")
    ET.fromstring(svg)
    for text in ("1,234", "89", "&lt;b&gt;", "été", "$x$"):  # matplotlib writes each text beside its outlines
        assert f"<!-- {text} -->" in svg.decode()
    assert confusion_picture(["a"], [[3]], "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("size", [1, 30])
def test_many_classes_are_shades_alone(size):
    svg = confusion_picture([f"class {n}" for n in range(size)], [[12_345] * size] * size, "svg").decode()
    assert ("12,345" in svg) == (size == 1)
    ET.fromstring(svg)


def test_the_same_matrix_is_the_same_picture():
    first, second = (confusion_picture(["a", "b"], [[3, 1], [0, 2]], "svg") for _ in range(2))
    assert first == second
