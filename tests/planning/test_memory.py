"""The peak of memory against what torch's allocator counts, and small cases by hand."""

import json
import multiprocessing
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.machine import Machine
from headstart.planning import memory
from headstart.planning.activations import Saved
from headstart.planning.memory import MEGABYTE
from headstart.planning.parameters import model_sizes
from headstart.planning.workload import Lengths, Workload, reading_of
from headstart.training.calibration.rehearsal import DOCUMENT, one_update, rehearsal


def workload(name, kind="lm", batch=4, length=64, target=0, **rest):
    own = {key: rest.pop(key) for key in ("precision", "optimizer", "accumulate", "freeze", "reading") if key in rest}
    reading = own.pop("reading", reading_of(kind))
    return Workload(
        config=preset(name, **{"vocab": 3000, **rest}), head=HeadConfig(kind=kind), batch=batch,
        lengths=Lengths(length, target), reading=reading, document=DOCUMENT if reading == "packed" else 0, **own,
    )  # fmt: skip


def live_peak(work, file):
    """Bytes that tensors hold at most over two steps, by torch's own count."""
    machine = Machine(torch.device("cpu"), work.precision, threads=1)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        update = one_update(rehearsal(work, machine))
        update(0)
        update(1)
    profiler.export_chrome_trace(str(file))
    events = json.loads(Path(file).read_text())["traceEvents"]
    return max(event["args"]["Total Allocated"] for event in events if event.get("name") == "[memory]")


CASES = {
    "blocks of documents": workload("tiny", batch=8, length=128),
    "a large vocabulary, tied": workload("tiny", vocab=20_000),
    "gates and RMSNorm": workload("modern-small", depth=2),
    "masked": workload("modern-small", "masked", depth=2, direction="bidirectional"),
    "dropout everywhere": workload("gpt2", batch=2, length=128, depth=2, width=192, heads=4, ffn=768),
    "two micro-batches": workload("tiny", batch=8, accumulate=2, width=256),
    "Muon": workload("tiny", optimizer="muon", width=256),
    "Muon, split": workload("modern-small", optimizer="muon-split", depth=2),
    "translation": workload("transformer-tiny", "translation", batch=8, length=30, target=25, depth=2),
    "half precision": workload("tiny", batch=16, precision="bf16", width=256),
    "a frozen base": workload("bert-base", "classification", depth=2, batch=8, freeze="base"),
}


def _in_child(connection, work, file):
    torch.set_num_threads(1)
    connection.send(live_peak(work, file))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_planned_peak_is_what_tensors_hold_at_most(name, tmp_path):
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(
        target=_in_child, args=(there, CASES[name], tmp_path / "trace.json")
    )
    child.start()
    measured = here.recv()
    child.join()
    kinds = memory.training_memory(CASES[name]).kinds
    planned = sum(count for kind, count in kinds.items() if kind not in ("process", "libraries", "allocator"))
    assert planned == pytest.approx(measured, rel=0.05)


def test_weights_gradients_and_memories_by_hand():
    config = preset("lab", vocab=100)
    work = Workload(config=config, head=HeadConfig(kind="lm"), batch=1, lengths=Lengths(1), device="cuda")
    found = model_sizes(work)
    assert found.total == 1_008_100
    assert found.block == 4 * 200 * 200 + 4 * 200 + 2 * (200 * 200 + 200) + 4 * 200
    assert found.embedding == found.output == 100 * 200
    assert memory.optimizer_bytes(work, found) == 2 * 4 * 1_008_100
    muon = Workload(**{**vars(work), "optimizer": "muon"})
    assert memory.optimizer_bytes(muon, found) == 4 * (2 * 1_008_100 - 4 * 6 * 200 * 200)
    kinds = memory.training_memory(work).kinds
    assert kinds["weights"] == 4 * 1_008_100 + 4 * 512 * 200  # and the table of sinusoids
    assert kinds["gradients"] == 4 * 1_008_100  # one token: the update is the fullest moment


def test_a_table_that_no_output_shares_has_no_dense_gradient_on_a_cpu():
    tied, apart = workload("tiny"), workload("tiny", tied=False)
    assert model_sizes(tied).sparse == 0
    assert model_sizes(apart).sparse == 3000 * 128
    assert model_sizes(Workload(**{**vars(apart), "device": "cuda"})).sparse == 0


def test_a_frozen_base_has_gradients_of_the_head_alone():
    work = workload("tiny", "classification", freeze="base")
    found = model_sizes(work)
    assert found.trainable == 2 * 128 + 2
    assert memory.training_memory(work).kinds["optimizer"] == 2 * 4 * found.trainable


def libraries(**changes):
    return memory.training_memory(Workload(**{**vars(workload("tiny", length=64)), **changes})).kinds["libraries"]


def test_the_total_is_the_whole_process_with_its_libraries_and_compiled_kernels():
    kinds = memory.training_memory(workload("tiny")).kinds
    assert memory.training_memory(workload("tiny")).total == sum(kinds.values())
    assert kinds["process"] == 250 * MEGABYTE
    plain = libraries()
    assert plain == 140 * MEGABYTE
    assert libraries(counts_vectors=True) == libraries(head=HeadConfig(kind="classification")) == 300 * MEGABYTE
    bf16 = libraries(precision="bf16", seen_shapes=10)
    assert bf16 - libraries(precision="bf16", seen_shapes=5) == pytest.approx(5 * 4.3 * MEGABYTE, abs=1)
    assert libraries(device="cuda", precision="bf16", seen_shapes=10) == 128 * MEGABYTE


def test_lengths_of_texts_reach_twice_their_mean_where_they_were_not_counted():
    packed = workload("tiny", length=64)
    assert Workload(**{**vars(packed), "document": 20}).shapes == 40
    assert Workload(**{**vars(packed), "document": 50}).shapes == 64
    assert Workload(**{**vars(packed), "document": 0}).shapes == 1
    assert workload("tiny", "classification", length=30).shapes == 60
    assert workload("tiny", length=64, reading="whole").shapes == 1


def test_an_average_is_one_more_copy():
    work = workload("tiny")
    averaged = Workload(**{**vars(work), "average": True})
    difference = memory.training_memory(averaged).total - memory.training_memory(work).total
    assert difference == 4 * model_sizes(work).total


def test_the_cache_of_decoding_by_hand():
    work = workload("tiny", batch=3, length=10)
    assert memory.cache_bytes(work) == 2 * 3 * 2 * 10 * 128 * 4 * 2  # twice the room it needs


def test_disk_is_checkpoints_weights_and_store():
    work = workload("tiny")
    numbers = model_sizes(work).total
    assert memory.disk_bytes(work, keep=2, tokens_stored=1000) == {
        "checkpoints": 3 * 3 * 4 * numbers,
        "weights": 4 * numbers,
        "token store": 2000,
    }


def test_evaluation_needs_less_than_training():
    for work in CASES.values():
        assert memory.evaluation_memory(work).total < memory.training_memory(work).total


# ---- what a CPU's allocator holds in holes, by hand ----------------------------------------------------------


def test_holes_grow_with_what_passes_and_with_the_largest_tensor():
    saved = [Saved("small", "", 40 * MEGABYTE, 40), Saved("large", "", 60 * MEGABYTE, 6)]
    expected = (0.35 * 100 + 1.1 * (100 * 10) ** 0.5 + 0.1 * 20) * MEGABYTE
    assert memory.heap_holes(saved, 100 * MEGABYTE, 20 * MEGABYTE) == pytest.approx(expected)


def test_tensors_that_are_mapped_by_themselves_leave_no_holes():
    mapped = [Saved("mapped", "", 400 * MEGABYTE, 10)]
    assert memory.heap_holes(mapped, 400 * MEGABYTE, 0) == 0
    half = [*mapped, Saved("in the heap", "", 400 * MEGABYTE, 400)]
    expected = (0.35 * 0.5 * 800 + 1.1 * 800**0.5) * MEGABYTE
    assert memory.heap_holes(half, 800 * MEGABYTE, 0) == pytest.approx(expected)


def test_nothing_kept_is_no_holes():
    assert memory.heap_holes([], 0, 0) == 0
