"""Kernel texts in the emitted style, by hand, that the CUDA tests compile here and run on a GPU."""

CONSTANTS = """\
f32_0 = float32(0.0)
f32_1 = float32(1.0)
f32_h = float32(0.5)

"""

HM_LSTM = """\
def sigmoid(x):
    return f32_1 / (f32_1 + exp(-x))

def hm_lstm(k, k_z, c, f, i, g, z, zb, out, out_dc, out_df, out_di, out_dg):
    if z[k_z] == f32_1:
        s = sigmoid(i[k])
        t = tanh(g[k])
        y = s * t
        y_c = f32_0
        y_f = f32_0
        y_i = s * (f32_1 - s) * t
        y_g = s * (f32_1 - t * t)
    elif zb[k_z] == f32_0:
        y = c[k]
        y_c = f32_1
        y_f = f32_0
        y_i = f32_0
        y_g = f32_0
    else:
        a = sigmoid(f[k])
        s = sigmoid(i[k])
        t = tanh(g[k])
        b = c[k]
        y = a * b + s * t
        y_c = a
        y_f = a * (f32_1 - a) * b
        y_i = s * (f32_1 - s) * t
        y_g = s * (f32_1 - t * t)
    out[k] = y
    out_dc[k] = y_c
    out_df[k] = y_f
    out_di[k] = y_i
    out_dg[k] = y_g
"""
