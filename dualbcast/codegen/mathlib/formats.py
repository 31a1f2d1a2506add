"""What elementary functions know of the two floating-point formats: limits, constants and coefficients."""

from __future__ import annotations

from dataclasses import dataclass

from dualbcast.codegen.values import Value, is_single


@dataclass(frozen=True, eq=False)
class Format:
    """What depends on the floating-point format. `docs/generate_coefficients.py` finds the coefficients of log, erf,
    erfc, cbrt, atan and asin; the others interpolate at Chebyshev's points.

    exp(r) is 1 + r + r**2 * P(r) for abs(r) <= log(2) / 2. P leaves out less than a tenth of a unit in the last place.
    With tables, the polynomials of exponentials.py and logarithms.py serve in place of this and the next.

    log(1 + f) is f - f**2 / 2 + f**3 * P(f) from sqrt(1/2) to sqrt(2).

    erfc(x) is exp(-x**2) * (1 + x * A(x) / (1 + x * B(x))) / (1 + 2 * x) for 0 <= x <= `erfc_end`. All coefficients are
    positive, so nothing cancels; and the quotient is at most 0.29, so its errors count little.

    erf(x) is 1 - exp(-x * (2 / sqrt(pi) + x * A(x) / (1 + x * B(x)))) for 0 <= x <= `erf_end`; these coefficients are
    positive, too.

    cbrt(m) is about C(m) from sqrt(1/2) to sqrt(2), to a third of the digits.

    sin(r) is r + r**3 * S(r**2), and cos(r) is 1 - r**2 / 2 + r**4 * C(r**2), for abs(r) <= pi / 4.

    atan(r) is r + r**3 * A(r**2), and asin(r) is r + r**3 * B(r**2), for abs(r) <= 1/2.
    """

    fraction: int  # its bits
    bias: int  # of the exponent
    width: int  # all bits
    log2: float  # log(2)
    log2_low: float  # what that lacks
    # For logarithms to these bases, log(2) / log(base), in so few digits that products with exponents are exact, and
    # 1 / log(base), each with what it lacks.
    bases: dict[int, tuple[float, float, float, float]]
    # Where exp is infinite, where it is 0, where expm1 is -1, and where tanh is 1, with a little to spare.
    largest: float
    smallest: float
    minus_one: float
    saturated: float
    tiny: float  # below this expm1(x) is x
    erfc_end: float  # from here on erfc is 0, and the square is not yet clamped for exp
    erf_end: float  # from here on erf is 1
    half_pi: tuple[float, float, float]  # three numbers whose sum is pi / 2, each rounded
    farthest: float  # up to here a multiple of them leaves the right remainder
    quarter_pi: tuple[float, float]  # two numbers whose sum is pi / 4; thrice the first is exact
    exponential: tuple[float, ...]  # P of exp, from the constant on
    logarithm: tuple[float, ...]  # P of log
    erfc_above: tuple[float, ...]  # A
    erfc_below: tuple[float, ...]  # B
    erf_slope: tuple[float, float]  # 2 / sqrt(pi), and what that lacks
    erf_above: tuple[float, ...]  # A
    erf_below: tuple[float, ...]  # B
    cube_root: tuple[float, ...]  # C
    sine: tuple[float, ...]  # S
    cosine: tuple[float, ...]  # C
    arctangent: tuple[float, ...]  # A
    arcsine: tuple[float, ...]  # B

    @property
    def normal(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def shifter(self) -> float:
        """Added to a small number it rounds it to a whole one, which the last bits of the sum then hold."""
        return 1.5 * 2.0**self.fraction


FLOAT32 = Format(
    fraction=23,
    bias=127,
    width=32,
    log2=0.6931471824645996,
    log2_low=-1.9046542121259336e-09,
    bases={
        2: (1.0, 0.0, 1.4426950216293335, 1.925963033500011e-08),
        10: (0.301025390625, 4.605039066518657e-06, 0.4342944920063019, -1.0103049952192578e-08),
    },
    largest=89.0,
    smallest=-104.0,
    minus_one=-18.0,
    saturated=10.0,
    tiny=2.0**-25,
    erfc_end=10.19,
    erf_end=3.95,
    half_pi=(1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    farthest=2.0**17,
    quarter_pi=(0.785398006439209, 1.5695823663008923e-07),
    exponential=(0.5, 0.16666576266288757, 0.041666556149721146, 0.008363178931176662, 0.0013926184037700295),
    logarithm=(
        *(0.3333335518836975, -0.2500085234642029, 0.19999825954437256, -0.16621370613574982, 0.14227114617824554),
        *(-0.13202103972434998, 0.1262032687664032, -0.07362867891788483),
    ),
    erfc_above=(0.8716210722923279, 0.8367740511894226, 0.39160871505737305, 0.09431421756744385, 0.008563670329749584),
    erfc_below=(2.4018921852111816, 2.480891227722168, 1.3997302055358887, 0.44168105721473694, 0.06670189648866653),
    erf_slope=(1.128379225730896, -5.863538342219759e-08),
    erf_above=(0.6366197466850281, 0.5997109413146973, 0.23851436376571655, 0.03722484037280083),
    erf_below=(0.7805880308151245, 0.27869656682014465, 0.03724152594804764),
    cube_root=(0.554935872554779, 0.5511813759803772, -0.10629741102457047),
    sine=(-0.1666666716337204, 0.008333331905305386, -0.00019840085587929934, 2.7249864160694415e-06),
    cosine=(0.0416666641831398, -0.001388830249197781, 2.454789137118496e-05),
    arctangent=(
        -0.33333227038383484,
        0.19994014501571655,
        -0.14172585308551788,
        0.10148896276950836,
        -0.05114838853478432,
    ),
    arcsine=(0.16666752099990845, 0.07495353370904922, 0.04546250030398369, 0.024220509454607964, 0.042095039039850235),
)
FLOAT64 = Format(
    fraction=52,
    bias=1023,
    width=64,
    log2=0.6931471805599453,
    log2_low=2.3190468138462996e-17,
    bases={
        2: (1.0, 0.0, 1.4426950408889634, 2.0355273740931033e-17),
        10: (0.3010299956640665, -8.532344317057107e-14, 0.4342944819032518, 1.098319650216765e-17),
    },
    largest=710.0,
    smallest=-746.0,
    minus_one=-38.0,
    saturated=20.0,
    tiny=2.0**-54,
    erfc_end=27.3,
    erf_end=5.95,
    half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    farthest=2.0**40,
    quarter_pi=(0.7853981633974483, 3.061616997868383e-17),
    exponential=(
        *(0.5000000000000001, 0.16666666666666669, 0.04166666666662413, 0.008333333333330062, 0.0013888888917213717),
        *(0.00019841269863053618, 2.4801521295954376e-05, 2.7557268459997064e-06, 2.7620088445409746e-07),
        2.510038549551032e-08,
    ),
    logarithm=(
        *(0.3333333333333286, -0.24999999999988237, 0.2000000000015019, -0.1666666666979154, 0.14285714271206917),
        *(-0.12499999689720186, 0.11111111620272714, -0.10000015584842055, 0.09090909746386354, -0.08332893867515177),
        *(0.07691778451952211, -0.0714992981357431, 0.06682130776502695, -0.06190163458644951, 0.05679883651136751),
        *(-0.057222804813101484, 0.06498536047744115, -0.058586638532475796, 0.025120062610375953),
    ),
    erfc_above=(
        *(0.8716208329044876, 1.7831245672575717, 1.8270761585231294, 1.2076444055999798, 0.5637479853017717),
        *(0.19293373621770568, 0.048843481062885906, 0.009015964116475955, 0.0011605482301868609),
        *(9.399803182262009e-05, 3.617385932762937e-06),
    ),
    erfc_below=(
        *(3.487620748254554, 5.6933303922036895, 5.754361406117451, 4.010904579673181, 2.0302507090841213),
        *(0.7642040747099568, 0.21482770146779076, 0.044441784690802726, 0.006490271328915694, 0.0006083592915899163),
        2.817735941585227e-05,
    ),
    erf_slope=(1.1283791670955126, 1.533545961316588e-17),
    erf_above=(
        *(0.6366197723675818, 1.1652885750642652, 0.9979110714436383, 0.5056087027758512, 0.1603666783354129),
        *(0.031025096551499064, 0.0032189262132838715, 0.00011791585929056584),
    ),
    erf_below=(
        *(1.668996185605225, 1.328127828031044, 0.6302789601152379, 0.1879445719740808, 0.0342477592634459),
        *(0.003349563315335847, 0.0001179369713135785),
    ),
    cube_root=(
        *(0.4222601754609725, 1.0531519531931617, -0.8304081758819853, 0.5054519098934103, -0.17691088658393492),
        0.026454154013715005,
    ),
    sine=(
        *(-0.16666666666666666, 0.008333333333333331, -0.0001984126984126506, 2.7557319219335453e-06),
        *(-2.5052106231157904e-08, 1.605853141458901e-10, -7.586685070091267e-13),
    ),
    cosine=(
        *(0.041666666666666664, -0.0013888888888887395, 2.4801587298763433e-05, -2.7557317270560326e-07),
        *(2.0876146024689747e-09, -1.1382614868556325e-11),
    ),
    arctangent=(
        *(-0.33333333333332954, 0.1999999999989723, -0.14285714275946937, 0.11111110642892404, -0.09090895868357829),
        *(0.07692068544813205, -0.06663760162938218, 0.058579821802630924, -0.05120691095209053, 0.04183040593540198),
        *(-0.02738248659168284, 0.01008205975954208),
    ),
    arcsine=(
        *(0.16666666666666757, 0.07499999999971521, 0.04464285717380503, 0.030381942749934335, 0.022372213738795926),
        *(0.017351635152949317, 0.013980537778747016, 0.011401252713134224, 0.010767050420922818),
        *(0.0037564183846150244, 0.02158573066400365, -0.020827071058743086, 0.03252136677247292),
    ),
)


def format_of(x: Value) -> Format:
    """The format of a number."""
    return FLOAT32 if is_single(x.kind) else FLOAT64
