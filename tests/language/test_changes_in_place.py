"""Lists, dictionaries and small arrays that change in place, and the changes that another name would see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cells import Cell, agree, program, rows, verify

from dualbcast import differentiable_broadcast

OPTIONS = {"rate": 2.0, "n": 3}
CAPTURED = {"OPTIONS": OPTIONS}

CHANGES = {
    "a list that grows": "t = []\nfor k in range(4):\n    t.append(x**k)\nreturn sum(t), len(t)",
    "terms of a recurrence": (
        "p = [1.0, x]\nfor n in range(1, 5):\n    p.append(((2 * n + 1) * x * p[n] - n * p[n - 1]) / (n + 1))\nreturn p"
    ),
    "methods of a list": (
        "t = [x]\nt += (y, 2.0)\nt.extend([x * y])\nt.insert(0, 3.0)\nt.reverse()\nt.sort(reverse=True)\nreturn t"
    ),
    "an empty list": "t = [x]\nt.clear()\nt.append(y)\nreturn t",
    "items of a list": "t = [0.0] * 4\nfor i in range(4):\n    t[i] = x * i\nt[-1] += y\nreturn t",
    "the item that a loop is at": "t = [x, y, 2.0]\nfor i, a in enumerate(t):\n    t[i] = a * x\nreturn t",
    "copies": "a = np.array([x, y])\nb, c = a.copy(), a * 1\nb[0], c[1] = 3.0, x\nreturn tuple(a), tuple(b), tuple(c)",
    "items that change places": "t = [x, y]\nif t[0] > t[1]:\n    t[0], t[1] = t[1], t[0]\nreturn t",
    "a tree that is folded": (
        "v = [max(x * 1.1 ** (2 * j - 4) - y, 0.0) for j in range(5)]\nfor i in range(4, 0, -1):\n"
        "    for j in range(i):\n        v[j] = 0.5 * (v[j] + v[j + 1])\nreturn v[0]"
    ),
    "a shorter list in each iteration": (
        "v = [x * j for j in range(4)]\nfor i in range(3, 0, -1):\n    v = [v[j] + v[-1] for j in range(i)]\nreturn v"
    ),
    "a list that grows in an inner loop": (
        "t = []\nfor i in range(4):\n    for j in range(i):\n        t.append(x * i + y * j)\nreturn t"
    ),
    "a list in a loop of the kernel": (
        "t, n = [0.0, 0.0], 0\nwhile n < 3 * x:\n    t[0] += y\n    t[1] = t[0] * x\n    n += 1\nreturn t"
    ),
    "a list on one path": "t = [x, y]\nif x > 1:\n    t[0] = 2 * y\nreturn t",
    "items of an array": "a = np.zeros(3)\na[0] = x\na[1:] = a[:2] + y\na[2] *= 2\nreturn tuple(a)",
    "items of a matrix": (
        "a = np.eye(2)\na[0, 1] = x\na[:, 0] *= y\na[1] = np.array([1.0, x])\nreturn a[0, 0], a[0, 1], a[1, 0], a[1, 1]"
    ),
    "an array in a loop of the kernel": (
        "a, n = np.zeros(2), 0\nwhile n < 3 * x:\n    a[0] += y\n    a[1] = a[0] * x\n    n += 1\nreturn tuple(a)"
    ),
    "a parameter that changes": "def add(t, a):\n    t.append(a)\n    return t\nreturn sum(add([x], y))",
    "a dictionary that is made": (
        "d = {'a': x}\nd['b'] = 2 * y\nd['a'] += 1\nd |= {'c': x}\nd.update(e=3.0)\nreturn tuple(d.values())"
    ),
    "what dictionaries have": (
        "d = dict(a=x, b=y)\nt = 0.0\nfor key, value in d.items():\n    t += value * len(key)\n"
        "return t, sum(d.values()), d.get('c', 4.0), 'a' in d, len(d), d == {'a': y, 'b': x}, not d"
    ),
    "dictionaries on both sides": "d = {'a': x, 'b': y}\nif x > 1:\n    d = {'a': 2.0, 'b': x}\nreturn d['a'], d['b']",
    "a dictionary that a loop carries": (
        "s = {'at': x, 'v': y}\nwhile s['at'] < 9:\n    s = {'at': s['at'] + 1, 'v': s['v'] / 2}\n"
        "return s['at'], s['v']"
    ),
    "a captured dictionary": (
        "def g(a, *, rate=1.0, n=1):\n    return rate * a ** n\n"
        "return g(x, **OPTIONS), OPTIONS['rate'] * y, OPTIONS.get('no', y), [k for k in OPTIONS][0] == 'rate'"
    ),
    "a dictionary of pairs": "return sum(dict(zip(('a', 'b'), (x, y))).values())",
    "a change of one side": "a = [x, y]\nb = a\nif x > 1:\n    a = [*a]\n    a[0] = 3.0\nreturn a[0], b[0]",
    "a change after a loop of the kernel": (
        "a, n = [x], 0\nwhile n < 3 * x:\n    a[0] += y\n    n += 1\na[0] += 1\nreturn a, n"
    ),
    "a change of a copy that a loop goes over": "t = [x, y]\nfor a in tuple(t):\n    t[0] += a\nreturn t",
    "a change inside of calls": "def add(t):\n    t.append(y)\n    return t\nt = add(add([x]))\nreturn t, len(t)",
    "a list that a call gives back": (
        "def g(v):\n    v[0] += y\n    return v\nt, n = g([x]), 0\nt = g(t)\n"
        "while n < 3 * x:\n    t = g(t)\n    n += 1\nreturn g(t)"
    ),
    "a list that an iteration makes anew": (
        "def g(v):\n    v[0] += 1\n    return v[0]\nn, s = 0, 0.0\n"
        "while n < 3 * x:\n    t = [y]\n    s += g(t)\n    n += 1\nreturn s"
    ),
    "values of a dictionary in a loop over it": (
        "d = {'a': x, 'b': y}\nfor k, v in d.items():\n    d[k] = v * 2\nreturn tuple(d.values())"
    ),
    "zeros like integers": "a = np.zeros_like(np.array([1, 2]))\na[0] = 3\nreturn a[0] // 2, np.ones_like([x])[0]",
    "a list that a function makes anew": (
        "def g():\n    t = [x]\n    t.append(y)\n    return sum(t)\nreturn g() + g(), [g() for _ in range(2)]"
    ),
    "items of a generator that change": (
        "def g():\n    t = [x]\n    t[0] += y\n    yield t[0]\n    t[0] *= 2\n    yield t[0]\nreturn tuple(g())"
    ),
    "a list under two names of which one is read": "a = b = [x]\na.append(y)\nreturn a, len(a)",
    "a view that is made after the change": "a = np.eye(2) * x\na[0] = y\nb = a[0]\nreturn a[0, 0], b[1]",
    "a change on the last way around a loop": (
        "a, n = [x, y], 0\nwhile n < 3 * x:\n    n += 1\n    a[0] *= 2\n    if y > 0.5:\n        break\nreturn a, n"
    ),
    "names that items were made of": (
        "s, r = x, []\nfor d in reversed(((s := s + 1), s)):\n    r.append(d)\n    s = 0.5 * d\n"
        "for d in zip([s * j for j in range(3)], map(abs, (s, r[0]))):\n    s += d[0] * d[1]\nreturn s"
    ),
    "a whole number": "return x.is_integer(), (2 * x).is_integer()",
}


@pytest.mark.parametrize("body", CHANGES.values(), ids=CHANGES)
def test_changes_give_what_python_gives(body: str) -> None:
    agree(Cell(program(body), CAPTURED))


SHARED = {
    "two names": ("a = b = [x]\na.append(y)\nreturn sum(«b»)", "b shares its elements with a"),
    "a choice of arrays": (
        "a, c = np.array([x, y]), np.ones(2)\nb = a if x > 1 else c\nb += 1\nreturn «a»[0] * b[1]",
        "a shares its elements with b",
    ),
    "a choice of equal arrays": (
        "a, c = np.ones(2), np.ones(2)\nb = a if x > 1 else c\nb += x\nreturn «c»[0] * b[1]",
        "c shares its elements with b",
    ),
    "arrays of two paths": (
        "a, c = np.array([x, y]), np.ones(2)\nif x > 1:\n    b = a\nelse:\n    b = c\nb[0] = y\nreturn «c»[0]",
        "c shares its elements with b",
    ),
    "an array of an inner call": (
        "def pick(u, v):\n    if x > 1:\n        return u\n    return v\na = np.array([x, y])\n"
        "b = pick(a, np.ones(2))\nb += 1\nreturn «a»[0]",
        "a shares its elements with b",
    ),
    "an array after a loop": (
        "a, b, n = np.array([x, y]), np.zeros(2), 0\nwhile n < x:\n    n += 1\n    b = a\nb += 1\nreturn «a»[0]",
        "a shares its elements with b",
    ),
    "lists that change places in a loop": (
        "a, b, n = [x], [y], 0\n«while n < x:»\n    a, b = b, a\n    n += 1\n    a[0] = x\nreturn a[0] - b[0]",
        "b shares its elements with what this loop changes in place",
    ),
    "an array that the next iteration shares": (
        "a, b, n = np.array([x, y]), np.zeros(2), 0\n«while n < x:»\n    n += 1\n    b += 1\n    b = a\nreturn a[0]",
        "b shares its elements with what this loop changes in place",
    ),
    "a view": ("a = np.eye(2) * x\nb = a[0]\nb[0] = y\nreturn «a»[0, 0]", "a shares its elements with b"),
    "a list in a list": ("t = [[x], [y]]\ns = t[0]\ns.append(y)\nreturn sum(«t»[0])", "t shares its elements with s"),
    "a view of another shape": (
        "a = np.array([x, y])\nb = a.reshape(2, 1)\nb += 1\nreturn «a»[0]",
        "a shares its elements with b",
    ),
    "the same array again": (
        "a = np.array([x, y])\nb = np.asarray(a)\nb[0] = 1.0\nreturn «a»[0]",
        "a shares its elements with b",
    ),
    "a list before a loop that a call has changed": (
        "def g(v):\n    v[0] = y\n    return 1.0\na = [x]\nn = g(a)\n"
        "while n < 3 * x:\n    n += 1\n    a = [*«a»]\nreturn a",
        "a shares its elements with v",
    ),
    "a default": (
        "def g(v=[0.0]):\n    «v.append(x)»\n    return len(v)\nreturn g() + g()",
        "v is a default, which Python would change for later calls",
    ),
    "a list that a loop goes over": (
        "t, s = [x], 0.0\nfor a in t:\n    if len(t) < 4:\n        «t.append(a + y)»\n    s += a\nreturn s",
        "t changes while a loop goes over it",
    ),
    "a list in a list that grows": (
        "a = [x]\nb = [a, a]\n«b[0] += [y]»\nreturn len(a)",
        "an item that is a list of 1 cannot change in place",
    ),
    "an array of integers": ("a = np.array([1, 2])\n«a[0]» = x\nreturn a[0]", "this array is of kind int"),
    "floats into an array of integers": ("a = np.array([1, 2])\n«a += x»\nreturn a[0]", "this array is of kind int"),
    "more numbers than an array has": ("a = np.ones(1)\n«a += np.ones(2)»\nreturn a[0]", "this does not fit an array"),
    "an index that does not fit": ("a = np.zeros(2)\n«a[2]» = x\nreturn a[0]", "this does not fit an array"),
    "an item of a short list": ("t = [x]\n«t[1]» = y\nreturn t", "index 1 is outside this list of 1"),
    "a list of two lengths": (
        "t = [x]\nif x > 1:\n    t.append(y)\nreturn sum(«t»)",
        "t is a list of 2 and a list of 1",
    ),
}


# Changes that reach what no name of the function that changes it has.
OUT_OF_SIGHT = {
    "a name that a function reads": (
        "a, b = [x], [y]\ndef g():\n    return «b»[0]\nb = a\na[0] = 2 * x\nreturn g()",
        "b shares its elements with a",
    ),
    "a name of another call": (
        "def make():\n    a = [x]\n    return a, lambda: «a»[0]\na, g = make()\na[0] = y\nreturn g()",
        "this shares its elements with a",
    ),
    "a default that is read": (
        "a = [x]\ndef g(v=a):\n    return v[0]\na[0] = y\nreturn «g»()",
        "g shares its elements with a",
    ),
    "a dictionary whose method has a name": (
        "d = {'k': x}\ng = d.get\nd['k'] = y\nreturn «g»('k')",
        "g shares its elements with d",
    ),
    "arguments by name": (
        "def g(v, **kw):\n    v.append(y)\n    return len(«kw»['b'])\na = [x]\nreturn g(a, b=a)",
        "kw shares its elements with v",
    ),
    "a statement of two lines": (
        "def g(v):\n    v.append(y)\n    return 1.0\na = [x]\nt = «[a,»\n     g(a)]\nreturn len(t[0])",
        "this shares its elements with v",
    ),
    "a comprehension": (
        "def g(v):\n    v.append(y)\n    return len(v)\na = [x]\nreturn [g(«a») for _ in range(2)]",
        "a shares its elements with v",
    ),
    "a function that is called twice": (
        "def g(v):\n    v.append(y)\n    return len(v)\na = [x]\nh = lambda: g(«a»)\nreturn h() + h()",
        "a shares its elements with v",
    ),
    "an iteration": (
        "def g(v):\n    v.append(y)\n    return len(v)\na, s = [x], 0\nfor k in range(3):\n    s += g(«a»)\nreturn s",
        "a shares its elements with what an earlier iteration changes in place",
    ),
    "an iteration of the kernel": (
        "a, n = [x, y], 0\ng = lambda: b[0]\nb = a\n«while n < 3 * x:\n    n += g()\n    a[0] += 1»\nreturn n",
        "b shares its elements with what an earlier iteration changes in place",
    ),
    "the same statement again": (
        "a = [x]\nb = a\nfor k in range(3):\n    a[0] = «b»[0] + 1\nreturn a[0]",
        "b shares its elements with what an earlier iteration changes in place",
    ),
    "items without a name": (
        "s = 0\nfor u in [[x]] * 2:\n    «u.append(y)»\n    s += len(u)\nreturn s",
        "this shares its elements with u",
    ),
    "what an index changes": (
        "def g(v):\n    v[0] = y\n    return 0\na = [x]\nh, k = (lambda: a), (lambda: g(a))\nreturn «h()»[k()]",
        "this shares its elements with v",
    ),
    "items of a generator": (
        "def g():\n    a = [x]\n    yield a\n    a[0] = y\n    yield a\nreturn list(«g()»)[0][0]",
        "this shares its elements with a",
    ),
    "arguments of map": (
        "def g(v):\n    v.append(y)\n    return len(v)\na = [x]\nreturn list(«map(g, (a, a))»)",
        "this shares its elements with v",
    ),
    "a row of a list of rows": (
        "m = np.array([[x, y], [1.0, 2.0]])\nt = [*m]\nm[0, 0] = 9.0\nreturn «t»[0][0]",
        "t shares its elements with m",
    ),
    "real parts": ("a = np.array([x + 1j, y])\nb = a.real\na[0] = 1j\nreturn «b»[0]", "b shares its elements with a"),
    "numpy.real": ("a = np.array([x, y])\nb = np.real(a)\na[0] = y\nreturn «b»[0]", "b shares its elements with a"),
    "a view that a loop goes over": (
        "a = np.array([x, y])\nfor v in a[::-1]:\n    «a[0] += v»\nreturn a[0]",
        "a changes while a loop goes over it",
    ),
    "what an iterator goes over": (
        "t = [x, y]\nfor i, v in enumerate(reversed(t)):\n    «t[1] += v»\nreturn t",
        "t changes while a loop goes over it",
    ),
    "the item after the one that a loop is at": (
        "t = [x, y, 1.0]\nfor i, a in enumerate(t, 1):\n    if i < 3:\n        «t[i] = a * 2»\nreturn t",
        "t changes while a loop goes over it",
    ),
    "the place that a loop moves": (
        "t = [x, y]\nfor i, a in enumerate(t):\n    i = 1 - i\n    «t[i] = a * 2»\nreturn t",
        "t changes while a loop goes over it",
    ),
    "values of a dictionary": (
        "d = {'a': x}\nv = d.values()\nd['a'] = y\nreturn sum(«v»)",
        "v shares its elements with d",
    ),
    "a dictionary that a loop goes over": (
        "d = {'a': x, 'b': y}\nfor k, v in d.items():\n    «d['b'] = v * 2»\nreturn d['b']",
        "d changes while a loop goes over it",
    ),
    "rows that change places": (
        "m = np.array([[x, y], [1.0, 2.0]])\nm[0], «m[1]» = m[1], m[0]\nreturn m[1, 1]",
        "this shares its elements with m",
    ),
    "what a generator counts": (
        "a = [x]\nfor n in (len(a) for _ in range(3)):\n    «a.append(y)»\nreturn len(a)",
        "a changes while a loop goes over it",
    ),
    "a number that a generator reads": (
        "s = x\nfor n in «(s + k for k in range(3))»:\n    s += n\nreturn s",
        "s changes while a loop goes over items that are made of it",
    ),
    "a number that map reads": (
        "s = x\nfor n in «map(lambda k: s + k, (1, 2))»:\n    s += n\nreturn s",
        "s changes while a loop goes over items that are made of it",
    ),
}


@pytest.mark.parametrize(("body", "message"), rows(OUT_OF_SIGHT))
def test_changes_out_of_sight_are_refused(body: str, message: str) -> None:
    verify(Cell(program(body), CAPTURED), message, ...)


@pytest.mark.parametrize(("body", "message", "hint"), rows({name: (*row, ...) for name, row in SHARED.items()}))
def test_what_another_name_would_see_is_refused(body: str, message: str, hint: Any) -> None:
    verify(Cell(program(body), CAPTURED), message, hint)


def test_a_captured_dictionary_may_change_between_calls() -> None:
    options = {"rate": 2.0}

    @differentiable_broadcast
    def scaled(x: float) -> float:
        return options.get("rate", 1.0) * x + options.get("shift", 0.0)

    @differentiable_broadcast
    def tested(x: float) -> float:
        return x if "far" in options else 2.0 * x

    @differentiable_broadcast
    def counted(x: float) -> float:
        return len(options) * x if options else 0.0

    x = np.array([1.0, 2.0])
    for key, value in (("rate", 3.0), ("shift", 1.0), ("far", 0.0), ("", 0.0)):
        if key:
            options[key] = value
        else:
            options.clear()
        for function in (scaled, tested, counted) * 2:
            np.testing.assert_array_equal(function(x), [function.__wrapped__(each) for each in x.tolist()])


def test_a_result_may_be_a_dictionary() -> None:
    @differentiable_broadcast
    def both(x: float) -> dict[str, Any]:
        return {"square": x * x, "more": {"cube": x**3, "whole": int(x)}}

    x = np.array([1.5, 2.0])
    value, blocks = both.value_and_jacobian(x)
    assert value["more"]["whole"].tolist() == [1, 2]
    assert blocks["x"]["more"]["cube"].tolist() == (3 * x**2).tolist()
    assert blocks["square", "x"].tolist() == (2 * x).tolist()
    _, pullback = both.vjp(x)
    (bar,) = pullback({"square": np.ones(2), "more": {"cube": np.zeros(2), "whole": None}})
    assert bar.tolist() == (2 * x).tolist()
