"""The key `parts`: a user's own parts, and what is refused as one."""

from typing import Any

import pytest

from simlora.config.parts import own_parts
from simlora.core.errors import InputError
from simlora.engine.replica.part import Part


class Stalls(Part):
    def __init__(self, replica: Any, every_s: float = 10.0) -> None:
        self.every_s = every_s

    def at_boundary(self, now_s: float) -> None:
        """Nothing."""


class WithoutReplica(Part):
    pass


class Misspelt(Stalls):
    def at_boundry(self, now_s: float) -> None:
        """Nothing."""


class Invented(Stalls):
    def on_admit(self, now_s: float) -> None:
        """Nothing."""


class WithoutTime(Stalls):
    def at_boundary(self) -> None:  # type: ignore[override]
        """Nothing."""


class Sampled(Stalls):
    def sample(self) -> tuple[int, ...]:
        return (1,)


class NoPart:
    pass


def test_each_entry_makes_a_part_with_its_arguments():
    plain, often = own_parts(
        {"parts": [f"{__name__}.Stalls", {"_target_": f"{__name__}.Stalls", "every_s": 2.0}]}
    )
    found = [make(None) for make in (plain, often)]
    assert [type(part) for part in found] == [Stalls, Stalls]
    assert [part.every_s for part in found if isinstance(part, Stalls)] == [10.0, 2.0]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ("Stalls", "parts is 'Stalls', must be a list, such as"),
        ([3], "parts has 3, must be a list, such as"),
        ([f"{__name__}.NoPart"], "NoPart, must be a subclass of"),
        ([f"{__name__}.WithoutReplica"], "WithoutReplica, which cannot be made for a replica: too many"),
        ([f"{__name__}.Misspelt"], "Misspelt, whose method at_boundry is not a hook: did you mean"),
        ([f"{__name__}.Invented"], "Invented, whose method on_admit is not a hook: did you mean"),
        ([f"{__name__}.WithoutTime"], r"WithoutTime, whose hook at_boundary cannot be called as"),
        ([f"{__name__}.Sampled"], "hook sample is for simlora's own parts"),
        ([f"{__name__}.Stall"], f"Stall, which cannot be imported: {__name__} has no Stall"),
        (["no_such_module.Stalls"], "cannot be imported: there is no module no_such_module in the current"),
        ([{"_target_": f"{__name__}.Stalls", "evry_s": 2}], "Stalls, which cannot be made for a replica"),
    ],
)
def test_what_is_no_part_is_refused(parts, message):
    with pytest.raises(InputError, match=message):
        own_parts({"parts": parts})
