"""The adapters that clients can name, and those that they load and unload."""

from __future__ import annotations

import json
import re
from pathlib import Path

from simlora.core.errors import InputError
from simlora.core.trace import BASE_MODEL
from simlora.serving.errors import ApiError
from simlora.serving.live_cluster import LiveCluster

_IN_NAME = re.compile(r"(?:^|[-_./])r(?:ank)?[-_]?([0-9]+)$", re.IGNORECASE)
RANK_HEADER = "x-lora-rank"


class KnownAdapters:
    """Names and numbers of the adapters of a live cluster; `base` names the base model.

    An adapter that is unloaded is only forgotten by name, as vLLM's front end forgets it: its weights stay until the
    eviction policy lets them go, and its requests go on. Loaded again before both have gone it is another adapter,
    whose weights have to come anew; afterwards the engine takes it for the one that it was.
    """

    def __init__(self, cluster: LiveCluster, base: str) -> None:
        self._cluster, self.base = cluster, base
        self._numbers = {each.name: each.id for each in cluster.simulation.adapters}
        began_s = int(cluster.clock.unix_s())
        self._listed = {name: (name, began_s) for name in [base, *self._numbers]}
        self._known = {*self._numbers}  # names of the cluster's adapters, also of unloaded ones
        self._unloaded: dict[tuple[str, int], list[int]] = {}  # numbers, by name and rank
        self._loads = 0
        self.refuses_until_s = 0.0
        """The simulated time until which loads are refused."""

    def names(self) -> list[str]:
        """Return the names of the adapters."""
        return list(self._numbers)

    def listed(self) -> list[tuple[str, str, int]]:
        """Return name, path and time of day of the load of the base model and of each adapter."""
        return [(name, *self._listed[name]) for name in [self.base, *self._numbers]]

    def number(self, model: str | None) -> int:
        """Return the number of the adapter that a request names, or BASE_MODEL. Raises ApiError 404."""
        if model is None or model == self.base:
            return BASE_MODEL
        found = self._numbers.get(model)
        if found is None:
            raise ApiError(404, f"The model `{model}` does not exist.", "model")
        return found

    def load(self, name: str, path: str, rank: int | None, in_place: bool = False) -> int:
        """Serve an adapter by a name; return its rank. Raises ApiError where that cannot be.

        `in_place`: instead of one that has the name.
        """
        if self._cluster.clock.now_s() < self.refuses_until_s:
            raise ApiError(
                500, f"The lora adapter '{name}' was not loaded: loads are refused (/simlora/faults)."
            )
        if (name in self._numbers and not in_place) or name == self.base:
            raise ApiError(400, f"The lora adapter '{name}' has already been loaded.")
        if name != name.strip() or not name.isprintable() or "," in name:
            raise ApiError(
                400,
                f"lora_name is {name!r}, must be printable, without commas and without white space around",
                "lora_name",
            )
        if rank is None:
            rank = _in_config(path) or _in_name(name) or _in_name(path)
        if rank is None:
            raise ApiError(
                400,
                f"The rank of the lora adapter '{name}' is not known: give it as the header {RANK_HEADER}, as the "
                "field rank, at the end of the name (-r16), or in a local adapter_config.json.",
            )
        try:
            number = self._number(name, rank)
        except InputError as error:
            raise ApiError(400, str(error)) from None
        if name in self._numbers:
            self._forget(name)
        self._numbers[name] = number
        self._listed[name] = path or name, int(self._cluster.clock.unix_s())
        return rank

    def unload(self, name: str) -> None:
        """Forget an adapter's name; its requests go on. Raises ApiError 404."""
        if name not in self._numbers:
            raise ApiError(404, f"The lora adapter '{name}' cannot be found.")
        self._forget(name)

    def _number(self, name: str, rank: int) -> int:
        """Return the number of an adapter that is loaded: of one that was unloaded and is used no more, or anew."""
        cluster = self._cluster
        unloaded = self._unloaded.get((name, rank), [])
        for number in unloaded:
            if not cluster.uses(number):
                unloaded.remove(number)
                return number
        self._loads += 1
        own = name if name not in self._known else f"{name}@{self._loads}"
        number = cluster.add_adapter(own, rank, name)
        self._known.add(own)
        return number

    def _forget(self, name: str) -> None:
        number = self._numbers.pop(name)
        rank = self._cluster.simulation.adapters[number].rank
        self._unloaded.setdefault((name, rank), []).append(number)


def _in_name(name: str) -> int | None:
    found = _IN_NAME.search(name)
    return int(found[1]) if found and len(found[1]) <= 4 and int(found[1]) else None


def _in_config(path: str) -> int | None:
    """Return the rank in the adapter_config.json of a local folder; None: there is none."""
    try:
        config = json.loads(Path(path, "adapter_config.json").read_bytes())
        rank = config.get("r")
    except (OSError, ValueError, AttributeError):
        return None
    return rank if isinstance(rank, int) and not isinstance(rank, bool) and rank > 0 else None
