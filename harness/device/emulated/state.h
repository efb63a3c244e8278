// What the runtime knows about a launch that runs: fibers, barriers, clocks of the race detector, pending copies.
#pragma once
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "machine.h"

namespace emulated {

constexpr uint32_t NO_AGENT = 255;
using Clock = std::vector<uint32_t>;  // per agent (warps of a block, then its asynchronous units): time known of it

struct Mbarrier;

// A copy, or an arrival that waits for copies, that has been issued and not happened.
struct Landing {
  enum Kind : uint8_t { Async, AsyncArrive, Bulk, Tensor } kind;
  Thread* thread;
  Site site;
  uint32_t time;         // of the block's clock, when issued
  uint32_t bytes;        // Async: to write
  uint32_t source_bytes; // Async: to read, the rest is zero
  uint64_t to, from;     // Async
  uint32_t sequence;     // Async: number of the copy; AsyncArrive: the last one that it waits for
  uint32_t block;        // Bulk, Tensor: index of the destination block in its group
  BulkCopy bulk;
  TensorCopy tensor;
};

struct Mbarrier {
  uint32_t address;
  uint32_t phase = 0, expected = 0, pending = 0;
  uint32_t events = 0;  // phases that ended, copies that were issued: what a poll waits for
  int64_t bytes = 0;
  Clock clock;
  std::vector<Landing> landings;
};

struct Barrier {
  uint32_t generation = 0, arrived = 0, yes = 0, count = 0;
  uint32_t last_yes = 0, last_arrived = 0;
  Clock clock, last_clock;
  std::vector<Site> sites;  // per warp, plus one: where it arrived in this generation
};

// A meeting of lanes of one warp under one mask. Words are kept for two generations: a lane may be late to read them.
struct Meeting {
  uint32_t mask = 0, arrived = 0, generation = 0;
  Site site = 0;
  uint32_t words[2][32][EXCHANGE_WORDS];
  uint32_t took_part[2] = {0, 0};
};

struct Warp {
  uint32_t exited = 0;  // lanes that ended, or never were
  std::deque<Meeting> meetings;  // one per mask
  uint32_t active_generation = 0, active_lanes = 0;  // lanes at active_mask(), and how many times they were let go
  Site active_site[32];
  uint32_t active_result[32];
};

struct Cell {  // of the shadow: four bytes of shared memory
  uint64_t readers;  // agents since the last write
  uint32_t write_time, read_time, first_read;
  Site write_site, read_site;
  uint8_t writer, reader;
  uint8_t written : 4, initialized : 4;  // masks of bytes; `written` by the last writer
  uint8_t read : 4, mixed : 1, atomic : 1;
};

struct WgmmaOperation {
  Wgmma shape;
  uint64_t a, b;
  bool accumulate, done = false;
  Site site;
  unsigned registers;
  uint32_t issued = 0;               // threads
  uint32_t time = 0;
  std::vector<uint32_t> accumulators;  // 128 x registers: tokens or values, then results
  std::vector<uint32_t> a_registers;   // 128 x 4
};

struct Warpgroup {
  uint32_t first = 0;  // sequence number of operations[0]
  uint32_t generation = 0;
  std::deque<WgmmaOperation> operations;
};

struct Group;

struct BlockState {
  Block* block;
  Group* group;
  uint32_t index = 0, warps = 0, threads = 0, live = 0;
  std::vector<Warp> warp;
  Barrier barrier[16];
  std::map<uint32_t, Mbarrier> mbarriers;
  std::vector<Warpgroup> warpgroups;
  // The detectors. Agents 0 to warps - 1 are warps; `asynchronous` stands for cp.async, bulk copies and wgmma.
  std::vector<Cell> shadow;
  std::vector<Clock> known;  // per warp
  Clock fenced;              // per agent: writes up to here are visible to asynchronous reads
  Clock atomics, cluster;    // of all atomics in the block; of the cluster barrier
  uint32_t now = 1;
  uint32_t asynchronous = 0;
};

using BulkGroup = std::vector<Landing>;

// What a thread has issued and not waited for. Most threads never have one.
struct Issued {
  std::vector<Landing> asyncs;  // cp.async
  uint32_t async_count = 0;                  // issued
  std::vector<uint32_t> async_commits;       // async_count at each commit
  std::vector<BulkGroup> bulk;               // committed
  BulkGroup open_bulk;
  uint32_t wgmma_issued = 0, wgmma_waited = 0, wgmma_settled = 0;
  bool wgmma_fenced = false;
  std::vector<uint32_t> wgmma_groups;  // number of operations issued at each commit
};

struct ThreadState {
  void* stack_pointer = nullptr;
  const uint32_t* wait_word = nullptr;  // runnable once *wait_word != wait_value
  uint32_t wait_value = 0;
  bool done = false, spun = false, polling = false, at_active = false;
  BlockState* block = nullptr;
  uint32_t cluster_generation = 0;
  bool cluster_arrived = false;
  Site waits_at = 0;
  std::unique_ptr<Issued> issued;
};

struct Options {
  uint64_t seed = 0;          // of the first launch; each launch adds one
  uint64_t step_budget = 1ull << 31;
  bool detect = true;
  unsigned cores = 1;
  unsigned multiprocessors = 132;
  std::string kernels, report;
};

struct Launch {
  Grid grid{};
  const uint8_t* parameters = nullptr;
  uint64_t seed = 0;
  bool detect = true, eager = false;  // eager: asynchronous copies land when issued
  bool cooperative = false;
  std::atomic<uint32_t> next{0};
  std::atomic<int> error{0};  // cudaError_t
  std::atomic<int64_t> steps_left{0};
};

// Blocks that run together: one, a cluster, or a cooperative grid.
struct Group {
  Launch* launch = nullptr;
  std::vector<Block> blocks;
  std::vector<BlockState> states;
  std::vector<Thread> threads;
  std::vector<ThreadState> thread_states;
  void* scheduler = nullptr;
  Thread* current = nullptr;
  uint64_t live = 0;
  uint32_t cluster_arrived = 0, cluster_generation = 0;
  uint64_t progress = 0;
  bool failed = false;
  uint8_t* arena = nullptr;
  uint64_t arena_size = 0;
  std::vector<uint8_t*> stacks;
  uint64_t stack_size = 0;
  std::vector<Range> ranges;
};

extern Options options;

inline Issued& issued(Thread& t) {
  if (!t.state->issued) t.state->issued = std::make_unique<Issued>();
  return *t.state->issued;
}

inline uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// scheduler.cpp
int run_launch(Launch&);                    // cudaError_t
void suspend(Thread&);                      // back to the scheduler
void wait_change(Thread&, const uint32_t& word, uint32_t value, Site);
[[noreturn]] void fail(Thread&, int error);

// memory.cpp
void add_range(uint64_t begin, uint64_t size);
void remove_range(uint64_t begin, uint64_t size);
bool find_range(uint64_t address, uint64_t bytes, Range& found);
std::string describe_address(uint64_t address);
void release(BlockState&, uint32_t agent, Clock& to);
void acquire(BlockState&, uint32_t agent, const Clock& from);
BlockState& owner_of(Thread&, uint32_t shared, unsigned bytes, Site, const char* what);
uint8_t* asynchronous_read(Thread&, uint32_t shared, unsigned bytes, uint32_t time, Site);
void asynchronous_write(Thread&, uint32_t shared, unsigned bytes, uint32_t time, Site);
const void* global_read(Thread&, uint64_t address, unsigned bytes, Site);

// copies.cpp
void land_asyncs(Thread&, uint32_t through);
void land(const Landing&);
void finish_thread(Thread&);
void know_asynchronous(Thread&, uint32_t time);

// barriers.cpp
void exit_from_barriers(Thread&);
Mbarrier& mbarrier_shared(Thread&, uint32_t address, Site, BlockState** owner = nullptr);
void complete_bytes(Mbarrier&, Group&, uint32_t bytes);
void arrive(Thread&, Mbarrier&, Group&, uint32_t count, Site);
void post(Mbarrier&, Landing);

// report.cpp
void report_missing(const std::string& kernel);
void report(const char* kind, Thread*, Site, const std::string& message, const uint64_t* address = nullptr);
std::string place(Thread&, Site);
void forget_reports();

}  // namespace emulated
