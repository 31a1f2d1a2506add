"""Machine learning: cells, losses and transformations that act on each element."""

from __future__ import annotations

import math

from bench.formulas.corpus import formula


def sigmoid(x: float) -> float:
    """The logistic function."""
    return 1.0 / (1.0 + math.exp(-x))


def softplus(x: float) -> float:
    """The integral of the logistic function, without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@formula(
    source="Gers, Schmidhuber, Cummins, Neural Computation 12, 2451-2471, 2000",
    dtype="float32",
    cell=(-3.0, 3.0),
    input_gate=(-4.0, 4.0),
    forget_gate=(-4.0, 4.0),
    output_gate=(-4.0, 4.0),
    candidate=(-3.0, 3.0),
)
def lstm_cell(
    cell: float, input_gate: float, forget_gate: float, output_gate: float, candidate: float
) -> tuple[float, float]:
    """The cell state and the output of an LSTM cell, from its state and the gates' activations."""
    state = sigmoid(forget_gate) * cell + sigmoid(input_gate) * math.tanh(candidate)
    return state, sigmoid(output_gate) * math.tanh(state)


@formula(
    source="Salimans, Karpathy, Chen, Kingma, International Conference on Learning Representations, 2017, eq. 2",
    dtype="float32",
    pixel=("int", 0, 255),
    mean=(-1.0, 1.0),
    log_scale=(-4.0, 0.0),
)
def discretised_logistic(pixel: int, mean: float, log_scale: float) -> float:
    """The logarithm of the probability of a pixel under a discretised logistic distribution."""
    centred = pixel / 127.5 - 1.0 - mean
    inverse = math.exp(-log_scale)
    upper = inverse * (centred + 1.0 / 255.0)
    lower = inverse * (centred - 1.0 / 255.0)
    if pixel == 0:
        return upper - softplus(upper)
    if pixel == 255:
        return -softplus(lower)
    probability = sigmoid(upper) - sigmoid(lower)
    if probability > 1e-5:
        return math.log(probability)
    middle = inverse * centred
    return middle - log_scale - 2.0 * softplus(middle) - math.log(127.5)


@formula(
    source="Lin, Goyal, Girshick, He, Dollár, International Conference on Computer Vision, 2980-2988, 2017, eq. 5",
    dtype="float32",
    logit=(-8.0, 8.0),
    label=("int", 0, 1),
    balance=(0.1, 0.9),
    focus=(0.5, 5.0),
)
def focal_loss(logit: float, label: int, balance: float, focus: float) -> float:
    """The focal loss of a binary classification."""
    signed = logit if label == 1 else -logit
    weight = balance if label == 1 else 1.0 - balance
    return weight * sigmoid(-signed) ** focus * softplus(-signed)


@formula(
    source="Amini, Schwarting, Soleimany, Rus, Neural Information Processing Systems 33, 2020, eqs. 8, 9",
    dtype="float32",
    target=(-3.0, 3.0),
    mean=(-3.0, 3.0),
    evidence=(0.1, 10.0, "log"),
    alpha=(1.1, 8.0),
    beta=(0.1, 5.0, "log"),
    strength=0.01,
)
def evidential_loss(target: float, mean: float, evidence: float, alpha: float, beta: float, strength: float) -> float:
    """The loss of evidential regression: the likelihood of a normal-inverse-gamma prior, and a regulariser."""
    omega = 2.0 * beta * (1.0 + evidence)
    error = target - mean
    likelihood = (
        0.5 * math.log(math.pi / evidence)
        - alpha * math.log(omega)
        + (alpha + 0.5) * math.log(error * error * evidence + omega)
        + math.lgamma(alpha)
        - math.lgamma(alpha + 0.5)
    )
    return likelihood + strength * abs(error) * (2.0 * evidence + alpha)


@formula(
    source="Schulman, Wolski, Dhariwal, Radford, Klimov, arXiv:1707.06347, 2017, eq. 7",
    dtype="float32",
    wrt="mean log_deviation",
    action=(-2.0, 2.0),
    mean=(-2.0, 2.0),
    log_deviation=(-1.0, 0.5),
    old_log_probability=(-4.0, -0.5),
    advantage=(-3.0, 3.0),
    clip=0.2,
)
def clipped_policy_loss(
    action: float, mean: float, log_deviation: float, old_log_probability: float, advantage: float, clip: float
) -> float:
    """The clipped surrogate loss of PPO for a normal policy."""
    z = (action - mean) * math.exp(-log_deviation)
    log_probability = -0.5 * z * z - log_deviation - 0.5 * math.log(2.0 * math.pi)
    ratio = math.exp(log_probability - old_log_probability)
    clipped = min(max(ratio, 1.0 - clip), 1.0 + clip)
    return -min(ratio * advantage, clipped * advantage)


@formula(
    source="Durkan, Bekasov, Murray, Papamakarios, Neural Information Processing Systems 32, 2019, eqs. 4, 5",
    dtype="float32",
    x=(-1.2, 1.2),
    width=(0.5, 1.5),
    height=(0.5, 1.5),
    left_slope=(0.2, 3.0),
    right_slope=(0.2, 3.0),
)
def rational_quadratic_spline(
    x: float, width: float, height: float, left_slope: float, right_slope: float
) -> tuple[float, float]:
    """One bin of a neural spline flow, and the logarithm of its slope; the identity outside of the bin."""
    position = x / width + 0.5
    if position < 0.0 or position > 1.0:
        return x, 0.0
    s = height / width
    both = position * (1.0 - position)
    lower = s + (right_slope + left_slope - 2.0 * s) * both
    y = height * (s * position**2 + left_slope * both) / lower - 0.5 * height
    slope = s**2 * (right_slope * position**2 + 2.0 * s * both + left_slope * (1.0 - position) ** 2) / lower**2
    return y, math.log(slope)
