// Kernels by hand to compare the HM-LSTM experiment with, beside those in bench/reference_kernels.cu: the cell update's
// partials alone, and its value with the cotangents of c, f, i and g, as a training step needs them. The helpers, the
// formulas and the macros are those of that file.

#include "reference_kernels.cu"

extern "C" __global__ void __launch_bounds__(256)
hm_lstm_derivatives(unsigned n0, unsigned n1, int stride, int stride_z, INPUT c, INPUT f, INPUT i, INPUT g, INPUT z,
                    INPUT zb, OUTPUT out_dc, OUTPUT out_df, OUTPUT out_di, OUTPUT out_dg)
{
    const Place at = place(n0, n1, stride);
    if (!at.inside) return;
    Pack dc, df, di, dg;
    if (__ldg(z + at.row * stride_z) == 1.0f) {
        const Pack is = load(i, at.k), gs = load(g, at.k);
        EACH {
            const float s = sigmoid(is.at[lane]), t = tanhf(gs.at[lane]);
            dc.at[lane] = df.at[lane] = 0.0f;
            di.at[lane] = t * (s * (1.0f - s));
            dg.at[lane] = s * tanh_slope(gs.at[lane], t);
        }
    } else if (__ldg(zb + at.row * stride_z) == 0.0f) {
        EACH {
            dc.at[lane] = 1.0f;
            df.at[lane] = di.at[lane] = dg.at[lane] = 0.0f;
        }
    } else {
        const Pack fs = load(f, at.k), cs = load(c, at.k), is = load(i, at.k), gs = load(g, at.k);
        EACH {
            const float a = sigmoid(fs.at[lane]), s = sigmoid(is.at[lane]), t = tanhf(gs.at[lane]);
            dc.at[lane] = a;
            df.at[lane] = cs.at[lane] * (a * (1.0f - a));
            di.at[lane] = t * (s * (1.0f - s));
            dg.at[lane] = s * tanh_slope(gs.at[lane], t);
        }
    }
    store(out_dc, at.k, dc);
    store(out_df, at.k, df);
    store(out_di, at.k, di);
    store(out_dg, at.k, dg);
}

extern "C" __global__ void __launch_bounds__(256)
hm_lstm_value_and_pullback(unsigned n0, unsigned n1, int stride, int stride_z, INPUT c, INPUT f, INPUT i, INPUT g,
                           INPUT z, INPUT zb, INPUT out_bar, OUTPUT out, OUTPUT c_bar, OUTPUT f_bar, OUTPUT i_bar,
                           OUTPUT g_bar)
{
    const Place at = place(n0, n1, stride);
    if (!at.inside) return;
    const Pack bar = load(out_bar, at.k);
    Pack y, dc, df, di, dg;
    if (__ldg(z + at.row * stride_z) == 1.0f) {
        const Pack is = load(i, at.k), gs = load(g, at.k);
        EACH {
            const float s = sigmoid(is.at[lane]), t = tanhf(gs.at[lane]);
            y.at[lane] = s * t;
            dc.at[lane] = df.at[lane] = 0.0f;
            di.at[lane] = bar.at[lane] * (t * (s * (1.0f - s)));
            dg.at[lane] = bar.at[lane] * (s * tanh_slope(gs.at[lane], t));
        }
    } else if (__ldg(zb + at.row * stride_z) == 0.0f) {
        y = load(c, at.k);
        dc = bar;
        EACH df.at[lane] = di.at[lane] = dg.at[lane] = 0.0f;
    } else {
        const Pack fs = load(f, at.k), cs = load(c, at.k), is = load(i, at.k), gs = load(g, at.k);
        EACH {
            const float a = sigmoid(fs.at[lane]), s = sigmoid(is.at[lane]), t = tanhf(gs.at[lane]);
            y.at[lane] = a * cs.at[lane] + s * t;
            dc.at[lane] = bar.at[lane] * a;
            df.at[lane] = bar.at[lane] * (cs.at[lane] * (a * (1.0f - a)));
            di.at[lane] = bar.at[lane] * (t * (s * (1.0f - s)));
            dg.at[lane] = bar.at[lane] * (s * tanh_slope(gs.at[lane], t));
        }
    }
    store(out, at.k, y);
    store(c_bar, at.k, dc);
    store(f_bar, at.k, df);
    store(i_bar, at.k, di);
    store(g_bar, at.k, dg);
}
