// Runs launches: one fiber per CUDA thread, warps and lanes in an order of the seed, groups of blocks on
// cores.
#include <sys/mman.h>

#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <thread>

#include "state.h"

// emulated_switch(save, load): store callee-saved registers on this stack and continue on another.
#if !defined(__x86_64__)
#error "the emulated GPU needs x86-64"
#endif
asm(R"(
.text
.globl emulated_switch
.hidden emulated_switch
.type emulated_switch, @function
emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
extern "C" void emulated_switch(void** save, void* load);

namespace emulated {
namespace {

constexpr u64 STACK_BYTES = 64 << 10;
constexpr s32 QUANTUM = 256;
constexpr unsigned IDLE_POLLS = 200;
constexpr u32 MOST_COOPERATIVE_THREADS = 32768;

thread_local Group* running;

// ---- memory of a group: shared memory, stacks
extern "C" void emulated_enter() {
    Thread& t = *running->current;
    running->launch->grid.kernel->entry(t, running->launch->parameters);
    exit_thread(t);
}

// Six saved registers, the address that the switch returns to, and one word to align the stack.
void* new_stack(u64 end) {
    u64* frame = reinterpret_cast<u64*>(end - 64) - 8;
    std::fill_n(frame, 8, 0);
    frame[6] = reinterpret_cast<u64>(&emulated_enter);
    return frame;
}

u8* reserve_pages(u64 bytes) {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    return static_cast<u8*>(p);
}

void reserve(Group& g, u64 threads, u64 blocks, u64 stack_size) {
    if (g.arena_size < blocks * SHARED_WINDOW) {
        if (g.arena) munmap(g.arena, g.arena_size);
        g.arena_size = blocks * SHARED_WINDOW;
        g.arena = reserve_pages(g.arena_size);
    }
    if (g.stack_size < stack_size) {
        for (u8* s : g.stacks) munmap(s, g.stack_size);
        g.stacks.clear();
        g.stack_size = stack_size;
    }
    while (g.stacks.size() < threads) g.stacks.push_back(reserve_pages(g.stack_size));
}

// ---- what a group starts from
void unravel(u64 index, const u32 shape[3], u32 (&at)[3]) {
    at[0] = u32(index % shape[0]);
    at[1] = u32(index / shape[0] % shape[1]);
    at[2] = u32(index / shape[0] / shape[1]);
}

void set_block(Group& g, u32 index, const u32 ctaid[3], u32 threads) {
    const Grid& grid = g.launch->grid;
    BlockState& b = g.blocks[index];
    for (int i = 0; i < 3; i++) {
        b.ctaid[i] = ctaid[i];
        b.cluster_ctaid[i] = ctaid[i] % grid.cluster_nctaid[i];
        b.clusterid[i] = ctaid[i] / grid.cluster_nctaid[i];
    }
    const u32 *in = b.cluster_ctaid, *of = grid.cluster_nctaid;
    b.cluster_ctarank = in[0] + of[0] * (in[1] + of[1] * in[2]);
    b.shared_begin = index * SHARED_WINDOW + SHARED_RESERVED;
    b.shared_size = grid.kernel->shared_bytes;
    if (grid.dynamic_shared)
        b.shared_size = round_up(b.shared_size, grid.kernel->dynamic_align) + grid.dynamic_shared;
    b.arena = g.arena;
    b.arena_size = g.blocks.size() * SHARED_WINDOW;
    std::memset(g.arena + b.shared_begin, 0xff, b.shared_size);  // NaN, or -1
    b.group = &g;
    b.index = index;
    b.threads = b.live = threads;
    b.warps = b.asynchronous = (threads + 31) / 32;
    b.warp.resize(b.warps);
    for (Warp& w : b.warp) {
        w.exited = w.active_lanes = 0;
        for (Meeting& m : w.meetings) m.mask = m.arrived = 0;
    }
    if (threads % 32) b.warp.back().exited = ~0u << (threads % 32);
    std::fill_n(b.barrier, 16, Barrier{});
    b.mbarriers.clear();
    b.warpgroups.clear();
    b.warpgroups.resize((b.warps + 3) / 4);
    const Clock zero(b.warps + 1, 0);
    b.known.assign(b.warps, zero);
    b.fenced = b.atomics = b.cluster = zero;
    b.now = 1;
    b.detect = g.launch->detect;
    Cell unknown{};
    unknown.writer = NO_AGENT;
    b.shadow.assign(b.detect ? (b.shared_size + 3) / 4 : 0, unknown);
}

void set_thread(Group& g, u64 slot, u32 linear, BlockState& b) {
    Thread& t = g.threads[slot];
    delete t.issued;  // where a launch failed
    t = Thread{};
    unravel(linear, g.launch->grid.ntid, t.tid);
    t.lane = linear % 32;
    t.warp = linear / 32;
    t.linear = linear;
    t.block = &b;
    t.grid = &g.launch->grid;
    t.ranges = g.ranges.data();
    t.quantum = QUANTUM;
    t.stack_begin = address_of(g.stacks[slot]);
    t.stack_end = t.stack_begin + g.stack_size;
    t.stack_pointer = new_stack(t.stack_end);
}

// The blocks of group `index`: a cluster (of one block without clusters), or all of a cooperative grid.
void set_group(Group& g, u64 index) {
    const Launch& launch = *g.launch;
    const Grid& grid = launch.grid;
    const u32 threads = u32(product(grid.ntid));
    const u32* shape = launch.cooperative ? grid.nctaid : grid.cluster_nctaid;
    const u32* across =
        launch.cooperative ? grid.cluster_nctaid : grid.nclusterid;  // 1 x 1 x 1, or the clusters
    g.blocks.resize(product(shape));
    g.live = g.blocks.size() * threads;
    g.threads.resize(g.live);
    g.cluster_arrived = g.cluster_generation = 0;
    g.progress = 0;
    g.failed = false;
    u32 at[3];
    unravel(index, across, at);
    for (u32 i = 0; i < g.blocks.size(); i++) {
        u32 in_group[3], ctaid[3];
        unravel(i, shape, in_group);
        for (int d = 0; d < 3; d++) ctaid[d] = at[d] * shape[d] + in_group[d];
        set_block(g, i, ctaid, threads);
        for (u32 k = 0; k < threads; k++) set_thread(g, u64(i) * threads + k, k, g.blocks[i]);
    }
}

// ---- running
// Whether the fiber did more than to find that it has to go on waiting.
bool resume(Group& g, Thread& t) {
    if (t.done || t.at_active) return false;
    if (t.wait_word && *t.wait_word == t.wait_value && !(t.polling && t.spun)) return false;
    t.wait_word = nullptr;
    t.polling = t.spun = false;
    g.current = &t;
    emulated_switch(&g.scheduler, t.stack_pointer);
    return !t.spun;
}

// Lanes at active_mask() go on together once no other lane of the warp can run.
bool release_active(Warp& warp, Thread* threads) {
    if (!warp.active_lanes) return false;
    for (u32 lane = 0; lane < 32; lane++) {
        if (!(warp.active_lanes >> lane & 1)) continue;
        u32 together = 0;
        for (u32 j = 0; j < 32; j++)
            if (warp.active_site[j] == warp.active_site[lane]) together |= warp.active_lanes & 1u << j;
        warp.active_result[lane] = together;
        threads[lane].at_active = false;
    }
    warp.active_lanes = 0;
    return true;
}

bool run_warp(Group& g, BlockState& b, u32 w, const std::vector<u32>& lanes) {
    Thread* threads = &g.threads[u64(b.index) * b.threads + w * 32];
    const u32 count = std::min(32u, b.threads - w * 32);
    bool ran = false, again = true;
    while (again && !g.failed) {
        again = false;
        for (u32 lane : lanes) {
            if (lane >= count || g.failed) continue;
            if (resume(g, threads[lane])) again = true;
            ran |= threads[lane].spun;
        }
        ran |= again;
        if (!again && !g.failed) again = release_active(b.warp[w], threads);
    }
    return ran;
}

void report_deadlock(Group& g) {
    std::map<Site, u32> waits;
    Thread* first = nullptr;
    for (Thread& t : g.threads) {
        if (t.done) continue;
        if (!first) first = &t;
        waits[t.waits_at]++;
    }
    std::string text;
    for (const auto& [site, count] : waits)
        text += (text.empty() ? "" : ", ") + std::to_string(count) + " at " + place(*first, site);
    report("deadlock", first, first->waits_at, "every thread waits: " + text);
    g.launch->error = LAUNCH_TIMEOUT;
    g.failed = true;
}

// Nothing can run: polls of mbarriers time out, which a program may survive; without any, it is a deadlock.
bool let_polls_time_out(Group& g) {
    bool any = false;
    for (Thread& t : g.threads)
        if (!t.done && t.polling) any = t.spun = true;
    return any;
}

std::vector<u32> shuffled(size_t count, u64 seed) {
    auto mix = [](u64 x) {  // splitmix64
        x += 0x9e3779b97f4a7c15ull;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        return x ^ (x >> 31);
    };
    std::vector<u32> order(count);
    std::iota(order.begin(), order.end(), 0u);
    for (size_t i = count; seed && i > 1; i--) std::swap(order[i - 1], order[mix(seed + i) % i]);
    return order;
}

void run_group(Group& g) {
    const u64 seed = g.launch->seed;
    const std::vector<u32> blocks = shuffled(g.blocks.size(), seed),
                           warps = shuffled(g.blocks[0].warps, seed ? seed ^ 0x5555 : 0),
                           lanes = shuffled(32, seed ? seed ^ 0xaaaa : 0);
    u64 progress = 0;
    unsigned idle = 0;
    running = &g;
    while (g.live && !g.failed) {
        bool ran = false;
        for (u32 b : blocks)
            for (u32 w : warps) ran |= run_warp(g, g.blocks[b], w, lanes);
        if (g.progress != progress) idle = 0;
        progress = g.progress;
        if (ran || g.failed || !g.live) continue;
        if (++idle > IDLE_POLLS || !let_polls_time_out(g)) report_deadlock(g);
    }
}

void run_groups(Group& g, u64 groups) {
    Launch& launch = *g.launch;
    const bool backward = launch.seed % 2 && !launch.grid.kernel->blocks_communicate;
    for (u64 i; !launch.error && (i = launch.next++) < groups;) {
        set_group(g, backward ? groups - 1 - i : i);
        run_group(g);
    }
}

}  // namespace

int run_launch(Launch& launch) {
    static std::mutex one;  // launch at a time
    static std::vector<std::unique_ptr<Group>> pool;
    const std::lock_guard lock(one);
    const KernelInfo& kernel = *launch.grid.kernel;
    const u64 threads = product(launch.grid.ntid), all = product(launch.grid.nctaid);
    if (launch.cooperative && all * threads > MOST_COOPERATIVE_THREADS) {
        const std::string name = kernel.name;
        report("cannot_emulate", nullptr, 0, name + ": cooperative launch of more than 32,768 threads");
        return NOT_SUPPORTED;
    }
    const u64 blocks = launch.cooperative ? all : launch.grid.cluster_nctarank, groups = all / blocks;
    const u64 cores = kernel.blocks_communicate ? 1 : std::clamp<u64>(options.cores, 1, groups);
    launch.steps_left = s64(options.step_budget);
    while (pool.size() < cores) pool.push_back(std::make_unique<Group>());
    for (u64 i = 0; i < cores; i++) {
        Group& g = *pool[i];
        g.launch = &launch;
        reserve(g, blocks * threads, blocks, round_up(kernel.local_bytes * 2 + STACK_BYTES, 4096));
        g.ranges.assign(kernel.site_count + 1, Range{0, 0});
    }
    std::vector<std::thread> others;
    for (u64 i = 1; i < cores; i++) others.emplace_back(run_groups, std::ref(*pool[i]), groups);
    run_groups(*pool[0], groups);
    for (std::thread& other : others) other.join();
    return launch.error;
}

// ---- what fibers call
void suspend(Thread& t) { emulated_switch(&t.stack_pointer, block_of(t).group->scheduler); }

void wait_change(Thread& t, const u32& word, u32 value, Site site) {
    t.waits_at = site;
    while (word == value) {
        t.wait_word = &word;
        t.wait_value = value;
        suspend(t);
    }
}

void fail(Thread& t, int error) {
    int none = 0;
    launch_of(t).error.compare_exchange_strong(none, error);
    block_of(t).group->failed = true;
    for (;;) suspend(t);
}

void exit_thread(Thread& t) {
    finish_copies(t);
    BlockState& b = block_of(t);
    t.done = true;
    b.warp[t.warp].exited |= 1u << t.lane;
    b.live--;
    b.group->live--;
    b.group->progress++;
    exit_from_barriers(t);
    for (;;) suspend(t);
}

void step_slow(Thread& t, Site site) {
    t.quantum = QUANTUM;
    if ((launch_of(t).steps_left -= QUANTUM) < 0) {
        const std::string budget = std::to_string(options.step_budget);
        report("timed_out", &t, site, "step budget of " + budget + " backward branches is spent");
        fail(t, LAUNCH_TIMEOUT);
    }
    yield_hint(t);
}

void yield_hint(Thread& t) {
    if (const int error = launch_of(t).error) fail(t, error);
    t.spun = true;
    suspend(t);
}

u64 clock64(Thread&) {
    static std::atomic<u64> ticks{0};
    return ticks += 16;
}

u32 active_mask(Thread& t, Site site) {
    Warp& warp = block_of(t).warp[t.warp];
    warp.active_lanes |= 1u << t.lane;
    warp.active_site[t.lane] = site;
    t.at_active = true;
    t.waits_at = site;
    suspend(t);
    return warp.active_result[t.lane];
}

}  // namespace emulated
