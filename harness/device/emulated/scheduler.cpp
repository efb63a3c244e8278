// Runs launches: one fiber per CUDA thread, warps and lanes in an order drawn from the seed, groups of blocks on cores.
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <thread>

#include "errors.h"
#include "state.h"

// emulated_switch(save, load): store callee-saved registers on this stack and continue on another.
#if defined(__x86_64__)
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
constexpr unsigned SAVED_WORDS = 6, RETURN_WORD = 6, FRAME_WORDS = 8;
#elif defined(__aarch64__)
asm(R"(
.text
.globl emulated_switch
.hidden emulated_switch
.type emulated_switch, %function
emulated_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
constexpr unsigned SAVED_WORDS = 20, RETURN_WORD = 11, FRAME_WORDS = 20;
#else
#error "the emulated GPU runs on x86-64 and AArch64"
#endif
extern "C" void emulated_switch(void** save, void* load);

namespace emulated {
namespace {

constexpr uint64_t STACK_BYTES = 64 << 10;
constexpr int32_t QUANTUM = 256;
constexpr unsigned IDLE_POLLS = 200;
constexpr uint32_t MOST_COOPERATIVE_THREADS = 32768;

thread_local Group* running;

extern "C" void emulated_enter() {
  Thread& t = *running->current;
  running->launch->grid.kernel->entry(t, running->launch->parameters);
  exit_thread(t);
}

void* new_stack(uint8_t* low, uint64_t size) {
  auto* top = reinterpret_cast<uint64_t*>(low + size - 64);
  uint64_t* frame = top - FRAME_WORDS;
  std::fill(frame, top, 0);
  frame[RETURN_WORD] = reinterpret_cast<uint64_t>(&emulated_enter);
  return frame;
}

void reserve(Group& g, uint64_t threads, uint64_t blocks, uint64_t stack_size) {
  if (g.arena_size < blocks * SHARED_WINDOW) {
    if (g.arena) munmap(g.arena, g.arena_size);
    g.arena_size = blocks * SHARED_WINDOW;
    void* p = mmap(nullptr, g.arena_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    g.arena = static_cast<uint8_t*>(p);
  }
  if (g.stack_size < stack_size) {
    for (uint8_t* s : g.stacks) munmap(s, g.stack_size);
    g.stacks.clear();
    g.stack_size = stack_size;
  }
  while (g.stacks.size() < threads) {
    void* p = mmap(nullptr, g.stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    g.stacks.push_back(static_cast<uint8_t*>(p));
  }
}

void set_block(Group& g, uint32_t index, const uint32_t ctaid[3], const uint32_t in_cluster[3]) {
  const Grid& grid = g.launch->grid;
  Block& b = g.blocks[index];
  b = {};
  for (int i = 0; i < 3; i++) {
    b.ctaid[i] = ctaid[i];
    b.cluster_ctaid[i] = in_cluster[i];
    b.clusterid[i] = ctaid[i] / grid.cluster_nctaid[i];
  }
  b.cluster_ctarank =
      in_cluster[0] + grid.cluster_nctaid[0] * (in_cluster[1] + grid.cluster_nctaid[1] * in_cluster[2]);
  b.shared_begin = index * SHARED_WINDOW + SHARED_RESERVED;
  const uint32_t align = grid.kernel->dynamic_align;
  const uint32_t fixed = grid.kernel->shared_bytes;
  b.shared_size = grid.dynamic_shared ? (fixed + align - 1) / align * align + grid.dynamic_shared : fixed;
  b.arena = g.arena;
  b.arena_size = g.blocks.size() * SHARED_WINDOW;
  b.state = &g.states[index];
  std::memset(g.arena + b.shared_begin, 0xff, b.shared_size);  // NaN, or -1
}

void set_state(Group& g, uint32_t index, uint32_t threads) {
  BlockState& s = g.states[index];
  s.block = &g.blocks[index];
  s.group = &g;
  s.index = index;
  s.threads = s.live = threads;
  s.warps = s.asynchronous = (threads + 31) / 32;
  s.warp.resize(s.warps);
  for (Warp& w : s.warp) {
    w.exited = w.active_lanes = 0;
    for (Meeting& m : w.meetings) m.mask = m.arrived = 0;
  }
  if (threads % 32) s.warp.back().exited = ~0u << (threads % 32);
  for (Barrier& b : s.barrier) b = Barrier{};
  s.mbarriers.clear();
  s.warpgroups.clear();
  s.warpgroups.resize((s.warps + 3) / 4);
  const Clock zero(s.warps + 1, 0);
  s.known.assign(s.warps, zero);
  s.fenced = s.atomics = s.cluster = zero;
  s.now = 1;
  s.shadow.clear();
  if (!g.launch->detect) return;
  s.shadow.assign((s.block->shared_size + 3) / 4, Cell{});
  for (Cell& c : s.shadow) c.writer = NO_AGENT;
  s.block->shadow = s.shadow.data();
}

void set_threads(Group& g, uint32_t index, uint32_t threads) {
  const Grid& grid = g.launch->grid;
  for (uint32_t i = 0; i < threads; i++) {
    const uint64_t slot = uint64_t(index) * threads + i;
    Thread& t = g.threads[slot];
    t = {};
    t.tid[0] = i % grid.ntid[0];
    t.tid[1] = i / grid.ntid[0] % grid.ntid[1];
    t.tid[2] = i / grid.ntid[0] / grid.ntid[1];
    t.lane = i % 32;
    t.warp = i / 32;
    t.linear = i;
    t.block = &g.blocks[index];
    t.grid = &g.launch->grid;
    t.ranges = g.ranges.data();
    t.quantum = QUANTUM;
    t.stack_begin = reinterpret_cast<uint64_t>(g.stacks[slot]);
    t.stack_end = t.stack_begin + g.stack_size;
    t.state = &g.thread_states[slot];
    *t.state = ThreadState{};
    t.state->block = &g.states[index];
    t.state->stack_pointer = new_stack(g.stacks[slot], g.stack_size);
  }
}

// Whether the fiber did more than to find that it has to go on waiting.
bool resume(Group& g, Thread& t) {
  ThreadState& s = *t.state;
  if (s.done || s.at_active) return false;
  if (s.wait_word && *s.wait_word == s.wait_value && !(s.polling && s.spun)) return false;
  s.wait_word = nullptr;
  s.polling = false;
  s.spun = false;
  g.current = &t;
  emulated_switch(&g.scheduler, s.stack_pointer);
  return !s.spun;
}

// Lanes at active_mask() go on together once no other lane of the warp can run.
bool release_active(Group& g, BlockState& b, uint32_t w) {
  Warp& warp = b.warp[w];
  if (!warp.active_lanes) return false;
  const uint64_t base = uint64_t(b.index) * b.threads + w * 32;
  for (uint32_t i = 0; i < 32; i++) {
    if (!(warp.active_lanes >> i & 1)) continue;
    uint32_t together = 0;
    for (uint32_t j = 0; j < 32; j++)
      if ((warp.active_lanes >> j & 1) && warp.active_site[j] == warp.active_site[i]) together |= 1u << j;
    warp.active_result[i] = together;
    g.thread_states[base + i].at_active = false;
  }
  warp.active_lanes = 0;
  return true;
}

bool run_warp(Group& g, BlockState& b, uint32_t w, const uint32_t* lanes) {
  const uint64_t base = uint64_t(b.index) * b.threads + w * 32;
  const uint32_t count = std::min(32u, b.threads - w * 32);
  bool ran = false, again = true;
  while (again && !g.failed) {
    again = false;
    for (uint32_t i = 0; i < 32 && !g.failed; i++) {
      if (lanes[i] >= count) continue;
      Thread& t = g.threads[base + lanes[i]];
      if (resume(g, t)) again = true;
      ran |= t.state->spun;
    }
    ran |= again;
    if (!again && !g.failed) again = release_active(g, b, w);
  }
  return ran;
}

void report_deadlock(Group& g) {
  std::map<std::pair<Site, bool>, uint32_t> waits;
  Thread* first = nullptr;
  for (Thread& t : g.threads) {
    if (t.state->done) continue;
    if (!first) first = &t;
    waits[{t.state->waits_at, t.state->polling}]++;
  }
  std::string text = "every thread waits: ";
  for (auto it = waits.begin(); it != waits.end(); ++it)
    text += (it == waits.begin() ? "" : ", ") + std::to_string(it->second) + " at " + place(*first, it->first.first);
  report("deadlock", first, first->state->waits_at, text);
  g.launch->error = LAUNCH_TIMEOUT;
  g.failed = true;
}

// Nothing can run: polls of mbarriers time out, which a program may survive; without any, it is a deadlock.
bool let_polls_time_out(Group& g) {
  bool any = false;
  for (Thread& t : g.threads)
    if (!t.state->done && t.state->polling) any = t.state->spun = true;
  return any;
}

void shuffle(std::vector<uint32_t>& order, uint64_t seed) {
  std::iota(order.begin(), order.end(), 0u);
  if (seed == 0) return;
  for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[mix(seed + i) % i]);
}

void run_group(Group& g) {
  const uint64_t seed = g.launch->seed;
  std::vector<uint32_t> blocks(g.blocks.size()), warps(g.states[0].warps), lanes(32);
  shuffle(blocks, seed);
  shuffle(warps, seed ? seed ^ 0x5555 : 0);
  shuffle(lanes, seed ? seed ^ 0xaaaa : 0);
  uint64_t progress = 0;
  unsigned idle = 0;
  running = &g;
  while (g.live && !g.failed) {
    bool ran = false;
    for (uint32_t b : blocks)
      for (uint32_t w : warps) ran |= run_warp(g, g.states[b], w, lanes.data());
    if (g.progress != progress) idle = 0;
    progress = g.progress;
    if (ran || g.failed || !g.live) continue;
    if (++idle > IDLE_POLLS || !let_polls_time_out(g)) report_deadlock(g);
  }
}

uint64_t count(const uint32_t n[3]) { return uint64_t(n[0]) * n[1] * n[2]; }

// The blocks of group `index`: a cluster (of one block without clusters), or all of a cooperative grid.
void set_group(Group& g, uint64_t index) {
  Launch& launch = *g.launch;
  const Grid& grid = launch.grid;
  const uint32_t threads = uint32_t(count(grid.ntid));
  const uint64_t blocks = launch.cooperative ? count(grid.nctaid) : grid.cluster_nctarank;
  g.blocks.resize(blocks);
  g.states.resize(blocks);
  g.threads.resize(blocks * threads);
  g.thread_states.resize(blocks * threads);
  g.live = blocks * threads;
  g.cluster_arrived = g.cluster_generation = 0;
  g.progress = 0;
  g.failed = false;
  const uint32_t* cluster = grid.cluster_nctaid;
  const uint32_t* shape = launch.cooperative ? grid.nctaid : cluster;
  for (uint32_t i = 0; i < blocks; i++) {
    const uint32_t in_group[3] = {i % shape[0], i / shape[0] % shape[1], i / shape[0] / shape[1]};
    uint32_t ctaid[3], in_cluster[3];
    const uint64_t across[3] = {index % grid.nclusterid[0], index / grid.nclusterid[0] % grid.nclusterid[1],
                                index / grid.nclusterid[0] / grid.nclusterid[1]};
    for (int d = 0; d < 3; d++) {
      ctaid[d] = launch.cooperative ? in_group[d] : uint32_t(across[d]) * cluster[d] + in_group[d];
      in_cluster[d] = ctaid[d] % cluster[d];
    }
    set_block(g, i, ctaid, in_cluster);
    set_state(g, i, threads);
    set_threads(g, i, threads);
  }
}

void run_groups(Group& g, uint64_t groups) {
  Launch& launch = *g.launch;
  const bool backward = launch.seed % 2 && !launch.grid.kernel->blocks_communicate;
  for (uint64_t i; !launch.error && (i = launch.next++) < groups;) {
    set_group(g, backward ? groups - 1 - i : i);
    run_group(g);
  }
}

}  // namespace

int run_launch(Launch& launch) {
  static std::mutex one;  // launch at a time
  static std::vector<std::unique_ptr<Group>> pool;
  const std::lock_guard<std::mutex> lock(one);
  const KernelInfo& kernel = *launch.grid.kernel;
  const uint64_t threads = count(launch.grid.ntid);
  if (launch.cooperative && count(launch.grid.nctaid) * threads > MOST_COOPERATIVE_THREADS) {
    report("cannot_emulate", nullptr, 0, std::string(kernel.name) + ": cooperative launch of more than 32,768 threads");
    return NOT_SUPPORTED;
  }
  const uint64_t blocks = launch.cooperative ? count(launch.grid.nctaid) : launch.grid.cluster_nctarank;
  const uint64_t groups = count(launch.grid.nctaid) / blocks;
  const bool alone = kernel.blocks_communicate || launch.cooperative;
  const uint64_t cores = alone ? 1 : std::max<uint64_t>(1, std::min<uint64_t>(options.cores, groups));
  launch.steps_left = int64_t(options.step_budget);
  while (pool.size() < cores) pool.push_back(std::make_unique<Group>());
  for (uint64_t i = 0; i < cores; i++) {
    Group& g = *pool[i];
    g.launch = &launch;
    reserve(g, blocks * threads, blocks, (kernel.local_bytes * 2 + STACK_BYTES + 4095) / 4096 * 4096);
    g.ranges.assign(kernel.site_count + 1, Range{0, 0});
  }
  std::vector<std::thread> others;
  for (uint64_t i = 1; i < cores; i++) others.emplace_back(run_groups, std::ref(*pool[i]), groups);
  run_groups(*pool[0], groups);
  for (std::thread& other : others) other.join();
  return launch.error;
}

void suspend(Thread& t) { emulated_switch(&t.state->stack_pointer, t.state->block->group->scheduler); }

void wait_change(Thread& t, const uint32_t& word, uint32_t value, Site site) {
  t.state->waits_at = site;
  while (word == value) {
    t.state->wait_word = &word;
    t.state->wait_value = value;
    suspend(t);
  }
}

void fail(Thread& t, int error) {
  Group& g = *t.state->block->group;
  int none = 0;
  g.launch->error.compare_exchange_strong(none, error);
  g.failed = true;
  for (;;) suspend(t);
}

void exit_thread(Thread& t) {
  finish_thread(t);
  BlockState& b = *t.state->block;
  t.state->done = true;
  b.warp[t.warp].exited |= 1u << t.lane;
  b.live--;
  b.group->live--;
  b.group->progress++;
  exit_from_barriers(t);
  for (;;) suspend(t);
}

void step_slow(Thread& t, Site site) {
  Group& g = *t.state->block->group;
  t.quantum = QUANTUM;
  if ((g.launch->steps_left -= QUANTUM) < 0) {
    report("timed_out", &t, site, "step budget of " + std::to_string(options.step_budget) + " backward branches is spent");
    fail(t, LAUNCH_TIMEOUT);
  }
  yield_hint(t);
}

void yield_hint(Thread& t) {
  if (t.state->block->group->launch->error) fail(t, t.state->block->group->launch->error);
  t.state->spun = true;
  suspend(t);
}

uint64_t clock64(Thread&) {
  static std::atomic<uint64_t> ticks{0};
  return ticks += 16;
}

uint32_t active_mask(Thread& t, Site site) {
  Warp& warp = t.state->block->warp[t.warp];
  warp.active_lanes |= 1u << t.lane;
  warp.active_site[t.lane] = site;
  t.state->at_active = true;
  t.state->waits_at = site;
  suspend(t);
  return warp.active_result[t.lane];
}

}  // namespace emulated
