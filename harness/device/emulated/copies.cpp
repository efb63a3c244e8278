// Asynchronous copies: cp.async, bulk copies and tensor copies. They are recorded when issued and happen at
// the wait that covers them (in `eager` schedules: at once), so that without a wait old bytes are read.
#include "semantics.h"
#include "state.h"
#include "tensor_map.h"

namespace emulated {
namespace {

u32 in_window(u32 window, u64 address) { return window * SHARED_WINDOW + u32(address) % SHARED_WINDOW; }

template <class F> Landing landing(Thread& t, u32 time, Site site, F happen) {
    if (!launch_of(t).eager) return {happen, time, site};
    happen();
    return {nullptr, time, site};
}

// ---- reductions
template <class V> void reduce_elements(Atomic reduce, u8* to, const u8* from, u64 bytes) {
    for (u64 i = 0; i < bytes; i += sizeof(V)) {
        V a, b;
        std::memcpy(&a, to + i, sizeof a);
        std::memcpy(&b, from + i, sizeof b);
        a = combined(reduce, a, b);
        std::memcpy(to + i, &a, sizeof a);
    }
}

void move_bytes(Element type, Atomic reduce, u8* to, const u8* from, u64 bytes) {
    if (reduce == Atomic::none_) std::memmove(to, from, bytes);
    else if (type == Element::s32) reduce_elements<s32>(reduce, to, from, bytes);
    else if (type == Element::s64) reduce_elements<s64>(reduce, to, from, bytes);
    else if (type == Element::u64) reduce_elements<u64>(reduce, to, from, bytes);
    else if (type == Element::f32) reduce_elements<f32>(reduce, to, from, bytes);
    else if (type == Element::f64) reduce_elements<f64>(reduce, to, from, bytes);
    else if (type == Element::f16) reduce_elements<f16>(reduce, to, from, bytes);
    else if (type == Element::bf16) reduce_elements<bf16>(reduce, to, from, bytes);
    else reduce_elements<u32>(reduce, to, from, bytes);
}

// ---- where copies go
// Calls f(window) for each destination block; `own` is the window of the operand.
template <class C, class F> void each_destination(Thread& t, const C& copy, u64 own, F f) {
    if (!copy.multicast) return f(u32(own) / SHARED_WINDOW);
    for (u32 rank = 0; rank < t.grid->cluster_nctarank; rank++)
        if (copy.blocks >> rank & 1) f(first_of_cluster(t) + rank);
}

// A load of `bytes` that f() does, to an mbarrier of the same window.
template <class F>
void post_load(Thread& t, u32 window, u64 mbarrier, u32 bytes, u32 time, Site site, F load) {
    BlockState* owner = nullptr;
    Mbarrier& m = mbarrier_at(t, in_window(window, mbarrier), Space::Shared, site, &owner);
    auto happen = [=, &t, &m] {
        load();
        if (owner == t.block) learn(*owner, m.clock, owner->asynchronous, time);
        complete_bytes(m, *owner->group, bytes);
    };
    if (launch_of(t).eager) return happen();
    m.landings.push_back({happen, time, site});
    m.events++;
}

template <class F> void post_store(Thread& t, u32 time, Site site, F store) {
    Copies& bulk = issued(t).bulk;
    bulk.pending.push_back(landing(t, time, site, store));
    bulk.issued++;
}

// ---- tensors
TensorMap tensor_map(Thread& t, const TensorCopy& c, Site site) {
    TensorMap map;
    std::memcpy(
        &map, in_local(t, c.map) ? host(c.map) : global_memory(t, c.map, 128, site, false), sizeof map);
    if (map.magic != TENSOR_MAP_MAGIC) fault(t, "this is not a tensor map", site);
    if (map.rank != c.rank) fault(t, "the tensor map has another rank than the instruction", site);
    return map;
}

u32 box_bytes(const TensorMap& map) {
    u32 bytes = map.element_bytes;
    for (int i = 0; i < map.rank; i++) bytes *= map.box[i];
    return bytes;
}

// Calls f(shared address, global address, bytes) for runs of at most 16 bytes; global is 0 outside.
template <class F> void each_run(const TensorMap& map, const TensorCopy& c, u32 shared, F f) {
    const u32 size = map.element_bytes, row_bytes = map.box[0] * size, rows = box_bytes(map) / row_bytes;
    const u32 per_run = std::max(1u, 16u / size);
    for (u32 row = 0; row < rows; row++) {
        u32 rest = row;
        u64 at = map.address;
        bool inside = true;
        for (int d = 1; d < map.rank; d++) {
            const s64 p = s64(c.coordinates[d]) + rest % map.box[d];
            rest /= map.box[d];
            inside &= u64(p) < map.dims[d];
            at += u64(p) * map.pitches[d];
        }
        for (u32 x = 0; x < map.box[0]; x += per_run) {
            const u32 to = swizzled(shared + row * row_bytes + x * size, map.swizzle);
            const u32 count = std::min<u32>(per_run, map.box[0] - x);
            const s64 p = s64(c.coordinates[0]) + x;
            const bool whole = inside && p >= 0 && u64(p) + count <= map.dims[0];
            const u32 step = whole ? count : 1;
            for (u32 i = 0; i < count; i += step)
                f(to + i * size, inside && u64(p + i) < map.dims[0] ? at + (p + i) * size : 0, step * size);
        }
    }
}

void fill_outside(const TensorMap& map, u8* to, u32 bytes) {
    std::memset(to, 0, bytes);
    for (u32 i = 0; map.fill_nan && i < bytes; i += map.element_bytes) {
        if (map.type == Element::f32) std::memcpy(to + i, "\xff\xff\xff\x7f", 4);
        if (map.type == Element::f16 || map.type == Element::bf16) std::memcpy(to + i, "\xff\x7f", 2);
    }
}

}  // namespace

// ---- groups of operations
u32 Groups::wait(u32 groups_left) {
    if (commits.size() <= groups_left) return 0;
    const auto end = commits.end() - groups_left;
    const u32 through = end[-1];
    commits.erase(commits.begin(), end);
    return through;
}

void Copies::land(Thread& t, u32 through) {
    while (!pending.empty() && issued - pending.size() < through) {
        const Landing next = std::move(pending.front());
        pending.pop_front();
        if (next.happen) next.happen();
        learn(block_of(t), block_of(t).known[t.warp], block_of(t).asynchronous, next.time);
    }
}

// ---- cp.async
void cp_async(Thread& t, u64 shared, u64 global, unsigned bytes, unsigned source_bytes, Site site) {
    if (shared % bytes) fault(t, "cp.async: misaligned destination", site);
    if (source_bytes > bytes) fault(t, "cp.async: source size above the copy's size", site);
    if (source_bytes && global % bytes) fault(t, "cp.async: misaligned source", site);
    if (source_bytes) global_memory(t, global, source_bytes, site, false);
    const u32 time = block_of(t).now++;
    asynchronous_write(t, u32(shared), bytes, time, site);
    u8* to = host(generic_from_shared(t, u32(shared)));
    Copies& async = issued(t).async;
    async.pending.push_back(landing(t, time, site, [=] {
        std::memset(to, 0, bytes);
        std::memcpy(to, host(global), source_bytes);
    }));
    async.issued++;
}

void cp_async_commit(Thread& t) { issued(t).async.commit(); }
void cp_async_wait(Thread& t, u32 groups_left) { issued(t).async.land(t, issued(t).async.wait(groups_left)); }
void cp_async_wait_all(Thread& t) {
    cp_async_commit(t);
    cp_async_wait(t, 0);
}

void cp_async_mbarrier_arrive(Thread& t, u64 address, Space space, bool noinc, Site site) {
    BlockState* owner = nullptr;
    Mbarrier& m = mbarrier_at(t, address, space, site, &owner);
    if (!noinc) m.pending++;
    const u32 time = block_of(t).now++, through = issued(t).async.issued;
    if (owner == t.block) release(*owner, t.warp, m.clock);
    auto happen = [=, &t, &m] {
        issued(t).async.land(t, through);
        learn(block_of(t), m.clock, block_of(t).asynchronous, time);
        arrive(t, m, 1, site);
    };
    m.landings.push_back({happen, time, site});
    m.events++;
}

// ---- bulk copies
void bulk_copy(Thread& t, const BulkCopy& c, Site site) {
    const bool from_shared = c.source_space == Space::Shared,
               to_shared = c.destination_space == Space::Shared;
    const u32 bytes = u32(c.bytes), time = block_of(t).now++;
    if (bytes % 16 || c.destination % 16 || c.source % 16)
        fault(t, "cp.async.bulk: sizes and addresses are multiples of 16", site);
    if (!bytes && !c.completes_mbarrier) return;
    const u8* from = from_shared ? t.block->arena + c.source : host(c.source);
    if (bytes && from_shared) asynchronous_read(t, u32(c.source), bytes, time, site);
    if (bytes && !from_shared) global_memory(t, c.source, bytes, site, false);
    auto move_to = [=](u8* to) { return [=] { move_bytes(c.type, c.reduce, to, from, bytes); }; };
    if (!to_shared) {
        global_memory(t, c.destination, bytes, site, true);
        return post_store(t, time, site, move_to(host(c.destination)));
    }
    each_destination(t, c, c.destination, [&](u32 window) {
        const u32 to = in_window(window, c.destination);
        if (bytes) asynchronous_write(t, to, bytes, time, site);
        post_load(t, window, c.mbarrier, bytes, time, site, move_to(t.block->arena + to));
    });
}

void tensor_copy(Thread& t, const TensorCopy& c, Site site) {
    const TensorMap map = tensor_map(t, c, site);
    const u32 bytes = box_bytes(map), time = block_of(t).now++;
    u8* arena = t.block->arena;
    if (c.shared % 128) fault(t, "a tensor copy's shared address is a multiple of 128", site);
    auto store = [=, &t](u32 at, u64 global, u32 run) {
        if (global)
            move_bytes(map.type, c.reduce, global_memory(t, global, run, site, true), arena + at, run);
    };
    auto load = [=, &t](u32 at, u64 global, u32 run) {
        if (global) std::memcpy(arena + at, global_memory(t, global, run, site, false), run);
        else fill_outside(map, arena + at, run);
    };
    if (c.store) {
        asynchronous_read(t, c.shared, bytes, time, site);
        return post_store(t, time, site, [=] { each_run(map, c, c.shared, store); });
    }
    each_destination(t, c, c.shared, [&](u32 window) {
        const u32 to = in_window(window, c.shared);
        asynchronous_write(t, to, bytes, time, site);
        post_load(t, window, c.mbarrier, bytes, time, site, [=] { each_run(map, c, to, load); });
    });
}

void bulk_commit(Thread& t) { issued(t).bulk.commit(); }
void bulk_wait(Thread& t, u32 groups_left) { issued(t).bulk.land(t, issued(t).bulk.wait(groups_left)); }

void finish_copies(Thread& t) {
    if (!t.issued) return;
    Copies& bulk = t.issued->bulk;
    if (!bulk.pending.empty())
        report("race", &t, bulk.pending[0].site,
            "the thread exits and does not wait for this copy from shared memory");
    bulk.land(t, bulk.issued);
}

}  // namespace emulated
