"""A run's directory: its configuration, result and metrics, and what may change between two commands."""

import dataclasses
import hashlib
import json

import checksummed
import pytest
import tiny_runs
from expected_errors import refused

from headstart.errors import IntegrityError
from headstart.runs.directory import MetricsFile, RunDirectory, differing_settings


@pytest.fixture
def config():
    return tiny_runs.run_of("causal").config


@pytest.fixture
def run(tmp_path, config):
    run = RunDirectory(tmp_path)
    run.write_config(config)
    return run


def with_loop(config, **changes):
    return dataclasses.replace(config, loop=dataclasses.replace(config.loop, **changes))


def test_the_configuration_is_read_as_it_was_written(run, config):
    assert run.read_config() == config


def test_a_directory_without_a_configuration_is_no_run(tmp_path):
    with refused("not-a-run", "config.toml"):
        RunDirectory(tmp_path).read_config()


def test_the_same_settings_and_a_new_directory_pass(run, config, tmp_path):
    run.check_same(config, override=False)
    RunDirectory(tmp_path / "new").check_same(config, override=False)


def test_more_steps_and_other_saving_may_change(run, config):
    run.check_same(with_loop(config, steps=config.loop.steps + 1, keep=7, save_every=3), override=False)


@pytest.mark.parametrize("field", ["steps", "seed"])
def test_fewer_steps_and_another_seed_are_refused_unless_overridden(run, config, field):
    value = getattr(config.loop, field)
    other = with_loop(config, **{field: value - 1})
    with refused("changed", f"loop.{field} was {value}, is {value - 1}"):
        run.check_same(other, override=False)
    run.check_same(other, override=True)


def test_settings_that_differ_are_listed_with_both_values(config):
    other = dataclasses.replace(config, length=99, model=dataclasses.replace(config.model, width=32, heads=4))
    assert differing_settings(config, other) == {
        "length": (config.length, 99), "model.width": (16, 32), "model.heads": (2, 4),
    }  # fmt: skip
    assert differing_settings(config, config) == {}


def test_a_result_is_read_as_it_was_written(run, config):
    assert run.read_result() is None
    result = {"step": 4, "steps": 4, "weights_sha256": "ab", "valid": {"loss": float("nan"), "x": [1.5]}}
    written = run.write_result(result, config)
    assert written["valid"] == {"loss": None, "x": [1.5]}
    assert written["config_sha256"] == hashlib.sha256(run.config_file.read_bytes()).hexdigest()
    assert run.read_result() == written == checksummed.read(run.result_file)


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"step": 1}', '{"step": "1", "steps": 2, "weights_sha256": "a"}'])
def test_a_result_that_is_none_is_an_integrity_error(run, text):
    run.result_file.write_text(text)
    with refused("corrupt", "result.json", by=IntegrityError):
        run.read_result()


def test_the_runs_own_tokenizer_must_be_the_one_it_was_trained_with(run, config):
    with refused("no-file", "tokenizer.json", by=IntegrityError):
        run.read_tokenizer()
    tokenizer = tiny_runs.run_of("causal").tokenizer
    tokenizer.save(run.path)
    assert run.read_tokenizer().fingerprint == tokenizer.fingerprint
    tiny_runs.run_of("char").tokenizer.save(run.path)
    with refused("mismatch", "tokenizer.json", by=IntegrityError):
        run.read_tokenizer()
    run.tokenizer_file.write_text("{")
    with refused("bad-format", "tokenizer.json", by=IntegrityError):
        run.read_tokenizer()


@pytest.mark.parametrize("place", [0, 3, 40, 74, 75, 76, 77, 100, -2, -1])
def test_a_configuration_with_a_wrong_bit_is_refused_or_the_same(run, config, place):
    raw = bytearray(run.config_file.read_bytes())
    for bit in range(8):
        raw[place] ^= 1 << bit
        run.config_file.write_bytes(raw)
        try:
            read = run.read_config()
        except IntegrityError:
            continue
        finally:
            raw[place] ^= 1 << bit
        assert read == config


def test_a_configuration_that_is_cut_anywhere_is_refused(run):
    raw = run.config_file.read_bytes()
    for size in (*range(0, 90, 9), len(raw) // 2, len(raw) - 1):
        run.config_file.write_bytes(raw[:size])
        with pytest.raises(IntegrityError):
            run.read_config()


def test_a_configuration_without_a_seal_is_read(run, config):
    run.config_file.write_text(run.config_file.read_text().partition("\n\n")[2])
    assert run.read_config() == config


def test_what_has_a_result_and_no_configuration_has_lost_it(run, config):
    run.write_result({"step": 4, "steps": 4}, config)
    run.config_file.unlink()
    with refused("not-a-run", "config.toml", by=IntegrityError):
        run.read_config()


def test_a_configuration_is_the_one_of_the_result(run, config):
    run.write_result({"step": 4, "steps": 4}, config)
    assert run.read_config() == config
    run.write_config(dataclasses.replace(config, length=99))
    with refused("corrupt", "config.toml", by=IntegrityError):
        run.read_config()


# ---- metrics.jsonl: written a line at a time, cut back, read again ---------------------------------------------


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def metrics(tmp_path, warnings):
    return MetricsFile(tmp_path / "metrics.jsonl", warnings.append)


def test_records_are_lines_of_json_in_order(metrics):
    metrics.write(step=1, loss=2.5)
    metrics.write(event="valid", step=1, accuracy=1)
    lines = metrics.path.read_text().splitlines()
    assert [json.loads(line) for line in lines] == metrics.read()
    assert metrics.read() == [{"step": 1, "loss": 2.5}, {"event": "valid", "step": 1, "accuracy": 1}]


def test_a_number_that_is_not_finite_is_null(metrics):
    metrics.write(a=float("nan"), b=float("inf"), c=-float("inf"), d=0.0)
    assert metrics.path.read_text() == '{"a": null, "b": null, "c": null, "d": 0.0}\n'


def test_it_is_cut_back_to_the_size_that_was_noted(metrics):
    assert metrics.size() == 0
    metrics.write(step=1)
    noted = metrics.size()
    assert noted == len('{"step": 1}\n')
    metrics.write(step=2)
    metrics.cut_back(noted)
    metrics.cut_back(noted + 100)  # it is never made longer
    assert metrics.read() == [{"step": 1}]


def test_half_a_line_is_none(metrics):
    metrics.write(step=1)
    with metrics.path.open("a") as file:
        file.write('{"step": 2, "lo')
    assert metrics.read() == [{"step": 1}]


def test_nothing_written_is_nothing_read(metrics):
    assert metrics.read() == []


def test_every_record_is_heard(metrics):
    heard = []
    metrics.on_record = heard.append
    metrics.write(step=1, loss=float("nan"))
    assert heard == [{"step": 1, "loss": None}]


def test_a_file_that_cannot_be_written_warns_once(tmp_path, warnings):
    metrics = MetricsFile(tmp_path / "nowhere" / "metrics.jsonl", warnings.append)
    metrics.write(step=1)
    metrics.write(step=2)
    assert len(warnings) == 1
    assert "nowhere" in warnings[0]
