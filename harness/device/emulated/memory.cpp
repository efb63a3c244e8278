// Checked memory. Global: the ranges that the host allocated or gave as tensors. Shared: exact sizes, and a
// shadow that finds reads of uninitialized bytes and pairs of accesses that no barrier orders.
//
// The race detector keeps vector clocks per warp, so it sees pairs of different warps of one block; lanes of
// one warp are found by schedules that disagree. It never reports an ordered pair: what it does not model
// counts as ordered.
#include <mutex>
#include <shared_mutex>

#include "state.h"

namespace emulated {
namespace {

std::shared_mutex ranges_lock;
auto& all_ranges = *new std::vector<Range>;  // never destroyed: libraries free memory at exit

[[noreturn]] void bad_access(
    Thread& t, u64 address, unsigned bytes, Site site, bool store, const std::string& why) {
    char what[80];
    std::snprintf(what, sizeof what, "%s of %u bytes at 0x%lx: ", store ? "store" : "load", bytes, address);
    report("crashed", &t, site, what + why, &address);
    fail(t, ILLEGAL_ADDRESS);
}

// ---- the shadow of shared memory
void report_byte(
    Thread& t, Site site, const char* kind, const std::string& before, u32 word, const std::string& after) {
    const u64 address = word * 4;
    report(kind, &t, site, before + "shared byte " + std::to_string(address) + after, &address);
}

void report_race(Thread& t, BlockState& b, Site site, u32 word, const char* now, bool with_write) {
    const Cell& c = b.shadow[word];
    const u32 agent = with_write ? c.writer : c.reader;
    const std::string who =
        agent == b.asynchronous ? "an asynchronous operation" : "warp " + std::to_string(agent);
    const std::string what =
        with_write ? " is not ordered after the write by " : " is not ordered after the read by ";
    const std::string where = place(t, with_write ? c.write_site : c.read_site);
    report_byte(t, site, "race", std::string("a ") + now + " of ", word, what + who + " at " + where);
}

bool ordered(const BlockState& b, u32 agent, u32 other, u32 time) {
    return other == agent || other == NO_AGENT || (agent < b.warps && b.known[agent][other] >= time);
}

bool written_unordered(const BlockState& b, const Cell& c, u32 mask, u32 agent) {
    return (c.written & mask) && !ordered(b, agent, c.writer, c.write_time);
}

void note_read(Cell& c, u32 agent, u32 time, u32 mask, Site site) {
    if (!c.readers) {
        c.first_read = time;
        c.read = mask;
        c.mixed = 0;
    } else if (c.read != mask) {
        c.mixed = 1;
    }
    c.readers |= 1ull << agent;
    c.reader = agent;
    c.read_time = time;
    c.read_site = site;
}

void shadow_read(Thread& t, BlockState& b, u32 word, u32 mask, Site site, bool atomic) {
    Cell& c = b.shadow[word];
    if ((c.initialized & mask) != mask) {
        report_byte(t, site, "uninitialized", "read of ", word, ", which nothing wrote");
        c.initialized |= mask;
    }
    if (!(atomic && c.atomic) && written_unordered(b, c, mask, t.warp))
        report_race(t, b, site, word, "read", true);
    if (!atomic) note_read(c, t.warp, b.now, mask, site);
}

void shadow_write(Thread& t, BlockState& b, u32 time, u32 word, u32 mask, Site site, bool same, bool atomic) {
    Cell& c = b.shadow[word];
    const u32 agent = t.warp;
    if (!same && !(atomic && c.atomic) && written_unordered(b, c, mask, agent))
        report_race(t, b, site, word, "write", true);
    if (c.readers && !c.mixed && (c.read & mask) && !same) {
        bool race = !ordered(b, agent, c.reader, c.read_time);
        for (u32 r = 0; r <= b.warps && !race; r++)
            race = (c.readers >> r & 1) && r != c.reader && !ordered(b, agent, r, c.first_read);
        if (race) report_race(t, b, site, word, "write", false);
    }
    c.written = c.writer == agent && c.write_time == time ? c.written | mask : mask;
    c.initialized |= mask;
    c.writer = agent;
    c.write_time = time;
    c.write_site = site;
    c.atomic = atomic;
    c.readers = 0;
}

// Calls f(word, mask of bytes) for the words of some shared bytes.
template <class F> void each_word(const BlockState& b, u32 address, unsigned bytes, F f) {
    const u32 begin = address - b.shared_begin, end = begin + bytes;
    for (u32 w = begin / 4; w * 4 < end; w++) {
        const u32 low = std::max(begin, w * 4) - w * 4, high = std::min(end, w * 4 + 4) - w * 4;
        f(w, ((1u << high) - 1) & ~((1u << low) - 1));
    }
}

// Of another block of the cluster the shadow only knows which bytes are written.
void note_remote(BlockState& b, u32 address, unsigned bytes, bool store) {
    if (store) each_word(b, address, bytes, [&](u32 w, u32 mask) { b.shadow[w].initialized |= mask; });
}

}  // namespace

// ---- global memory
void add_range(u64 begin, u64 size) {
    const std::unique_lock lock(ranges_lock);
    if (size) all_ranges.push_back({begin, size});
}

void remove_range(u64 begin, u64 size) {
    const std::unique_lock lock(ranges_lock);
    for (size_t i = all_ranges.size(); i-- > 0;) {
        if (all_ranges[i].begin != begin || (size && all_ranges[i].size != size)) continue;
        all_ranges.erase(all_ranges.begin() + i);
        return;
    }
}

bool find_range(u64 address, u64 bytes, Range& found) {
    const std::shared_lock lock(ranges_lock);
    for (const Range& r : all_ranges)
        if (r.holds(address, bytes)) return found = r, true;
    return false;
}

std::string describe_address(u64 address) {
    if (address < 4096) return "a null pointer";
    const std::shared_lock lock(ranges_lock);
    Range nearest{};
    u64 distance = 1 << 20;
    for (const Range& r : all_ranges) {
        const u64 end = r.begin + r.size;
        const u64 away = address >= end ? address - end : address < r.begin ? r.begin - address : 0;
        if (away < distance) nearest = r, distance = away;
    }
    if (!nearest.size) return "not device memory";
    const std::string size = "an allocation of " + std::to_string(nearest.size) + " bytes";
    const std::string far = std::to_string(distance) + " bytes ";
    if (address < nearest.begin) return far + "before " + size;
    return (address >= nearest.begin + nearest.size ? far + "past the end of " : "across the end of ") + size;
}

u8* global_memory(Thread& t, u64 address, unsigned bytes, Site site, bool store) {
    Range& r = t.ranges[site];
    if (!r.holds(address, bytes) && !find_range(address, bytes, r))
        bad_access(t, address, bytes, site, store, describe_address(address));
    return host(address);
}

void* access_slow(Thread& t, u64 address, unsigned bytes, Space space, Site site, bool store) {
    if (address & (bytes - 1)) bad_access(t, address, bytes, site, store, "misaligned");
    const bool local = space == Space::Local || space == Space::Generic;
    if (local && in_local(t, address) && t.stack_end - address >= bytes) return host(address);
    if (space == Space::Local || (local && in_local(t, address)))
        bad_access(t, address, bytes, site, store, "outside of local memory");
    return global_memory(t, address, bytes, site, store);
}

// ---- shared memory
BlockState& owner_of(Thread& t, u32 address, unsigned bytes, Site site, bool store) {
    Group& g = *block_of(t).group;
    if (address / SHARED_WINDOW < g.blocks.size()) {
        BlockState& b = g.blocks[address / SHARED_WINDOW];
        if (!b.live) bad_access(t, address, bytes, site, false, "shared memory of a block that has exited");
        if (Range{b.shared_begin, b.shared_size}.holds(address, bytes)) return b;
    }
    const std::string offset = std::to_string(s64(address) - t.block->shared_begin);
    const std::string size = std::to_string(t.block->shared_size);
    bad_access(t, address, bytes, site, store,
        "offset " + offset + " is outside of the block's " + size + " bytes of shared memory");
}

void* shared_access(Thread& t, u32 address, unsigned bytes, Site site, bool store, const void* value) {
    if (address & (bytes - 1)) bad_access(t, address, bytes, site, store, "misaligned");
    BlockState& own = block_of(t);
    u8* at = own.arena + address;
    if (!Range{own.shared_begin, own.shared_size}.holds(address, bytes)) {
        BlockState& other = owner_of(t, address, bytes, site, store);
        if (other.detect) note_remote(other, address, bytes, store);
    } else if (own.detect && store) {
        const bool same = value && !std::memcmp(at, value, bytes);
        each_word(own, address, bytes,
            [&](u32 w, u32 mask) { shadow_write(t, own, own.now, w, mask, site, same, false); });
    } else if (own.detect) {
        each_word(own, address, bytes, [&](u32 w, u32 mask) { shadow_read(t, own, w, mask, site, false); });
    }
    return at;
}

void* atomic_address(Thread& t, u64 address, unsigned bytes, Space space, Site site, bool store) {
    BlockState& own = block_of(t);
    memory_fence(t, site);
    if (space == Space::Generic && in_shared(t, address)) {
        address = shared_from_generic(t, address);
        space = Space::Shared;
    }
    if (space != Space::Shared) return checked_address(t, address, bytes, space, site, store, nullptr);
    if (address & (bytes - 1)) bad_access(t, address, bytes, site, store, "misaligned");
    if (&owner_of(t, u32(address), bytes, site, store) == &own && own.detect)
        each_word(own, u32(address), bytes, [&](u32 w, u32 mask) {
            // A plain volatile or relaxed store needs no value before it.
            if (!store || (own.shadow[w].initialized & mask)) shadow_read(t, own, w, mask, site, true);
            if (store) shadow_write(t, own, own.now, w, mask, site, false, true);
        });
    return own.arena + address;
}

u32 map_shared(Thread& t, u32 address, u32 rank, Site site) {
    if (rank >= t.grid->cluster_nctarank) fault(t, "mapa: rank outside of the cluster", site);
    return address % SHARED_WINDOW + (first_of_cluster(t) + rank) * SHARED_WINDOW;
}

u64 map_generic(Thread& t, u64 address, u32 rank, Site site) {
    if (!in_shared(t, address)) fault(t, "mapa of an address that is not shared", site);
    return generic_from_shared(t, map_shared(t, shared_from_generic(t, address), rank, site));
}

// ---- vector clocks
static void merge(Clock& to, const Clock& from) {
    for (size_t i = 0; i < from.size(); i++) to[i] = std::max(to[i], from[i]);
}

void learn(BlockState& b, Clock& of, u32 agent, u32 time) {
    if (!b.detect) return;
    of.resize(b.warps + 1, 0);
    of[agent] = std::max(of[agent], time);
}

void release(BlockState& b, u32 agent, Clock& to) {
    if (!b.detect) return;
    learn(b, to, agent, b.now++);
    merge(to, b.known[agent]);
}

void acquire(BlockState& b, u32 agent, const Clock& from) {
    if (b.detect) merge(b.known[agent], from);
}

void memory_fence(Thread& t, Site) {
    BlockState& b = block_of(t);
    acquire(b, t.warp, b.atomics);
    release(b, t.warp, b.atomics);
}

void fence_proxy_async(Thread& t, Site) { release(block_of(t), t.warp, block_of(t).fenced); }

// ---- the asynchronous proxy
// Bytes that an operation issued at `time` will read.
u8* asynchronous_read(Thread& t, u32 address, unsigned bytes, u32 time, Site site) {
    BlockState& b = owner_of(t, address, bytes, site, false);
    if (b.detect && &b == t.block)
        each_word(b, address, bytes, [&](u32 w, u32 mask) {
            Cell& c = b.shadow[w];
            if (c.writer < b.warps && (c.written & mask) && b.fenced[c.writer] < c.write_time) {
                report_byte(t, site, "race", "", w,
                    " was written at " + place(t, c.write_site) +
                        " without fence.proxy.async before this asynchronous read");
                c.writer = NO_AGENT;
            }
            if (c.writer < b.warps && !ordered(b, t.warp, c.writer, c.write_time))
                report_race(t, b, site, w, "read", true);
            note_read(c, b.asynchronous, time, mask, site);
        });
    return t.block->arena + address;
}

// Bytes that an operation issued at `time` will write: like a write of the issuing warp, known to those that
// wait.
void asynchronous_write(Thread& t, u32 address, unsigned bytes, u32 time, Site site) {
    BlockState& b = owner_of(t, address, bytes, site, true);
    if (!b.detect) return;
    if (&b != t.block) return note_remote(b, address, bytes, true);
    each_word(b, address, bytes, [&](u32 w, u32 mask) {
        shadow_write(t, b, time, w, mask, site, false, false);
        b.shadow[w].writer = b.asynchronous;
    });
}

}  // namespace emulated
