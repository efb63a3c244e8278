// What the runtime knows about a launch that runs: fibers, barriers, clocks of races, pending copies.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "machine.h"

namespace emulated {

// CUDA error codes (cudaError_t) that a launch can end with.
constexpr int INVALID_VALUE = 1, INVALID_CONFIGURATION = 9, INVALID_FUNCTION = 98, ILLEGAL_ADDRESS = 700,
              LAUNCH_TIMEOUT = 702, ASSERTION = 710, LAUNCH_FAILURE = 719, COOPERATIVE_TOO_LARGE = 720,
              NOT_SUPPORTED = 801;

constexpr u32 NO_AGENT = 255;
using Clock = std::vector<u32>;  // per agent (warps of a block, asynchronous units): time known of it

// A copy, or an arrival that waits for copies, that has been issued and not happened.
struct Landing {
    std::function<void()> happen;  // empty where it happened when issued
    u32 time;                      // of the block's clock, when issued
    Site site;
};

// Operations of one kind in groups, by number.
struct Groups {
    u32 issued = 0;
    std::vector<u32> commits;  // `issued` at each commit

    void commit() { commits.push_back(issued); }
    u32 wait(u32 groups_left);  // how many operations, from the first on, have to be over
};
struct Copies : Groups {
    std::deque<Landing> pending;  // the last ones issued

    void land(Thread&, u32 through);  // those whose number is below
};
struct Issued {
    Copies async, bulk;
    Groups wgmma;
    u32 wgmma_waited = 0, wgmma_settled = 0;
    bool wgmma_fenced = false;
};

struct Mbarrier {
    u32 address, phase = 0, expected = 0, pending = 0;
    u32 events = 0;  // phases that ended, copies that were issued: what a poll waits for
    s64 bytes = 0;
    Clock clock;
    std::deque<Landing> landings;
};

struct Barrier {
    u32 generation = 0, arrived = 0, yes = 0, count = 0;
    Votes last = {0, 0};
    Clock clock, last_clock;
    std::vector<Site> sites;  // per warp: where it arrived in this generation
};

// A meeting of lanes of one warp under one mask. Words are kept for two generations: a lane may read late.
struct Meeting {
    u32 mask = 0, arrived = 0, generation = 0;
    Site site = 0;
    u32 words[2][32][EXCHANGE_WORDS];
    u32 took_part[2] = {0, 0};
};

struct Warp {
    u32 exited = 0;                // lanes that ended, or never were
    std::deque<Meeting> meetings;  // one per mask
    u32 active_lanes = 0;          // at active_mask()
    Site active_site[32];
    u32 active_result[32];
};

struct Cell {     // of the shadow: four bytes of shared memory
    u64 readers;  // agents since the last write
    u32 write_time, read_time, first_read;
    Site write_site, read_site;
    u8 writer, reader;
    u8 written : 4, initialized : 4;  // masks of bytes; `written` by the last writer
    u8 read : 4, mixed : 1, atomic : 1;
};

struct WgmmaOperation {
    Wgmma shape;
    u64 a, b;
    bool accumulate, done;
    Site site;
    unsigned registers;
    u32 issued;  // threads
    u32 time;
    std::vector<u32> accumulators;              // 128 x registers: tokens or values, then results
    std::vector<u32> a_registers;               // 128 x 4
    u32 first_awaited = ~0u, last_awaited = 0;  // operations whose tokens the accumulators hold
};
struct Warpgroup {
    u32 first = 0;  // sequence number of operations[0]
    u32 generation = 0;
    std::deque<WgmmaOperation> operations;
};

struct Group;
struct BlockState : Block {
    Group* group;
    u32 index, warps, threads, live;
    std::vector<Warp> warp;
    Barrier barrier[16];
    std::map<u32, Mbarrier> mbarriers;  // by offset in the block's window
    std::vector<Warpgroup> warpgroups;
    // The detectors. Agents 0 to warps - 1 are warps; `asynchronous` stands for copies and wgmma.
    bool detect;
    std::vector<Cell> shadow;
    std::vector<Clock> known;        // per warp
    Clock fenced, atomics, cluster;  // visible to asynchronous reads; of all atomics; of the cluster barrier
    u32 now, asynchronous;
};

struct Options {
    u64 seed = 0;  // of the first launch; each launch adds one
    u64 step_budget = 1ull << 29;  // backward branches; every bin of l1/histogram over all values takes just less
    bool detect = true;
    unsigned cores = 1, multiprocessors = 132;
    std::string kernels, report;
};
extern Options options;

struct Launch {
    Grid grid{};
    const u8* parameters = nullptr;
    u64 seed = 0;
    bool detect = true, eager = false, cooperative = false;  // eager: asynchronous copies land when issued
    std::atomic<u32> next{0};
    std::atomic<int> error{0};  // cudaError_t
    std::atomic<s64> steps_left{0};
};

// Blocks that run together: one, a cluster, or a cooperative grid.
struct Group {
    Launch* launch = nullptr;
    std::vector<BlockState> blocks;
    std::vector<Thread> threads;  // of all blocks
    void* scheduler = nullptr;    // its stack pointer
    Thread* current = nullptr;
    u64 live = 0, progress = 0;
    u32 cluster_arrived = 0, cluster_generation = 0;
    bool failed = false;
    u8* arena = nullptr;
    u64 arena_size = 0, stack_size = 0;
    std::vector<u8*> stacks;
    std::vector<Range> ranges;
};

inline BlockState& block_of(const Thread& t) { return static_cast<BlockState&>(*t.block); }
inline Launch& launch_of(const Thread& t) { return *block_of(t).group->launch; }
inline Issued& issued(Thread& t) {
    if (!t.issued) t.issued = new Issued;
    return *t.issued;
}
inline u32 first_of_cluster(const Thread& t) { return block_of(t).index - t.block->cluster_ctarank; }
inline u32 round_up(u32 value, u32 unit) { return (value + unit - 1) / unit * unit; }
inline u64 product(const u32 n[3]) { return u64(n[0]) * n[1] * n[2]; }
// A shared address under a swizzle of 0, 32, 64 or 128 bytes: bits 4.. are XORed with bits 7..
// (section 5.5.7).
inline u32 swizzled(u32 address, unsigned width) {
    return width ? address ^ (address >> 7 & (width / 16 - 1)) << 4 : address;
}

// scheduler.cpp
int run_launch(Launch&);  // cudaError_t
void suspend(Thread&);    // back to the scheduler
void wait_change(Thread&, const u32& word, u32 value, Site);
[[noreturn]] void fail(Thread&, int error);

// memory.cpp
void add_range(u64 begin, u64 size);
void remove_range(u64 begin, u64 size);
bool find_range(u64 address, u64 bytes, Range& found);
std::string describe_address(u64 address);
void release(BlockState&, u32 agent, Clock& to);
void acquire(BlockState&, u32 agent, const Clock& from);
void learn(BlockState&, Clock& of, u32 agent, u32 time);
BlockState& owner_of(Thread&, u32 shared, unsigned bytes, Site, bool store);
u8* asynchronous_read(Thread&, u32 shared, unsigned bytes, u32 time, Site);
void asynchronous_write(Thread&, u32 shared, unsigned bytes, u32 time, Site);
u8* global_memory(Thread&, u64 address, unsigned bytes, Site, bool store);

// copies.cpp and barriers.cpp
void finish_copies(Thread&);
void exit_from_barriers(Thread&);
Mbarrier& mbarrier_at(Thread&, u64 address, Space, Site, BlockState** owner = nullptr);
void complete_bytes(Mbarrier&, Group&, u32 bytes);
void arrive(Thread&, Mbarrier&, u32 count, Site);

// report.cpp
void report_missing(const std::string& kernel);
void report(const char* kind, Thread*, Site, const std::string& message, const u64* address = nullptr);
std::string place(Thread&, Site);
void forget_reports();

}  // namespace emulated
