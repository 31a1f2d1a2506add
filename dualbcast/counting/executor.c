/* What PTX instructions mean, and how a grid of threads is run one thread at a time: the head of what `translation.py` writes. */

#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned __int128 u128;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;
typedef __int128 s128;
typedef float f32;
typedef double f64;
typedef _Float16 f16;

typedef struct {
    u32 tid[3], ntid[3], ctaid[3], nctaid[3];
} Thread;

/* --- numbers as bits ---------------------------------------------------------------------------------------------- */

static inline f32 as_f32(u32 x) { f32 y; memcpy(&y, &x, 4); return y; }
static inline f64 as_f64(u64 x) { f64 y; memcpy(&y, &x, 8); return y; }
static inline f16 as_f16(u16 x) { f16 y; memcpy(&y, &x, 2); return y; }
static inline f32 as_bf16(u16 x) { return as_f32((u32)x << 16); }
static inline u32 of_f32(f32 x) { u32 y; memcpy(&y, &x, 4); return y; }
static inline u64 of_f64(f64 x) { u64 y; memcpy(&y, &x, 8); return y; }
static inline u16 of_f16(f16 x) { u16 y; memcpy(&y, &x, 2); return y; }

static inline u16 of_bf16(f32 x)
{
    u32 bits = of_f32(x);
    if (x != x) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* Numbers below the least normal one are zeros with ".ftz". */
static inline f32 flushed(f32 x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
static inline f32 saturated_f32(f32 x) { return x > 0 ? x < 1 ? x : 1 : 0; }
static inline f64 saturated_f64(f64 x) { return x > 0 ? x < 1 ? x : 1 : 0; }

/* In another direction than to nearest; volatile, or the compiler would move the arithmetic out. */
#define ROUNDED(direction, type, expression) \
    ({ fesetround(direction); volatile type rounded_ = (expression); fesetround(FE_TONEAREST); rounded_; })
#define HELD(type, x) ({ volatile type held_ = (x); held_; })

/* --- instructions ------------------------------------------------------------------------------------------------- */

#define SMALLEST(type)                                                       \
    static inline type min_##type(type x, type y)                            \
    {                                                                        \
        if (x != x) return y;                                                \
        if (y != y) return x;                                                \
        return x == y ? (signbit(x) ? x : y) : x < y ? x : y;                \
    }                                                                        \
    static inline type max_##type(type x, type y)                            \
    {                                                                        \
        if (x != x) return y;                                                \
        if (y != y) return x;                                                \
        return x == y ? (signbit(x) ? y : x) : x > y ? x : y;                \
    }
SMALLEST(f32)
SMALLEST(f64)

/* The hardware's approximations. That of tanh is off by 2^-11, the others by a few units of the last place; those for
   float64 give the upper half of the number. */
static inline f32 tanh_approx(f32 x) { return as_f32(of_f32(tanhf(x)) & 0xfffff000); }
static inline f64 half_f64(f64 x) { return as_f64(of_f64(x) & 0xffffffff00000000ull); }
static inline f64 flushed_f64(f64 x) { return fabs(x) < 0x1p-1022 ? copysign(0, x) : x; }
static inline f64 rcp_approx_f64(f64 x) { return half_f64(flushed_f64(1 / half_f64(flushed_f64(x)))); }
static inline f64 rsqrt_approx_f64(f64 x) { return half_f64(flushed_f64(1 / sqrt(half_f64(flushed_f64(x))))); }

/* Of floats to integers: the nearest one that there is, and of NaN what the manual says. */
#define TO_INTEGER(to, low, high)                                                          \
    static inline to to_##to(f64 x, int wide)                                              \
    {                                                                                      \
        if (x != x) return wide || sizeof(to) == 8 ? (to)((u64)1 << (8 * sizeof(to) - 1)) : 0; \
        return x <= (f64)low ? low : x >= (f64)high ? high : (to)x;                        \
    }
TO_INTEGER(s8, -128, 127)
TO_INTEGER(u8, 0, 255)
TO_INTEGER(s16, -32768, 32767)
TO_INTEGER(u16, 0, 65535)
TO_INTEGER(s32, (-2147483647 - 1), 2147483647)
TO_INTEGER(u32, 0, 4294967295u)
TO_INTEGER(s64, (-9223372036854775807ll - 1), 9223372036854775807ll)
TO_INTEGER(u64, 0, 18446744073709551615ull)

#define SHIFTS(bits)                                                                            \
    static inline u##bits shl_##bits(u##bits x, u32 n) { return n < bits ? (u##bits)(x << n) : 0; } \
    static inline u##bits shr_u##bits(u##bits x, u32 n) { return n < bits ? x >> n : 0; }       \
    static inline s##bits shr_s##bits(s##bits x, u32 n) { return x >> (n < bits ? n : bits - 1); }
SHIFTS(16)
SHIFTS(32)
SHIFTS(64)

static inline u32 shf(u32 low, u32 high, u32 n, int left, int wraps)
{
    const u64 both = (u64)high << 32 | low;
    n = wraps ? n & 31 : n > 32 ? 32 : n;
    return left ? (u32)(both << n >> 32) : (u32)(both >> n);
}

static inline u64 bfi(u64 x, u64 y, u32 position, u32 length, u32 bits)
{
    position &= 255, length &= 255;
    for (u32 i = 0; i < length && position + i < bits; ++i)
        y = (y & ~(1ull << (position + i))) | (x >> i & 1) << (position + i);
    return y;
}

static inline u64 bfe(u64 x, u32 position, u32 length, u32 bits, int is_signed)
{
    position &= 255, length &= 255;
    const u32 last = position + length - 1 < bits - 1 ? position + length - 1 : bits - 1;
    const u64 sign = is_signed && length ? x >> last & 1 : 0;
    u64 y = 0;
    for (u32 i = 0; i < bits; ++i) y |= (i < length && position + i < bits ? x >> (position + i) & 1 : sign) << i;
    return y;
}

static inline u32 prmt(u32 x, u32 y, u32 selector)
{
    const u64 both = (u64)y << 32 | x;
    u32 z = 0;
    for (u32 i = 0; i < 4; ++i) {
        const u32 which = selector >> 4 * i & 15;
        const u32 byte = both >> 8 * (which & 7) & 255;
        z |= (which & 8 ? (byte & 128 ? 255 : 0) : byte) << 8 * i;
    }
    return z;
}

static inline u32 lop3(u32 x, u32 y, u32 z, u32 table)
{
    u32 found = 0;
    for (u32 i = 0; i < 32; ++i) found |= (table >> ((x >> i & 1) << 2 | (y >> i & 1) << 1 | (z >> i & 1)) & 1) << i;
    return found;
}

static inline u32 brev(u32 x)
{
    u32 y = 0;
    for (u32 i = 0; i < 32; ++i) y |= (x >> i & 1) << (31 - i);
    return y;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* The blocks of memory that a kernel has been given: it may not touch any other. */
typedef struct {
    u64 start, size;
} Block;

static const Block* blocks;
static u32 block_count;

/* What a kernel may not do, at an address if that is not 0. */
enum Fault { OUTSIDE, MISALIGNED, TRAP, APART };
static void failed(enum Fault fault, const Thread* thread, u64 address);

/* What the kernel brings with it, or 0; and how much memory the threads of a block share. */
static u8* table(u64 address, u32 size);
static const u32 shared_size;
static _Alignas(16) u8 shared_memory[1 << 18];

static inline int within(u64 address, u64 size, u64 start, u64 length)
{
    return address - start < length && address - start + size <= length;
}

static inline u8* global(const Thread* thread, u64 address, u32 size)
{
    if (address % size) failed(MISALIGNED, thread, address);
    for (u32 i = 0; i < block_count; ++i)
        if (within(address, size, blocks[i].start, blocks[i].size)) return (u8*)address;
    if (table(address, size)) return (u8*)address;
    failed(OUTSIDE, thread, address);
    return 0;
}

static inline u8* shared(const Thread* thread, u64 address, u32 size)
{
    if (address % size) failed(MISALIGNED, thread, address);
    if (address + size > shared_size) failed(OUTSIDE, thread, address);
    return shared_memory + address;
}

static inline u8* own(const Thread* thread, u64 address, u32 size)
{
    if (address % size) failed(MISALIGNED, thread, address);
    return (u8*)address;
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

/* The threads of a block are coroutines where they wait for one another, and run up to where they do: those of a warp
   for each other, or all of the block. What would hang a GPU, or is undefined there, is a fault. */
enum State { READY, BLOCK, WARP, DONE };
enum { THREADS = 1024, STACK = 1 << 16 };
static ucontext_t scheduler, contexts[THREADS];
static char* stacks[THREADS];
static enum State states[THREADS];
static u32 slots[THREADS], current;
static Thread threads[THREADS];
static u8** parameters;
static jmp_buf out_of_it;
static char* report;
enum { REPORT = 256 };

static void kernel(const Thread* thread, u8** parameters);
/* All threads of a block have ended. */
static void block_done(u32 count);

static void wait(enum State state)
{
    states[current] = state;
    swapcontext(&contexts[current], &scheduler);
}

static void failed(enum Fault fault, const Thread* thread, u64 address)
{
    static const char* const faults[] = {"touches memory that it was not given", "touches memory that is misaligned",
                                         "traps", "waits where others do not"};
    const u32 *tid = thread->tid, *block = thread->ctaid;
    snprintf(report, REPORT, "thread (%u, %u, %u) of block (%u, %u, %u) %s (address %#llx)", tid[0], tid[1], tid[2],
             block[0], block[1], block[2], faults[fault], address);
    longjmp(out_of_it, 1);
}

static u32 lane_of(const Thread* thread)
{
    return (thread->tid[0] + thread->ntid[0] * (thread->tid[1] + thread->ntid[1] * thread->tid[2])) % 32;
}

enum { UP, DOWN, BUTTERFLY, INDEX };
static u32 shuffled(const Thread* thread, u32 value, u32 b, u32 c, int how, u8* inside)
{
    const u32 lane = lane_of(thread), segment = c >> 8 & 31, clamp = c & 31, self = current;
    const u32 most = (lane & segment) | (clamp & ~segment), least = lane & segment;
    b &= 31;
    const s32 from = how == UP     ? (s32)(lane - b)
                     : how == DOWN ? (s32)(lane + b)
                     : how == INDEX ? (s32)(least | (b & ~segment))
                                    : (s32)(lane ^ b);
    *inside = how == UP ? from >= (s32)most : from <= (s32)most;
    slots[self] = value;
    wait(WARP);
    const u32 other = slots[self - lane + (*inside ? (u32)from : lane)];
    wait(WARP);
    return other;
}

static void thread_of_block(void)
{
    kernel(&threads[current], parameters);
    wait(DONE);
}

static void run_block(u32 count, int ended_count)
{
    for (u32 i = 0; i < count; ++i) {
        if (!stacks[i]) stacks[i] = malloc(STACK);
        states[i] = READY;
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = STACK;
        contexts[i].uc_link = 0;
        makecontext(&contexts[i], thread_of_block, 0);
    }
    for (u32 done = 0; done < count;) {
        u32 waiting = 0, moved = 0;
        done = 0;
        for (u32 warp = 0; warp < count; warp += 32) {
            const u32 end = warp + 32 < count ? warp + 32 : count;
            u32 found[DONE + 1] = {0};
            for (u32 i = warp; i < end; ++i) {
                if (states[i] == READY) {
                    current = i, moved = 1;
                    swapcontext(&scheduler, &contexts[i]);
                }
                ++found[states[i]];
            }
            if (found[WARP] == end - warp) memset(&states[warp], 0, (end - warp) * sizeof *states), moved = 1;
            else if (found[WARP]) failed(APART, &threads[warp], 0);
            waiting += found[BLOCK], done += found[DONE];
        }
        if (moved || done == count) continue;
        /* CUDA C++ wants all threads of a block at a barrier; the hardware waits for those that have not ended. */
        if (waiting + (ended_count ? done : 0) < count) failed(APART, &threads[0], 0);
        for (u32 i = 0; i < count; ++i)
            if (states[i] == BLOCK) states[i] = READY;
    }
}

/* Runs a grid. `together` says whether threads wait for one another (1), also with some that have ended (2); `known` are
   the blocks of memory. Returns 0, or 1 and what is wrong in `what`, which has room for `REPORT` characters. */
s32 launch(const u32* grid, const u32* block, int together, u8** given, const Block* known, u32 how_many, char* what)
{
    const u32 count = block[0] * block[1] * block[2];
    blocks = known, block_count = how_many, parameters = given, report = what;
    if (setjmp(out_of_it)) return 1;
    for (u32 i = 0; i < count; ++i) {
        threads[i].tid[0] = i % block[0], threads[i].tid[1] = i / block[0] % block[1];
        threads[i].tid[2] = i / block[0] / block[1];
        memcpy(threads[i].ntid, block, 12), memcpy(threads[i].nctaid, grid, 12);
    }
    for (u32 z = 0; z < grid[2]; ++z)
        for (u32 y = 0; y < grid[1]; ++y)
            for (u32 x = 0; x < grid[0]; ++x) {
                for (u32 i = 0; i < count; ++i)
                    threads[i].ctaid[0] = x, threads[i].ctaid[1] = y, threads[i].ctaid[2] = z;
                memset(shared_memory, 0xff, shared_size);
                if (together) run_block(count, together == 2);
                else
                    for (u32 i = 0; i < count; ++i) kernel(&threads[i], given);
                block_done(count);
            }
    return 0;
}
