"""Control: models of plants, one step of a controller, and a filter's steady state."""

from __future__ import annotations

import math

from bench.formulas.corpus import formula


@formula(
    source="Barto, Sutton, Anderson, IEEE Transactions on Systems, Man, and Cybernetics 13, 834-846, 1983, appendix",
    dtype="float32",
    x=(-2.4, 2.4),
    speed=(-3.0, 3.0),
    angle=(-0.2, 0.2),
    turning=(-3.0, 3.0),
    force=(-10.0, 10.0),
    step=0.02,
)
def cart_pole(
    x: float, speed: float, angle: float, turning: float, force: float, step: float
) -> tuple[float, float, float, float]:
    """The state of a cart with a pole after a step of Euler's method; m, s, radians, N."""
    gravity, cart, pole, half = 9.8, 1.0, 0.1, 0.5
    cart_friction, pole_friction = 0.0005, 0.000002
    sine, cosine = math.sin(angle), math.cos(angle)
    total = cart + pole
    rubbing = math.copysign(cart_friction, speed)
    pushed = (-force - pole * half * turning**2 * sine + rubbing) / total
    upper = gravity * sine + cosine * pushed - pole_friction * turning / (pole * half)
    angular = upper / (half * (4.0 / 3.0 - pole * cosine**2 / total))
    linear = (force + pole * half * (turning**2 * sine - angular * cosine) - rubbing) / total
    return x + step * speed, speed + step * linear, angle + step * turning, turning + step * angular


@formula(
    source="Mahony, Kumar, Corke, IEEE Robotics and Automation Magazine 19, 20-32, 2012",
    dtype="float64",
    roll=(-0.6, 0.6),
    pitch=(-0.6, 0.6),
    yaw=(-3.1, 3.1),
    p=(-2.0, 2.0),
    q=(-2.0, 2.0),
    r=(-2.0, 2.0),
    thrust=(0.0, 15.0),
    roll_torque=(-0.2, 0.2),
    pitch_torque=(-0.2, 0.2),
)
def quadrotor(
    roll: float,
    pitch: float,
    yaw: float,
    p: float,
    q: float,
    r: float,
    thrust: float,
    roll_torque: float,
    pitch_torque: float,
) -> tuple[float, float, float, float, float]:
    """The accelerations of a quadrotor in the world's axes, and those of its roll and pitch rates; m/s², rad/s²."""
    mass, gravity, inertia_x, inertia_y, inertia_z = 0.65, 9.81, 7.5e-3, 7.5e-3, 1.3e-2
    lift = thrust / mass
    east = lift * (math.cos(roll) * math.sin(pitch) * math.cos(yaw) + math.sin(roll) * math.sin(yaw))
    north = lift * (math.cos(roll) * math.sin(pitch) * math.sin(yaw) - math.sin(roll) * math.cos(yaw))
    up = lift * math.cos(roll) * math.cos(pitch) - gravity
    rolling = ((inertia_y - inertia_z) * q * r + roll_torque) / inertia_x
    pitching = ((inertia_z - inertia_x) * p * r + pitch_torque) / inertia_y
    return east, north, up, rolling, pitching


def bicycle_slopes(heading: float, speed: float, steering: float) -> tuple[float, float, float]:
    """The rates of the place and the heading of a kinematic bicycle (eqs. 1a to 1c, 1e)."""
    front, rear = 1.105, 1.738
    slip = math.atan(rear / (front + rear) * math.tan(steering))
    return speed * math.cos(heading + slip), speed * math.sin(heading + slip), speed / rear * math.sin(slip)


@formula(
    source="Kong, Pfeiffer, Schildbach, Borrelli, IEEE Intelligent Vehicles Symposium, 1094-1099, 2015, eq. 1",
    dtype="float64",
    x=(-50.0, 50.0),
    y=(-50.0, 50.0),
    heading=(-3.1, 3.1),
    speed=(1.0, 30.0),
    steering=(-0.5, 0.5),
    acceleration=(-4.0, 3.0),
    step=0.1,
)
def kinematic_bicycle(
    x: float, y: float, heading: float, speed: float, steering: float, acceleration: float, step: float
) -> tuple[float, float, float, float]:
    """The state of a car after a step of the Runge-Kutta method of fourth order; m, s, radians."""
    half = 0.5 * step
    x1, y1, h1 = bicycle_slopes(heading, speed, steering)
    x2, y2, h2 = bicycle_slopes(heading + half * h1, speed + half * acceleration, steering)
    x3, y3, h3 = bicycle_slopes(heading + half * h2, speed + half * acceleration, steering)
    x4, y4, h4 = bicycle_slopes(heading + step * h3, speed + step * acceleration, steering)
    return (
        x + step / 6.0 * (x1 + 2.0 * x2 + 2.0 * x3 + x4),
        y + step / 6.0 * (y1 + 2.0 * y2 + 2.0 * y3 + y4),
        heading + step / 6.0 * (h1 + 2.0 * h2 + 2.0 * h3 + h4),
        speed + step * acceleration,
    )


@formula(
    source="Henson, Seborg, Nonlinear Process Control, Prentice Hall, chapter 1, 1997",
    dtype="float64",
    concentration=(0.2, 0.9),
    temperature=(320.0, 365.0),
    coolant=(290.0, 310.0),
    flow=(80.0, 120.0),
    feed=(340.0, 360.0),
)
def stirred_tank_reactor(
    concentration: float, temperature: float, coolant: float, flow: float, feed: float
) -> tuple[float, float]:
    """Concentration and temperature of an exothermic reactor after ten steps of 0.005 min; mol/l, K, l/min."""
    volume, frequency, activation, heat = 100.0, 7.2e10, 8750.0, 5.0e4
    capacity, transfer, inlet = 239.0, 5.0e4, 1.0
    for _ in range(10):
        rate = frequency * math.exp(-activation / temperature) * concentration
        change = flow / volume * (inlet - concentration) - rate
        warming = flow / volume * (feed - temperature) + heat / capacity * rate
        warming += transfer / (volume * capacity) * (coolant - temperature)
        concentration += 0.005 * change
        temperature += 0.005 * warming
    return concentration, temperature


@formula(
    source="Åström, Hägglund, PID Controllers, 2nd edition, Instrument Society of America, section 3.6, 1995",
    dtype="float32",
    setpoint=(-1.0, 1.0),
    measured=(-1.0, 1.0),
    previous=(-1.0, 1.0),
    integral=(-0.8, 0.8),
    derivative=(-2.0, 2.0),
    gain=(0.5, 5.0),
    integral_time=(0.5, 10.0),
    derivative_time=(0.1, 2.0),
    sampling=0.05,
)
def pid_step(
    setpoint: float,
    measured: float,
    previous: float,
    integral: float,
    derivative: float,
    gain: float,
    integral_time: float,
    derivative_time: float,
    sampling: float,
) -> tuple[float, float, float]:
    """The output of a PID controller with a filtered derivative, saturation and back-calculation, and its states."""
    weight, filtering = 0.7, 10.0
    smoothing = derivative_time / (derivative_time + filtering * sampling)
    slope = smoothing * derivative - smoothing * gain * filtering * (measured - previous)
    wanted = gain * (weight * setpoint - measured) + integral + slope
    output = max(-1.0, min(1.0, wanted))
    tracking = math.sqrt(integral_time * derivative_time)
    total = integral + gain * sampling / integral_time * (setpoint - measured)
    total += sampling / tracking * (output - wanted)
    return output, total, slope


@formula(
    source="Kalman, Journal of Basic Engineering 82, 35-45, 1960",
    dtype="float64",
    transition=(0.3, 1.1),
    observation=(0.5, 2.0),
    process_noise=(0.05, 1.0),
    measurement_noise=(0.1, 2.0),
)
def steady_kalman_gain(
    transition: float, observation: float, process_noise: float, measurement_noise: float
) -> tuple[float, float]:
    """The steady gain of a scalar Kalman filter and the variance before a measurement, by iterating until it rests."""
    variance = process_noise
    while True:
        gain = variance * observation / (observation * observation * variance + measurement_noise)
        updated = transition * transition * (1.0 - gain * observation) * variance + process_noise
        change = updated - variance
        variance = updated
        if abs(change) < 1e-10 * variance:
            break
    return gain, variance
