"""The figures of `bench forecast` from forecasts that were saved: only what had started counts for a correction."""

from __future__ import annotations

import json
import math
import random
import statistics
from pathlib import Path

import msgspec
import pytest
from bench import forecast
from bench.decisions import NAMESPACE, NOW, cluster_queue, local_queue, workload
from bench.forecast import Probes, SavedForecast, Truth

from kubemachinery import meta
from kubemachinery.meta import SECOND
from pykueue.api import kube, kueue
from pykueue.core.policy import SchedulingPolicy
from pykueue.projection import Arrival

HOUR = 3600


def row(number: int, wait: int | None, *, size: str = "small", seed: int = 1) -> SavedForecast:
    """A forecast of one hour and two, made in the given hour."""
    return SavedForecast("strict", seed, "q", size, 0.1, number * HOUR, HOUR, 2 * HOUR, 3 * HOUR, wait)


def test_a_correction_follows_from_the_starts_until_then() -> None:
    # All wait for four hours: the raw P90 covers none, and the corrected one does once that is known.
    scores = forecast.scored([row(number, 4 * HOUR) for number in range(300)])
    assert not any(each.covered_raw for each in scores)
    assert not any(each.covered for each in scores[:4])
    assert all(each.covered for each in scores[250:])
    assert scores[0].baseline_error == 60
    assert scores[0].p90_loss == pytest.approx(forecast.loss(4 * HOUR, 2 * HOUR, 0.9))
    assert scores[299].p90_loss == pytest.approx(0.0, abs=1e-6)
    (figures, _) = forecast.judged([row(number, HOUR) for number in range(2)])
    assert figures.p90_loss == pytest.approx(forecast.loss(HOUR, 2 * HOUR, 0.9), rel=0.05)


def test_a_forecast_is_corrected_by_its_size_class() -> None:
    """By the part of the nominal quota that is requested, and not by the size that figures are given for."""
    rows = [
        msgspec.structs.replace(row(number // 2, 4 * HOUR if number % 2 else HOUR), share=0.5 if number % 2 else 0.1)
        for number in range(1000)
    ]
    *_, on_time, late = forecast.scored(rows)
    assert late.covered
    assert on_time.covered
    # One correction for both would have the same P90.
    p90s = [each.p90_loss / (0.1 if each is on_time else 0.9 if not each.covered else 0.1) for each in (on_time, late)]
    assert math.exp(p90s[0]) * (HOUR + 300) < 0.8 * math.exp(p90s[1]) * (4 * HOUR + 300)


def test_a_workload_that_never_starts_is_not_covered() -> None:
    (score,) = forecast.scored([row(0, None)])
    assert not score.covered_raw
    assert not score.covered


def test_forecasts_that_teach_the_correction_are_left_out() -> None:
    rows = [
        row(number, HOUR if number < 50 else 5 * HOUR, size="big" if number % 2 else "small") for number in range(100)
    ]
    found = {each.size: each for each in forecast.judged(rows)}
    assert {size: each.scored for size, each in found.items()} == {"all": 50, "small": 25, "big": 25}
    assert found["all"].p90_raw == 0.0
    assert len(list(forecast.judged([*rows, *(row(number, HOUR, seed=2) for number in range(4))]))) == 3 + 2 + 3


def test_saved_forecasts_are_judged_without_running_a_world(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, figures = tmp_path / "scores.jsonl", tmp_path / "figures.json"
    saved.write_bytes(b"".join(msgspec.json.encode(row(number, HOUR)) + b"\n" for number in range(20)))
    assert forecast.main([f"--saved={saved}", f"--json={figures}"]) == 0
    assert "strict" in capsys.readouterr().out
    (small, every) = sorted(json.loads(figures.read_text())["calibration"], key=lambda each: each["size"], reverse=True)
    assert (small["size"], every["size"], every["scored"], every["p90_raw"]) == ("small", "all", 10, 1.0)


def test_figures_of_a_world_have_the_range_of_its_single_queues() -> None:
    rows = [
        row(number, HOUR if seed == 1 or number % 2 else None, seed=seed) for seed in (1, 2) for number in range(100)
    ]
    *_, together, small = forecast.judged(rows)
    assert (together.seed, together.queue, together.size, together.scored) == ("all", "all", "all", 100)
    assert small.size == "small"
    assert together.p90_single == (0.5, 1.0)
    assert together.p90 == 0.75


def test_queues_of_a_world_have_figures_of_all_seeds_together() -> None:
    rows = [
        msgspec.structs.replace(row(number, HOUR if queue == "a" else 5 * HOUR, seed=seed), queue=queue)
        for queue in ("a", "b")
        for seed in (1, 2)
        for number in range(4)
    ]
    found = {each.queue: each for each in forecast.judged(rows) if each.seed == "all" and each.size == "all"}
    assert {queue: (each.scored, each.p90_raw) for queue, each in found.items()} == {
        "all": (8, 0.5),
        "a": (4, 1.0),
        "b": (4, 0.0),
    }
    lines = list(forecast.table(list(forecast.judged(rows))))
    assert [line.split("|")[1].strip() for line in lines[2:] if "| all |" in line] == ["strict", "a", "b"]
    one_seed = [each for each in rows if each.seed == 1]
    assert [each.queue for each in forecast.judged(one_seed) if each.seed == "all"] == ["all", "all"]


def test_the_range_of_a_figure_follows_from_its_days() -> None:
    # Half of the days are covered as a whole: 40 forecasts are 8 observations.
    days = [[number % 2 == 0] * 5 for number in range(8)]
    lowest, highest = forecast.resampled(days)
    assert lowest == pytest.approx(0.25, abs=0.13)
    assert highest == pytest.approx(0.75, abs=0.13)
    # As many forecasts, each on a day of its own.
    lowest, highest = forecast.resampled([[number % 2 == 0] for number in range(40)])
    assert 0.35 <= lowest <= 0.40
    assert 0.60 <= highest <= 0.65


def test_a_range_is_wide_where_few_days_are_alike() -> None:
    # One day shows hardly more than that the share is not 0, and seven that it is 0.65: 0.65 ** 7 is 0.05.
    assert forecast.resampled([[True] * 9]) == pytest.approx((0.05, 1.0))
    assert forecast.resampled([[True, True]] * 7) == pytest.approx((0.65, 1.0), abs=0.01)
    assert forecast.resampled([[0.0]] * 7) == pytest.approx((0.0, 0.35), abs=0.01)

    def found(days: int) -> list[str]:
        rows = list(forecast.judged([row(24 * day, HOUR) for day in range(2 * days)]))
        return [line for line in forecast.misses(rows) if "| all |" in line and "| P90 |" in line]

    # P90 covers all starts of seven days, which 0.95 does, too, in most cases; and of 80 days, which it hardly does.
    assert found(7) == ["| strict | q | all | 7 | P90 | 1.000 | 0.65 to 1.00 | no |"]
    assert found(80) == ["| strict | q | all | 80 | P90 | 1.000 | 0.96 to 1.00 | yes |"]


def test_days_are_those_of_a_queue_with_one_seed() -> None:
    rows = [row(number, HOUR, seed=seed) for seed in (1, 2) for number in range(96)]
    one, *_, together, _small = forecast.judged(rows)
    assert (one.days, together.days) == (2, 4)
    assert together.p90_range == pytest.approx((0.47, 1.0), abs=0.01)


def test_by_times_each_time_of_a_queue_weighs_the_same() -> None:
    # At every third hour ten forecasts, all of which start at once; at the others one, which never starts.
    rows = [row(hour, None if hour % 3 else 0) for hour in range(600) for _ in range(1 if hour % 3 else 10)]
    figures, _small = forecast.judged(rows[:600])
    assert (figures.scored, figures.times) == (300, 75)
    assert figures.p90 == figures.p50 == pytest.approx(250 / 300)
    assert figures.p90_times == figures.p50_times == pytest.approx(25 / 75)
    for low, high in (figures.p90_times_range, figures.p50_times_range):
        assert 0.3 <= low <= 1 / 3 <= high <= 0.4
    # Two ClusterQueues that are forecast together have times of their own.
    both = [msgspec.structs.replace(each, queue=queue) for queue in ("a", "b") for each in rows[:600]]
    together, _small = (each for each in forecast.judged(both) if each.seed == each.queue == "all")
    assert (together.scored, together.times) == (600, 150)
    assert together.p90_times == pytest.approx(1 / 3)


def test_a_table_has_a_line_for_each_size_of_a_world(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "scores.jsonl"
    rows = [row(number, HOUR, seed=seed) for seed in (1, 2) for number in range(96)]
    saved.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in rows))
    assert forecast.main([f"--saved={saved}", "--markdown"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert lines[0].count("|") == lines[1].count("|") == lines[2].count("|") == 13
    figures = "96 | 4 | 1.00 | 1.00 | 0.47 to 1.00 |"
    assert lines[2].startswith(f"| strict | 1, 2 | all | {figures}")
    assert lines[3].startswith(f"| | | small | {figures}")
    assert lines[4].startswith("| world | jobs |")
    assert lines[6].startswith("| strict | all | 96 | 96 | 1.00 | 0.47 to 1.00 |")
    assert lines[7].startswith("| | small | 96 | 96 | 1.00 |")
    assert lines[8].startswith("| world | queue |")


def test_a_share_outside_its_aim_is_beyond_chance_if_its_whole_range_is() -> None:
    shares = {
        "late": (0.80, 0.70, 0.84),
        "may be": (0.80, 0.70, 0.86),
        "met": (0.90, 0.70, 1.0),
        "early": (1.0, 0.96, 1.0),
    }
    rows = [
        forecast.CalibrationFigures(
            world, "1", "q", "all", days=7, p90=p90, p90_range=(low, high), p50=p50, p50_range=(0.2, 0.39)
        )
        for (world, (p90, low, high)), p50 in zip(shares.items(), (0.5, 0.5, 0.3, 0.5), strict=True)
    ]
    assert list(forecast.misses(rows))[2:] == [
        "| late | q | all | 7 | P90 | 0.800 | 0.70 to 0.84 | yes |",
        "| may be | q | all | 7 | P90 | 0.800 | 0.70 to 0.86 | no |",
        "| met | q | all | 7 | P50 | 0.300 | 0.20 to 0.39 | yes |",
        "| early | q | all | 7 | P90 | 1.000 | 0.96 to 1.00 | yes |",
    ]


def lined_up(lengths: dict[int, int]) -> Truth:
    """One CPU, and a job at each second of submission that runs for so long."""
    truth = Truth(
        "line",
        [
            kueue.ResourceFlavor(metadata=meta.ObjectMeta(name="default")),
            kube.Namespace(metadata=meta.ObjectMeta(name=NAMESPACE)),
            cluster_queue("q", "", "1", None),
            local_queue("all", "q"),
        ],
    )
    for number, (at, length) in enumerate(lengths.items()):
        one = forecast.created(workload(number, "all", "1", 0), NOW + at * SECOND)
        truth.add(NOW + at * SECOND, one, length, f"step-{number}")
    truth.run(SchedulingPolicy())
    return truth


def test_run_times_are_those_of_records_that_have_ended() -> None:
    # Ten runs of ten minutes end before the forecast, and those after it take two hours.
    later = {20_000 + number * 8000: 7200 for number in range(20)}
    truth = lined_up({**{number * 900: 600 for number in range(10)}, 9000: 7200, 9001: 600, **later})
    probes = Probes(truth, SchedulingPolicy(), 1, 4, "")
    probes.probe(NOW + 9120 * SECOND)
    (found,) = probes.found
    assert found.queue == "q"
    assert 440 <= found.p50 <= found.p90 <= 540  # ten minutes after the start, within the grid
    assert found.wait == 7200 - 120
    assert found.share == 1.0
    assert found.baseline == 86_400 // 11  # first in the queue, after eleven starts
    probes = Probes(truth, SchedulingPolicy(), 1, 4, "runs")
    probes.probe(NOW + 9120 * SECOND)
    assert 7000 <= probes.found[0].p50 <= 7300


def test_forecasts_are_saved_time_by_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = lined_up({**{number * 900: 600 for number in range(10)}, 9000: 7200, 9001: 600, 10_000: 600})
    probes = Probes(truth, SchedulingPolicy(), 1, 4, "")
    times = forecast.probed(probes, 9120, 1, 1)
    # A run that is stopped after its first time has the forecast of that.
    first, second = next(times), next(times)
    assert [[each.made for each in rows] for rows in (first, second)] == [[9120], [9120 + HOUR]]
    assert probes.found == [*first, *second]
    assert not any(times)
    monkeypatch.setattr(forecast, "PAST", forecast.DAY)
    saved = tmp_path / "scores.jsonl"
    assert forecast.main(["--pending=0", "--worlds=strict", "--days=1", "--every=3", f"--save={saved}"]) == 0
    made = capsys.readouterr().out
    assert len({json.loads(line)["made"] for line in saved.read_text().splitlines()}) > 1
    assert forecast.main([f"--saved={saved}"]) == 0
    assert capsys.readouterr().out == made


def test_the_place_in_the_queue_counts_higher_priorities_first() -> None:
    truth = lined_up({**{number * 900: 600 for number in range(10)}, 9000: 7200, 9001: 600, 9002: 600})
    last = truth.arrivals[-1]
    urgent = msgspec.structs.replace(last.workload, spec=msgspec.structs.replace(last.workload.spec, priority=10))
    truth.arrivals[-1] = Arrival(last.at, urgent)
    probes = Probes(truth, SchedulingPolicy(), 1, 4, "")
    probes.probe(NOW + 9120 * SECOND)
    baselines = {each.baseline for each in probes.found}
    by_wait = {each.wait: each.baseline for each in probes.found}
    assert baselines == {86_400 // 11, 2 * 86_400 // 11}
    assert by_wait[7200 - 120] == 2 * 86_400 // 11


def test_a_trace_is_started_by_the_scheduler_without_jobs_that_never_fit() -> None:
    path = Path("examples/traces/day.swf")
    every = forecast.replayed(path, 86_400, None, "StrictFIFO")
    assert every.world == "day"
    assert {each.uid for each in every.attempts} == set(every.lengths)
    largest = max(forecast.cpu_of(each.workload) for each in every.arrivals)
    fewer = forecast.replayed(path, 86_400, largest - 1, "StrictFIFO")
    assert 0 < len(fewer.arrivals) < len(every.arrivals)
    assert max(forecast.cpu_of(each.workload) for each in fewer.arrivals) < largest
    assert fewer.processors() == largest - 1
    first = forecast.replayed(path, 3600, None, "StrictFIFO")
    assert max(each.at for each in first.arrivals) - NOW < 3600 * SECOND


def test_the_law_of_run_times_is_that_of_generated_worlds_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        forecast.main(["--pending=0", "--trace=examples/traces/day.swf", "--known=law"])
    assert "--known=law" in capsys.readouterr().err


def test_jobs_of_a_campaign_are_alike_and_have_correlated_run_times() -> None:
    truth, rng = Truth("campaigns", []), random.Random(1)
    scores: list[list[float]] = []
    for number in range(1500):
        before = len(truth.arrivals)
        last = forecast.add_campaign(truth, rng, number * HOUR, "q", "2", 10)
        made = truth.arrivals[before:]
        assert len(made) in forecast.CAMPAIGNS
        assert [each.at for each in made] == [
            NOW + (number * HOUR + place * forecast.CAMPAIGN_SECONDS) * SECOND for place in range(len(made))
        ]
        assert made[-1].at == NOW + last * SECOND
        assert {forecast.cpu_of(each.workload) for each in made} == {2}
        assert {each.workload.spec.priority for each in made} == {10}
        uids = [each.workload.metadata.uid for each in made]
        (name,) = {truth.records[uid].job_name.partition("-")[0] for uid in uids}
        mean, spread = forecast.CLASSES[forecast.NAMES.index(name)]
        scores.append([math.log(truth.lengths[uid] / mean) / spread for uid in uids])
    # Each run time has the law of its class, and two of a campaign have the correlation.
    every = [score for of_campaign in scores for score in of_campaign]
    assert abs(statistics.fmean(each[0] for each in scores)) < 0.1
    assert statistics.fmean(score * score for score in every) == pytest.approx(1.0, abs=0.15)
    products = [each[0] * each[1] for each in scores if len(each) > 1]
    assert statistics.fmean(products) == pytest.approx(forecast.CAMPAIGN_CORRELATION, abs=0.2)


def test_a_world_has_campaigns_and_the_load_of_its_kind() -> None:
    (kind,) = (each for each in forecast.WORLDS if each.has_campaigns)
    truth = forecast.generate(kind, 4 * forecast.DAY, 3)
    gaps = [later.at - each.at for each, later in zip(truth.arrivals, truth.arrivals[1:], strict=False)]
    # Of the mean campaign of 55 jobs in 7, most jobs are submitted right after another one.
    assert sum(gap == forecast.CAMPAIGN_SECONDS * SECOND for gap in gaps) / len(gaps) > 0.7
    work = sum(
        truth.lengths[each.workload.metadata.uid] * forecast.cpu_of(each.workload) for each in truth.arrivals
    ) / (4 * forecast.DAY * kind.cpus)
    assert 0.4 * kind.load < work < 2.0 * kind.load


def test_what_is_left_of_workloads_is_their_work_and_the_time_of_half_of_the_cpus() -> None:
    assert forecast.left_of([(100, 1), (300, 2), (200, 1)]) == (900.0, 200.0)
    # A run of months does not outweigh all others.
    assert forecast.left_of([(10 * forecast.WEEK, 1)]) == (float(forecast.WEEK), float(10 * forecast.WEEK))
    assert forecast.loss(300, 300, 0.9) == 0.0
    # Later than its P90 costs nine times as much as earlier.
    assert forecast.loss(900, 300, 0.9) == pytest.approx(9 * forecast.loss(300, 900, 0.9))


def test_run_times_that_are_known_have_no_loss() -> None:
    (kind,) = (each for each in forecast.WORLDS if each.name == "campaigns")
    truth = forecast.generate(kind, 6 * forecast.DAY, 3)
    probes = Probes(truth, kind.policy, 3, forecast.BIG, "runs")
    found = forecast.joint_lengths(probes, 4 * forecast.DAY, 1, 6)
    assert {each.quantity for each in found} >= {"running", "half of running", "each running"}
    assert all((each.p50, each.p90, each.loss_p50, each.loss_p90) == (1.0, 1.0, 0.0, 0.0) for each in found)


def test_the_lengths_of_a_world_are_measured_without_a_run_ahead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "PAST", forecast.DAY)
    figures = tmp_path / "figures.json"
    command = ["--lengths", "--worlds=strict", "--days=1", "--every=2", f"--json={figures}"]
    assert forecast.main(command) == 0
    found = json.loads(figures.read_text())["lengths"]
    assert {each["quantity"] for each in found} >= {"running", "half of running", "each running", "each pending"}
    assert all(each["loss_p90"] >= 0.0 and each["world"] == "strict" for each in found)
    assert "half of running" in capsys.readouterr().out
