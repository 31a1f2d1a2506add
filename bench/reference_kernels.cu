// The kernels that dualbcast is measured against, written by hand as one who knows the hardware would: float32, value and
// partials in one pass, loads in the branch that needs them, read-only loads, no division in the index arithmetic.
//
// WIDTH elements a thread, 1, 2 or 4, in accesses of up to 16 bytes, which sizes, row strides and pointers must suit. ARITY is that of the products. Both are macros, so that NVRTC and nvcc compile one kernel of each kind:
//
//     nvcc -arch=sm_90 -cubin -DWIDTH=4 -DARITY=8 bench/reference_kernels.cu [--use_fast_math]
//
// The formulas are those that dualbcast has, where there is a choice: the logistic function is the one that does not
// overflow, and the derivative of tanh is 1 - t * t; with ACCURATE_SLOPE, for --use_fast_math, whose tanh is off by up to
// 2**-11, it is one that keeps its digits near saturation. So the comparison is of the code and not of the mathematics.

#ifndef WIDTH
#define WIDTH 1
#endif
#ifndef ARITY
#define ARITY 8
#endif

#define INPUT const float* __restrict__
#define OUTPUT float* __restrict__

template <int width> struct Lanes;
template <> struct Lanes<1> { using type = float; };
template <> struct Lanes<2> { using type = float2; };
template <> struct Lanes<4> { using type = float4; };

// WIDTH neighbouring elements, moved in one access.
struct Pack {
    float at[WIDTH];
};

__device__ __forceinline__ Pack load(INPUT p, int k)
{
    using Access = Lanes<WIDTH>::type;
    Pack v;
    *reinterpret_cast<Access*>(v.at) = __ldg(reinterpret_cast<const Access*>(p + k));
    return v;
}

__device__ __forceinline__ void store(OUTPUT p, int k, const Pack& v)
{
    using Access = Lanes<WIDTH>::type;
    *reinterpret_cast<Access*>(p + k) = *reinterpret_cast<const Access*>(v.at);
}

#define EACH for (int lane = 0; lane < WIDTH; ++lane)

__device__ __forceinline__ float sigmoid(float x)
{
    const float decay = expf(-fabsf(x));
    return (x < 0.0f ? decay : 1.0f) / (1.0f + decay);
}

__device__ __forceinline__ float tanh_slope(float x, float t)
{
#ifdef ACCURATE_SLOPE
    const float decay = expf(-2.0f * fabsf(x)), above = 1.0f + decay;
    return 4.0f * (decay / (above * above));
#else
    return 1.0f - t * t;
#endif
}

// --- the HM-LSTM cell update: control by row -------------------------------------------------------------------------

struct Place {
    int row, k;
    bool inside;
};

__device__ __forceinline__ Place place(unsigned n0, unsigned n1, int stride)
{
    const unsigned column = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    const unsigned row = (blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y;
    return {(int)row, (int)row * stride + (int)column, column < n1 && row < n0};
}

extern "C" __global__ void __launch_bounds__(256)
hm_lstm(unsigned n0, unsigned n1, int stride, int stride_z, INPUT c, INPUT f, INPUT i, INPUT g, INPUT z, INPUT zb,
        OUTPUT out, OUTPUT out_dc, OUTPUT out_df, OUTPUT out_di, OUTPUT out_dg)
{
    const Place at = place(n0, n1, stride);
    if (!at.inside) return;
    Pack y, dc, df, di, dg;
    if (__ldg(z + at.row * stride_z) == 1.0f) {
        const Pack is = load(i, at.k), gs = load(g, at.k);
        EACH {
            const float s = sigmoid(is.at[lane]), t = tanhf(gs.at[lane]);
            y.at[lane] = s * t;
            dc.at[lane] = df.at[lane] = 0.0f;
            di.at[lane] = t * (s * (1.0f - s));
            dg.at[lane] = s * tanh_slope(gs.at[lane], t);
        }
    } else if (__ldg(zb + at.row * stride_z) == 0.0f) {
        y = load(c, at.k);
        EACH {
            dc.at[lane] = 1.0f;
            df.at[lane] = di.at[lane] = dg.at[lane] = 0.0f;
        }
    } else {
        const Pack fs = load(f, at.k), cs = load(c, at.k), is = load(i, at.k), gs = load(g, at.k);
        EACH {
            const float a = sigmoid(fs.at[lane]), s = sigmoid(is.at[lane]), t = tanhf(gs.at[lane]);
            y.at[lane] = a * cs.at[lane] + s * t;
            dc.at[lane] = a;
            df.at[lane] = cs.at[lane] * (a * (1.0f - a));
            di.at[lane] = t * (s * (1.0f - s));
            dg.at[lane] = s * tanh_slope(gs.at[lane], t);
        }
    }
    store(out, at.k, y);
    store(out_dc, at.k, dc);
    store(out_df, at.k, df);
    store(out_di, at.k, di);
    store(out_dg, at.k, dg);
}

// For a training step: the cotangents of c, f, i and g from that of the value.
extern "C" __global__ void __launch_bounds__(256)
hm_lstm_pullback(unsigned n0, unsigned n1, int stride, int stride_z, INPUT c, INPUT f, INPUT i, INPUT g, INPUT z,
                 INPUT zb, INPUT out_bar, OUTPUT c_bar, OUTPUT f_bar, OUTPUT i_bar, OUTPUT g_bar)
{
    const Place at = place(n0, n1, stride);
    if (!at.inside) return;
    Pack dc, df, di, dg;
    if (__ldg(z + at.row * stride_z) == 1.0f) {
        const Pack is = load(i, at.k), gs = load(g, at.k), bar = load(out_bar, at.k);
        EACH {
            const float s = sigmoid(is.at[lane]), t = tanhf(gs.at[lane]);
            dc.at[lane] = df.at[lane] = 0.0f;
            di.at[lane] = bar.at[lane] * (t * (s * (1.0f - s)));
            dg.at[lane] = bar.at[lane] * (s * tanh_slope(gs.at[lane], t));
        }
    } else if (__ldg(zb + at.row * stride_z) == 0.0f) {
        dc = load(out_bar, at.k);
        EACH df.at[lane] = di.at[lane] = dg.at[lane] = 0.0f;
    } else {
        const Pack fs = load(f, at.k), cs = load(c, at.k), is = load(i, at.k), gs = load(g, at.k);
        const Pack bar = load(out_bar, at.k);
        EACH {
            const float a = sigmoid(fs.at[lane]), s = sigmoid(is.at[lane]), t = tanhf(gs.at[lane]);
            dc.at[lane] = bar.at[lane] * a;
            df.at[lane] = bar.at[lane] * (cs.at[lane] * (a * (1.0f - a)));
            di.at[lane] = bar.at[lane] * (t * (s * (1.0f - s)));
            dg.at[lane] = bar.at[lane] * (s * tanh_slope(gs.at[lane], t));
        }
    }
    store(c_bar, at.k, dc);
    store(f_bar, at.k, df);
    store(i_bar, at.k, di);
    store(g_bar, at.k, dg);
}

// --- the product of tanh(g(x)), g(x) = x if x > 1/2 else -x, with all its partials -----------------------------------

// Arrays as arguments: a kernel's parameters are in constant memory, and loops over them are unrolled.
struct Inputs {
    const float* at[ARITY];
};
struct Outputs {
    float* at[ARITY + 1];
};

__device__ __forceinline__ void factor(float x, float& t, float& slope)
{
    const bool above = x > 0.5f;
    const float r = above ? x : -x;
    t = tanhf(r);
    slope = above ? tanh_slope(r, t) : -tanh_slope(r, t);
}

// Forward mode: every new factor multiplies the partials so far, ARITY² / 2 products, and few registers.
extern "C" __global__ void __launch_bounds__(256)
product_forward(unsigned n, const __grid_constant__ Inputs in, const __grid_constant__ Outputs out)
{
    const int k = (int)((blockIdx.x * blockDim.x + threadIdx.x) * WIDTH);
    if ((unsigned)k >= n) return;
    Pack y, partial[ARITY];
#pragma unroll
    for (int j = 0; j < ARITY; ++j) {
        const Pack x = load(in.at[j], k);
        EACH {
            float t, slope;
            factor(x.at[lane], t, slope);
            for (int before = 0; before < j; ++before) partial[before].at[lane] *= t;
            partial[j].at[lane] = j ? y.at[lane] * slope : slope;
            y.at[lane] = j ? y.at[lane] * t : t;
        }
    }
    store(out.at[0], k, y);
#pragma unroll
    for (int j = 0; j < ARITY; ++j) store(out.at[j + 1], k, partial[j]);
}

// Products of the factors before and of those after: 3 ARITY products, and twice the registers.
extern "C" __global__ void __launch_bounds__(256)
product_prefix(unsigned n, const __grid_constant__ Inputs in, const __grid_constant__ Outputs out)
{
    const int k = (int)((blockIdx.x * blockDim.x + threadIdx.x) * WIDTH);
    if ((unsigned)k >= n) return;
    Pack y, t[ARITY], partial[ARITY];
#pragma unroll
    for (int j = 0; j < ARITY; ++j) {
        const Pack x = load(in.at[j], k);
        EACH {
            float slope;
            factor(x.at[lane], t[j].at[lane], slope);
            partial[j].at[lane] = j ? y.at[lane] * slope : slope;
            y.at[lane] = j ? y.at[lane] * t[j].at[lane] : t[j].at[lane];
        }
    }
    store(out.at[0], k, y);
    Pack after;
#pragma unroll
    for (int j = ARITY - 1; j >= 0; --j) {
        if (j < ARITY - 1) EACH partial[j].at[lane] *= after.at[lane];
        store(out.at[j + 1], k, partial[j]);
        EACH after.at[lane] = j < ARITY - 1 ? after.at[lane] * t[j].at[lane] : t[j].at[lane];
    }
}
