"""`headstart doctor` says what there is, and what will be used and why."""

import json

from headstart.cli.main import run


def test_the_doctor_says_what_will_be_used_and_why(capsys):
    assert run(["doctor", "--device", "cpu", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert "cpu, as asked" in out
    assert "1 threads, as asked" in out
    assert "torch" in out


def test_the_doctor_answers_in_json(capsys):
    assert run(["doctor", "--device", "cpu", "--precision", "fp32", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["uses"]["device"] == "cpu"
    assert found["uses"]["precision"] == "fp32"
    assert found["uses"]["threads"] >= 1
    assert found["disk_free_gib"] > 0
    assert set(found["extras"]) == {"hf", "data", "sentencepiece"}
