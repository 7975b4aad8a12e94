"""How differences between trainings are judged, with seeds as blocks.

Seed k means the same initialization stream and the same batches for every
row, so a good seed is good for all of them. One linear model, row + seed,
takes that out before it asks what chance would do.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

SURE = 0.01  # p, below which a gap is no chance


@dataclass(frozen=True)
class Gap:
    """A difference; `within` leaves out zero where p is below `SURE`."""

    size: float
    within: float
    p: float


def judged(size: float, error: float, freedom: int) -> Gap:
    """A difference with a standard error: its interval, and p."""
    within = error * float(stats.t.ppf(1 - SURE / 2, freedom))
    p = 2 * float(stats.t.sf(abs(size) / error, freedom))
    return Gap(size, within, p)


class Blocks:
    """Row + seed, by least squares, of {row: {seed: figure}}.

    `levels` has each row as its first seed would have it, `spread` is how
    far a figure lies from what row and seed say, and `freedom` its degrees
    of freedom.
    """

    def __init__(self, figures: Mapping[str, Mapping[int, float]]) -> None:
        self.rows = [*figures]
        seeds = sorted({seed for told in figures.values() for seed in told})
        design, wanted = [], []
        for row, told in figures.items():
            for seed, figure in told.items():
                of_row = [float(row == each) for each in self.rows]
                of_seed = [float(seed == each) for each in seeds[1:]]
                design.append(of_row + of_seed)
                wanted.append(figure)
        x, y = np.array(design), np.array(wanted)
        self.effects, _, rank, _ = np.linalg.lstsq(x, y, rcond=None)
        self.levels = dict(zip(self.rows, self.effects.tolist(), strict=False))
        self.freedom = len(y) - int(rank)
        rest = y - x @ self.effects
        self.spread = math.sqrt(rest @ rest / self.freedom)
        self.covariance = np.linalg.pinv(x.T @ x)

    def contrast(self, weights: Mapping[str, float]) -> Gap:
        """A weighted sum of rows, such as {"muon": 1, "paper": -1}."""
        at = np.zeros(len(self.effects))
        for row, weight in weights.items():
            at[self.rows.index(row)] += weight
        error = self.spread * math.sqrt(at @ self.covariance @ at)
        return judged(float(at @ self.effects), error, self.freedom)

    def gap(self, row: str, base: str) -> Gap:
        """How far a row lies above another."""
        return self.contrast({row: 1, base: -1})


def dunnett(p: float, comparisons: int, freedom: int) -> float:
    """p of a gap, if so many rows are compared with the same one.

    All have as many seeds as that row, whose luck they share: how often
    would the largest of so many gaps be as large as this one? For eight
    degrees of freedom or more, and p down to 1e-16.
    """
    t = stats.t.isf(p / 2, freedom)
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    spread = np.arange(0.0025, 5, 0.005)  # found, of a true one of 1
    density = stats.chi.pdf(spread, freedom, scale=freedom**-0.5)
    wide = math.sqrt(2) * t * spread[:, None]
    inside = stats.norm.cdf(points + wide) - stats.norm.cdf(points - wide)
    some = 1 - inside**comparisons @ weights / weights.sum()
    return float(density @ some / density.sum())
