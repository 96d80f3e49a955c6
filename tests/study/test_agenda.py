"""The agenda by itself: nothing is carried out here."""

from headstart.study.agenda import Agenda, Ending, Task


def agenda_of(*tasks, jobs=2):
    said = []
    return Agenda(tasks, jobs, tell=said.append), said


def test_tasks_begin_in_order_after_those_that_they_wait_for():
    a, b, c = Task("a", 0), Task("b", 0, after=("c",)), Task("c", 0)
    agenda, _ = agenda_of(a, b, c)
    assert agenda.next() == [a, c]
    assert agenda.next() == []
    agenda.ended(c, Ending(), 1.0)
    assert agenda.next() == [b]
    agenda.ended(b, Ending("a bug"), 1.0)
    assert agenda
    agenda.ended(a, Ending(), 1.0)
    assert not agenda
    assert agenda.outcomes["c"] == ("c", None, 1.0)


def test_a_step_further_is_not_another_place():
    task = Task("a", 0)
    agenda, said = agenda_of(task)
    for share in (0.5, 0.503, 0.506):
        assert "a" not in agenda.outcomes
        assert agenda.next() == [task]
        agenda.heard("a", share)
        agenda.lost(task, "SIGKILL", 1.0)
    assert agenda.outcomes["a"].error == "its process ended 3 times at one place (SIGKILL)"
    assert not agenda
    assert said == [
        f"a: its process ended (SIGKILL); it goes on where it was (try {number} of 3)" for number in (2, 3)
    ]


def test_who_comes_further_begins_to_count_anew():
    task = Task("a", 0)
    agenda, said = agenda_of(task)
    for share in (0.1, 0.2, 0.3, 0.4):
        assert agenda.next() == [task]
        agenda.heard("a", share)
        agenda.lost(task, "SIGKILL", 1.0)
    assert agenda
    assert {line[-12:] for line in said} == {"(try 2 of 3)"}


FULL = Ending("the memory is full", is_crowded=True)


def test_who_finds_no_memory_beside_others_is_tried_again_among_fewer():
    tasks = [Task(name, 0) for name in "abcd"]
    agenda, said = agenda_of(*tasks, jobs=3)
    assert agenda.next() == tasks[:3]
    agenda.ended(tasks[1], FULL, 1.0)
    assert agenda.next() == []
    agenda.ended(tasks[0], Ending(), 1.0)
    assert agenda.next() == [tasks[3]]
    agenda.ended(tasks[2], Ending(), 1.0)
    assert agenda.next() == [tasks[1]]
    assert said == ["b: no memory was left for it beside others; it is tried again, 2 at a time"]


def test_also_the_last_of_several_had_no_room_beside_others():
    a, b = Task("a", 0), Task("b", 0)
    agenda, said = agenda_of(a, b)
    assert agenda.next() == [a, b]
    for task in (a, b):
        agenda.ended(task, FULL, 1.0)
    assert not agenda.outcomes
    assert len(said) == 2
    for task in (a, b):  # alone, each of them
        assert agenda.next() == [task]
        agenda.ended(task, FULL, 1.0)
        assert agenda.outcomes[task.name].error == "the memory is full"
    assert not agenda
