/* What a warp does, put together from what its threads have recorded: between `executor.c`, the tables of the program
   (`recording.py`), and the program itself.

   Lanes that part at a branch are executed group by group, and meet again at its join, the immediate post-dominator: so
   the hardware does it where the compiler places its barriers of convergence there. */

typedef struct {
    u32 first_site, last_site; /* those of its instructions that record something */
    s32 join;                  /* the block where lanes that part after it meet again; -1 at the return */
    u32 calls;                 /* whether a call ends it */
} BlockInfo;

enum Space { NO_MEMORY, GLOBAL, SHARED, LOCAL };
typedef struct {
    u32 guarded, space, writes, size;
} SiteInfo;

static const BlockInfo block_info[] = {BLOCK_TABLE};
static const SiteInfo site_info[] = {SITE_TABLE};

/* --- what a thread records ---------------------------------------------------------------------------------------- */

/* In order: the number of each block that it comes to; for each instruction there that is guarded, whether it is
   executed; for each access to memory that is, its address; and `RETURNED` at the end of a function. */
#define RETURNED (~0ull)
#define NOTE(x) note(thread, x)

static u64* traces[THREADS];
static u64 traced[THREADS], room[THREADS], cursor[THREADS];

static void* grown(void* memory, u64 size)
{
    memory = realloc(memory, size);
    if (!memory) fprintf(stderr, "no memory for the records of threads\n"), abort();
    return memory;
}

static inline void note(const Thread* thread, u64 what)
{
    const u32 i = thread - threads;
    if (traced[i] == room[i]) {
        room[i] = room[i] ? 2 * room[i] : 64;
        traces[i] = grown(traces[i], room[i] * sizeof(u64));
    }
    traces[i][traced[i]++] = what;
}

/* What is left of a launch that failed. */
static void forget(void) { memset(traced, 0, sizeof traced); }

/* --- what is counted ---------------------------------------------------------------------------------------------- */

/* By block: how often a warp has executed it, with how many lanes in all, and parted after it. */
u64 issued_[BLOCK_COUNT], lanes_[BLOCK_COUNT], divergent_[BLOCK_COUNT];
/* By instruction that records something: the lanes that executed it; the sectors of 32 bytes that
   warps asked for, and those of them that the warp had not asked for before; passes over the banks of shared memory, and
   as many as there were without conflicts. */
u64 site_lanes_[SITE_COUNT], sectors_[SITE_COUNT], first_[SITE_COUNT];
u64 passes_[SITE_COUNT], least_passes_[SITE_COUNT];
u64 warps_;

/* For each sector of each block of memory, whether its first access was a read (1), and whether it is written (2). */
static u8** touched;
enum { READ = 1, WRITTEN = 2 };

void count_into(u8** flags)
{
    touched = flags;
    memset(issued_, 0, sizeof issued_), memset(lanes_, 0, sizeof lanes_), memset(divergent_, 0, sizeof divergent_);
    memset(site_lanes_, 0, sizeof site_lanes_);
    memset(sectors_, 0, sizeof sectors_), memset(first_, 0, sizeof first_);
    memset(passes_, 0, sizeof passes_), memset(least_passes_, 0, sizeof least_passes_);
    warps_ = 0;
    forget();
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* The sectors that the warp has asked for: a hash table, whose entries count if they have the warp's number. */
static u64 *seen, *seen_by, seen_room, seen_count, warp_number;

static int is_new(u64 sector)
{
    if (2 * seen_count >= seen_room) {
        const u64 old_room = seen_room, *old = seen, *old_by = seen_by;
        seen_room = seen_room ? 2 * seen_room : 256;
        seen = grown(0, seen_room * sizeof(u64)), seen_by = grown(0, seen_room * sizeof(u64));
        memset(seen_by, 0, seen_room * sizeof(u64));
        seen_count = 0;
        for (u64 i = 0; i < old_room; ++i)
            if (old_by[i] == warp_number) is_new(old[i]);
        free((void*)old), free((void*)old_by);
    }
    u64 at = sector * 0x9e3779b97f4a7c15ull >> 20 & (seen_room - 1);
    while (seen_by[at] == warp_number) {
        if (seen[at] == sector) return 0;
        at = (at + 1) & (seen_room - 1);
    }
    seen[at] = sector, seen_by[at] = warp_number, ++seen_count;
    return 1;
}

static void touch(u64 sector, int writes)
{
    for (u32 i = 0; i < block_count; ++i) {
        const u64 first = blocks[i].start >> 5;
        if (!blocks[i].size || sector < first || sector > (blocks[i].start + blocks[i].size - 1) >> 5) continue;
        u8* flags = &touched[i][sector - first];
        if (writes) *flags |= WRITTEN;
        else if (!*flags) *flags = READ;
        return;
    }
}

/* An access of up to 32 bytes, aligned to its size, lies in one sector. */
static void access_global(u32 site, u32 mask, const u64* at)
{
    u64 list[32];
    u32 n = 0;
    for (u32 rest = mask; rest; rest &= rest - 1) {
        const u64 sector = at[__builtin_ctz(rest)] >> 5;
        u32 i = n;
        while (i && list[i - 1] != sector) --i;
        if (i) continue;
        list[n++] = sector;
        first_[site] += is_new(sector);
        touch(sector, site_info[site].writes);
    }
    sectors_[site] += n;
}

/* There are 32 banks of 4 bytes. Lanes that want the same word of a bank share it; accesses of 8 and 16 bytes are made
   for 16 and 8 lanes at a time. */
static void access_shared(u32 site, u32 mask, const u64* at)
{
    const u32 size = site_info[site].size, words = size > 4 ? size / 4 : 1, together = 32 / words;
    for (u32 from = 0; from < 32; from += together) {
        u64 wanted[32][32];
        u32 depth[32] = {0}, most = 0;
        for (u32 lane = from; lane < from + together; ++lane)
            for (u32 k = 0; k < words && mask >> lane & 1; ++k) {
                const u64 word = (at[lane] - (u64)shared_memory) / 4 + k;
                const u32 bank = word % 32;
                u32 i = depth[bank];
                while (i && wanted[bank][i - 1] != word) --i;
                if (i) continue;
                wanted[bank][depth[bank]++] = word;
                if (depth[bank] > most) most = depth[bank];
            }
        passes_[site] += most, least_passes_[site] += most > 0;
    }
}

/* Each lane has memory of its own, which is interleaved: 4 bytes of a lane beside those of the next. */
static void access_local(u32 site, u32 mask)
{
    const u32 size = site_info[site].size, words = size > 4 ? size / 4 : 1;
    for (u32 group = 0; group < 4; ++group) sectors_[site] += mask >> 8 * group & 255 ? words : 0;
}

/* --- warps -------------------------------------------------------------------------------------------------------- */

static u32 warp_start;

static inline u64 taken(u32 lane) { return traces[warp_start + lane][cursor[warp_start + lane]++]; }
static inline u64 next(u32 lane) { return traces[warp_start + lane][cursor[warp_start + lane]]; }

static void visit_site(u32 site, u32 mask)
{
    const SiteInfo* info = &site_info[site];
    u64 at[32];
    u32 active = 0;
    for (u32 rest = mask; rest; rest &= rest - 1) {
        const u32 lane = __builtin_ctz(rest);
        if (info->guarded && !taken(lane)) continue;
        active |= 1u << lane;
        if (info->space) at[lane] = taken(lane);
    }
    if (!active) return;
    site_lanes_[site] += __builtin_popcount(active);
    if (info->space == GLOBAL) access_global(site, active, at);
    else if (info->space == SHARED) access_shared(site, active, at);
    else if (info->space == LOCAL) access_local(site, active);
}

/* Execute the lanes of a mask, which are at one block, up to a block, or to the return. */
static void execute(u32 mask, u64 stop)
{
    for (;;) {
        const u64 block = next(__builtin_ctz(mask));
        if (block == stop) return;
        if (block >= BLOCK_COUNT) {
            snprintf(report, REPORT, "lanes of a warp do not meet again where they should");
            longjmp(out_of_it, 1);
        }
        const BlockInfo* info = &block_info[block];
        ++issued_[block], lanes_[block] += __builtin_popcount(mask);
        for (u32 rest = mask; rest; rest &= rest - 1) taken(__builtin_ctz(rest));
        for (u32 site = info->first_site; site < info->last_site; ++site) visit_site(site, mask);
        if (info->calls) {
            execute(mask, RETURNED);
            for (u32 rest = mask; rest; rest &= rest - 1) taken(__builtin_ctz(rest));
        }
        const u64 join = info->join < 0 ? RETURNED : (u64)info->join;
        u32 parted = 0;
        for (u32 rest = mask; rest; ++parted) {
            const u64 where = next(__builtin_ctz(rest));
            u32 group = 0;
            for (u32 left = rest; left; left &= left - 1)
                if (next(__builtin_ctz(left)) == where) group |= left & -left;
            rest &= ~group;
            if (group == mask) break;
            if (where != join) execute(group, join);
        }
        divergent_[block] += parted > 0;
    }
}

static void block_done(u32 count)
{
    for (warp_start = 0; warp_start < count; warp_start += 32) {
        const u32 lanes = count - warp_start < 32 ? count - warp_start : 32;
        ++warps_, ++warp_number, seen_count = 0;
        memset(&cursor[warp_start], 0, lanes * sizeof *cursor);
        execute(lanes == 32 ? ~0u : (1u << lanes) - 1, RETURNED);
    }
    memset(traced, 0, count * sizeof *traced);
}
