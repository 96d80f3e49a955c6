"""The scheduler by itself: nothing is carried out here."""

from headstart.study.execution.scheduler import ScheduledTask, Scheduler, TaskEnd, TaskResult


def scheduler_of(*tasks, jobs=2):
    said = []
    return Scheduler(tasks, jobs, log=said.append), said


def test_tasks_begin_in_order_after_those_that_they_wait_for():
    a, b, c = ScheduledTask("a", 0), ScheduledTask("b", 0, after=("c",)), ScheduledTask("c", 0)
    scheduler, _ = scheduler_of(a, b, c)
    assert scheduler.next() == [a, c]
    assert scheduler.next() == []
    scheduler.finish(c, TaskEnd(), 1.0)
    assert scheduler.next() == [b]
    scheduler.finish(b, TaskEnd("a bug"), 1.0)
    assert scheduler
    scheduler.finish(a, TaskEnd(), 1.0)
    assert not scheduler
    assert scheduler.results["c"] == TaskResult("c", None, 1.0)


def test_a_task_that_wants_a_whole_gpu_runs_beside_no_other_on_it():
    base, other = (ScheduledTask(name, None, device="whole gpu") for name in ("base", "other"))
    trial, table = ScheduledTask("trial", None, device="gpu"), ScheduledTask("table", None)
    scheduler, _ = scheduler_of(base, other, trial, table, jobs=4)
    assert [task.name for task in scheduler.next()] == ["base", "table"]
    scheduler.finish(table, TaskEnd(), 1.0)
    assert scheduler.next() == []
    scheduler.lose(base, "the GPU failed", 1.0)
    assert scheduler.next() == [base]
    scheduler.finish(base, TaskEnd(), 1.0)
    assert scheduler.next() == [other]
    scheduler.finish(other, TaskEnd(), 1.0)
    assert scheduler.next() == [trial]
    late = ScheduledTask("late", None, device="whole gpu")
    waiting, _ = scheduler_of(trial, late, ScheduledTask("next", None, device="gpu"), jobs=3)
    assert waiting.next() == [trial], "and the trial that came later waits behind it"


def test_two_tasks_of_one_thread_have_the_room_of_one_of_two():
    network, *tables = (ScheduledTask(name, None, threads=threads) for name, threads in (("n", 2), ("a", 1), ("b", 1)))
    scheduler = Scheduler([*tables, network], 1, threads=2)
    assert scheduler.next() == tables
    scheduler.finish(tables[0], TaskEnd(), 1.0)
    assert scheduler.next() == []
    scheduler.finish(tables[1], TaskEnd(), 1.0)
    assert scheduler.next() == [network]


def test_tasks_that_lack_memory_side_by_side_run_one_by_one_at_last():
    tables = [ScheduledTask(name, None) for name in "ab"]
    scheduler = Scheduler(tables, 1, threads=2)
    assert scheduler.next() == tables
    scheduler.finish(tables[0], TaskEnd("full", is_out_of_memory=True), 1.0)
    assert scheduler.next() == []
    scheduler.finish(tables[1], TaskEnd(), 1.0)
    assert scheduler.next() == [tables[0]]


def test_a_step_further_is_not_another_place():
    task = ScheduledTask("a", 0)
    scheduler, said = scheduler_of(task)
    for share in (0.5, 0.503, 0.506):
        assert "a" not in scheduler.results
        assert scheduler.next() == [task]
        scheduler.progress("a", share)
        scheduler.lose(task, "SIGKILL", 1.0)
    assert scheduler.results["a"].error == "its process died 3 times without progress (SIGKILL)"
    assert not scheduler
    assert said == [f"a: its process died (SIGKILL); resuming (try {number} of 3)" for number in (2, 3)]


def test_who_comes_further_begins_to_count_anew():
    task = ScheduledTask("a", 0)
    scheduler, said = scheduler_of(task)
    for share in (0.1, 0.2, 0.3, 0.4):
        assert scheduler.next() == [task]
        scheduler.progress("a", share)
        scheduler.lose(task, "SIGKILL", 1.0)
    assert scheduler
    assert {line[-12:] for line in said} == {"(try 2 of 3)"}


FULL = TaskEnd("the memory is full", is_out_of_memory=True)


def test_who_finds_no_memory_beside_others_is_tried_again_among_fewer():
    tasks = [ScheduledTask(name, 0) for name in "abcd"]
    scheduler, said = scheduler_of(*tasks, jobs=3)
    assert scheduler.next() == tasks[:3]
    scheduler.finish(tasks[1], FULL, 1.0)
    assert scheduler.next() == []
    scheduler.finish(tasks[0], TaskEnd(), 1.0)
    assert scheduler.next() == [tasks[3]]
    scheduler.finish(tasks[2], TaskEnd(), 1.0)
    assert scheduler.next() == [tasks[1]]
    assert said == ["b: out of memory beside other tasks; retrying with 2 at a time"]


def test_also_the_last_of_several_had_no_room_beside_others():
    a, b = ScheduledTask("a", 0), ScheduledTask("b", 0)
    scheduler, said = scheduler_of(a, b)
    assert scheduler.next() == [a, b]
    for task in (a, b):
        scheduler.finish(task, FULL, 1.0)
    assert not scheduler.results
    assert len(said) == 2
    for task in (a, b):  # alone, each of them
        assert scheduler.next() == [task]
        scheduler.finish(task, FULL, 1.0)
        assert scheduler.results[task.name].error == "the memory is full"
    assert not scheduler
