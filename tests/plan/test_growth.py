"""The time of planning grows far slower than the bound of the paper."""

import pytest

from hsd.plan.growth import Growth, fitted_exponents, measure_growth, random_problem


def test_growth_is_measured_on_graphs_of_the_size_they_claim():
    small, large = measure_growth(models=(5,), thresholds=(4, 16), repeats=2)
    assert (small.edges, large.edges) == (6 * 16 + 4 * 4, 6 * 256 + 4 * 16)
    assert large.paper_operations / small.paper_operations > 256
    assert 0 < large.one_pass_s < 100 * small.one_pass_s
    assert large.bellman_ford_s is not None and large.bellman_ford_s > large.one_pass_s


def test_made_up_problems_are_reproducible():
    assert (random_problem(4, 8).cost_s == random_problem(4, 8).cost_s).all()


def test_exponents_are_those_of_the_measured_growth():
    def at(models, most):
        size = most * (models - 1)
        return Growth(models, most, 0, 1e-6 * size, 2e-7 * size**2, 1e-8 * size**3 if size < 100 else None, size**4.0)

    found = fitted_exponents([at(models, most) for models in (3, 5, 9) for most in (4, 16, 32)])
    assert found == pytest.approx({"build": 1, "one_pass": 2, "bellman_ford": 3, "bound": 4})
    assert fitted_exponents([at(3, 4)]) == {}
