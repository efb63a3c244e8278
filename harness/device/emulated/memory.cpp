// Checked memory. Global: the ranges that the host allocated or gave as tensors. Shared: exact sizes, and a shadow that
// finds reads of uninitialized bytes and pairs of accesses that no barrier orders.
//
// The race detector keeps vector clocks per warp, so it sees pairs of different warps of one block; lanes of one warp are
// found by schedules that disagree. It never reports an ordered pair: what it does not model is taken as ordered.
#include <algorithm>
#include <mutex>
#include <shared_mutex>

#include "errors.h"
#include "state.h"

namespace emulated {
namespace {

std::shared_mutex ranges_lock;
std::vector<Range>& all_ranges() {
  static auto* ranges = new std::vector<Range>;
  return *ranges;
}

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

[[noreturn]] void bad_access(Thread& t, uint64_t address, unsigned bytes, Site site, bool store,
                             const std::string& why) {
  const std::string what = (store ? "store of " : "load of ") + std::to_string(bytes) + " bytes at " + hex(address);
  report("crashed", &t, site, what + ": " + why, &address);
  fail(t, ILLEGAL_ADDRESS);
}

uint32_t byte_mask(uint32_t offset, unsigned bytes, uint32_t word) {
  const uint32_t low = std::max(offset, word * 4) - word * 4;
  const uint32_t high = std::min(offset + bytes, word * 4 + 4) - word * 4;
  return ((1u << high) - 1) & ~((1u << low) - 1);
}

void report_race(Thread& t, BlockState& b, Site site, const Cell& c, uint32_t word, const char* now, bool with_write) {
  const Site other = with_write ? c.write_site : c.read_site;
  const uint32_t agent = with_write ? c.writer : c.reader;
  const std::string who = agent == b.asynchronous ? "an asynchronous operation" : "warp " + std::to_string(agent);
  const uint64_t address = word * 4;
  report("race", &t, site,
         std::string("a ") + now + " of shared byte " + std::to_string(address) + " is not ordered after the " +
             (with_write ? "write" : "read") + " by " + who + " at " + place(t, other),
         &address);
}

bool ordered(const BlockState& b, uint32_t agent, uint32_t other, uint32_t time) {
  if (other == agent || other == NO_AGENT) return true;
  return agent < b.warps && b.known[agent][other] >= time;
}

void shadow_read(Thread& t, BlockState& b, uint32_t agent, uint32_t word, uint32_t mask, Site site, bool atomic) {
  Cell& c = b.shadow[word];
  if ((c.initialized & mask) != mask) {
    const uint64_t address = word * 4;
    report("uninitialized", &t, site, "read of shared byte " + std::to_string(address) + ", which nothing wrote", &address);
    c.initialized |= mask;
  }
  if ((c.written & mask) && !(atomic && c.atomic) && !ordered(b, agent, c.writer, c.write_time))
    report_race(t, b, site, c, word, "read", true);
  if (atomic) return;
  if (!c.readers) {
    c.first_read = b.now;
    c.read = mask;
    c.mixed = 0;
  } else if (c.read != mask) {
    c.mixed = 1;
  }
  c.readers |= 1ull << agent;
  c.reader = agent;
  c.read_time = b.now;
  c.read_site = site;
}

void shadow_write(Thread& t, BlockState& b, uint32_t agent, uint32_t time, uint32_t word, uint32_t mask, Site site,
                  bool same, bool atomic) {
  Cell& c = b.shadow[word];
  if ((c.written & mask) && !same && !(atomic && c.atomic) && !ordered(b, agent, c.writer, c.write_time))
    report_race(t, b, site, c, word, "write", true);
  if (c.readers && !c.mixed && (c.read & mask) && !same) {
    bool race = !ordered(b, agent, c.reader, c.read_time);
    for (uint32_t r = 0; r <= b.warps && !race; r++)
      race = (c.readers >> r & 1) && r != c.reader && !ordered(b, agent, r, c.first_read);
    if (race) report_race(t, b, site, c, word, "write", false);
  }
  c.written = c.writer == agent && c.write_time == time ? c.written | mask : mask;
  c.initialized |= mask;
  c.writer = agent;
  c.write_time = time;
  c.write_site = site;
  c.atomic = atomic;
  c.readers = 0;
}

template <class F>
void each_word(uint32_t offset, unsigned bytes, F f) {
  for (uint32_t w = offset / 4; w * 4 < offset + bytes; w++) f(w, byte_mask(offset, bytes, w));
}

void mark_shared(Thread& t, BlockState& b, uint32_t offset, unsigned bytes, Site site, bool store, const void* value) {
  const bool own = t.state->block == &b;
  if (!own) {  // of another block of the cluster: only that the bytes are written
    if (store) each_word(offset, bytes, [&](uint32_t w, uint32_t m) { b.shadow[w].initialized |= m; });
    return;
  }
  const uint8_t* at = b.block->arena + b.block->shared_begin + offset;
  const bool same = store && value && !std::memcmp(at, value, bytes);
  each_word(offset, bytes, [&](uint32_t w, uint32_t m) {
    if (store)
      shadow_write(t, b, t.warp, b.now, w, m, site, same, false);
    else
      shadow_read(t, b, t.warp, w, m, site, false);
  });
}

}  // namespace

void add_range(uint64_t begin, uint64_t size) {
  if (!size) return;
  const std::unique_lock lock(ranges_lock);
  all_ranges().push_back({begin, size});
}

void remove_range(uint64_t begin, uint64_t size) {
  const std::unique_lock lock(ranges_lock);
  auto& all = all_ranges();
  for (size_t i = all.size(); i-- > 0;) {
    if (all[i].begin != begin || (size && all[i].size != size)) continue;
    all.erase(all.begin() + i);
    return;
  }
}

bool find_range(uint64_t address, uint64_t bytes, Range& found) {
  const std::shared_lock lock(ranges_lock);
  for (const Range& r : all_ranges())
    if (address - r.begin < r.size && bytes <= r.size - (address - r.begin)) {
      found = r;
      return true;
    }
  return false;
}

std::string describe_address(uint64_t address) {
  if (address < 4096) return "a null pointer";
  const std::shared_lock lock(ranges_lock);
  const Range* nearest = nullptr;
  uint64_t distance = 1 << 20;
  for (const Range& r : all_ranges()) {
    const uint64_t end = r.begin + r.size;
    const uint64_t away = address >= end ? address - end : address < r.begin ? r.begin - address : 0;
    if (away < distance) nearest = &r, distance = away;
  }
  if (!nearest) return "not device memory";
  const std::string size = " of " + std::to_string(nearest->size) + " bytes";
  if (address < nearest->begin) return std::to_string(distance) + " bytes before an allocation" + size;
  if (address >= nearest->begin + nearest->size) return std::to_string(distance) + " bytes past the end of an allocation" + size;
  return "across the end of an allocation" + size;
}

void* access_slow(Thread& t, uint64_t address, unsigned bytes, Space space, Site site, bool store) {
  if (address & (bytes - 1)) bad_access(t, address, bytes, site, store, "misaligned");
  if (space == Space::Generic && in_shared(t, address))
    return shared_access(t, shared_from_generic(t, address), bytes, site, store, nullptr);
  if (space != Space::Global && space != Space::Const && in_local(t, address)) {
    if (t.stack_end - address < bytes) bad_access(t, address, bytes, site, store, "outside of local memory");
    return reinterpret_cast<void*>(address);
  }
  if (space == Space::Local) bad_access(t, address, bytes, site, store, "outside of local memory");
  Range found;
  if (!find_range(address, bytes, found)) bad_access(t, address, bytes, site, store, describe_address(address));
  t.ranges[site] = found;
  return reinterpret_cast<void*>(address);
}

BlockState& owner_of(Thread& t, uint32_t address, unsigned bytes, Site site, const char* what) {
  Group& g = *t.state->block->group;
  const uint32_t window = address / SHARED_WINDOW;
  if (window < g.states.size()) {
    BlockState& b = g.states[window];
    const uint32_t offset = address - b.block->shared_begin;
    if (!b.live) bad_access(t, address, bytes, site, false, "shared memory of a block that has exited");
    if (address >= b.block->shared_begin && offset < b.block->shared_size && bytes <= b.block->shared_size - offset)
      return b;
  }
  const uint32_t size = t.block->shared_size;
  const int64_t offset = int64_t(address) - t.block->shared_begin;
  bad_access(t, address, bytes, site, *what == 's',
             "offset " + std::to_string(offset) + " is outside of the block's " + std::to_string(size) + " bytes of shared memory");
}

void* shared_access(Thread& t, uint32_t address, unsigned bytes, Site site, bool store, const void* value) {
  if (address & (bytes - 1)) bad_access(t, address, bytes, site, store, "misaligned");
  BlockState& own = *t.state->block;
  const uint32_t offset = address - t.block->shared_begin;
  const bool inside = offset < t.block->shared_size && bytes <= t.block->shared_size - offset;
  BlockState& b = inside ? own : owner_of(t, address, bytes, site, store ? "store" : "load");
  if (b.block->shadow) mark_shared(t, b, address - b.block->shared_begin, bytes, site, store, value);
  return t.block->arena + address;
}

void* atomic_address(Thread& t, uint64_t address, unsigned bytes, Space space, Site site, bool store) {
  BlockState& own = *t.state->block;
  acquire(own, t.warp, own.atomics);
  release(own, t.warp, own.atomics);
  if (space == Space::Generic && in_shared(t, address)) {
    address = shared_from_generic(t, address);
    space = Space::Shared;
  }
  if (space != Space::Shared) return checked_address(t, address, bytes, space, site, store, nullptr);
  const uint32_t at = uint32_t(address);
  if (at & (bytes - 1)) bad_access(t, address, bytes, site, store, "misaligned");
  BlockState& b = owner_of(t, at, bytes, site, store ? "store" : "load");
  if (b.block->shadow)
    each_word(at - b.block->shared_begin, bytes, [&](uint32_t w, uint32_t m) {
      if (&b != &own) return;
      // A plain volatile or relaxed store needs no value before it.
      if (!store || (b.shadow[w].initialized & m)) shadow_read(t, b, t.warp, w, m, site, true);
      if (store) shadow_write(t, b, t.warp, b.now, w, m, site, false, true);
    });
  return t.block->arena + at;
}

void memory_fence(Thread& t, Site) {
  BlockState& b = *t.state->block;
  acquire(b, t.warp, b.atomics);
  release(b, t.warp, b.atomics);
}

uint32_t map_shared(Thread& t, uint32_t address, uint32_t rank, Site site) {
  if (rank >= t.grid->cluster_nctarank) fault(t, "mapa: rank outside of the cluster", site);
  const uint32_t base = t.state->block->index - t.block->cluster_ctarank;
  return address % SHARED_WINDOW + (base + rank) * SHARED_WINDOW;
}

uint64_t map_generic(Thread& t, uint64_t address, uint32_t rank, Site site) {
  if (!in_shared(t, address)) fault(t, "mapa of an address that is not shared", site);
  return generic_from_shared(t, map_shared(t, shared_from_generic(t, address), rank, site));
}

// ---- vector clocks
void release(BlockState& b, uint32_t agent, Clock& to) {
  if (!b.block->shadow) return;
  to.resize(b.warps + 1, 0);
  if (agent < b.warps)
    for (size_t i = 0; i < to.size(); i++) to[i] = std::max(to[i], b.known[agent][i]);
  to[agent] = std::max(to[agent], b.now++);
}

void acquire(BlockState& b, uint32_t agent, const Clock& from) {
  if (!b.block->shadow || agent >= b.warps) return;
  Clock& known = b.known[agent];
  for (size_t i = 0; i < from.size(); i++) known[i] = std::max(known[i], from[i]);
}

void fence_proxy_async(Thread& t, Site) {
  BlockState& b = *t.state->block;
  if (!b.block->shadow) return;
  for (size_t i = 0; i < b.fenced.size(); i++) b.fenced[i] = std::max(b.fenced[i], b.known[t.warp][i]);
  b.fenced[t.warp] = b.now++;
}

// ---- the asynchronous proxy
// Bytes that an operation issued at `time` will read.
uint8_t* asynchronous_read(Thread& t, uint32_t address, unsigned bytes, uint32_t time, Site site) {
  BlockState& b = owner_of(t, address, bytes, site, "load");
  if (b.block->shadow && &b == t.state->block)
    each_word(address - b.block->shared_begin, bytes, [&](uint32_t w, uint32_t m) {
      Cell& c = b.shadow[w];
      const bool generic = c.writer < b.warps && (c.written & m);
      if (generic && b.fenced[c.writer] < c.write_time) {
        const uint64_t at = w * 4;
        report("race", &t, site,
               "shared byte " + std::to_string(at) + " was written at " + place(t, c.write_site) +
                   " without fence.proxy.async before this asynchronous read", &at);
        c.writer = NO_AGENT;
      }
      if (c.writer != NO_AGENT && c.writer < b.warps && !ordered(b, t.warp, c.writer, c.write_time))
        report_race(t, b, site, c, w, "read", true);
      c.readers |= 1ull << b.asynchronous;
      if (c.readers == 1ull << b.asynchronous) c.first_read = time, c.read = m, c.mixed = 0;
      c.reader = b.asynchronous;
      c.read_time = time;
      c.read_site = site;
    });
  return t.block->arena + address;
}

// Bytes that an operation issued at `time` will write: ordered like a write of the issuing warp, known to those that wait.
void asynchronous_write(Thread& t, uint32_t address, unsigned bytes, uint32_t time, Site site) {
  BlockState& b = owner_of(t, address, bytes, site, "store");
  if (!b.block->shadow) return;
  each_word(address - b.block->shared_begin, bytes, [&](uint32_t w, uint32_t m) {
    Cell& c = b.shadow[w];
    if (&b != t.state->block) {
      c.initialized |= m;
      return;
    }
    shadow_write(t, b, t.warp, time, w, m, site, false, false);
    c.writer = b.asynchronous;
  });
}

const void* global_read(Thread& t, uint64_t address, unsigned bytes, Site site) {
  Range& r = t.ranges[site];
  if (address - r.begin < r.size && bytes <= r.size - (address - r.begin)) return reinterpret_cast<void*>(address);
  if (!find_range(address, bytes, r)) bad_access(t, address, bytes, site, false, describe_address(address));
  return reinterpret_cast<void*>(address);
}

}  // namespace emulated
