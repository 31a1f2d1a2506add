/* A CUDA driver and runtime for a GPU that is not there: memory is the host's, work is done at once, and kernels are run
   by what `ptx.py` makes of their PTX. As much of both as CuPy calls for arrays, kernels, streams, events and graphs. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NO_DEVICE = 101, IMAGE = 200, NOT_FOUND = 500, NOT_READY = 600, FAILED = 719 };
enum { CAPTURE_UNSUPPORTED = 900 };
enum { BLOCKS = 1 << 16, PARAMETERS = 1 << 10, NAMES = 1 << 12 };

typedef uint64_t Handle;

/* --- what Python is asked for ------------------------------------------------------------------------------------- */

/* Translates a kernel. Fills in the path of a library and the sizes of the parameters, and returns how many there are,
   or less than 0 where the text cannot be translated. */
typedef int (*Translate)(const char* ptx, const char* name, char* path, int* sizes, int* together, int* most);
static Translate translate;
static int device_count = 1;
static _Thread_local int device;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

EXPORT int emulated_idle; /* if set, kernels that have run once are started no more: what is left is the host's cost */

EXPORT void emulated_setup(Translate function, int devices) { translate = function, device_count = devices; }

static int failure(const char* what, const char* name)
{
    fprintf(stderr, "emulated GPU: %s%s%s\n", name, *name ? ": " : "", what);
    return FAILED;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t start, size;
} Block;
static Block blocks[BLOCKS];
static int block_devices[BLOCKS];
static uint32_t block_count;

/* Which block an address is in; -1 for one of the host's. */
static int block_at(const void* address)
{
    for (uint32_t i = 0; i < block_count; ++i)
        if ((uint64_t)address - blocks[i].start < blocks[i].size) return (int)i;
    return -1;
}

static int allocated(void** to, size_t size)
{
    *to = 0;
    if (!size) return SUCCESS;
    pthread_mutex_lock(&lock);
    void* made = block_count < BLOCKS ? aligned_alloc(512, (size + 511) / 512 * 512) : 0;
    if (made) {
        memset(made, 0xff, size); /* NaN, where nobody writes */
        blocks[block_count] = (Block){(uint64_t)made, size};
        block_devices[block_count++] = device;
        *to = made;
    }
    pthread_mutex_unlock(&lock);
    return made ? SUCCESS : OUT_OF_MEMORY;
}

static int freed(void* given)
{
    pthread_mutex_lock(&lock);
    const int at = block_at(given);
    const int known = at >= 0 && blocks[at].start == (uint64_t)given;
    if (known) {
        free(given);
        blocks[at] = blocks[--block_count], block_devices[at] = block_devices[block_count];
    }
    pthread_mutex_unlock(&lock);
    return known || !given ? SUCCESS : INVALID_VALUE;
}

/* Of an address in a block whether so many bytes are in it; any other is the host's. */
static int inside(const void* at, size_t size)
{
    const int block = block_at(at);
    return block < 0 || (uint64_t)at - blocks[block].start + size <= blocks[block].size;
}

/* --- what is done in a stream: at once, or at each launch of the graph that captures it --------------------------- */

typedef struct Function {
    char* ptx;
    char name[NAMES];
    int device, count, together, most, sizes[PARAMETERS];
    int (*launch)(const uint32_t*, const uint32_t*, int, uint8_t**, const Block*, uint32_t, char*); /* see ptx.c */
} Function;

typedef struct Work {
    enum { COPY, SET, LAUNCH } kind;
    void* to;
    const void* from;
    size_t size;
    int value;
    Function* function;
    uint32_t grid[3], block[3];
    uint8_t* parameters[PARAMETERS];
    struct Work* next;
} Work;

typedef struct Stream {
    int capturing;
    Work *first, *last;
} Stream;

static int run(const Work* work)
{
    int status = SUCCESS;
    pthread_mutex_lock(&lock);
    if (work->kind == LAUNCH) {
        char report[256];
        if (work->function->launch(work->grid, work->block, work->function->together, (uint8_t**)work->parameters,
                                   blocks, block_count, report))
            status = failure(report, work->function->name);
    } else if (!inside(work->to, work->size) || (work->kind == COPY && !inside(work->from, work->size))) {
        status = failure("a copy beyond the end of an array", "");
    } else if (work->kind == COPY) {
        memmove(work->to, work->from, work->size);
    } else {
        memset(work->to, work->value, work->size);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static int done(Work work, Stream* stream)
{
    if ((uintptr_t)stream <= 2 || !stream->capturing) { /* the default streams are 0, 1 and 2 */
        const int status = run(&work);
        for (int i = 0; work.kind == LAUNCH && i < work.function->count; ++i) free(work.parameters[i]);
        return status;
    }
    Work* kept = malloc(sizeof work);
    *kept = work;
    *(stream->last ? &stream->last->next : &stream->first) = kept;
    stream->last = kept;
    return SUCCESS;
}

static int capturing; /* how many streams are captured */

/* --- the runtime -------------------------------------------------------------------------------------------------- */

static const int ATTRIBUTES[][2] = {
    {1, 1024},   {2, 1024}, {3, 1024},     {4, 64},   {5, 2147483647}, {6, 65535},        {7, 65535},
    {8, 49152},  {10, 32},  {12, 65536},   {13, 1},   {14, 512},       {16, 132},         {38, 1 << 20},
    {39, 2048},  {75, 9},   {76, 0},       {81, 233472}, {97, 232448}, {106, 32},
};

static int attribute(int which)
{
    for (size_t i = 0; i < sizeof ATTRIBUTES / sizeof *ATTRIBUTES; ++i)
        if (ATTRIBUTES[i][0] == which) return ATTRIBUTES[i][1];
    return 0;
}

EXPORT int cudaGetDeviceCount(int* count) { return *count = device_count, SUCCESS; }
EXPORT int cudaGetDevice(int* found) { return *found = device, SUCCESS; }
EXPORT int cudaSetDevice(int chosen)
{
    if (chosen < 0 || chosen >= device_count) return NO_DEVICE;
    return device = chosen, SUCCESS;
}
EXPORT int cudaDriverGetVersion(int* version) { return *version = 13090, SUCCESS; }
EXPORT int cudaRuntimeGetVersion(int* version) { return *version = 13000, SUCCESS; }
EXPORT int cudaDeviceGetAttribute(int* value, int which, int of) { return (void)of, *value = attribute(which), SUCCESS; }

/* The first fields of CUDA 13's structure. */
EXPORT int cudaGetDeviceProperties(void* properties, int of)
{
    struct {
        char name[256], ids[32];
        size_t memory, shared;
        int registers, warp;
        size_t pitch;
        int threads, block[3], grid[3];
        size_t constants;
        int major, minor;
        size_t alignments[2];
        int processors;
    } found = {.name = "Emulated GPU", .memory = 140ull << 30, .shared = 49152, .registers = 65536, .warp = 32,
               .pitch = 1u << 31, .threads = 1024, .block = {1024, 1024, 64}, .grid = {2147483647, 65535, 65535},
               .constants = 65536, .major = 9, .minor = 0, .alignments = {512, 32}, .processors = 132};
    return (void)of, memcpy(properties, &found, sizeof found), SUCCESS;
}

EXPORT int cudaMalloc(void** to, size_t size) { return allocated(to, size); }
EXPORT int cudaFree(void* given) { return freed(given); }
EXPORT int cudaHostAlloc(void** to, size_t size, int flags) { return (void)flags, *to = malloc(size), SUCCESS; }
EXPORT int cudaFreeHost(void* given) { return free(given), SUCCESS; }
EXPORT int cudaMemGetInfo(size_t* left, size_t* all) { return *left = 10ull << 30, *all = 140ull << 30, SUCCESS; }
EXPORT int cudaMemcpyAsync(void* to, const void* from, size_t size, int kind, Stream* stream)
{
    return (void)kind, done((Work){.kind = COPY, .to = to, .from = from, .size = size}, stream);
}
EXPORT int cudaMemcpy(void* to, const void* from, size_t size, int kind) { return cudaMemcpyAsync(to, from, size, kind, 0); }
EXPORT int cudaMemsetAsync(void* to, int value, size_t size, Stream* stream)
{
    return done((Work){.kind = SET, .to = to, .value = value, .size = size}, stream);
}
EXPORT int cudaMemset(void* to, int value, size_t size) { return cudaMemsetAsync(to, value, size, 0); }

EXPORT int cudaPointerGetAttributes(void* found, const void* given)
{
    struct {
        int type, device;
        const void *on_device, *on_host;
        uint64_t reserved[8];
    } what = {.device = -2};
    const int block = block_at(given);
    if (block >= 0) what.type = 2, what.device = block_devices[block], what.on_device = given;
    return memcpy(found, &what, sizeof what), SUCCESS;
}
EXPORT int cudaDeviceCanAccessPeer(int* can, int from, int to) { return (void)from, (void)to, *can = 1, SUCCESS; }
EXPORT int cudaDeviceEnablePeerAccess(int to, int flags) { return (void)to, (void)flags, SUCCESS; }
EXPORT int cudaDeviceSynchronize(void) { return SUCCESS; }
EXPORT int cudaGetLastError(void) { return SUCCESS; }
EXPORT int cudaPeekAtLastError(void) { return SUCCESS; }

EXPORT int cudaStreamCreateWithFlags(Stream** made, int flags)
{
    return (void)flags, *made = calloc(1, sizeof **made), SUCCESS;
}
EXPORT int cudaStreamCreateWithPriority(Stream** made, int flags, int priority)
{
    return (void)priority, cudaStreamCreateWithFlags(made, flags);
}
EXPORT int cudaStreamCreate(Stream** made) { return cudaStreamCreateWithFlags(made, 0); }
EXPORT int cudaStreamDestroy(Stream* stream) { return free(stream), SUCCESS; }
EXPORT int cudaStreamSynchronize(Stream* stream) { return (void)stream, SUCCESS; }
EXPORT int cudaStreamQuery(Stream* stream) { return (void)stream, SUCCESS; }
EXPORT int cudaStreamWaitEvent(Stream* stream, void* event, int flags)
{
    return (void)stream, (void)event, (void)flags, SUCCESS;
}
EXPORT int cudaStreamBeginCapture(Stream* stream, int mode)
{
    return (void)mode, *stream = (Stream){.capturing = 1}, ++capturing, SUCCESS;
}
EXPORT int cudaStreamEndCapture(Stream* stream, Work*** graph)
{
    *graph = malloc(sizeof **graph), **graph = stream->first;
    return *stream = (Stream){0}, --capturing, SUCCESS;
}
EXPORT int cudaStreamIsCapturing(Stream* stream, int* found)
{
    return *found = (uintptr_t)stream > 2 && stream->capturing, SUCCESS;
}
EXPORT int cudaGraphInstantiate(Work*** made, Work** graph)
{
    return *made = malloc(sizeof **made), **made = *graph, SUCCESS;
}
EXPORT int cudaGraphLaunch(Work** graph, Stream* stream)
{
    int status = SUCCESS;
    for (const Work* work = *graph; work && !status; work = work->next) status = run(work);
    return (void)stream, status;
}
EXPORT int cudaGraphUpload(void* graph, Stream* stream) { return (void)graph, (void)stream, SUCCESS; }
EXPORT int cudaGraphDestroy(void* graph) { return free(graph), SUCCESS; }
EXPORT int cudaGraphExecDestroy(void* graph) { return free(graph), SUCCESS; }

/* Work is done when it is asked for, but not seen to be: who looks first sees a GPU that is busy. */
typedef struct {
    struct timespec at;
    int seen;
} Event;

EXPORT int cudaEventCreateWithFlags(Event** made, int flags)
{
    return (void)flags, *made = calloc(1, sizeof **made), SUCCESS;
}
EXPORT int cudaEventCreate(Event** made) { return cudaEventCreateWithFlags(made, 0); }
EXPORT int cudaEventDestroy(Event* event) { return free(event), SUCCESS; }
EXPORT int cudaEventRecord(Event* event, Stream* stream)
{
    return (void)stream, event->seen = 0, clock_gettime(CLOCK_MONOTONIC, &event->at), SUCCESS;
}
EXPORT int cudaEventQuery(Event* event) { return event->seen++ ? SUCCESS : NOT_READY; }
EXPORT int cudaEventSynchronize(Event* event) { return event->seen = 1, SUCCESS; }
EXPORT int cudaEventElapsedTime(float* milliseconds, const Event* from, const Event* to)
{
    const struct timespec begin = from->at, end = to->at;
    *milliseconds = 1e3f * (float)(end.tv_sec - begin.tv_sec) + 1e-6f * (float)(end.tv_nsec - begin.tv_nsec);
    return SUCCESS;
}

/* --- the driver --------------------------------------------------------------------------------------------------- */

typedef struct {
    char* ptx;
    int device;
} Module;

EXPORT int cuInit(int flags) { return (void)flags, SUCCESS; }
EXPORT int cuDriverGetVersion(int* version) { return cudaDriverGetVersion(version); }
EXPORT int cuDeviceGetCount(int* count) { return cudaGetDeviceCount(count); }
EXPORT int cuDeviceGet(int* found, int ordinal) { return *found = ordinal, SUCCESS; }
EXPORT int cuDeviceGetName(char* name, int length, int of)
{
    return (void)of, snprintf(name, (size_t)length, "Emulated GPU"), SUCCESS;
}
EXPORT int cuDeviceTotalMem_v2(size_t* size, int of) { return (void)of, *size = 140ull << 30, SUCCESS; }
EXPORT int cuDeviceGetAttribute(int* value, int which, int of) { return cudaDeviceGetAttribute(value, which, of); }
EXPORT int cuDevicePrimaryCtxRetain(Handle* made, int of) { return *made = (Handle)of + 1, SUCCESS; }
EXPORT int cuDevicePrimaryCtxRelease_v2(int of) { return (void)of, SUCCESS; }
EXPORT int cuCtxGetCurrent(Handle* found) { return *found = (Handle)device + 1, SUCCESS; }
EXPORT int cuCtxSetCurrent(Handle context) { return device = (int)context - 1, SUCCESS; }
EXPORT int cuCtxGetDevice(int* found) { return *found = device, SUCCESS; }

EXPORT int cuGetErrorName(int status, const char** name)
{
    *name = status == OUT_OF_MEMORY         ? "CUDA_ERROR_OUT_OF_MEMORY"
            : status == IMAGE               ? "CUDA_ERROR_INVALID_IMAGE"
            : status == NOT_FOUND           ? "CUDA_ERROR_NOT_FOUND"
            : status == FAILED              ? "CUDA_ERROR_LAUNCH_FAILED"
            : status == CAPTURE_UNSUPPORTED ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
                                            : "CUDA_ERROR_INVALID_VALUE";
    return SUCCESS;
}
EXPORT int cuGetErrorString(int status, const char** text) { return cuGetErrorName(status, text); }

EXPORT int cuModuleLoadData(Module** made, const char* image)
{
    if (capturing) return CAPTURE_UNSUPPORTED;
    if (!memcmp(image, "\177ELF", 4)) return IMAGE; /* machine code, and not PTX */
    *made = malloc(sizeof **made);
    **made = (Module){strdup(image), device};
    return SUCCESS;
}
EXPORT int cuModuleUnload(Module* module) { return (void)module, SUCCESS; }

EXPORT int cuModuleGetFunction(Function** made, const Module* module, const char* name)
{
    char entry[NAMES];
    snprintf(entry, sizeof entry, ".entry %s(", name);
    if (!strstr(module->ptx, entry)) return NOT_FOUND;
    *made = calloc(1, sizeof **made);
    (*made)->ptx = module->ptx, (*made)->device = module->device;
    snprintf((*made)->name, NAMES, "%s", name);
    return SUCCESS;
}

EXPORT int cuLaunchKernel(Function* function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,
                          uint32_t shared, Stream* stream, void** given, void** extra)
{
    (void)shared, (void)extra;
    if (emulated_idle && function->launch) return SUCCESS;
    if (function->device != device) return failure("loaded on another device", function->name);
    if (!function->launch) {
        char path[NAMES];
        function->count =
            translate(function->ptx, function->name, path, function->sizes, &function->together, &function->most);
        if (function->count < 0) return failure("not translated", function->name);
        void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) return failure(dlerror(), function->name);
        *(void**)&function->launch = dlsym(library, "launch");
    }
    const uint64_t threads = (uint64_t)bx * by * bz;
    if (!threads || threads > (uint64_t)function->most || !gx || !gy || !gz || gx > 2147483647u || gy > 65535 || gz > 65535)
        return failure("no such grid or block", function->name);
    Work work = {.kind = LAUNCH, .function = function, .grid = {gx, gy, gz}, .block = {bx, by, bz}};
    for (int i = 0; i < function->count; ++i) {
        work.parameters[i] = malloc((size_t)function->sizes[i]);
        memcpy(work.parameters[i], given[i], (size_t)function->sizes[i]);
    }
    return done(work, stream);
}

EXPORT int cuFuncGetAttribute(int* value, int which, const Function* function)
{
    return (void)function, *value = which == 0 ? 1024 : which == 4 ? 32 : which >= 5 && which <= 6 ? 90 : 0, SUCCESS;
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, const Function* function, int block, size_t shared)
{
    const int fit = 2048 / ((block + 31) / 32 * 32);
    return (void)function, (void)shared, *count = fit < 32 ? fit : 32, SUCCESS;
}

/* How NVIDIA's own libraries look for the driver's functions: NVRTC does not ask whether there is the first. */
EXPORT int cuGetExportTable(const void** table, const void* id) { return (void)id, *table = 0, NOT_FOUND; }
EXPORT int cuGetProcAddress_v2(const char* name, void** found, int version, uint64_t flags, int* status)
{
    static void* self;
    char versioned[NAMES];
    Dl_info info;
    (void)version, (void)flags, (void)status;
    if (!self && dladdr((void*)&cuGetProcAddress_v2, &info)) self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    snprintf(versioned, sizeof versioned, "%s_v2", name);
    *found = dlsym(self, name);
    if (!*found) *found = dlsym(self, versioned);
    return *found ? SUCCESS : NOT_FOUND;
}
