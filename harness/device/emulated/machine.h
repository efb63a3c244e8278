// The machine that a translated kernel runs on: one fiber per CUDA thread, checked memory, barriers, copies.
//
// A kernel is a shared library that exports one `emulated::KernelInfo` named `emulated_kernel` and calls the
// functions below, which the emulated CUDA runtime defines. Section numbers are of the PTX ISA.
#pragma once
#include "numbers.h"

namespace emulated {

constexpr u32 ABI = 1;
constexpr u32 SHARED_WINDOW = 1u << 18;  // bytes of the shared address space per block of a cluster
constexpr u32 SHARED_RESERVED = 1024;    // offset of a block's first variable in its window, as on sm_90
constexpr unsigned EXCHANGE_WORDS = 16;

// Index into KernelInfo::sites. Every instruction that can fail or wait has one.
using Site = u32;

// State spaces, section 5.1. `Shared` is a 32-bit address in any window of the cluster. Local variables are
// host memory on the fiber's stack, global and constant memory is host memory: each is its own generic
// address.
enum class Space : u8 { Generic, Global, Const, Local, Shared };

inline u64 address_of(const void* p) { return reinterpret_cast<u64>(p); }
inline u8* host(u64 address) { return reinterpret_cast<u8*>(address); }

// ---- what a kernel's library says
struct SiteInfo {
    const char *instruction, *file;  // "st.global.f32"; the file is "" without .loc (-lineinfo)
    u32 line;                        // of `file`; 0 without .loc
};
struct VariableInfo {  // a module variable (.global or .const). All kernels of one module share it, by name.
    const char* name;
    u64 size, align;
    const void* initial;  // `initial_size` bytes; the rest is zero. May be null.
    u64 initial_size;
    bool constant;
};
struct RelocationInfo {  // 8 bytes of a variable hold the generic address of variable `target` plus `addend`
    u32 variable;
    u64 offset;
    u32 target;
    s64 addend;
};
struct ParameterInfo { u32 offset, size; };
struct Thread;
struct KernelInfo {
    u32 abi;
    const char* name;
    void (*entry)(Thread&, const u8* parameters);
    const ParameterInfo* parameters;
    u32 parameter_count, parameter_bytes;
    u32 shared_bytes,
        dynamic_align;            // static shared memory; alignment of the extern array after it, at least 16
    u32 max_threads, cluster[3];  // .maxntid or .reqntid as a product, else 1024; .reqnctapercluster, else 0
    u32 local_bytes;              // upper bound of local variables per thread: sizes the fiber's stack
    bool blocks_communicate;      // by global memory: they run on one core
    const SiteInfo* sites;
    u32 site_count;
    const VariableInfo* variables;
    u32 variable_count;
    const RelocationInfo* relocations;
    u32 relocation_count;
};

// ---- grid, block, thread
struct Range {
    u64 begin, size;
    bool holds(u64 address, u64 bytes) const { return address - begin <= size - bytes && bytes <= size; }
};
struct Grid {
    u32 ntid[3], nctaid[3], cluster_nctaid[3], nclusterid[3], cluster_nctarank;
    u32 dynamic_shared;    // bytes
    const u64* variables;  // address of each KernelInfo::variables
    const KernelInfo* kernel;
    u64 grid_id;
};
struct Block {
    u32 ctaid[3], cluster_ctaid[3], clusterid[3], cluster_ctarank;
    u32 shared_begin, shared_size;  // shared address of the first variable; static + dynamic bytes
    u8* arena;                      // host address of shared address 0 of all windows of the cluster
    u64 arena_size;
};
struct Issued;
struct Thread {
    u32 tid[3], lane, warp, linear;
    Block* block;
    Grid* grid;
    Range* ranges;  // per site, the last allocation that an access of it was inside
    s32 quantum;    // backward branches until this fiber gives way
    u64 stack_begin, stack_end;
    // What the scheduler knows. The fiber is runnable once *wait_word != wait_value.
    void* stack_pointer;
    const u32* wait_word;
    u32 wait_value, cluster_generation;
    bool done, spun, polling, at_active, cluster_arrived;
    Site waits_at;
    Issued* issued;  // operations that it has not waited for; most threads never have one
};

// ---- failures. None returns: the launch ends with a CUDA error and the finding goes to the report.
[[noreturn]] void fault(Thread&, const char* reason, Site);
[[noreturn]] void assert_fail(Thread&, u64 message, u64 file, u32 line, u64 function, Site);
[[noreturn]] void exit_thread(Thread&);  // `exit`; returning from the entry is the same
[[noreturn]] inline void trap(Thread& t, Site site) { fault(t, "trap", site); }

// ---- memory, section 9.7.9. Bounds and alignment to `bytes` (1 to 32, a whole vector) are checked.
void* access_slow(Thread&, u64 address, unsigned bytes, Space, Site, bool store);
void* shared_access(Thread&, u32 address, unsigned bytes, Site, bool store, const void* value);

inline u64 generic_from_shared(const Thread& t, u32 address) { return address_of(t.block->arena) + address; }
inline u32 shared_from_generic(const Thread& t, u64 generic) {
    return u32(generic - address_of(t.block->arena));
}
inline bool in_shared(const Thread& t, u64 generic) {
    return generic - address_of(t.block->arena) < t.block->arena_size;
}
inline bool in_local(const Thread& t, u64 generic) {
    return generic - t.stack_begin < t.stack_end - t.stack_begin;
}
inline u32 dynamic_shared(const Thread& t) {
    const u32 align = t.grid->kernel->dynamic_align;
    return t.block->shared_begin + (t.grid->kernel->shared_bytes + align - 1) / align * align;
}
// mapa: the same variable in block `rank` of the cluster. A rank outside of the cluster is a fault.
u32 map_shared(Thread&, u32 address, u32 rank, Site);
u64 map_generic(Thread&, u64 address, u32 rank, Site);
inline u32 shared_rank(u32 address) { return address / SHARED_WINDOW; }  // getctarank

inline void* checked_address(
    Thread& t, u64 address, unsigned bytes, Space space, Site site, bool store, const void* value) {
    if (space == Space::Shared) return shared_access(t, u32(address), bytes, site, store, value);
    if (t.ranges[site].holds(address, bytes) && !(address & (bytes - 1))) return host(address);
    if (space == Space::Generic && in_shared(t, address))
        return shared_access(t, shared_from_generic(t, address), bytes, site, store, value);
    return access_slow(t, address, bytes, space, site, store);
}
inline void* load_address(Thread& t, u64 address, unsigned bytes, Space space, Site site) {
    return checked_address(t, address, bytes, space, site, false, nullptr);
}
// With `value`, two unordered stores of equal bytes to one shared address are not a race.
inline void* store_address(
    Thread& t, u64 address, unsigned bytes, Space space, Site site, const void* value) {
    return checked_address(t, address, bytes, space, site, true, value);
}
// For atom, red, and ld/st with .volatile, .relaxed, .acquire, .release or .mmio: orders, and races with
// plain accesses only. `store`: the instruction may write.
void* atomic_address(Thread&, u64 address, unsigned bytes, Space, Site, bool store = true);
void memory_fence(Thread&, Site);  // membar, fence.acq_rel, fence.sc

template <class V, unsigned N> inline void load(Thread& t, V (&to)[N], u64 address, Space space, Site site) {
    std::memcpy(to, load_address(t, address, sizeof to, space, site), sizeof to);
}
template <class V, unsigned N>
inline void store(Thread& t, const V (&from)[N], u64 address, Space space, Site site) {
    std::memcpy(store_address(t, address, sizeof from, space, site, from), from, sizeof from);
}

// ---- control. step() stands at every backward branch: it bounds loops and lets other fibers run.
void step_slow(Thread&, Site);
inline void step(Thread& t, Site site) {
    if (--t.quantum < 0) step_slow(t, site);
}
void yield_hint(Thread&);  // nanosleep, or a loop that is known to wait
u64 clock64(Thread&);      // grows with every call

// ---- barriers of a block, section 9.7.13.1. `count` 0 means all threads of the block. `aligned`: a warp
// whose lanes meet at different instructions is a fault.
struct Votes {
    u32 yes, all;  // threads whose predicate was true; threads that arrived
    bool and_() const { return yes == all; }
    bool or_() const { return yes != 0; }
};
Votes bar_red(Thread&, u32 id, u32 count, bool predicate, Site, bool aligned = true);
inline void bar_sync(Thread& t, u32 id, u32 count, Site site, bool aligned = true) {
    bar_red(t, id, count, false, site, aligned);
}
void bar_arrive(Thread&, u32 id, u32 count, Site);

// ---- warps, sections 9.7.13.2 and 9.7.9.6. Waits for all live lanes of `mask`, which must name the caller.
struct Exchange {
    const u32 (*words)[EXCHANGE_WORDS];  // words[lane], valid until this lane's next exchange
    u32 lanes;                           // those that took part: live lanes of the mask
};
// shfl, vote, match, redux, mma, ldmatrix, ...: each lane gives `count` words. Lanes must meet at one site.
Exchange warp_exchange(Thread&, u32 mask, const u32* words, unsigned count, Site);
void warp_sync(Thread&, u32 mask, Site);  // bar.warp.sync: sites may differ
u32 active_mask(Thread&, Site);           // lanes of the warp that are at this site together

// ---- clusters, section 9.7.13.4
void cluster_arrive(Thread&, Site);
void cluster_wait(Thread&, Site);

// ---- mbarrier, section 9.7.13.15. `address` is of `space` Shared (any window) or Generic.
void mbarrier_init(Thread&, u64 address, Space, u32 count, Site);
void mbarrier_invalidate(Thread&, u64 address, Space, Site);
void mbarrier_expect(Thread&, u64 address, Space, u32 bytes, Site);
void mbarrier_complete(Thread&, u64 address, Space, u32 bytes, Site);
u64 mbarrier_arrive(Thread&, u64 address, Space, u32 count, u32 bytes, Site);  // the state before
u64 mbarrier_arrive_drop(Thread&, u64 address, Space, u32 count, Site);
// test_wait and try_wait, of a parity or (in its lowest bit) a state; may suspend the fiber.
bool mbarrier_try(Thread&, u64 address, Space, u64 parity, Site);

// ---- asynchronous copies, section 9.7.9.25. Bytes land at the wait that covers them, not before.
void cp_async(Thread&, u64 shared, u64 global, unsigned bytes, unsigned source_bytes, Site);
void cp_async_commit(Thread&);
void cp_async_wait(Thread&, u32 groups_left);
void cp_async_wait_all(Thread&);
void cp_async_mbarrier_arrive(Thread&, u64 address, Space, bool noinc, Site);

// Bulk copies: loads complete on an mbarrier, stores by bulk groups.
enum class Atomic : u8 { none_, add_, min_, max_, and_, or_, xor_, exch_, cas_, inc_, dec_ };
enum class Element : u8 {
    u8,
    u16,
    u32,
    u64,
    s8,
    s16,
    s32,
    s64,
    u4,
    s4,
    f16,
    bf16,
    tf32,
    f32,
    f64,
    e4m3,
    e5m2,
    b32 = u32,
    b64 = u64
};
struct BulkCopy {
    u64 destination, source, bytes;
    Space destination_space, source_space;  // Shared or Global
    u64 mbarrier;                           // shared address; used where `completes_mbarrier`
    bool completes_mbarrier;                // else the copy joins the thread's open bulk group
    bool multicast;
    u16 blocks;  // multicast: destination blocks of the cluster
    Atomic reduce;
    Element type;  // of a reduction
};
struct TensorCopy {
    bool store;  // shared to global
    u64 map;     // generic address of the 128-byte tensor map
    u32 rank;
    s32 coordinates[5];
    u32 shared;    // shared address
    u64 mbarrier;  // loads: shared address
    bool multicast;
    u16 blocks;
    Atomic reduce;  // stores: cp.reduce.async.bulk.tensor
};
void bulk_copy(Thread&, const BulkCopy&, Site);
void tensor_copy(Thread&, const TensorCopy&, Site);
void bulk_commit(Thread&);
void bulk_wait(Thread&, u32 groups_left);
// fence.proxy.async: generic writes to shared memory reach asynchronous reads (bulk stores, wgmma) past it.
void fence_proxy_async(Thread&, Site);

// ---- wgmma, section 9.7.15. Deferred: issue leaves a token (a NaN) in each accumulator; the matching wait
// computes, and wgmma_settle() then turns tokens of retired groups into values. After each wgmma.wait_group
// the translated code calls it for every register that may hold an accumulator.
struct Wgmma {
    u16 m, n, k;                    // 64 x n x k
    Element accumulator, a, b;      // the accumulator is f32, f16 (two per register) or s32
    bool transpose_a, transpose_b;  // MN-major operands, 16-bit types only
    bool negate_a, negate_b, a_in_registers, saturate;
};
void wgmma_fence(Thread&);
void wgmma_issue(Thread&, const Wgmma&, u32* accumulators, unsigned registers, const u32* a_registers,
    u64 a_descriptor, u64 b_descriptor, bool accumulate, Site);
void wgmma_commit(Thread&);
void wgmma_wait(Thread&, u32 groups_left, Site);
u32 wgmma_settle_slow(Thread&, u32 bits);
inline u32 wgmma_settle(Thread& t, u32 bits) {
    return (bits >> 22) == 0x3ff ? wgmma_settle_slow(t, bits) : bits;
}

// ---- output: returns the number of arguments, or -1
s32 print(Thread&, u64 format, u64 arguments);

}  // namespace emulated
