"""Bugs planted in every folder of the package, each of which the named tests must find: `python tests/planted_bugs.py`.

Each bug replaces one piece of text in a copy of the package. The tests named beside it then run on the copy, and fail.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "dualbcast"
# A bug may make a loop endless; no test that is named here takes half as long.
PATIENCE = 400


class Bug(NamedTuple):
    """A piece of the package's text that occurs once, the text to put there, and the tests that must then fail."""

    name: str
    old: str
    new: str
    tests: str


BUGS = [
    # --- special ---
    Bug("a wrong coefficient of digamma", "w * (1 / 252 - w * (1 / 240", "w * (1 / 252 - w * (1 / 204", "test_special"),
    # --- whole arrays and complex numbers ---
    Bug(
        "branches on different tests taken for one that chooses alike",
        'key = ("merged", self.number(test), *found)',
        'key = ("merged", *found)',
        "test_passes",
    ),
    Bug(
        "the solution's slope in the matrix with the wrong sign",
        "[-x[k] if j == at else 0 for j in range(size)",
        "[x[k] if j == at else 0 for j in range(size)",
        "test_small_linalg",
    ),
    Bug(
        "eigenvectors that turn towards the later ones only",
        "[turn if m > k else -turn for m, turn in enumerate(turns)]",
        "[turn if m > k else 0.0 * turn for m, turn in enumerate(turns)]",
        "test_small_linalg",
    ),
    Bug(
        "an element below the diagonal that stands for itself alone",
        "v[i] * v[i] if i == j else 2.0 * v[i] * v[j]",
        "v[i] * v[j]",
        "test_small_linalg",
    ),
    Bug(
        "names of a later part that may be read where that was not evaluated",
        "return (test, assigned, {}) if isinstance(node.op, ast.And) else (test, {}, assigned)",
        "return test, assigned, assigned",
        "test_compiler_faults",
    ),
    Bug(
        "an index below the end taken for one in range",
        'operate("above", "bool", "ge", index, length)',
        'operate("above", "bool", "gt", index, length)',
        "test_whole_arrays",
    ),
    Bug(
        "a negative index that counts from the second last element",
        'end = operate("end", "int", "add", index, length)',
        'end = operate("end", "int", "sub", length, ir.Const(1, "int"))',
        "test_whole_arrays",
    ),
    Bug(
        "the cotangent of an element of another place",
        "new.append(ir.Assign(places[-1], place, stmt.location))",
        'new.append(ir.Assign(places[-1], ir.Const(0, "int"), stmt.location))',
        "test_whole_arrays",
    ),
    Bug(
        "real and imaginary parts of a complex vector exchanged",
        "real, imag = [atoms_of(env, part, node) for part in parts]",
        "imag, real = [atoms_of(env, part, node) for part in parts]",
        "test_complex_cores",
    ),
    Bug(
        "an inner product that conjugates nothing",
        "call_value(env, _CONJUGATE, Arguments((z,)), node)",
        "z",
        "test_complex_cores",
    ),
    Bug(
        "the norm of a complex vector by squares of its elements",
        "return x.real * x.real + x.imag * x.imag if isinstance(x, (complex, np.complexfloating)) else x * x",
        "return x * x",
        "test_complex_cores",
    ),
    Bug(
        "the imaginary part of a captured complex array read as its real part",
        "return getattr(self.array.read(), part)",
        'return getattr(self.array.read(), "real")',
        "test_complex_cores",
    ),
    Bug(
        "a tangent of a complex vector without its imaginary part",
        "given = complex_arguments.parts_of(given, range(len(layout.arguments)), layout.pairs)",
        "given = [x for t in given for x in ((t.real, 0 * t.real) if np.iscomplexobj(t) else (t,))]",
        "test_complex_cores",
    ),
    Bug(
        "the angle of a point left of the other axis",
        "is_left.choose(x.constant(3.0), one)",
        "is_left.choose(one, x.constant(3.0))",
        "test_cpu_math",
    ),
    Bug(
        "an arc cosine of negative numbers that forgets the turn",
        "(is_far ^ is_negative).choose(arc, -arc)",
        "is_far.choose(arc, -arc)",
        "test_cpu_math",
    ),
    Bug(
        "the conjugate of a complex cotangent",
        "result.real, result.imag = real, imag",
        "result.real, result.imag = real, -imag",
        "test_complex",
    ),
    Bug(
        "no slope on the axes of a square root",
        "x = z.real if z.real >= 0 else -z.real",
        "x = abs(z.real)",
        "test_complex",
    ),
    # --- ir ---
    Bug(
        "zero of another sign taken for zero",
        'repr(subtrahend.value) in ("0", "0.0")',
        "subtrahend.value == 0",
        "test_ir",
    ),
    Bug(
        "true or x folded wrongly",
        "return ir.TRUE if known.value else x",
        "return ir.FALSE if known.value else x",
        "test_ir",
    ),
    Bug(
        "product with -1 that is not negated",
        'return fold(ir.Op("neg", (x,), op.kind, op.location))',
        "return x",
        "test_ir",
    ),
    Bug(
        "value of a reassigned name reused",
        "if self.holds(self.holders[number], number):",
        "if True:",
        "test_corpus test_passes",
    ),
    Bug(
        "multiply-add with the wrong sign",
        'name=ir.MULADD if value.name == "add" else ir.SUBMUL',
        'name=ir.MULADD if value.name == "add" else ir.MULSUB',
        "test_multiply_add",
    ),
    Bug(
        "order of operands ignored",
        "sorted(arguments) if value.name in _COMMUTATIVE else arguments",
        "sorted(arguments)",
        "test_passes test_corpus",
    ),
    # --- rules ---
    Bug(
        "slope of cos with the wrong sign",
        'rule("cos", lambda x, y: (-math.sin(x),)',
        'rule("cos", lambda x, y: (math.sin(x),)',
        "test_rules",
    ),
    Bug("log10 by another base", "(1.0 / LN10 / x,)", "(1.0 / LN2 / x,)", "test_rules"),
    Bug("slope of pow in its exponent at 0", "0.0 if y == 0 else y * math.log(x)", "y * math.log(x)", "test_rules"),
    Bug("slope of log_sigmoid mirrored", "(curvatures.logistic(-x),)", "(curvatures.logistic(x),)", "test_rules"),
    Bug(
        "captured -0.0 taken for 0.0", "and repr(a) == repr(b))", "and (a == b or repr(a) == repr(b)))", "test_captures"
    ),
    # --- frontend ---
    Bug(
        "negative shift accepted",
        "and not 0 <= right.value < 64:",
        "and not -1 <= right.value < 64:",
        "test_statement_errors",
    ),
    Bug(
        "negative power without its reciprocal",
        "if count > 0:\n                return product",
        "if count > -2:\n                return product",
        "test_powers test_corpus",
    ),
    Bug(
        "bits of two truths",
        '{"bitand": "and", "bitor": "or", "bitxor": "ne"}',
        '{"bitand": "and", "bitor": "or", "bitxor": "eq"}',
        "test_operator_table test_corpus test_number_parts",
    ),
    Bug("else of a loop that was left", "(flags.broke, Key.RETURNED)", "(Key.RETURNED,)", "test_corpus"),
    Bug(
        "a path that has returned goes on",
        "if edge.bindings.get(Key.RETURNED) != TRUE:",
        "if edge.bindings.get(Key.RETURNED) == TRUE:",
        "test_corpus",
    ),
    Bug(
        "cell whose import is compiled apart",
        "starts = [0, *(i + 1 for i in imports if i < own)]",
        "starts = [0]",
        "test_source",
    ),
    Bug(
        "first function of a source text",
        "return names[defined[-1]]",
        "return names[defined[0]]",
        "test_source_text",
    ),
    Bug(
        "whole namespace kept with a source text",
        "if name in used}",
        "if True}",
        "test_source_text",
    ),
    Bug(
        "name of a source text that differs between processes",
        "hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()",
        "hashlib.sha256(f'{id(text)} {text!r}'.encode()).hexdigest()",
        "test_source_text",
    ),
    Bug(
        "step shown that is not taken",
        "stmt = If(state, (), (stmt,), where) if isinstance(state, Var) else stmt",
        "pass",
        "test_trace",
    ),
    # --- branch fusion ---
    Bug(
        "operands of a fused operation from the other side",
        'ir.Op("select", (test, *both), both[0].kind, where)',
        'ir.Op("select", (test, *both[::-1]), both[0].kind, where)',
        "test_if_conversion test_branch_fusion",
    ),
    Bug(
        "a power of a known number fused with another power",
        "if is_known or pair[0].kind != pair[1].kind:",
        "if pair[0].kind != pair[1].kind:",
        "test_branch_fusion",
    ),
    Bug(
        "variables of the second side lost in a fused branch",
        "side |= {name: fused.after(at, value) for name, value in side.items()}",
        "pass",
        "test_if_conversion test_branch_fusion",
    ),
    Bug(
        "variables of the second side lost in a fused branch of a loop",
        "values[at] = {name: fused.after(at, value) for name, value in values[at].items()}",
        "pass",
        "test_branch_fusion test_masked_loops",
    ),
    # --- counting ---
    Bug(
        "lanes that meet again only at the end",
        "found.append(nearest[0] if len(nearest) == 1 else END)",
        "found.append(END)",
        "test_ptx_counter",
    ),
    Bug(
        "lanes counted whose predicate is false",
        "lanes=active if site.guarded else lanes",
        "lanes=lanes",
        "test_ptx_counter",
    ),
    # --- autodiff ---
    Bug(
        "partials of different signs added",
        '"sub" if signs[0] != signs[1] else "add"',
        '"add"',
        "test_corpus test_edges test_elimination",
    ),
    Bug(
        "the sides of a select exchanged",
        "zip(sides, (test, self.opposite(test, where)), strict=True)",
        "zip(sides, (self.opposite(test, where), test), strict=True)",
        "test_corpus test_if_conversion test_products",
    ),
    Bug(
        "one of two ways forgotten",
        "edge if before is None else self.total(before, edge, where)",
        "edge",
        "test_corpus test_elimination test_loops",
    ),
    Bug(
        "an absent partial multiplied",
        "unmasked |= self.conditions(edge.flag)",
        "pass",
        "test_edges test_presence",
    ),
    Bug(
        "a partial left where only one side of a branch has it",
        "into[source] = there[0]\n                continue",
        "into[source] = there[0]\n                break",
        "test_corpus test_elimination test_presence",
    ),
    Bug(
        "absent partials multiplied",
        "unmasked |= self.conditions(edge.flag)",
        "unmasked |= frozenset()",
        "test_edges",
    ),
    Bug(
        "poles ignored in the first iterations",
        "is_zero_then = edge.begins and not times.has_poles",
        "is_zero_then = edge.begins",
        "test_edges",
    ),
    Bug(
        "a product of a constant and a varying partial taken for a constant",
        '"is_fixed": all(',
        '"is_fixed": any(',
        "test_edges",
    ),
    Bug(
        "a sum masked by the conditions of its first term",
        "if masks[0] != masks[1]:",
        "if False:",
        "test_edges",
    ),
    Bug(
        "exclusive terms of different signs chosen without them",
        "parts = [each if test is not None else replace",
        "parts = [replace(each, factor=1.0) if test is not None else replace",
        "test_edges",
    ),
    Bug(
        "a large factor counted once",
        "factor, operands = one.factor, (one.partial, self.scaled(other, where))",
        "factor, operands = one.factor, (one.partial, other.partial)",
        "test_edges",
    ),
    Bug(
        "a merged partial taken for a constant",
        '"is_finite": all(',
        '"is_finite": any(',
        "test_edges",
    ),
    Bug(
        "a place of one side's that has poles forgotten",
        '"has_poles": any(',
        '"has_poles": all(',
        "test_edges",
    ),
    Bug(
        "a loop that `break` leaves taken to run all iterations",
        "isinstance(stmt, ir.While) or breaks(stmt.body)",
        "isinstance(stmt, ir.While)",
        "test_presence",
    ),
    Bug(
        "presence after an iteration that continues early",
        "if any(isinstance(part, ir.Continue) for part in statements(stmt.body, in_loops=False)):",
        "if False:",
        "test_presence",
    ),
    Bug(
        "poles forgotten",
        "poles, known = has_poles and isinstance(partial, ir.Var), is_finite(partial)",
        "poles, known = False, is_finite(partial)",
        "test_jacobian",
    ),
    # --- passes ---
    Bug(
        "uniform branch around divergent jumps",
        "inside = around | _reads(stmt)",
        "inside = _reads(stmt)",
        "test_uniformity",
    ),
    Bug(
        "reciprocal of a reassigned divisor",
        'dividend.kind == "float" and writes[divisor] <= 1',
        'dividend.kind == "float" and writes[divisor] <= 9',
        "test_reciprocal_division",
    ),
    Bug(
        "arrays of two paths share nothing",
        "        value.bases = bases\n    return value",
        "    return value",
        "test_changes_in_place",
    ),
    Bug(
        "change in place that leaves nothing out of date",
        "if change is not None and value.made < min(change.at, before):",
        "if change is not None and value.made < 0:",
        "test_changes_in_place",
    ),
    Bug(
        "number that an iterator reads too early",
        "if each.owner is env.frame and each.node.id in assigned_names([stmt]):",
        "if not each:",
        "test_changes_in_place",
    ),
    Bug(
        "change in an iteration that is none of what its name is in others",
        "changes |= dict.fromkeys(group, max(found))",
        "pass",
        "test_changes_in_place",
    ),
    Bug(
        "list that is out of date before a loop and not in it",
        "start[name] = value if value.conflict else late",
        "start[name] = late",
        "test_changes_in_place",
    ),
    Bug(
        "captured dictionary whose new keys are not seen",
        "env.guards.append(Capture(owner, key, ABSENT, path))\n        return None",
        "return None",
        "test_changes_in_place",
    ),
    Bug(
        "sign chosen the wrong way",
        "sides = (value, negative) if positive else (negative, value)",
        "sides = (negative, value) if positive else (value, negative)",
        "test_passes test_golden_files test_pipeline",
    ),
    Bug(
        "masked loop goes on after break",
        "case ir.Break():\n                    return ir.FALSE",
        "case ir.Break():\n                    return ir.TRUE",
        "test_masked_loops",
    ),
    Bug(
        "element that fails an assertion not found",
        "new.append(ir.If(test, (), (ir.Assign(speaks, ir.TRUE, where),), where))",
        "new.append(ir.If(test, (ir.Assign(speaks, ir.TRUE, where),), (), where))",
        "test_debug_statements",
    ),
    Bug(
        "element that raises not found",
        'case ir.Note(what="print" | "raise", location=where):',
        'case ir.Note(what="print", location=where):',
        "test_debug_statements",
    ),
    # --- codegen ---
    Bug(
        "test of elements that are not there",
        "return self._here.choose(test, 0) if self._here is not None and test.lanes else test",
        "return test",
        "test_speculation test_masked_loops",
    ),
    Bug(
        "elements past the end of a row in its sums",
        "term.halved(self.unit.lanes) if body.mask is None else body.mask.choose(term, 0.0)",
        "term.halved(self.unit.lanes)",
        "test_sums",
    ),
    Bug(
        "log with another constant",
        "_SHORT if tables.serve(f) else format_of(f).logarithm",
        "__import__(__name__[:-10] + 'formats', fromlist=['']).FLOAT32.logarithm",
        "test_cpu_math test_accuracy",
    ),
    Bug(
        "a power of the rounded logarithm alone",
        "fma(y, low[0], fma(y, high, -product))",
        "fma(y, high, -product)",
        "test_accuracy",
    ),
    Bug(
        "an even power of a negative number without its sign",
        "(is_whole & ~even).choose(sign_of(x.bits()), 0)",
        "is_whole.choose(sign_of(x.bits()), 0)",
        "test_vector_powers",
    ),
    Bug(
        "a slope by a power that has underflowed",
        "is_rare = ~(_is_normal(absolute(y)) & _is_normal(absolute(ratio)))",
        "is_rare = ~_is_normal(absolute(ratio)) & (ratio != 0.0)",
        "test_vector_powers",
    ),
    Bug(
        "a table of roots without what they lack",
        "fma(head, small, tables.entry(lacking, place))",
        "head * small",
        "test_accuracy test_cpu_math test_tables",
    ),
    Bug(
        "a power of thirds as the root",
        "root + fma(root, lost, low)",
        "root + low",
        "test_vector_powers",
    ),
    Bug(
        "a step of a known base that is rounded",
        "first = fma(n, known.lacking / parts, r * known.log)",
        "first = r * known.log",
        "test_tables",
    ),
    Bug(
        "log1p without what the sum has lost",
        "_natural(n, m, place, lost * 0.5 * scale.as_float())",
        "_natural(n, m, place)",
        "test_accuracy",
    ),
    Bug(
        "subnormal logarithm",
        "bias = is_subnormal.choose(x.constant(whole + form.bias + lift), whole + form.bias)",
        "bias = whole + form.bias",
        "test_cpu_math test_accuracy",
    ),
    Bug(
        "rounding error forgotten on a GPU",
        "rest += (old - (sum - part)) + (term - part);",
        "rest += (old - (sum - part));",
        "test_cuda_reductions",
    ),
    Bug(
        "last panel of a sum",
        "stop = (panel + PANEL).at_most(length)",
        "stop = panel + PANEL",
        "test_reductions",
    ),
    # --- runtime ---
    Bug(
        "rows merged that do not follow",
        "if sizes and all(outer == step * size for outer, step in",
        "if sizes and any(outer == step * size for outer, step in",
        "test_iteration_space test_api",
    ),
    Bug(
        "memory order of a result",
        "for axis in reversed(order):\n        if full[axis] > 1:",
        "for axis in order:\n        if full[axis] > 1:",
        "test_iteration_space test_api test_reductions",
    ),
    Bug(
        "misaligned array read in place",
        "self.masks = tuple([array.itemsize - 1 for array in operands.arrays])",
        "self.masks = tuple([0 for array in operands.arrays])",
        "test_fast_path",
    ),
    Bug("strides left out of a call's key", "key += x.strides\n", "key += ()\n", "test_fast_path test_api"),
    Bug(
        "pool that lends a block twice", "block = shelf.waiting.pop()", "block = shelf.waiting[-1]", "test_buffer_pool"
    ),
    Bug(
        "threads that work in one memory",
        "memory[0] = memory[0] + thread * room",
        "memory[0] = memory[0] + room * 0",
        "test_loop_builder",
    ),
    Bug(
        "accumulators apart",
        "folded = sums.reshape(self.copies, -1, self.folds, self.length).swapaxes(1, 2)",
        "folded = sums.reshape(self.copies, -1, self.length, self.folds).swapaxes(1, 2)",
        "test_reductions test_row_joining",
    ),
    # --- program ---
    Bug(
        "cotangent of one output only",
        'builder.operate("add", total, term, where=where), products',
        "term, products",
        "test_corpus test_derivative_methods",
    ),
    Bug(
        "half of the Hessian",
        "for q in wrt[wrt.index(p) :]:",
        "for q in wrt[wrt.index(p) + 1 :]:",
        "test_derivative_methods",
    ),
    Bug(
        "negative index of an output",
        "        return int(key) % self.outputs\n\n    def _argument",
        "        return abs(int(key)) % self.outputs\n\n    def _argument",
        "test_jacobian",
    ),
    Bug(
        "upper and lower Hessian",
        "arguments.sort(key=results.positions.index)",
        "arguments.sort(key=results.positions.index, reverse=True)",
        "test_derivative_methods",
    ),
    Bug(
        "kernel of another layout from the disk",
        '*("kernel", self._identity, repr(layout), repr(self._dtypes()), target, self.title),',
        '*("kernel", self._identity, repr(self._dtypes()), target, self.title),',
        "test_product_cache test_api test_iteration_space",
    ),
    Bug(
        "constant block shown as zero",
        'constant = "0" if number == 0 else repr(number)',
        'constant = "0"',
        "test_html_tables",
    ),
    Bug(
        "array of a block shown with a number of its own",
        "{which - results.begins[order]}",
        "{which + output - results.begins[order]}",
        "test_html_tables",
    ),
    Bug(
        "names not escaped in a table",
        "{escape(text)}</{tag}>",
        "{text}</{tag}>",
        "test_html_tables",
    ),
    Bug(
        "step of a trace without one of two terms",
        "total[at] = total[at] + factor * partial if at in total else factor * partial",
        "total[at] = factor * partial",
        "test_trace",
    ),
    Bug(
        "NaN that is said to come from where it is read",
        "nan = next((nan for nan, _ in before if nan is not None), own) if np.isnan(result) else None",
        "nan = own if np.isnan(result) else None",
        "test_finite_checks",
    ),
    Bug(
        "NaN among the arguments taken for a fault",
        "bad &= library.broadcast_to",
        "_ = library.broadcast_to",
        "test_finite_checks",
    ),
    Bug(
        "printed statements in another order",
        "self.texts.append(text_of",
        "self.texts.insert(0, text_of",
        "test_debug_statements",
    ),
    # --- api ---
    Bug(
        "default instead of the caller's number",
        "return _OMITTED if value is default or",
        "return _OMITTED if True or",
        "test_binding",
    ),
    Bug(
        "static 1 taken for 1.0",
        "return kind, repr(value)  # which",
        "return repr(float(value))  # which",
        "test_binding",
    ),
    Bug(
        "arguments by name in any order",
        "filling = self._fillings.get((len(args), *named, wanted))",
        "filling = self._fillings.get((len(args), *sorted(named), wanted))",
        "test_binding",
    ),
    Bug(
        "constant of an earlier call left in a matrix",
        "        for place, number in constants:\n            parts[place] = number\n",
        "",
        "test_jacobian_matrix",
    ),
    Bug(
        "copy of a Jacobian that claims the matrix of the original",
        'return {**vars(self), "_matrix": None}',
        "return dict(vars(self))",
        "test_jacobian_matrix",
    ),
    Bug(
        "sparse blocks under the columns of another argument",
        "begins.append(width)",
        "begins.append(0)",
        "test_jacobian_matrix",
    ),
    Bug(
        "sparse entries left out where a block is constant",
        "if results.blocks[output, argument] != (None, 0.0)",
        "if results.blocks[output, argument].stored is not None",
        "test_jacobian_matrix",
    ),
    Bug(
        "source text without its options in a pickle",
        "return _of_text, (kind, *origin, options)",
        "return _of_text, (kind, *origin, {})",
        "test_source_text",
    ),
    Bug(
        "statements that run twice",
        'if derivation == "value_and_pullback":\n            self.speak',
        "if derivation:\n            self.speak",
        "test_debug_statements",
    ),
    # --- interop ---
    Bug(
        "derivatives of another point given to a solver",
        'entry[1] is data and entry[0] == real_numbers(point, "x").tobytes()',
        "entry[1] is data",
        "test_scipy",
    ),
    Bug(
        "derivatives of other data given to a solver",
        "entry[1] is data and entry[0]",
        "entry[0]",
        "test_scipy",
    ),
    Bug(
        "data of a solver that may change",
        "name: value if name in static else np.array(value)",
        "name: value if name in static else np.asarray(value)",
        "test_scipy",
    ),
    Bug(
        "branch of a Piecewise computed outside",
        "parts_of(expressions, kind) if isinstance(part, kind)",
        "parts_of(expressions) if isinstance(part, kind)",
        "test_sympy",
    ),
    Bug(
        "value where no condition of a Piecewise holds",
        "{self._names[symbol]} = math.nan",
        "{self._names[symbol]} = 0.0",
        "test_sympy",
    ),
    Bug(
        "erf2 with its arguments exchanged",
        '"(math.erf({1}) - math.erf({0}))"',
        '"(math.erf({0}) - math.erf({1}))"',
        "test_sympy",
    ),
    Bug(
        "masked elements in a sum",
        "outputs = super().apply(element, values, dtypes)\n        if sums is None:",
        "outputs = super().apply(element, values, dtypes, sums)\n        if True:",
        "test_any_array",
    ),
    Bug(
        "NaN left out of a sum",
        "skipna=False",
        "skipna=True",
        "test_any_array",
    ),
    Bug(
        "Series of other indexes put together by position",
        "if value.index is not index and not value.index.equals(index):",
        "if len(value) != len(index):",
        "test_any_array",
    ),
    Bug(
        "sum of the first chunk in place of all",
        "output = output.sum(axis=axes, dtype=output.dtype, keepdims=True)",
        "output = output[tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(output.ndim))]",
        "test_dask",
    ),
    Bug(
        "one name for sums over different axes",
        "repr((element.names, element.label, element.options, self.spans))",
        "repr((element.names, element.label, element.options))",
        "test_dask",
    ),
    Bug(
        "a user's rule that stays behind",
        "pipeline.run(pipeline.portable(), function)",
        "function",
        "test_dask",
    ),
    Bug(
        "an element function anew for each task",
        "@lru_cache(maxsize=1024)\ndef _of_content",
        "def _of_content",
        "test_dask",
    ),
    Bug(
        "lazy arrays cut at the first sum of the graph",
        "in adapter.parts(element, values, dtypes, shapes)",
        "in adapter.parts(element, values, dtypes)",
        "test_dask_graph",
    ),
    Bug(
        "batch of JAX's broadcast along another axis",
        ".reshape(size, *[1] * (rank - len(shape)), *shape)",
        ".reshape(size, *shape)",
        "test_jax_derivatives",
    ),
    Bug(
        "cotangent of another argument in JAX",
        'Linear("pullback", base, tuple([linear.wrt[at] for at in directions]))',
        'Linear("pullback", base, linear.wrt[: len(directions)])',
        "test_jax_derivatives",
    ),
    # --- graph ---
    Bug(
        "gradient of only one output",
        "_accumulate(cotangents, key_of(primal), cotangent)",
        "cotangents[key_of(primal)] = cotangent",
        "test_arrays test_elementwise",
    ),
    Bug(
        "equal maxima each with all", "return cotangent / count if x == y", "return cotangent if x == y", "test_arrays"
    ),
    Bug(
        "cumulative sum from the wrong end",
        "return shapes.flip(cumsum(shapes.flip(cotangent, axis), axis), axis)",
        "return cumsum(cotangent, axis)",
        "test_arrays",
    ),
    Bug(
        "small arrays recorded without a copy",
        'return array.copy("K"), None',
        "return array, None",
        "test_changed_arrays",
    ),
    Bug(
        "variance by the wrong count",
        "count = shapes.size_of(x.shape, axes) - correction",
        "count = shapes.size_of(x.shape, axes)",
        "test_arrays",
    ),
    Bug(
        "algebra: eigenvectors turned the other way",
        "values[..., None, :] - values[..., :, None]",
        "values[..., :, None] - values[..., None, :]",
        "test_linalg",
    ),
    Bug(
        "algebra: singular vectors that stay in their plane",
        "if columns > rank:",
        "if columns < rank:",
        "test_linalg",
    ),
    Bug(
        "algebra: cofactors of singular matrices without their signs",
        "signs = xp.linalg.slogdet(u)[0] * xp.linalg.slogdet(vh)[0]",
        "signs = xp.linalg.slogdet(u)[0]",
        "test_linalg",
    ),
    Bug(
        "algebra: eigenvectors that turn along themselves",
        "where(is_kept, 1j * along.imag / kept.conj(), 0.0)",
        "where(is_kept, 1j * along.imag * kept, 0.0)",
        "test_complex_linalg",
    ),
    Bug(
        "algebra: the sign of a complex determinant without its angle",
        "turn = (output_of(node).conj() * slope_sign).imag",
        "turn = (output_of(node) * slope_sign).imag",
        "test_complex_linalg",
    ),
    Bug(
        "the cotangent of a part that was broadcast to the other",
        "None if part is None else sum_to(part, each.shape)",
        "part",
        "test_complex_linalg",
    ),
    Bug(
        "a program that goes on with another rank",
        "if entry.function is require_same or not",
        "if not",
        "test_replay",
    ),
    Bug(
        "interp with the piece before a point",
        'side="right"',
        'side="left"',
        "test_array_functions",
    ),
    Bug(
        "batch: an axis that is not shifted",
        "shifted = tuple([at + 1 for at in axis]) if isinstance(axis, tuple) else axis + 1",
        "shifted = axis",
        "test_vmap",
    ),
    Bug(
        "batch: index arrays that are apart",
        "is_apart = len(places) <= places[-1] - places[0] if places else False",
        "is_apart = False",
        "test_vmap",
    ),
    Bug(
        "batch: a Variable of another call",
        "return type(value) is Batched and value.level == level",
        "return type(value) is Batched",
        "test_vmap",
    ),
    Bug(
        "registered class taken for a leaf",
        "if not is_registered(type(tree)):\n            return [tree]",
        "if True:\n            return [tree]",
        "test_registered_classes",
    ),
    # --- cli and the top level ---
    Bug(
        "table without its unit",
        "value if self.scale == 1 else value * self.scale",
        "value",
        "test_commands test_command_ends",
    ),
    Bug(
        "half a file left behind",
        "os.unlink(temporary)\n        raise",
        "pass\n        raise",
        "test_commands test_command_ends",
    ),
    Bug("keys whose parts run together", 'digest.update(b"%d:" % len(encoded))', "pass", "disk_cache"),
    Bug("newest kernels deleted first", "in sorted(found):", "in sorted(found)[::-1]:", "test_disk_cache"),
    Bug("use of a kernel not noted", "if time.time() - status.st_mtime > _TIME_STEP:", "if False:", "test_disk_cache"),
    Bug("cache over its limit", "size * _BLOCK > most // _SHARE", "size > most", "test_disk_cache"),
    Bug(
        "frames of the user's below the package's hidden",
        "(is_hidden and file == contextlib.__file__)",
        "is_hidden",
        "test_prompts",
    ),
    Bug(
        "frames of the package shown",
        "        if not is_hidden:\n            kept",
        "        if True:\n            kept",
        "test_prompts",
    ),
    Bug(
        "error without its attributes in a pickle",
        "vars(self) or None",
        "None",
        "test_argument_errors",
    ),
    Bug(
        "a step of a fit that makes the cost larger",
        "is_better = is_finite and (is_first or actual >= least)",
        "is_better = is_finite",
        "test_nist test_least_squares",
    ),
    Bug(
        "a fit that ends without its last step",
        "new if is_taken else x for new, x in zip(trial, best.parameters, strict=True)",
        "x for x in best.parameters",
        "test_least_squares",
    ),
    Bug(
        "a step of a fit out of its bounds",
        "min(max(x + s, low), high) if is_definite else x",
        "x + s if is_definite else x",
        "test_least_squares",
    ),
]


def copy_of_the_project(folder: Path) -> Path:
    """A copy of the files that tests read."""
    ignored = shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".benchmarks"
    )
    return Path(shutil.copytree(ROOT, folder / "project", ignore=ignored))


def file_of(bug: Bug, project: Path) -> Path:
    """The one file of the package that has the text of a bug."""
    files = [path for path in sorted((project / PACKAGE).rglob("*.py")) if bug.old in path.read_text(encoding="utf-8")]
    if len(files) != 1 or files[0].read_text(encoding="utf-8").count(bug.old) != 1:
        raise LookupError(f"{bug.name}: {bug.old!r} stands in {[str(path) for path in files]}, and not once")
    return files[0]


def paths_of(tests: str, project: Path) -> list[str]:
    """The files of tests that are named by their stems, and options."""
    paths = []
    for word in tests.split():
        found = [*(project / "tests").rglob(f"{word}.py"), *(project / PACKAGE).glob(f"{word}.py")]
        paths += [str(path.relative_to(project)) for path in found] or [word]
    return paths


def fails(bug: Bug, project: Path, cache: Path) -> str:
    """The first failure that a bug causes; "" if there is none."""
    path = file_of(bug, project)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(bug.old, bug.new), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(project), "DUALBCAST_CACHE_DIR": str(cache)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        *paths_of(bug.tests, project),
    ]
    try:
        done = subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return "the tests did not end"
    finally:
        path.write_text(text, encoding="utf-8")
        shutil.rmtree(cache, ignore_errors=True)
    if done.returncode < 0:
        return f"the tests ended by signal {-done.returncode}"
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{bug.name}: no test ran: {(done.stdout + done.stderr)[-300:]}")
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))]
    return lines[-1] if lines else (done.stdout + done.stderr)[-300:]


def main() -> int:
    """Plant the bugs one by one, and print which tests found each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="plant only the bugs whose names have one of these words in them")
    words = parser.parse_args().words
    bugs = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        project = copy_of_the_project(Path(folder))
        for bug in bugs:
            failure = fails(bug, project, Path(folder) / "cache")
            missed += not failure
            print(f"{'found ' if failure else 'MISSED'}  {bug.name}: {failure}", flush=True)
    print(f"{len(bugs) - missed} of {len(bugs)} bugs found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
