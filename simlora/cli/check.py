"""`simlora-check my_module.MyPolicy|slot=choice [key=value …]`: does a policy keep what its slot promises?"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence

from simlora.cli.guarded import DONE, add_config_dir, command_parser, guarded_options
from simlora.cli.messages import show

BROKEN = 1
DESCRIPTION = """\
Check a policy of your own: a class below the base class of a slot (scheduler, loader, eviction, router, placement,
migration, autoscaler or kernel), or a choice of one. It runs in small simulations and is asked twice at every decision.
Checked is that

  it answers the same question in one way, and draws only from view.rng
  its answers are possible: requests that wait here, replicas that may serve, idle adapters, memory that is free
  it changes nothing of what its view shows, and reads nothing that the view does not show
  every request ends, and the same run comes out twice"""
EXAMPLES = """\
examples
  simlora-check my_router.Mine
  simlora-check my_scheduler.Weighted alpha=0.5 starving_s=10
  simlora-check --config-dir mine router=patient wait_s=2    the choice of mine/router/patient.yaml, one key changed

Modules are found in the current folder. What breaks is printed with the command that runs it, in which the policy does
the same without being watched. docs/extending.md says what each slot is asked.
Exit status: 0 kept, 1 something is broken, 2 bad input, 130 interrupted."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return guarded_options(_parser(), argv, _run, "interrupted")


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("simlora-check", DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "policy", metavar="POLICY", help="the class by its dotted name, my_module.MyPolicy, or slot=choice"
    )
    parser.add_argument(
        "arguments", nargs="*", metavar="key=value", help="its keys, as its constructor names them"
    )
    add_config_dir(parser)
    return parser


def _run(options: argparse.Namespace) -> int:
    from simlora.checking.check import check, slot_of

    show(f"{options.policy}, {_with_article(slot_of(options.policy, options.config_dir))}")
    found = []
    for tried in check(options.policy, options.arguments, config_dir=options.config_dir):
        found.append(tried)
        show(f"  {tried.status:<9}  {tried.name}: {tried.says}")
        if tried.status == "broken":
            show(textwrap.indent(tried.command, " " * 13))
    broken = sum(tried.status == "broken" for tried in found)
    kept = sum(tried.status == "kept" for tried in found)
    show(f"{kept} of {len(found)} trials keep every promise, {broken} break one.")
    return BROKEN if broken else DONE


def _with_article(slot: str) -> str:
    return f"{'an' if slot[0] in 'ae' else 'a'} {slot}"


if __name__ == "__main__":
    sys.exit(main())
