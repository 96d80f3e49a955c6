"""Several ranks train what one process trains: whole models (DDP) and sharded ones (FSDP2), at any world size."""

import dataclasses
import json

import local_ranks
import numpy as np
import pytest
import small
import torch
from commands import Workspace, exit_code_of
from expected_errors import refused
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from headstart.cli.main import run as headstart
from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.config.run import DataConfig, RunConfig
from headstart.config.training import Masking
from headstart.distributed import ALONE, Ranks
from headstart.errors import TryAgain
from headstart.machine import Machine, choose
from headstart.objectives.batches import rank_micro_batches
from headstart.training import loop, memory

# ---- what a rank is, and what is its share --------------------------------------------------------------------


def test_without_torchrun_one_is_alone(monkeypatch):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    assert Ranks.of_environment() is ALONE
    assert choose("cpu").ranks is ALONE
    assert (ALONE.is_first, ALONE.key, ALONE.agree(3, 4)) == (True, (), (3, 4))
    assert list(ALONE.shared("abc")) == [("a", True), ("b", True), ("c", True)]


def test_torchrun_says_which_one_this_is(monkeypatch):
    for name, value in local_ranks.environment_of(1, 3, 999).items():
        monkeypatch.setenv(name, value)
    found = choose("cpu")
    assert (found.ranks.rank, found.ranks.world, found.ranks.is_first) == (1, 3, False)
    assert found.facts()["world"] == "3"
    assert found.ranks.key == (1,)
    assert found.alone.ranks is ALONE
    assert "3 ranks, 3 of them here, share every batch" in found.reasons
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert Ranks.of_environment() is ALONE


def test_ranks_of_one_machine_share_its_cores_and_need_a_gpu_each(monkeypatch):
    for name, value in local_ranks.environment_of(1, 2, 999).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(9))
    assert choose("cpu").threads == 4
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "some GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose("cuda").device == torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with refused("no-device", "2 ranks", "1 GPUs", "--nproc-per-node"):
        choose("cuda")


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 9))
def test_all_ranks_have_as_many_micro_batches_and_together_the_batch_once(size, parts, world):
    batch = {"tokens": np.arange(size)[:, None], "rows": np.arange(size)}
    each = [rank_micro_batches(batch, parts, rank, world) for rank in range(world)]
    assert len({len(found) for found in each}) == 1
    assert all(len(part["tokens"]) > 0 for found in each for part, _ in found)
    own = [[row for part, is_counted in found if is_counted for row in part["rows"]] for found in each]
    assert own == [list(range(size))[rank::world] for rank in range(world)]
    assert len(each[0]) == min(parts, -(-size // world))


@given(st.integers(0, 9), st.integers(1, 4))
def test_what_is_evaluated_is_counted_once(items, world):
    ranks = [Ranks(rank, world) for rank in range(world)]
    assert list(ranks[0].shared(range(items))) == [(item, True) for item in range(items)]  # not joined: all of them
    for one in ranks:
        one._store = "joined"
    each = [list(one.shared(range(items))) for one in ranks]
    assert len({len(found) for found in each}) == 1
    assert sorted(item for found in each for item, is_counted in found if is_counted) == list(range(items))


# ---- the same numbers as one process --------------------------------------------------------------------------

PLAIN = {"dropout": 0.0, "attention_dropout": 0.0}
SHORT = {"steps": 4, "save_every": 0, "clip": 0.05, "accumulate": 2}
# Each with its batch; three of a batch leave one rank without a second micro-batch, one leaves it without anything.
CASES = {
    "causal": ("causal", 4, {}),
    "masked": ("masked", 3, {"average": "ema"}),
    "masked-nsp": ("masked-nsp", 4, {"accumulate": 1}),
    "classification": ("classification", 1, {"patience": 1, "evaluate_every": 2}),
    "unfreezing": ("classification", 3, {"unfreeze_every": 1}),
    "muon": ("causal", 3, {}),
    "bf16": ("causal", 4, {}),
}
NEEDS_WHOLE = ("unfreezing", "muon")  # what a sharded model has not


def case(name, directory):
    kind, batch, settings = CASES[name]
    optimizer = {"optimizer": "muon"} if name == "muon" else {}
    found = small.training(directory, kind, optimizer=optimizer, model=PLAIN, **{**SHORT, **settings})
    found.objective = small.objective(kind, batch)
    return found


def trained(name, directory, machine=None, is_sharded=False):
    """Train a case; returns the weights that this process has at the end, and the scores."""
    from headstart.runs.shards import gathered

    found = case(name, directory)
    found.machine, found.is_sharded = machine or found.machine, is_sharded
    if name == "bf16":
        found.machine = dataclasses.replace(found.machine, precision="bf16")
    _, scores = loop.train(found)
    return gathered(dict(found.model.named_parameters()), is_kept=True), scores


def every_case(directory):
    """In a rank: all cases, whole and sharded; each rank writes what it has."""
    with local_ranks.joined(Machine(torch.device("cpu"), "fp32", 1)) as machine:
        for name in CASES:
            for how in ("whole", "sharded"):
                if how == "sharded" and name in NEEDS_WHOLE:
                    continue
                weights, scores = trained(name, directory / f"{name}-{how}", machine, how == "sharded")
                out = directory / f"{name}-{how}-{machine.ranks.rank}"
                save_file({key: value.detach().contiguous() for key, value in weights.items()}, out)
                out.with_suffix(".json").write_text(json.dumps(scores.values))


EVERY_CASE = "import sys, pathlib; import test_distributed; test_distributed.every_case(pathlib.Path(sys.argv[1]))"


@pytest.fixture(scope="module")
def trained_by_two(tmp_path_factory):
    """The directory in which two ranks have trained every case."""
    directory = tmp_path_factory.mktemp("ranks")
    codes = [exit_code_of(child) for child in local_ranks.start(EVERY_CASE, [directory], directory)]
    assert codes == [0, 0], (directory / "log-0").read_text() + (directory / "log-1").read_text()
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_ranks_agree_with_one_process_to_rounding(trained_by_two, tmp_path, name):
    wanted, scores = trained(name, tmp_path)
    losses = losses_of(tmp_path)
    # In bf16 a rounding is a thousand times larger; and what has no gradient but rounding moves by it alone.
    close, far = (1e-5, 2e-5) if name != "bf16" else (1e-2, 1.0)
    for how in ("whole", "sharded"):
        if how == "sharded" and name in NEEDS_WHOLE:
            continue
        first, second = (load_file(trained_by_two / f"{name}-{how}-{rank}") for rank in (0, 1))
        for key, tensor in wanted.items():
            assert torch.equal(first[key], second[key]), f"{how}: {key} is not the same on both"
            torch.testing.assert_close(first[key], tensor, atol=far, rtol=0, msg=f"{how}: {key}")
        assert losses_of(trained_by_two / f"{name}-{how}") == pytest.approx(losses, abs=close)
        found = [json.loads((trained_by_two / f"{name}-{how}-{rank}.json").read_text()) for rank in (0, 1)]
        assert found[0] == found[1] == pytest.approx(scores.values, abs=close)
    if name not in NEEDS_WHOLE:
        both = [losses_of(trained_by_two / f"{name}-{how}") for how in ("whole", "sharded")]
        assert both[0] == pytest.approx(both[1], abs=1e-5)


def losses_of(run):
    """Losses, and lengths of gradients, of all steps."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len([line for line in lines if "gradient_norm" in line]) == SHORT["steps"]
    return [line[key] for line in lines for key in ("loss", "gradient_norm") if key in line]


# ---- commands -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A workspace with a run that one process trained, dropout off."""
    workspace = Workspace(tmp_path_factory.mktemp("commands")).fill()
    assert workspace.run_to_the_end("--dropout", 0, "--out", workspace.path / "one") == 0
    return workspace


def result_of(run):
    return json.loads((run / "result.json").read_text())


@pytest.mark.parametrize(("before", "after"), [(2, 1), pytest.param(1, 2, marks=pytest.mark.slow)])
def test_a_checkpoint_goes_on_at_another_world_size_and_says_so(workspace, before, after):
    run = workspace.path / f"from-{before}-to-{after}"
    killed = ("--dropout", 0, "--out", run, "--shard", "always")
    codes = local_ranks.exit_codes(workspace, *killed, world=before, faults={0: "step@5", 1: "step@5"})
    assert codes == [-9] * before
    assert local_ranks.exit_codes(workspace, "--dropout", 0, "--out", run, world=after) == [0] * after
    assert f"not bit-exact from here on: world was {before}, is {after}" in local_ranks.log_of(workspace)
    assert "resuming from step 4 of 6" in local_ranks.log_of(workspace)
    if before == 2:
        assert "not bit-exact from here on: sharded was yes, is no" in local_ranks.log_of(workspace)
    wanted = result_of(workspace.path / "one")["valid"]["loss"]
    assert result_of(run)["valid"]["loss"] == pytest.approx(wanted, abs=1e-4)
    worlds = [json.loads(path.read_text())["machine"]["world"] for path in sorted(run.rglob("manifest.json"))]
    assert worlds == [str(before), str(after)]
    assert local_ranks.log_of(workspace, after - 1) == "" or after == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["never", "always"])
def test_translators_are_trained_too(workspace, how):
    """The first rank trains a tokenizer for all; and BLEU chooses, which no rank can measure a part of."""
    more = (
        "--dropout", 0, "--steps", 4, "--vocab", 300, "--evaluate-every", 2, "--patience", 1, "--best-metric", "bleu",
        "--preset", "transformer-tiny", "--decoder-depth", 1, "--beam", 2, "--attention-dropout", 0,
        "--ffn-dropout", 0,
    )  # fmt: skip
    one, two = workspace.path / f"translator-{how}-1", workspace.path / f"translator-{how}-2"
    flags = workspace.command(*more, "--out", one, verb="translation")
    at = flags.index("--tokenizer")
    del flags[at : at + 2]
    settings = {"HEADSTART_CACHE": str(workspace.cache)}
    children = local_ranks.start(local_ranks.COMMAND, flags, workspace.path, 1, **settings)
    assert [exit_code_of(child) for child in children] == [0], local_ranks.log_of(workspace)
    flags[flags.index(str(one))] = str(two)
    children = local_ranks.start(local_ranks.COMMAND, [*flags, "--shard", how], workspace.path, 2, **settings)
    codes = [exit_code_of(child) for child in children]
    assert codes == [0, 0], local_ranks.log_of(workspace) + local_ranks.log_of(workspace, 1)
    assert (one / "tokenizer.json").read_bytes() == (two / "tokenizer.json").read_bytes()
    found, wanted = result_of(two), result_of(one)
    assert found["best_step"] == wanted["best_step"]
    assert found["valid"] == pytest.approx(wanted["valid"], abs=1e-4)


@pytest.mark.slow
def test_a_time_is_measured_together(workspace):
    run = workspace.path / "timed"
    command = workspace.command("--out", run, "--time", "0.6s")
    at = command.index("--steps")
    del command[at : at + 2]
    settings = {"HEADSTART_CACHE": str(workspace.cache)}
    children = local_ranks.start(local_ranks.COMMAND, command, workspace.path, 2, **settings)
    codes = [exit_code_of(child) for child in children]
    assert codes == [0, 0], local_ranks.log_of(workspace) + local_ranks.log_of(workspace, 1)
    assert result_of(run)["step"] >= 1


@pytest.mark.slow
def test_what_goes_wrong_is_told_once_and_ends_all(workspace):
    """What all find out, what the first one alone finds out, and what one of the others does."""
    assert local_ranks.exit_codes(workspace, "--mask-prob", 7, "--objective", "masked") == [2, 2]
    assert "headstart [bad-value]: mask_prob is 7.0" in local_ranks.log_of(workspace)
    assert local_ranks.log_of(workspace, 1) == ""
    (workspace.path / "file").write_text("")
    assert local_ranks.exit_codes(workspace, "--out", workspace.path / "file" / "run") == [2, 2]
    assert "cannot be written" in local_ranks.log_of(workspace)
    assert local_ranks.log_of(workspace, 1) == ""
    muon = ("--shard", "always", "--optimizer", "muon", "--out", workspace.path / "m")
    assert local_ranks.exit_codes(workspace, *muon) == [2, 2]
    assert "headstart [unsupported]: " in local_ranks.log_of(workspace)
    assert "--optimizer=adamw" in local_ranks.log_of(workspace)
    assert local_ranks.log_of(workspace, 1) == ""
    children = local_ranks.start(
        ALONE_IN_TROUBLE, workspace.command("--out", workspace.path / "trouble"), workspace.path, 2,
        HEADSTART_CACHE=str(workspace.cache),
    )  # fmt: skip
    codes = [exit_code_of(child) for child in children]
    assert codes == [75, 3]
    assert "rank 1: the disk of this one" in local_ranks.log_of(workspace, 1)
    assert "the connection to the other ranks is lost" in local_ranks.log_of(workspace)


ALONE_IN_TROUBLE = """
import os, sys
from headstart.cli.main import run
from headstart.errors import IntegrityError
from headstart.training import loop
def fail(*arguments):
    raise IntegrityError("the disk of this one")
if os.environ["RANK"] == "1":
    loop.learning_rate_factor = fail
sys.exit(run(sys.argv[1:]))
"""


def test_a_verb_that_ranks_cannot_share_is_refused(monkeypatch, capsys):
    for name, value in local_ranks.environment_of(0, 2, 999).items():
        monkeypatch.setenv(name, value)
    assert headstart(["runs"]) == 2
    assert "torchrun is for pretrain and finetune" in capsys.readouterr().err


class Behind(Ranks):
    """A rank that sees older files than another one."""

    def agree(self, *numbers):
        return tuple(number + 3 for number in numbers)


def test_a_rank_that_sees_older_checkpoints_is_refused(tmp_path):
    found = small.training(tmp_path)
    found.machine = dataclasses.replace(found.machine, ranks=Behind())
    with refused("mismatch", "checkpoints", "--out"):
        loop.train(found)


# ---- in parts, or whole ---------------------------------------------------------------------------------------


def run_config(**settings):
    model, head = preset("tiny", vocab=1000), HeadConfig(kind="lm")
    return RunConfig(
        objective="causal", frame="causal", length=8, batch=2, data=DataConfig(), model=model, head=head,
        optimizer=loop.OptimizerConfig(**settings), loop=loop.LoopConfig(), masking=Masking(),
    )  # fmt: skip


def machine_of(world, shard="auto"):
    return Machine(torch.device("cpu"), "fp32", 1, ranks=Ranks(0, world, 0, world), shard=shard)


def test_a_model_that_does_not_fit_whole_is_sharded(monkeypatch):
    config = run_config()
    needed = memory.bytes_needed(config)
    for free, wanted in ((2 * needed, False), (2 * needed - 2, True)):  # two ranks of one machine share it
        monkeypatch.setattr(memory, "free_bytes", lambda free=free: free)
        assert memory.must_shard(config, machine_of(2), allocated=0) is wanted
    monkeypatch.setattr(memory, "free_bytes", lambda: 2 * needed - 2)
    assert memory.must_shard(config, machine_of(2), allocated=needed // 4) is False
    assert memory.must_shard(config, machine_of(2, "never"), allocated=0) is False
    assert memory.must_shard(config, machine_of(1, "always"), allocated=0) is False
    assert memory.must_shard(config, machine_of(2, "always"), allocated=0) is True


def test_what_does_not_fit_even_in_parts_is_refused(monkeypatch):
    config = run_config()
    monkeypatch.setattr(memory, "free_bytes", lambda: memory.bytes_needed(config) + 2)
    memory.check_memory(config, machine_of(2))
    with refused("memory-full", f"{memory.bytes_needed(config):,} bytes", by=TryAgain):
        memory.check_memory(config, machine_of(2, "never"))
    monkeypatch.setattr(memory, "free_bytes", lambda: memory.bytes_needed(config) - 2)
    with refused("memory-full", f"{memory.bytes_needed(config):,} bytes", by=TryAgain):
        memory.check_memory(config, machine_of(2))


def test_what_needs_whole_matrices_or_unfreezes_is_not_sharded():
    with refused("unsupported", "Muon", "--optimizer=adamw", "--shard=never"):
        memory.must_shard(run_config(optimizer="muon"), machine_of(2, "always"), allocated=0)
    config = dataclasses.replace(run_config(), loop=loop.LoopConfig(unfreeze_every=2))
    with refused("unsupported", "--unfreeze-every"):
        memory.must_shard(config, machine_of(2, "always"), allocated=0)
