// Reads each input once and writes each output once, on all threads, and computes next to nothing: the exclusive or of
// the inputs. No kernel that reads and writes as many arrays takes less time, whatever it computes, but where it writes
// numbers that a processor compresses. Used by floor.py.

#include <stddef.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

typedef long long block __attribute__((vector_size(64)));

enum { AHEAD = 2048 };  // bytes by which an input is asked for before it is read

// Past the cache, where the processor has such stores.
static inline void stream(char *to, block what) {
#if defined(__AVX512F__)
    _mm512_stream_si512((void *)to, (__m512i)what);
#elif defined(__SSE2__)
    __m128i parts[4];
    memcpy(parts, &what, sizeof what);
    for (int k = 0; k < 4; k++) _mm_stream_si128((__m128i *)to + k, parts[k]);
#else
    *(block *)to = what;
#endif
}

// The inputs lie at `first` and `step` bytes apart, the outputs behind them; all are `bytes` long. All three are
// multiples of 64.
void touch(char *first, size_t step, size_t bytes, int inputs, int outputs, int streamed, int threads) {
    char *const written = first + inputs * step;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t at = 0; at < bytes; at += sizeof(block)) {
        block all = {0};
        for (int k = 0; k < inputs; k++) {
            __builtin_prefetch(first + k * step + at + AHEAD);
            all ^= *(const block *)(first + k * step + at);
        }
        for (int k = 0; k < outputs; k++) {
            if (streamed)
                stream(written + k * step + at, all);
            else
                *(block *)(written + k * step + at) = all;
        }
    }
}
