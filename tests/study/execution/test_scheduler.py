"""The scheduler by itself: nothing is carried out here."""

from headstart.study.execution.scheduler import Scheduler, Task, TaskEnd


def scheduler_of(*tasks, jobs=2):
    said = []
    return Scheduler(tasks, jobs, log=said.append), said


def test_tasks_begin_in_order_after_those_that_they_wait_for():
    a, b, c = Task("a", 0), Task("b", 0, after=("c",)), Task("c", 0)
    scheduler, _ = scheduler_of(a, b, c)
    assert scheduler.next() == [a, c]
    assert scheduler.next() == []
    scheduler.finish(c, TaskEnd(), 1.0)
    assert scheduler.next() == [b]
    scheduler.finish(b, TaskEnd("a bug"), 1.0)
    assert scheduler
    scheduler.finish(a, TaskEnd(), 1.0)
    assert not scheduler
    assert scheduler.results["c"] == ("c", None, 1.0)


def test_a_step_further_is_not_another_place():
    task = Task("a", 0)
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
    task = Task("a", 0)
    scheduler, said = scheduler_of(task)
    for share in (0.1, 0.2, 0.3, 0.4):
        assert scheduler.next() == [task]
        scheduler.progress("a", share)
        scheduler.lose(task, "SIGKILL", 1.0)
    assert scheduler
    assert {line[-12:] for line in said} == {"(try 2 of 3)"}


FULL = TaskEnd("the memory is full", is_out_of_memory=True)


def test_who_finds_no_memory_beside_others_is_tried_again_among_fewer():
    tasks = [Task(name, 0) for name in "abcd"]
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
    a, b = Task("a", 0), Task("b", 0)
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
