"""Settings files with duplicate and unknown keys, huge integers, wrong types: exit 2, named, with a way out."""

import pytest

from headstart.cli.main import run

PLAN = ["plan", "--preset", "lab", "--vocab", "100"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("widht = 3", "did you mean 'width'?"),
        ("norm-palce = 3", "did you mean 'norm-place'?"),
        ("width = 3\nwidth = 4", "not valid TOML"),
        ("width = 99999999999999999999", "width is an integer over 64 bits"),
        ('width = "many"', "width"),
        ("width = [1, 2]", "width"),
        ("width = ", "not valid TOML"),
        ("width = 200\n[nested]\nwidth = 3", "unknown key 'nested'"),
    ],
)
def test_a_bad_settings_file_exits_2_and_names_it(tmp_path, capsys, text, message):
    path = tmp_path / "settings.toml"
    path.write_text(text)
    assert run([*PLAN, "--config", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "settings.toml" in error


def test_a_missing_settings_file_exits_2(capsys):
    assert run([*PLAN, "--config", "nowhere.toml"]) == 2
    assert "nowhere.toml" in capsys.readouterr().err
