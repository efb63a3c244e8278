// Where threads meet: warps, barriers of a block, clusters, mbarriers.
#include "state.h"

namespace emulated {
namespace {

constexpr Site NOWHERE = ~0u;
constexpr u32 POISON = 0x7fffffff;  // what a lane that takes no part is read as

Meeting& meeting_of(Warp& warp, u32 mask) {
    for (Meeting& m : warp.meetings)
        if (m.mask == mask) return m;
    for (Meeting& m : warp.meetings)
        if (!m.mask) return m.mask = mask, m;
    warp.meetings.emplace_back().mask = mask;
    return warp.meetings.back();
}

bool complete_meeting(Meeting& m, u32 exited) {
    if (!m.arrived || (m.mask & ~(m.arrived | exited))) return false;
    m.took_part[m.generation & 1] = m.arrived;
    m.arrived = 0;
    m.generation++;
    return true;
}

Exchange meet(Thread& t, u32 mask, const u32* words, unsigned count, Site site, bool one_site) {
    if (!(mask >> t.lane & 1)) fault(t, "a lane is not in the mask that it names", site);
    Warp& warp = block_of(t).warp[t.warp];
    Meeting& m = meeting_of(warp, mask);
    const u32 generation = m.generation;
    auto* table = m.words[generation & 1];
    if (!m.arrived) m.site = site;
    if (one_site && m.site != site)
        fault(t, ("lanes of one warp meet here and at " + place(t, m.site)).c_str(), site);
    std::copy_n(words, count, table[t.lane]);
    m.arrived |= 1u << t.lane;
    if (complete_meeting(m, warp.exited)) {
        const u32 absent = ~m.took_part[generation & 1];
        for (u32 lane = 0; absent && lane < 32; lane++)
            if (absent >> lane & 1) std::fill_n(table[lane], count, POISON);
    } else {
        wait_change(t, m.generation, generation, site);
    }
    return {table, m.took_part[generation & 1]};
}

bool complete_barrier(Barrier& b, BlockState& block) {
    if (!b.arrived || b.arrived < (b.count ? b.count : block.live)) return false;
    b.last = {b.yes, b.arrived};
    b.last_clock = b.clock;
    b.arrived = b.yes = b.count = 0;
    std::fill(b.clock.begin(), b.clock.end(), 0);
    b.sites.clear();
    b.generation++;
    block.group->progress++;
    return true;
}

Barrier& join_barrier(Thread& t, u32 id, u32 count, bool predicate, Site site, bool aligned) {
    BlockState& block = block_of(t);
    if (id >= 16) fault(t, "there are 16 barriers", site);
    if (count % 32 || count > block.warps * 32)
        fault(t, "a barrier's thread count is not a multiple of 32 within the block", site);
    Barrier& b = block.barrier[id];
    if (b.arrived && b.count != count) fault(t, "threads give one barrier different counts", site);
    b.count = count;
    b.sites.resize(block.warps, NOWHERE);
    Site& here = b.sites[t.warp];
    if (aligned && here != NOWHERE && here != site)
        fault(t, ("divergent barrier: lanes of one warp are here and at " + place(t, here)).c_str(), site);
    if (aligned) here = site;
    b.arrived++;
    b.yes += predicate;
    release(block, t.warp, b.clock);
    return b;
}

void complete_cluster(Group& g) {
    if (!g.cluster_arrived || g.cluster_arrived < g.live) return;
    g.cluster_arrived = 0;
    g.cluster_generation++;
    g.progress++;
}

// Lets copies that were issued land; whether the phase has ended then.
bool poll(Thread& t, Mbarrier& m, u32 parity) {
    auto ended = [&] { return (m.phase & 1) != parity; };
    while (!ended() && !m.landings.empty()) {
        const auto happen = std::move(m.landings.front().happen);
        m.landings.pop_front();
        happen();
    }
    if (ended()) acquire(block_of(t), t.warp, m.clock);
    return ended();
}

}  // namespace

// ---- warps
Exchange warp_exchange(Thread& t, u32 mask, const u32* words, unsigned count, Site site) {
    return meet(t, mask, words, count, site, true);
}

void warp_sync(Thread& t, u32 mask, Site site) { meet(t, mask, nullptr, 0, site, false); }

// ---- blocks
Votes bar_red(Thread& t, u32 id, u32 count, bool predicate, Site site, bool aligned) {
    Barrier& b = join_barrier(t, id, count, predicate, site, aligned);
    const u32 generation = b.generation;
    if (!complete_barrier(b, block_of(t))) wait_change(t, b.generation, generation, site);
    acquire(block_of(t), t.warp, b.last_clock);
    return b.last;
}

void bar_arrive(Thread& t, u32 id, u32 count, Site site) {
    complete_barrier(join_barrier(t, id, count, false, site, false), block_of(t));
}

// ---- clusters
void cluster_arrive(Thread& t, Site site) {
    BlockState& block = block_of(t);
    if (t.cluster_arrived) fault(t, "barrier.cluster.arrive twice without a wait", site);
    t.cluster_arrived = true;
    t.cluster_generation = block.group->cluster_generation;
    release(block, t.warp, block.cluster);
    block.group->cluster_arrived++;
    complete_cluster(*block.group);
}

void cluster_wait(Thread& t, Site site) {
    BlockState& block = block_of(t);
    if (!t.cluster_arrived) fault(t, "barrier.cluster.wait without an arrive", site);
    wait_change(t, block.group->cluster_generation, t.cluster_generation, site);
    t.cluster_arrived = false;
    acquire(block, t.warp, block.cluster);
}

// An exited thread counts as arrived.
void exit_from_barriers(Thread& t) {
    BlockState& block = block_of(t);
    Group& g = *block.group;
    Warp& warp = block.warp[t.warp];
    for (Meeting& m : warp.meetings) complete_meeting(m, warp.exited);
    for (Barrier& b : block.barrier)
        if (b.arrived && !b.count) complete_barrier(b, block);
    if (t.cluster_arrived && t.cluster_generation == g.cluster_generation) g.cluster_arrived--;
    complete_cluster(g);
}

// ---- mbarriers
Mbarrier& mbarrier_at(Thread& t, u64 address, Space space, Site site, BlockState** owner) {
    if (space == Space::Generic) {
        if (!in_shared(t, address)) fault(t, "an mbarrier that is not in shared memory", site);
        address = shared_from_generic(t, address);
    }
    BlockState& b = owner_of(t, u32(address), 8, site, false);
    if (address % 8) fault(t, "misaligned mbarrier", site);
    const auto found = b.mbarriers.find(address % SHARED_WINDOW);
    if (found == b.mbarriers.end()) fault(t, "mbarrier is not initialized", site);
    if (owner) *owner = &b;
    return found->second;
}

void mbarrier_init(Thread& t, u64 address, Space space, u32 count, Site site) {
    const u64 zero[] = {0};
    store(t, zero, address, space, site);
    if (!count || count >= 1u << 20) fault(t, "mbarrier.init: count must be 1 to 1,048,575", site);
    Mbarrier m;
    m.address = (space == Space::Generic ? shared_from_generic(t, address) : u32(address)) % SHARED_WINDOW;
    m.expected = m.pending = count;
    block_of(t).mbarriers[m.address] = m;
}

void mbarrier_invalidate(Thread& t, u64 address, Space space, Site site) {
    BlockState* owner = nullptr;
    const u32 at = mbarrier_at(t, address, space, site, &owner).address;
    owner->mbarriers.erase(at);
}

void mbarrier_expect(Thread& t, u64 address, Space space, u32 bytes, Site site) {
    mbarrier_at(t, address, space, site).bytes += bytes;
}

void complete_bytes(Mbarrier& m, Group& g, u32 bytes) {
    m.bytes -= bytes;
    if (m.pending || m.bytes) return;
    m.phase++;
    m.events++;
    m.pending = m.expected;
    g.progress++;
}

void mbarrier_complete(Thread& t, u64 address, Space space, u32 bytes, Site site) {
    complete_bytes(mbarrier_at(t, address, space, site), *block_of(t).group, bytes);
}

void arrive(Thread& t, Mbarrier& m, u32 count, Site site) {
    if (m.pending < count) fault(t, "more threads arrive at an mbarrier than it expects", site);
    m.pending -= count;
    complete_bytes(m, *block_of(t).group, 0);
}

u64 mbarrier_arrive(Thread& t, u64 address, Space space, u32 count, u32 bytes, Site site) {
    BlockState* owner = nullptr;
    Mbarrier& m = mbarrier_at(t, address, space, site, &owner);
    const u64 state = u64(m.phase & 1) | u64(m.pending) << 1;
    m.bytes += bytes;
    if (owner == t.block) release(*owner, t.warp, m.clock);
    arrive(t, m, count, site);
    return state;
}

u64 mbarrier_arrive_drop(Thread& t, u64 address, Space space, u32 count, Site site) {
    Mbarrier& m = mbarrier_at(t, address, space, site);
    if (m.expected < count) fault(t, "mbarrier.arrive_drop: more threads than it expects", site);
    m.expected -= count;
    return mbarrier_arrive(t, address, space, count, 0, site);
}

bool mbarrier_try(Thread& t, u64 address, Space space, u64 parity, Site site) {
    Mbarrier& m = mbarrier_at(t, address, space, site);
    if (poll(t, m, parity & 1)) return true;
    t.waits_at = site;
    t.wait_word = &m.events;
    t.wait_value = m.events;
    t.polling = true;
    suspend(t);
    return poll(t, m, parity & 1);
}

}  // namespace emulated
