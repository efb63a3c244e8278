// The machine that a translated kernel runs on: one fiber per CUDA thread, checked memory, barriers, asynchronous copies.
//
// A kernel is a shared library that exports one `emulated::KernelInfo` named `emulated_kernel`, and calls the functions
// below. They are defined in the emulated CUDA runtime, which must be loaded first. Section numbers are of the PTX ISA.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace emulated {

constexpr uint32_t ABI = 1;
constexpr uint32_t SHARED_WINDOW = 1u << 18;  // bytes of the shared address space per block of a cluster
constexpr uint32_t SHARED_RESERVED = 1024;    // offset of a block's first variable in its window, as on sm_90
constexpr unsigned EXCHANGE_WORDS = 16;

// Index into KernelInfo::sites. Every instruction that can fail or wait has one.
using Site = uint32_t;

// State spaces, section 5.1. `Shared` is a 32-bit address in any window of the cluster (.shared::cta and .shared::cluster).
// Local variables are host memory on the fiber's stack; their generic and local addresses are equal. Global and constant
// memory is host memory as well: a generic address of either is the address itself.
enum class Space : uint8_t { Generic, Global, Const, Local, Shared };

struct SiteInfo {
  const char* instruction;  // "st.global.f32"
  const char* file;         // "" without .loc (-lineinfo)
  uint32_t line;            // of `file`; 0 without .loc
};

// A module variable (.global or .const). All kernels of one module share it, by name.
struct VariableInfo {
  const char* name;
  uint64_t size, align;
  const void* initial;  // `initial_size` bytes; the rest is zero. May be null.
  uint64_t initial_size;
  bool constant;
};

// Bytes [offset, offset + 8) of variable `variable` hold the generic address of variable `target` plus `addend`.
struct RelocationInfo {
  uint32_t variable;
  uint64_t offset;
  uint32_t target;
  int64_t addend;
};

struct ParameterInfo {
  uint32_t offset, size;
};

struct Thread;

struct KernelInfo {
  uint32_t abi;  // ABI
  const char* name;
  void (*entry)(Thread&, const uint8_t* parameters);
  const ParameterInfo* parameters;
  uint32_t parameter_count, parameter_bytes;
  uint32_t shared_bytes;     // static shared memory; dynamic shared memory follows, see dynamic_shared()
  uint32_t dynamic_align;    // of the extern shared array, 16 where there is none
  uint32_t max_threads;      // .maxntid or .reqntid as a product, else 1024
  uint32_t cluster[3];       // .reqnctapercluster, else 0
  uint32_t local_bytes;      // upper bound of local variables per thread: sizes the fiber's stack
  bool blocks_communicate;   // atomics, volatile, acquire or release on global memory: blocks run on one core
  const SiteInfo* sites;
  uint32_t site_count;
  const VariableInfo* variables;
  uint32_t variable_count;
  const RelocationInfo* relocations;
  uint32_t relocation_count;
};

struct Range {
  uint64_t begin, size;
};

struct Grid {
  uint32_t ntid[3], nctaid[3];
  uint32_t cluster_nctaid[3], nclusterid[3], cluster_nctarank;
  uint32_t dynamic_shared;     // bytes
  const uint64_t* variables;   // address of each KernelInfo::variables
  const KernelInfo* kernel;
  uint64_t grid_id;
};

struct Block {
  uint32_t ctaid[3], cluster_ctaid[3], clusterid[3], cluster_ctarank;
  uint32_t shared_begin;   // shared address of the block's first variable: window * SHARED_WINDOW + SHARED_RESERVED
  uint32_t shared_size;    // static + dynamic bytes
  uint8_t* arena;          // host address of shared address 0; generic address of shared address a is arena + a
  uint64_t arena_size;     // bytes, over all windows of the cluster
  void* shadow;            // detectors; null where they are off
  struct BlockState* state;
};

struct Thread {
  uint32_t tid[3], lane, warp, linear;
  Block* block;
  Grid* grid;
  Range* ranges;           // per site, the last allocation that an access of it was inside
  int32_t quantum;         // backward branches until this fiber gives way
  uint64_t stack_begin, stack_end;
  struct ThreadState* state;
};

// ---- failures. None returns: the launch ends with a CUDA error and the finding goes to the report.
[[noreturn]] void fault(Thread&, const char* reason, Site);
[[noreturn]] void cannot_emulate(Thread&, const char* what, Site);
[[noreturn]] void trap(Thread&, Site);
[[noreturn]] void assert_fail(Thread&, uint64_t message, uint64_t file, uint32_t line, uint64_t function, Site);
[[noreturn]] void exit_thread(Thread&);  // `exit`; returning from the entry is the same

// ---- memory, section 9.7.9. Addresses are checked for alignment to `bytes` (1 to 32, the whole vector) and bounds.
void* access_slow(Thread&, uint64_t address, unsigned bytes, Space, Site, bool store);
void* shared_access(Thread&, uint32_t address, unsigned bytes, Site, bool store, const void* value);

inline bool in_shared(const Thread& t, uint64_t generic) {
  return generic - reinterpret_cast<uint64_t>(t.block->arena) < t.block->arena_size;
}
inline uint64_t generic_from_shared(const Thread& t, uint32_t address) {
  return reinterpret_cast<uint64_t>(t.block->arena) + address;
}
inline uint32_t shared_from_generic(const Thread& t, uint64_t generic) {
  return static_cast<uint32_t>(generic - reinterpret_cast<uint64_t>(t.block->arena));
}
inline bool in_local(const Thread& t, uint64_t generic) {
  return generic - t.stack_begin < t.stack_end - t.stack_begin;
}
inline bool in_global(const Thread& t, uint64_t generic) { return !in_shared(t, generic) && !in_local(t, generic); }
inline uint32_t dynamic_shared(const Thread& t) {
  uint32_t align = t.grid->kernel->dynamic_align;
  return t.block->shared_begin + (t.grid->kernel->shared_bytes + align - 1) / align * align;
}
// mapa (9.7.9.21): the same variable in block `rank` of the cluster. A rank outside of the cluster is a fault.
uint32_t map_shared(Thread&, uint32_t address, uint32_t rank, Site);
uint64_t map_generic(Thread&, uint64_t address, uint32_t rank, Site);
// getctarank
inline uint32_t shared_rank(uint32_t address) { return address / SHARED_WINDOW; }

inline void* checked_address(Thread& t, uint64_t address, unsigned bytes, Space space, Site site, bool store,
                             const void* value) {
  if (space == Space::Shared) return shared_access(t, static_cast<uint32_t>(address), bytes, site, store, value);
  const Range& r = t.ranges[site];
  if (address - r.begin <= r.size - bytes && r.size >= bytes && !(address & (bytes - 1)))
    return reinterpret_cast<void*>(address);
  if (space == Space::Generic && in_shared(t, address))
    return shared_access(t, shared_from_generic(t, address), bytes, site, store, value);
  return access_slow(t, address, bytes, space, site, store);
}
inline void* load_address(Thread& t, uint64_t address, unsigned bytes, Space space, Site site) {
  return checked_address(t, address, bytes, space, site, false, nullptr);
}
// With `value`, two unordered stores of equal bytes to one shared address are not a race.
inline void* store_address(Thread& t, uint64_t address, unsigned bytes, Space space, Site site,
                           const void* value = nullptr) {
  return checked_address(t, address, bytes, space, site, true, value);
}
// For atom, red, and ld/st with .volatile, .relaxed, .acquire, .release or .mmio: orders, and races with plain accesses
// only. `store`: the instruction may write.
void* atomic_address(Thread&, uint64_t address, unsigned bytes, Space, Site, bool store = true);

template <class V, unsigned N>
inline void load(Thread& t, V (&to)[N], uint64_t address, Space space, Site site) {
  std::memcpy(to, load_address(t, address, sizeof to, space, site), sizeof to);
}
template <class V, unsigned N>
inline void store(Thread& t, const V (&from)[N], uint64_t address, Space space, Site site) {
  std::memcpy(store_address(t, address, sizeof from, space, site, from), from, sizeof from);
}
void memory_fence(Thread&, Site);  // membar, fence.acq_rel, fence.sc

// ---- control. step() stands at every backward branch: it bounds loops and lets other fibers run.
void step_slow(Thread&, Site);
inline void step(Thread& t, Site site) {
  if (--t.quantum < 0) step_slow(t, site);
}
void yield_hint(Thread&);  // nanosleep, or a loop that is known to wait
uint64_t clock64(Thread&);  // grows with every call

// ---- barriers of a block, section 9.7.13.1. `count` 0 means all threads of the block. `aligned` (bar, barrier.aligned): a
// warp whose lanes meet at different instructions is a fault.
void bar_sync(Thread&, uint32_t id, uint32_t count, Site, bool aligned = true);
void bar_arrive(Thread&, uint32_t id, uint32_t count, Site);
struct Votes {
  uint32_t yes, all;  // threads whose predicate was true; threads that arrived
  bool and_() const { return yes == all; }
  bool or_() const { return yes != 0; }
};
Votes bar_red(Thread&, uint32_t id, uint32_t count, bool predicate, Site, bool aligned = true);

// ---- warps, sections 9.7.13.2 and 9.7.9.6. Waits for all live lanes of `mask`, which must name the caller.
struct Exchange {
  const uint32_t (*words)[EXCHANGE_WORDS];  // words[lane], valid until this lane's next exchange
  uint32_t lanes;                           // those that took part: live lanes of the mask
};
// shfl, vote, match, redux, mma, ldmatrix, stmatrix, movmatrix: each lane gives `count` words. Lanes must meet at one site.
Exchange warp_exchange(Thread&, uint32_t mask, const uint32_t* words, unsigned count, Site);
void warp_sync(Thread&, uint32_t mask, Site);       // bar.warp.sync: sites may differ
uint32_t active_mask(Thread&, Site);                // lanes of the warp that are at this site together
bool elect(Thread&, uint32_t mask, uint32_t* leader, Site);

// ---- clusters, section 9.7.13.4
void cluster_arrive(Thread&, Site);
void cluster_wait(Thread&, Site);

// ---- mbarrier, section 9.7.13.15. `address` is of `space` Shared (any window) or Generic.
void mbarrier_init(Thread&, uint64_t address, Space, uint32_t count, Site);
void mbarrier_invalidate(Thread&, uint64_t address, Space, Site);
void mbarrier_expect(Thread&, uint64_t address, Space, uint32_t bytes, Site);
void mbarrier_complete(Thread&, uint64_t address, Space, uint32_t bytes, Site);
uint64_t mbarrier_arrive(Thread&, uint64_t address, Space, uint32_t count, Site);  // the state before
uint64_t mbarrier_arrive_expect(Thread&, uint64_t address, Space, uint32_t count, uint32_t bytes, Site);
uint64_t mbarrier_arrive_drop(Thread&, uint64_t address, Space, uint32_t count, uint32_t bytes, Site);
bool mbarrier_test(Thread&, uint64_t address, Space, uint64_t state, Site);  // test_wait and try_wait
bool mbarrier_test_parity(Thread&, uint64_t address, Space, uint32_t parity, Site);
bool mbarrier_try(Thread&, uint64_t address, Space, uint64_t state, Site);  // may suspend the fiber
bool mbarrier_try_parity(Thread&, uint64_t address, Space, uint32_t parity, Site);
uint32_t mbarrier_pending(uint64_t state);

// ---- cp.async, section 9.7.9.25.3. Bytes land at the wait that covers them, not before.
void cp_async(Thread&, uint64_t shared, uint64_t global, unsigned bytes, unsigned source_bytes, Site);
void cp_async_commit(Thread&);
void cp_async_wait(Thread&, uint32_t groups_left, Site);
void cp_async_wait_all(Thread&, Site);
void cp_async_mbarrier_arrive(Thread&, uint64_t address, Space, bool noinc, Site);

// ---- bulk copies, sections 9.7.9.25.4 and .5. Loads complete on an mbarrier, stores by bulk groups.
enum class Reduce : uint8_t { None, Add, Min, Max, Inc, Dec, And, Or, Xor };
enum class Type : uint8_t { B8, B16, U32, S32, U64, S64, F16, BF16, F32, F64, TF32, E4M3, E5M2, S8, U8, B32 = U32, B64 = U64 };
struct BulkCopy {
  uint64_t destination, source, bytes;
  Space destination_space, source_space;  // Shared or Global
  uint64_t mbarrier;                      // shared address; used where `completes_mbarrier`
  bool completes_mbarrier;                // else the copy joins the thread's open bulk group
  bool multicast;
  uint16_t blocks;                        // multicast: destination blocks of the cluster
  Reduce reduce;
  Type type;                              // of a reduction
};
void bulk_copy(Thread&, const BulkCopy&, Site);
enum class TensorMode : uint8_t { Tile, Im2col };  // Im2col is refused by name
struct TensorCopy {
  bool store;                // shared to global
  uint64_t map;              // generic address of the 128-byte tensor map
  uint32_t rank;
  int32_t coordinates[5];
  uint32_t shared;           // shared address
  uint64_t mbarrier;         // loads: shared address
  bool multicast;
  uint16_t blocks;
  Reduce reduce;             // stores: cp.reduce.async.bulk.tensor
  TensorMode mode;
};
void tensor_copy(Thread&, const TensorCopy&, Site);
void bulk_commit(Thread&);
void bulk_wait(Thread&, uint32_t groups_left, bool read_only, Site);
// fence.proxy.async: generic-proxy writes to shared memory reach asynchronous reads (bulk stores, wgmma) only past it.
void fence_proxy_async(Thread&, Site);

// ---- wgmma, section 9.7.15. Deferred: issue leaves a token (a NaN) in each accumulator; the matching wait computes,
// and wgmma_settle() then turns tokens of retired groups into values. After each wgmma.wait_group the translated code
// calls it for every register that may hold an accumulator (destinations of wgmma and registers they are moved to).
struct Wgmma {
  uint16_t m, n, k;          // 64 x n x k
  Type accumulator;          // F32, F16 (two per register), S32
  Type a, b;
  bool transpose_a, transpose_b;  // MN-major operands, 16-bit types only
  bool negate_a, negate_b;
  bool a_in_registers;
  bool saturate;
};
void wgmma_fence(Thread&, Site);
void wgmma_issue(Thread&, const Wgmma&, uint32_t* accumulators, unsigned registers, const uint32_t* a_registers,
                 uint64_t a_descriptor, uint64_t b_descriptor, bool accumulate, Site);
void wgmma_commit(Thread&, Site);
void wgmma_wait(Thread&, uint32_t groups_left, Site);
uint32_t wgmma_settle_slow(Thread&, uint32_t bits);
inline uint32_t wgmma_settle(Thread& t, uint32_t bits) {
  return (bits >> 22) == 0x3ff ? wgmma_settle_slow(t, bits) : bits;
}

// ---- output: returns the number of arguments, or -1
int32_t print(Thread&, uint64_t format, uint64_t arguments);

}  // namespace emulated
