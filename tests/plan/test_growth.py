"""The time of planning grows far slower than the bound of the paper."""

from hsd.plan.growth import measure_growth, random_problem


def test_growth_is_measured_on_graphs_of_the_size_they_claim():
    small, large = measure_growth(models=(5,), thresholds=(4, 16), repeats=2)
    assert (small.edges, large.edges) == (6 * 16 + 4 * 4, 6 * 256 + 4 * 16)
    assert large.paper_operations / small.paper_operations > 256
    assert 0 < large.one_pass_s < 100 * small.one_pass_s
    assert large.bellman_ford_s is not None and large.bellman_ford_s > large.one_pass_s


def test_made_up_problems_are_reproducible():
    assert (random_problem(4, 8).cost_s == random_problem(4, 8).cost_s).all()
