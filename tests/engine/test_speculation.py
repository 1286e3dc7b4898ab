"""Speculative decoding: what is proposed, accepted, held and charged."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.adapter import Adapter
from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.core.trace import BASE_MODEL
from simlora.engine.cluster.driven import DrivenSimulation
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.cluster.submissions import Submitted
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.speculation import Speculation, mixed
from simlora.latency.calibration import Calibration
from simlora.latency.draft import Draft, eagle
from simlora.latency.iteration import IterationModel
from simlora.memory.reservation import Lookahead, Paged, Peak
from simlora.policies.scheduling.base import SchedulerOutput
from tests.engine.cases import COEFFICIENTS, TINY, Case, Row

ONE = Case(rows=(Row(0.0, None, 10, 41, 41),), speculative_tokens=3, acceptance=1.0)
CALIBRATION = Calibration("test", "gpu", "tiny", 1, {}, COEFFICIENTS)
STEP_0, SEQUENCE, SQUARE, CONTEXT = (
    COEFFICIENTS[f"decode.{name}"]
    for name in ("intercept_s", "per_sequence_s", "per_sequence_sq_s", "per_context_token_s")
)


def steps_s(case: Case) -> float:
    """Seconds that the decode steps of the first request take."""
    row = case.table().loc[0]
    return row.finish_s - row.first_token_s  # type: ignore[no-any-return]


@pytest.mark.parametrize(("output", "steps"), [(41, 10), (40, 10), (42, 11), (2, 1)])
def test_a_draft_that_is_always_right_gives_all_its_tokens_and_one_more_a_step(output, steps):
    case = ONE.but(rows=(Row(0.0, None, 10, output, output),))
    assert case.run().verified == steps == math.ceil((output - 1) / 4)


def test_a_draft_that_is_always_wrong_leaves_a_token_a_step_and_its_verification():
    """A step of 4 tokens a sequence, whose contexts of 11, 12, … tokens are read once."""
    wrong = ONE.but(acceptance=0.0)
    assert wrong.run().verified == 40
    contexts = sum(range(11, 51))
    assert steps_s(wrong) == pytest.approx(
        40 * (STEP_0 + 4 * SEQUENCE + 16 * SQUARE) + contexts * CONTEXT, abs=1e-12
    )


def test_verification_processes_each_proposed_token_with_the_adapter():
    """MBGMV charges tokens by their rank and by the highest: 4 tokens a step, not 1."""
    adapted = ONE.but(rows=(Row(0.0, 1, 10, 41, 41),), acceptance=0.0)
    kernel = COEFFICIENTS
    each = (
        kernel["kernels.mbgmv.decode.per_rank_sum_s"] + kernel["kernels.mbgmv.decode.per_sequence_max_rank_s"]
    )
    more_s = steps_s(adapted) - steps_s(ONE.but(acceptance=0.0))
    assert more_s == pytest.approx(
        40 * (kernel["kernels.mbgmv.decode.intercept_s"] + 4 * 2 * each), abs=1e-12
    )


@pytest.mark.parametrize(("tokens", "acceptance"), [(1, 0.8), (3, 0.5), (7, 0.95)])
def test_so_many_tokens_a_step_as_accepted_independently(tokens, acceptance):
    """(1 - a^(k + 1)) / (1 - a): Leviathan et al. (ICML'23), equation 1."""
    draw = Speculation(tokens=tokens, acceptance=acceptance).accepted([], seed=5).draw
    count = 20_000
    drawn = [draw(Request(id, None, 0.0, 1, 99), at) for id in range(200) for at in range(count // 200)]
    expected = (1 - acceptance ** (tokens + 1)) / (1 - acceptance) - 1
    spread = math.sqrt(sum((each - expected) ** 2 for each in drawn) / count)
    assert abs(sum(drawn) / count - expected) < 4 * spread / math.sqrt(count)


def test_acceptance_is_drawn_once_an_adapter_between_its_limits():
    found = Speculation(tokens=3, acceptance=0.9, adapter_acceptance=(0.2, 0.6)).accepted([8] * 500, seed=1)
    assert 0.2 <= min(found.by_adapter) < 0.22
    assert 0.58 < max(found.by_adapter) <= 0.6
    share = {}
    for name, adapter in (("base", None), ("worst", found.by_adapter.index(min(found.by_adapter)))):
        own = None if adapter is None else Adapter(adapter, "a", 8, 1, 1)
        requests = (Request(id, own, 0.0, 1, 9) for id in range(4000))
        share[name] = sum(found.draw(each, 1) > 0 for each in requests) / 4000
    assert share["base"] == pytest.approx(0.9, abs=0.02)
    assert share["worst"] == pytest.approx(0.2, abs=0.03)


def test_acceptance_by_rank():
    by_rank = Speculation(tokens=1, acceptance=0.9, adapter_acceptance={8: 0.8, 64: 0.5})
    assert by_rank.accepted([64, 8, 8], seed=1).by_adapter == [0.5, 0.8, 0.8]
    with pytest.raises(InputError, match="has no rank 16, which an adapter has; it has 8, 64"):
        by_rank.check_ranks([8, 16])


def test_a_request_has_the_same_luck_under_every_policy_and_limit():
    rows = tuple(Row(i * 2**-4, i % 3, 9, 30, 30) for i in range(12))
    case = Case(rows=rows, speculative_tokens=3, adapter_acceptance=(0.2, 0.9))
    steps = {
        case.but(**changed).run().verified
        for changed in (
            {},
            {"max_num_seqs": 2},
            {"scheduler": "chunked_prefill"},
            {"scheduler": "lcfs", "max_num_seqs": 3},
            {"replicas": 3, "router": "most_idle"},
        )
    }
    assert len(steps) == 1


@pytest.mark.parametrize(
    ("by_adapter", "share"), [((0.0, 1.0), 0.5), ({8: 0.0, 64: 1.0}, 1.0)], ids=["the mean", "its rank's"]
)
def test_an_adapter_that_joins_later_accepts_as_the_mean_of_adapters_or_as_its_rank_does(by_adapter, share):
    found = Speculation(tokens=1, acceptance=1.0, adapter_acceptance=by_adapter).accepted([8, 8], seed=1)
    later = [found.draw(Request(id, Adapter(7, "a", 64, 1, 1), 0.0, 1, 9), 1) for id in range(4000)]
    assert sum(later) / 4000 == pytest.approx(share, abs=0.03)


@given(st.integers(0, 2**70))
def test_mixed_bits_are_32(value):
    assert 0 <= mixed(value) < 2**32


def test_prompts_leave_room_in_a_pass_for_what_is_proposed():
    """Of 16 tokens a pass, two running requests take two each, or one each where nothing is proposed."""
    rows = (Row(0.0, None, 4, 30, 30), Row(0.0, None, 4, 30, 30), Row(2**-4, None, 60, 2, 2))
    case = Case(rows=rows, scheduler="chunked_prefill", speculative_tokens=1, acceptance=0.0)
    assert [chunks_of(case.but(most_running=most)) for most in (None, 1)] == [
        [12, 12, 12, 12, 12],
        [14, 14, 14, 14, 4],
    ]


def chunks_of(case: Case) -> list[int]:
    """The chunks of the third prompt."""
    found: list[int] = []

    class Watches(Part):
        def __init__(self, replica: Replica) -> None:
            pass

        def prepare(self, output: SchedulerOutput, now_s: float) -> float:
            pairs = zip(output.prefill, output.chunks, strict=True) if output.chunks else ()
            found.extend(tokens for request, tokens in pairs if request.id == 2)
            return 0.0

    simulation = Simulation(replace(case.scenario(), parts=(Watches,)))
    simulation.run()
    return found


def test_steps_beyond_a_number_of_requests_propose_nothing():
    """Two requests run together until the first has ended: 5 steps without, then 20 tokens in 5 steps."""
    rows = (Row(0.0, None, 4, 6, 6), Row(0.0, None, 4, 26, 26))
    recorder = Case(rows=rows, speculative_tokens=3, acceptance=1.0, most_running=1).run()
    assert recorder.verified == 5
    assert recorder.token_steps == 5 + 25


# Memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [Peak(1000), Paged(1000, 4)])
def test_tokens_that_come_at_once_are_charged_as_if_they_had_come_one_by_one(rule):
    one, two = Request(0, None, 0.0, 10, 50), Request(1, None, 0.0, 20, 50)
    for request in (one, two):
        rule.add(request, request.prompt_tokens + 1, 49, 0)
    rule.advance(one, 3, 2)
    held = {type(rule): rule.held_tokens(one, 2), "others": rule.held_tokens(two, 2)}
    exact = {Peak: 16, Paged: 16}
    assert held == {type(rule): exact[type(rule)], "others": 23 if type(rule) is Peak else 24}
    assert rule.used_tokens(2) == sum(held.values())
    rule.remove(two, 2)
    rule.remove(one, 2)
    assert rule.used_tokens(2) == 0


def test_each_request_holds_slots_for_what_is_proposed():
    rule = Lookahead(Paged(100, 1, 0.0), 3)
    rule.begin(0)
    assert rule.fits(97, 0, 0)
    assert not Lookahead(Paged(100, 1, 0.0), 4).fits(97, 0, 0)
    request = Request(0, None, 0.0, 10, 50)
    rule.add(request, 11, 49, 0)
    assert rule.held_tokens(request, 0) == rule.used_tokens(0) == 14


def test_a_request_that_fits_only_without_proposals_is_rejected():
    one = Case(rows=(Row(0.0, None, 10, 10, 10),), capacity=22, reserve="full")
    assert one.table().status[0] == "finished"
    assert one.but(speculative_tokens=3).table().status[0] == "rejected"


# Drafts -------------------------------------------------------------------------------------


def test_a_model_that_drafts_takes_a_step_a_token_without_the_hosts_time():
    target = IterationModel(CALIBRATION)
    host_s = COEFFICIENTS["host.intercept_s"] + 5 * COEFFICIENTS["host.per_sequence_s"]
    draft = Draft(3, CALIBRATION)
    assert draft.propose_s(5, 100) == pytest.approx(3 * (target.decode_s(5, 100) - host_s))
    assert draft.prefill_s(10, 100) == pytest.approx(
        target.prefill_s(10, 100) - COEFFICIENTS["host.intercept_s"]
    )


def test_a_head_takes_its_share_of_weights_and_one_layer_of_contexts():
    """Of 8 layers, each as large as EAGLE's but for its projection and the norms; the output head is read by both."""
    model = replace(TINY, layers=8)
    layer = 4 * 16 + 3 * 4 * 8
    assert model.eagle_parameters == layer + 2 * 16
    output, norms = 16 * 4, 8 * 8 + 4
    share = (layer + 32 + output) / (8 * layer + norms + output)
    plain = Draft(2, CALIBRATION)
    found = eagle(2, model, CALIBRATION)
    assert found.propose_s(4, 0) == pytest.approx(share * plain.propose_s(4, 0))
    contexts_s = found.propose_s(4, 800) - found.propose_s(4, 0)
    assert contexts_s == pytest.approx((plain.propose_s(4, 800) - plain.propose_s(4, 0)) / 8)


def test_every_token_is_told_once_in_order():
    told: dict[int, list[tuple[int, float]]] = {}

    def on_token(request: Request, token: int, now_s: float) -> None:
        told.setdefault(request.id, []).append((token, now_s))

    case = Case(rows=(Row(0.0, 0, 9, 9, 9),), speculative_tokens=3, adapter_acceptance=(0.4, 0.8))
    live = DrivenSimulation(case.scenario(), on_token)
    for row in range(8):
        live.submit(Submitted(9, 20 + row, row % 3 if row else BASE_MODEL), row * 2**-5)
    live.close()
    for id, tokens in told.items():
        assert [token for token, _ in tokens] == list(range(1, 21 + id))
        assert [time_s for _, time_s in tokens] == sorted(time_s for _, time_s in tokens)
    assert any(len({time_s for _, time_s in tokens}) < len(tokens) for tokens in told.values())
