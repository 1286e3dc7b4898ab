"""What a prefix tree tells others, such as tests that watch it."""

from __future__ import annotations

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class TreeListener:
    """Is told what becomes of cached KV, in token slots."""

    def added(self, tokens: int) -> None:
        """A request has computed KV that was not cached."""

    def left(self, tokens: int) -> None:
        """KV has left HBM."""

    def sent(self, tokens: int, now_s: float, there_s: float, done_s: float) -> None:
        """KV that left HBM is copied to the host until `done_s`; where it had not come before `there_s`, it is not."""

    def given_up(self, tokens: int, until_s: float) -> None:
        """KV that left HBM has a copy on the host; another copy may use its slots until then."""

    def brought(self, tokens: int) -> None:
        """KV that was not cached comes to the host from elsewhere."""

    def dropped(self, tokens: int) -> None:
        """The host has dropped KV."""

    def came(self, tokens: int, computed: bool) -> None:
        """KV on the host is in HBM again; `computed`: not copied, as a request has computed it anew."""
