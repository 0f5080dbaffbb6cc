"""What is watched: every change is seen, in whatever way this Python lets it be seen."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial
from typing import Any

import numpy
import pytest

from cachesvc.runtime.aot import words
from cachesvc.runtime.aot.watch import Watch

pytestmark = pytest.mark.usefixtures("way")


def closed(watch: Watch) -> Watch:
    watch.close()
    return watch


def test_each_change_of_a_dictionary_is_seen() -> None:
    """Set, replaced by an equal value of another object, deleted, reordered."""
    changes: list[Any] = [
        lambda d: d.__setitem__("c", 1),
        lambda d: d.__setitem__("a", [1]),
        lambda d: d.pop("a"),
        lambda d: d.update({"a": d.pop("a")}),
    ]
    for change in changes:
        holder: dict[str, Any] = {"a": [1], "b": 2}
        watch = Watch()
        watch.items(holder)
        closed(watch)
        assert watch.is_whole()
        change(holder)
        assert not watch.is_whole()
        assert not watch.is_whole()  # and stays so


def test_an_empty_dictionary_that_is_filled_is_seen() -> None:
    """Hooks come into dictionaries that were empty."""
    holder: dict[int, int] = {}
    watch = Watch()
    watch.items(holder)
    closed(watch)
    assert watch.is_whole()
    holder[1] = 1
    assert not watch.is_whole()


def test_an_entry_moved_to_the_end_is_seen() -> None:
    """An ordered dictionary can be reordered without a write that Python counts."""
    holder = OrderedDict(a=1, b=2)
    watch = Watch()
    watch.items(holder)
    closed(watch)
    holder.move_to_end("a")
    assert not watch.is_whole()


def test_what_goes_there_and_back_is_whole_again() -> None:
    """The same object in its place counts as no change, whatever the numbers of Python say."""
    holder = {"a": [1], "b": [2]}
    before = holder["b"]
    watch = Watch()
    watch.items(holder)
    closed(watch)
    holder["b"] = []
    assert not watch.is_whole()
    holder["b"] = before
    assert watch.is_whole()
    holder["b"] = []
    assert not watch.is_whole()


def test_entries_leave_the_rest_of_a_dictionary_alone() -> None:
    """Of a module's namespace only some names count, also those that are not there yet."""
    scope: dict[str, Any] = {"used": 1}
    watch = Watch()
    watch.entries(scope, ("used", "later"))
    closed(watch)
    scope["other"] = 2
    assert watch.is_whole()
    scope["later"] = 3
    assert not watch.is_whole()


@pytest.mark.parametrize("change", [lambda x: x.append(3), lambda x: x.__setitem__(0, 9)])
def test_a_list_is_seen_to_change(change: Any) -> None:
    """Lists have no number: they are compared item by item."""
    holder = [1, 2]
    watch = Watch()
    watch.sequence(holder)
    closed(watch)
    assert watch.is_whole()
    change(holder)
    assert not watch.is_whole()


def test_a_partial_function_given_another_state_is_seen() -> None:
    """`__setstate__` replaces what a partial function calls."""
    value = partial(len, ())
    watch = Watch()
    watch.partial(value)
    closed(watch)
    assert watch.is_whole()
    value.__setstate__((max, (), {}, {}))  # type: ignore[attr-defined]
    assert not watch.is_whole()


def test_a_small_array_written_to_is_seen() -> None:
    """The values of a constant array are in the digest."""
    array = numpy.ones(4)
    watch = Watch()
    watch.array(array)
    closed(watch)
    assert watch.is_whole()
    array[1] = 5
    assert not watch.is_whole()


def test_no_thread_takes_a_change_for_none_because_another_has_seen_it() -> None:
    """A look that finds a change hides it from nobody."""
    holder = {"a": 1}
    watch = Watch()
    looked: list[bool] = []

    def slow() -> bool:
        if len(looked) == 0 and holder["a"] == 2:
            looked.append(True)
            thread = threading.Thread(target=lambda: looked.append(watch.is_whole()))
            thread.start()
            thread.join()
        return holder["a"] == 1

    watch.add(slow, watch.words_of(holder), holder)
    closed(watch)
    assert watch.is_whole()
    holder["a"] = 2
    assert not watch.is_whole()
    assert looked == [True, False]


def test_a_thing_is_new_once() -> None:
    """What is reached on two ways is watched once, and kept alive."""
    watch = Watch()
    value = [1]
    assert watch.is_new(value)
    assert not watch.is_new(value)


def test_words_tell_each_change_and_which() -> None:
    """The indices of the words that have moved; nothing else moves them."""
    where = words.layout()
    if where is None:
        pytest.skip("this Python keeps no such words")
    one, other = {"a": 1}, {"b": 2}
    seen = words.Words([*words.dict_words(one, where), *words.dict_words(other, where)])
    assert seen.moved() is None
    other["b"] = 3
    now = seen.moved()
    assert now is not None
    assert seen.which(now) == [1]
    assert seen.moved() is not None
    seen.settle(now)
    assert seen.moved() is None


def test_words_of_functions_classes_cells_and_objects_move() -> None:
    """Code, defaults, bases, contents, class and dictionary of an object."""
    where = words.layout()
    if where is None:
        pytest.skip("this Python keeps no such words")

    class Base:
        pass

    class Other:
        pass

    class Kind(Base):
        pass

    content = 1

    def function(value: int = 1, *, named: int = 2) -> int:
        return value + named + content

    def code() -> int:
        return content

    instance = Kind()
    cell: Any = (function.__closure__ or ())[0]
    changes: list[tuple[list[int], Any]] = [
        (words.function_words(function, where), lambda: setattr(function, "__defaults__", (5,))),
        (
            words.function_words(function, where),
            lambda: setattr(function, "__code__", code.__code__),
        ),
        (words.function_words(function, where), lambda: setattr(function, "__kwdefaults__", {})),
        (words.class_words(Kind, where), lambda: setattr(Kind, "__bases__", (Other,))),
        (words.cell_words(cell, where), lambda: setattr(cell, "cell_contents", [])),
        (words.object_words(instance, where), lambda: setattr(instance, "__class__", Other)),
        (words.object_words(instance, where), lambda: setattr(instance, "__dict__", {"a": 1})),
    ]
    for addresses, change in changes:
        seen = words.Words(addresses)
        assert seen.moved() is None
        change()
        assert seen.moved() is not None


def test_there_are_no_words_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy is nobody's duty: all is compared one by one then."""
    monkeypatch.setattr(words.importlib.util, "find_spec", lambda name: None)
    words.layout.cache_clear()
    try:
        assert words.layout() is None
    finally:
        monkeypatch.undo()
        words.layout.cache_clear()


def test_there_are_no_words_where_a_change_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Python that has given up the numbers is found out by trying."""
    monkeypatch.setattr(words, "_DICT_VERSION", 0)
    words.layout.cache_clear()
    try:
        assert words.layout() is None
    finally:
        monkeypatch.undo()
        words.layout.cache_clear()
