"""What a report says, as tables and bars; the two writers (HTML, Markdown) only set it."""

from __future__ import annotations

from hsd.compare.record import Comparison, MethodResult
from hsd.errors import BadInput
from hsd.export.numbers import digits, milliseconds
from hsd.export.parts import Bar, Bars, Report, Section, Table
from hsd.measure.doubts import doubts
from hsd.measure.record import FEWEST_PROMPTS, Acceptance, Measurement
from hsd.plan.record import Alternative, Plan
from hsd.records import Environment, Estimate, Sampling
from hsd.units import counted


def build_report(plan: Plan, measurement: Measurement | None = None, comparison: Comparison | None = None) -> Report:
    """Predictions are labelled as predictions, measured figures carry device, dtype, settings, spread and count.

    Raises `BadInput` for a measurement of other models than the plan's.
    """
    if measurement and (measurement.target != plan.hierarchy.target or set(measurement.models) != set(plan.candidates)):
        raise BadInput(
            f"The measurement is of {', '.join(measurement.models)}, the plan of {', '.join(plan.candidates)}; "
            "give the measurement that the plan was made from."
        )
    sections = [_plan_section(plan)]
    sections += [_measurement_section(measurement)] if measurement else []
    sections += [_comparison_section(comparison, plan)] if comparison else []
    sections.append(_environment_section(plan.environment))
    return Report("Hierarchical speculative decoding: report", _answer(plan, comparison), tuple(sections))


def _answer(plan: Plan, comparison: Comparison | None) -> str:
    parts = [f"{plan.hierarchy}: predicted {plan.predicted_speedup:.2f} times as fast as the target alone"]
    by_name = {method.name: method for method in comparison.methods} if comparison else {}
    ours = by_name.get("hierarchy")
    if comparison and ours and _ran_plan(ours, plan):  # a run of another hierarchy says nothing about this one
        speedup, times = comparison.speedup("hierarchy"), ours.times_target
        if speedup is not None:
            runs = ours.tokens_per_s.samples
            spread = f"{times.low:.2f} to {times.high:.2f} over {runs} runs" if times else f"medians of {runs} runs"
            parts.append(f"measured {speedup:.2f} times ({spread})")
        verdict = {True: "yes", False: "no", None: "not compared"}[comparison.identical]
        parts.append(f"output identical to the target: {verdict}")
    parts.append(f"{plan.environment.label()}, {_settings(plan.sampling)}" if plan.environment.measured else "from numbers typed in")
    return " · ".join(parts)


def _ran_plan(method: MethodResult, plan: Plan) -> bool:
    return method.name == "hierarchy" and method.hierarchy == str(plan.hierarchy)


def _plan_section(plan: Plan) -> Section:
    rows = []
    for alternative in plan.alternatives:
        predicted = alternative.predicted_s_per_token
        speedup = plan.autoregressive_s_per_token / predicted.best
        interval = f"{milliseconds(predicted.low)} to {milliseconds(predicted.high)}"
        trace = "" if predicted.trace is None else milliseconds(predicted.trace)
        rows.append(
            (
                str(alternative.hierarchy),
                milliseconds(predicted.best),
                interval,
                milliseconds(predicted.exact),
                trace,
                milliseconds(predicted.paper),
                f"{speedup:.2f}",
            )
        )
    header = ("hierarchy, smallest first", "predicted, ms a token", "95 % interval", "exact", "trace", "paper", "times the target alone")
    return Section(
        "Plan",
        (
            f"A draft is written with its threshold, the number of tokens it holds before the next model verifies them. "
            f"All figures here are predictions, ranked by the {'recorded traces' if plan.ranked_by == 'trace' else 'exact expression'}; "
            f"“paper” is Theorem 2.2 of arXiv 2510.19705.",
        ),
        (
            Bars("Predicted time of a token", "ms", "95 % interval", tuple(_plan_bar(a, plan) for a in plan.alternatives)),
            Table("Alternatives, best first", header, tuple(rows)),
            _share_table(plan.alternatives[0]),
        ),
    )


def _plan_bar(alternative: Alternative, plan: Plan) -> Bar:
    predicted = alternative.predicted_s_per_token
    label = str(alternative.hierarchy) if alternative.hierarchy.drafts else f"{alternative.hierarchy.target} alone"
    return Bar(label, predicted.best * 1e3, predicted.low * 1e3, predicted.high * 1e3, alternative.hierarchy == plan.hierarchy)


def _share_table(best: Alternative) -> Table:
    rows = [(model, milliseconds(seconds)) for model, seconds in best.seconds_by_model.items()]
    rows.append(("outside of rounds", milliseconds(best.overhead_s_per_token)))
    return Table("Where the time of a token goes, predicted", ("model", "ms a token"), tuple(rows))


def _measurement_section(measurement: Measurement) -> Section:
    costs = [
        (
            model,
            str(width) if width else "a call",
            milliseconds(cost.median),
            f"{milliseconds(cost.low)} to {milliseconds(cost.high)}",
            str(cost.samples),
        )
        for model in measurement.models
        for width, cost in sorted(measurement.cost_s[model].items())
    ]
    rates = [
        (draft, verifier, f"{rate.mean:.3f}", _acceptance_interval(rate), str(rate.positions), str(rate.prompts))
        for draft, row in measurement.acceptance.items()
        for verifier, rate in row.items()
    ]
    return Section(
        "Measurement",
        (_source(measurement), *doubts(measurement)),
        (
            Table(
                "Time of a forward pass, by the number of new tokens",
                ("model", "width", "median, ms", "95 % interval", "samples"),
                tuple(costs),
            ),
            _overhead_table(measurement),
            Table("Acceptance", ("draft", "verifier", "mean", "95 % interval", "positions", "prompts"), tuple(rates)),
        ),
    )


def _source(measurement: Measurement) -> str:
    environment = measurement.environment
    if not environment.measured:
        return f"Numbers typed in, {environment.time}; nothing was measured."
    measured = f" ({len(measurement.traces)} measured)" if measurement.traces else ""  # files without traces do not tell
    return (
        f"Measured on {environment.label()}, {environment.time}, {_settings(measurement.sampling)}, "
        f"{measurement.context_tokens} tokens of context, prompts “{measurement.prompts.name}”{measured}. "
        f"Acceptance intervals resample the prompts; fewer than {FEWEST_PROMPTS} give none."
    )


def _overhead_table(measurement: Measurement) -> Table:
    rows = [("a target round, around all rounds in it", measurement.overhead_s), ("a token", measurement.token_overhead_s)]
    rows += [(f"a round of {model}", seconds) for model, seconds in measurement.round_overhead_s.items()]
    found = f", over {counted(measurement.overhead_rounds, 'target round')}" if measurement.overhead_rounds else ""
    cells = tuple((what, digits(seconds * 1e6)) for what, seconds in rows)
    return Table(f"Time beside the passes in running hierarchies{found}", ("of", "µs"), cells)


def _comparison_section(comparison: Comparison, plan: Plan) -> Section:
    rows = tuple(
        (
            method.name,
            method.hierarchy,
            _rate(method.tokens_per_s),
            _times(method, comparison),
            str(method.tokens_per_s.samples),
            "" if method.predicted_tokens_per_s is None else f"{method.predicted_tokens_per_s:.1f}",
            "" if method.tokens_per_target_pass is None else f"{method.tokens_per_target_pass:.2f}",
            {True: "yes", False: "no", None: ""}[method.identical],
        )
        for method in comparison.methods
    )
    header = (
        "method",
        "hierarchy",
        "tokens a second, measured (spread)",
        "times the target alone (spread)",
        "runs",
        "predicted",
        "tokens a target pass",
        "identical text",
    )
    bars = tuple(
        Bar(method.name, method.tokens_per_s.median, method.tokens_per_s.low, method.tokens_per_s.high, _ran_plan(method, plan))
        for method in comparison.methods
    )
    differences = tuple(divergence.sentence() for divergence in comparison.divergences)
    text = (
        f"Measured on {comparison.environment.label()}, {comparison.environment.time}, {_settings(comparison.sampling)}: "
        f"{counted(comparison.prompts, 'prompt')}, at most {comparison.max_new_tokens} new tokens, "
        f"{counted(comparison.repeats, 'repeat')}, prefill excluded."
    )
    others = tuple(
        f"The hierarchy that ran here is {method.hierarchy}, not that of the plan above; its figures say nothing about that plan."
        for method in comparison.methods
        if method.name == "hierarchy" and not _ran_plan(method, plan)
    )
    return Section(
        "Comparison",
        (text, *comparison.left_out, *others, *differences),
        (Bars("Speed, measured", "tokens/s", "spread over the repeats", bars), Table("Methods", header, rows)),
    )


def _environment_section(environment: Environment) -> Section:
    if not environment.measured:
        return Section("Environment", ("The plan's figures are predicted from numbers typed in.",), ())
    rows = (
        ("device", f"{environment.device_name} ({environment.device})"),
        ("dtype", environment.dtype),
        ("torch", environment.torch),
        ("transformers", environment.transformers),
        ("Python", environment.python),
        ("kernels", environment.kernels),
        ("time", environment.time),
    )
    return Section("Environment", (), (Table("Where the plan's figures were made", ("", ""), rows),))


def _settings(sampling: Sampling) -> str:
    return sampling.label() + ("" if sampling.greedy else f", seed {sampling.seed}")


def _acceptance_interval(rate: Acceptance) -> str:
    return f"{rate.interval[0]:.3f} to {rate.interval[1]:.3f}" if rate.interval else ""


def _times(method: MethodResult, comparison: Comparison) -> str:
    speedup, times = comparison.speedup(method.name), method.times_target
    return "" if speedup is None else f"{speedup:.2f}{_spread(times, 2) if times else ''}"


def _rate(estimate: Estimate) -> str:
    return f"{estimate.median:.1f}{_spread(estimate, 1)}"


def _spread(estimate: Estimate, decimals: int) -> str:
    """Nothing for one run, which has none."""
    return f" ({estimate.low:.{decimals}f} to {estimate.high:.{decimals}f})" if estimate.samples > 1 else ""
