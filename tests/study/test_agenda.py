"""The agenda by itself: nothing is carried out here."""

from headstart.study.agenda import Agenda, Ending, Task


def agenda_of(*tasks, jobs=2):
    said = []
    return Agenda(tasks, jobs, tell=said.append), said


def test_tasks_begin_in_order_after_those_that_they_wait_for():
    a, b, c = Task("a", 0), Task("b", 0, after=("c",)), Task("c", 0)
    agenda, _ = agenda_of(a, b, c)
    assert agenda.next(0) == [a, c]
    assert agenda.next(2) == []
    agenda.ended(c, Ending(), 1.0, others=1)
    assert agenda
    assert agenda.next(1) == [b]
    assert not agenda
    assert agenda.outcomes["c"] == ("c", None, 1.0)


def test_a_step_further_is_not_another_place():
    task = Task("a", 0)
    agenda, said = agenda_of(task)
    for share in (0.5, 0.503, 0.506):
        assert "a" not in agenda.outcomes
        assert agenda.next(0) == [task]
        agenda.heard("a", share)
        agenda.lost(task, "SIGKILL", 1.0)
    assert agenda.outcomes["a"].error == "its process ended 3 times (SIGKILL)"
    assert not agenda
    assert said == [
        f"a: its process ended (SIGKILL); it goes on where it was (try {number} of 3)" for number in (2, 3)
    ]


def test_who_comes_further_begins_to_count_anew():
    task = Task("a", 0)
    agenda, said = agenda_of(task)
    for share in (0.1, 0.2, 0.3, 0.4):
        assert agenda.next(0) == [task]
        agenda.heard("a", share)
        agenda.lost(task, "SIGKILL", 1.0)
    assert agenda
    assert {line[-12:] for line in said} == {"(try 2 of 3)"}


def test_without_memory_there_are_fewer_at_once_and_the_last_one_alone_has_failed():
    tasks = [Task(name, 0) for name in "abcd"]
    agenda, said = agenda_of(*tasks, jobs=3)
    assert agenda.next(0) == tasks[:3]
    full = Ending("the memory is full", is_crowded=True)
    agenda.ended(tasks[1], full, 1.0, others=2)
    assert agenda.jobs == 2
    assert agenda.next(2) == []
    assert agenda.next(0) == [tasks[3], tasks[1]]
    agenda.ended(tasks[1], full, 1.0, others=0)
    assert agenda.outcomes["b"].error == "the memory is full"
    assert said == ["b: no memory is left beside 2; from now on 2 at once, and it again"]
