from __future__ import annotations

from addendum.cache.kept import Kept


def test_what_was_not_used_for_longest_leaves_when_there_is_no_room() -> None:
    kept: Kept[str] = Kept(10)
    kept.put("a", "A", 4)
    kept.put("b", "B", 4)
    assert kept.get("a") == "A"
    kept.put("c", "C", 4)
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == ("A", None, "C")
    assert kept.lost == 1
    # What never came is not missed, and what left is missed once.
    assert kept.get("d") is None and kept.get("b") is None
    assert kept.lost == 1


def test_the_newest_stays_whatever_its_size_and_is_counted_once() -> None:
    kept: Kept[str] = Kept(10)
    kept.put("a", "A", 40)
    assert kept.get("a") == "A"
    kept.put("a", "AA", 6)
    kept.put("b", "B", 4)
    assert (kept.get("a"), kept.get("b"), kept.lost) == ("AA", "B", 0)


def test_without_a_limit_all_stay() -> None:
    kept: Kept[int] = Kept()
    for number in range(100):
        kept.put(number, number, 1 << 40)
    assert [kept.get(number) for number in range(100)] == list(range(100))
