// Where threads meet: warps, barriers of a block, clusters, mbarriers.
#include <algorithm>

#include "errors.h"
#include "state.h"

namespace emulated {
namespace {

constexpr Site NOWHERE = ~0u;
constexpr uint32_t POISON = 0x7fffffff;  // what a lane that takes no part is read as

Meeting& meeting_of(Thread& t, uint32_t mask, Site site) {
  if (!(mask >> t.lane & 1)) fault(t, "a lane is not in the mask that it names", site);
  Warp& warp = t.state->block->warp[t.warp];
  for (Meeting& m : warp.meetings)
    if (m.mask == mask) return m;
  for (Meeting& m : warp.meetings)
    if (!m.mask) return m.mask = mask, m;
  warp.meetings.emplace_back();
  warp.meetings.back().mask = mask;
  return warp.meetings.back();
}

bool complete_meeting(Meeting& m, uint32_t exited) {
  if (!m.arrived || (m.mask & ~(m.arrived | exited))) return false;
  m.took_part[m.generation & 1] = m.arrived;
  m.arrived = 0;
  m.generation++;
  return true;
}

Exchange meet(Thread& t, uint32_t mask, const uint32_t* words, unsigned count, Site site, bool one_site) {
  Meeting& m = meeting_of(t, mask, site);
  const Warp& warp = t.state->block->warp[t.warp];
  const uint32_t generation = m.generation;
  auto* table = m.words[generation & 1];
  if (!m.arrived) m.site = site;
  if (one_site && m.site != site) {
    const std::string text = "lanes of one warp meet here and at " + place(t, m.site);
    fault(t, text.c_str(), site);
  }
  std::copy_n(words, count, table[t.lane]);
  m.arrived |= 1u << t.lane;
  if (complete_meeting(m, warp.exited)) {
    const uint32_t absent = ~m.took_part[generation & 1];
    for (uint32_t lane = 0; absent && lane < 32; lane++)
      if (absent >> lane & 1) std::fill_n(table[lane], count, POISON);
  } else {
    wait_change(t, m.generation, generation, site);
  }
  return {table, m.took_part[generation & 1]};
}

bool complete_barrier(Barrier& b, uint32_t live, Group& g) {
  if (!b.arrived || b.arrived < (b.count ? b.count : live)) return false;
  b.last_yes = b.yes;
  b.last_arrived = b.arrived;
  b.last_clock = b.clock;
  b.arrived = b.yes = b.count = 0;
  std::fill(b.clock.begin(), b.clock.end(), 0);
  std::fill(b.sites.begin(), b.sites.end(), NOWHERE);
  b.generation++;
  g.progress++;
  return true;
}

Barrier& join_barrier(Thread& t, uint32_t id, uint32_t count, bool predicate, Site site, bool aligned) {
  BlockState& block = *t.state->block;
  if (id >= 16) fault(t, "there are 16 barriers", site);
  if (count % 32 || count > (block.threads + 31) / 32 * 32) fault(t, "a barrier's thread count is not a multiple of 32 within the block", site);
  Barrier& b = block.barrier[id];
  if (b.arrived && b.count != count) fault(t, "threads give one barrier different counts", site);
  b.count = count;
  b.sites.resize(block.warps, NOWHERE);
  if (aligned && b.sites[t.warp] != NOWHERE && b.sites[t.warp] != site) {
    const std::string text = "divergent barrier: lanes of one warp are here and at " + place(t, b.sites[t.warp]);
    fault(t, text.c_str(), site);
  }
  if (aligned) b.sites[t.warp] = site;
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

void try_complete(Mbarrier& m, Group& g) {
  if (m.pending || m.bytes) return;
  m.phase++;
  m.events++;
  m.pending = m.expected;
  g.progress++;
}

Mbarrier& mbarrier_at(Thread& t, uint64_t address, Space space, Site site, BlockState** owner = nullptr) {
  if (space == Space::Generic) {
    if (!in_shared(t, address)) fault(t, "an mbarrier that is not in shared memory", site);
    address = shared_from_generic(t, address);
  }
  return mbarrier_shared(t, uint32_t(address), site, owner);
}

// Lets copies that were issued land; whether the phase has ended then.
template <class Ended>
bool poll(Thread& t, Mbarrier& m, Ended ended) {
  while (!ended() && !m.landings.empty()) {
    const Landing next = m.landings.front();
    m.landings.erase(m.landings.begin());
    land(next);
  }
  if (!ended()) return false;
  acquire(*t.state->block, t.warp, m.clock);
  return true;
}

template <class Ended>
bool poll_or_wait(Thread& t, Mbarrier& m, Site site, Ended ended) {
  if (poll(t, m, ended)) return true;
  ThreadState& s = *t.state;
  s.waits_at = site;
  s.wait_word = &m.events;
  s.wait_value = m.events;
  s.polling = true;
  suspend(t);
  return poll(t, m, ended);
}

}  // namespace

// ---- warps
Exchange warp_exchange(Thread& t, uint32_t mask, const uint32_t* words, unsigned count, Site site) {
  return meet(t, mask, words, count, site, true);
}

void warp_sync(Thread& t, uint32_t mask, Site site) { meet(t, mask, nullptr, 0, site, false); }

bool elect(Thread& t, uint32_t mask, uint32_t* leader, Site site) {
  const Exchange all = meet(t, mask, nullptr, 0, site, true);
  const uint32_t lane = __builtin_ctz(all.lanes);
  if (leader) *leader = lane;
  return lane == t.lane;
}

// ---- blocks
Votes bar_red(Thread& t, uint32_t id, uint32_t count, bool predicate, Site site, bool aligned) {
  BlockState& block = *t.state->block;
  Barrier& b = join_barrier(t, id, count, predicate, site, aligned);
  const uint32_t generation = b.generation;
  if (!complete_barrier(b, block.live, *block.group)) wait_change(t, b.generation, generation, site);
  acquire(block, t.warp, b.last_clock);
  return {b.last_yes, b.last_arrived};
}

void bar_sync(Thread& t, uint32_t id, uint32_t count, Site site, bool aligned) {
  bar_red(t, id, count, false, site, aligned);
}

void bar_arrive(Thread& t, uint32_t id, uint32_t count, Site site) {
  BlockState& block = *t.state->block;
  complete_barrier(join_barrier(t, id, count, false, site, false), block.live, *block.group);
}

// ---- clusters
void cluster_arrive(Thread& t, Site site) {
  BlockState& block = *t.state->block;
  Group& g = *block.group;
  if (t.state->cluster_arrived) fault(t, "barrier.cluster.arrive twice without a wait", site);
  t.state->cluster_arrived = true;
  t.state->cluster_generation = g.cluster_generation;
  release(block, t.warp, block.cluster);
  g.cluster_arrived++;
  complete_cluster(g);
}

void cluster_wait(Thread& t, Site site) {
  BlockState& block = *t.state->block;
  if (!t.state->cluster_arrived) fault(t, "barrier.cluster.wait without an arrive", site);
  wait_change(t, block.group->cluster_generation, t.state->cluster_generation, site);
  t.state->cluster_arrived = false;
  acquire(block, t.warp, block.cluster);
}

void exit_from_barriers(Thread& t) {
  BlockState& block = *t.state->block;
  Group& g = *block.group;
  Warp& warp = block.warp[t.warp];
  for (Meeting& m : warp.meetings) complete_meeting(m, warp.exited);
  for (Barrier& b : block.barrier)
    if (b.arrived && !b.count) complete_barrier(b, block.live, g);
  // An exited thread counts as arrived.
  if (t.state->cluster_arrived && t.state->cluster_generation == g.cluster_generation) g.cluster_arrived--;
  complete_cluster(g);
}

// ---- mbarriers
Mbarrier& mbarrier_shared(Thread& t, uint32_t address, Site site, BlockState** owner) {
  BlockState& b = owner_of(t, address, 8, site, "mbarrier");
  const auto found = b.mbarriers.find(address % SHARED_WINDOW);
  if (address % 8) fault(t, "misaligned mbarrier", site);
  if (found == b.mbarriers.end()) fault(t, "mbarrier is not initialized", site);
  if (owner) *owner = &b;
  return found->second;
}

void mbarrier_init(Thread& t, uint64_t address, Space space, uint32_t count, Site site) {
  const uint64_t zero = 0;
  void* at = store_address(t, address, 8, space, site, &zero);
  std::memcpy(at, &zero, 8);
  if (!count || count >= 1u << 20) fault(t, "mbarrier.init: count must be 1 to 1,048,575", site);
  const uint32_t shared = space == Space::Generic ? shared_from_generic(t, address) : uint32_t(address);
  Mbarrier m;
  m.address = shared;
  m.expected = m.pending = count;
  t.state->block->mbarriers[shared % SHARED_WINDOW] = m;
}

void mbarrier_invalidate(Thread& t, uint64_t address, Space space, Site site) {
  BlockState* owner = nullptr;
  const Mbarrier& m = mbarrier_at(t, address, space, site, &owner);
  owner->mbarriers.erase(m.address % SHARED_WINDOW);
}

void mbarrier_expect(Thread& t, uint64_t address, Space space, uint32_t bytes, Site site) {
  mbarrier_at(t, address, space, site).bytes += bytes;
}

void complete_bytes(Mbarrier& m, Group& g, uint32_t bytes) {
  m.bytes -= bytes;
  try_complete(m, g);
}

void mbarrier_complete(Thread& t, uint64_t address, Space space, uint32_t bytes, Site site) {
  complete_bytes(mbarrier_at(t, address, space, site), *t.state->block->group, bytes);
}

void arrive(Thread& t, Mbarrier& m, Group& g, uint32_t count, Site site) {
  if (m.pending < count) fault(t, "more threads arrive at an mbarrier than it expects", site);
  m.pending -= count;
  try_complete(m, g);
}

uint64_t mbarrier_arrive_expect(Thread& t, uint64_t address, Space space, uint32_t count, uint32_t bytes, Site site) {
  BlockState* owner = nullptr;
  Mbarrier& m = mbarrier_at(t, address, space, site, &owner);
  const uint64_t state = uint64_t(m.phase & 1) | uint64_t(m.pending) << 1;
  m.bytes += bytes;
  if (owner == t.state->block) release(*owner, t.warp, m.clock);
  arrive(t, m, *owner->group, count, site);
  return state;
}

uint64_t mbarrier_arrive(Thread& t, uint64_t address, Space space, uint32_t count, Site site) {
  return mbarrier_arrive_expect(t, address, space, count, 0, site);
}

uint64_t mbarrier_arrive_drop(Thread& t, uint64_t address, Space space, uint32_t count, uint32_t bytes, Site site) {
  Mbarrier& m = mbarrier_at(t, address, space, site);
  if (m.expected < count) fault(t, "mbarrier.arrive_drop: more threads than it expects", site);
  m.expected -= count;
  return mbarrier_arrive_expect(t, address, space, count, bytes, site);
}

void post(Mbarrier& m, Landing landing) {
  m.landings.push_back(std::move(landing));
  m.events++;
}

bool mbarrier_try_parity(Thread& t, uint64_t address, Space space, uint32_t parity, Site site) {
  Mbarrier& m = mbarrier_at(t, address, space, site);
  return poll_or_wait(t, m, site, [&] { return (m.phase & 1) != (parity & 1); });
}

bool mbarrier_try(Thread& t, uint64_t address, Space space, uint64_t state, Site site) {
  return mbarrier_try_parity(t, address, space, state & 1, site);
}

bool mbarrier_test(Thread& t, uint64_t address, Space space, uint64_t state, Site site) {
  return mbarrier_try_parity(t, address, space, state & 1, site);
}

bool mbarrier_test_parity(Thread& t, uint64_t address, Space space, uint32_t parity, Site site) {
  return mbarrier_try_parity(t, address, space, parity, site);
}

uint32_t mbarrier_pending(uint64_t state) { return uint32_t(state >> 1); }

}  // namespace emulated
