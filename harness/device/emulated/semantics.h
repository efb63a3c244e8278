// Instructions that use memory, other lanes or the machine; translated kernels include this file only.
#pragma once
#include "matrices.h"

namespace emulated {

// ---- registers and buffers that nothing has been written to
constexpr u32 poison_u32 = 0xffbadbad;  // a NaN
constexpr u64 poison_u64 = 0xffbadbadffbadbad;
constexpr u128 poison_u128 = u128(poison_u64) << 64 | poison_u64;
template <size_t N> inline void poison(u8 (&buffer)[N]) { std::memset(buffer, 0xbd, N); }

// ---- ld and st (9.7.9.8 to 9.7.9.11) with .volatile, .relaxed, .acquire, .release, and of parameters
template <class V, unsigned N>
inline void load_ordered(Thread& t, V (&to)[N], u64 address, Space space, Site site) {
    std::memcpy(to, atomic_address(t, address, sizeof to, space, site, false), sizeof to);
}
template <class V, unsigned N>
inline void store_ordered(Thread& t, const V (&from)[N], u64 address, Space space, Site site) {
    std::memcpy(atomic_address(t, address, sizeof from, space, site), from, sizeof from);
}
template <class V, unsigned N> inline void parameter_load(V (&to)[N], u64 address) {
    std::memcpy(to, host(address), sizeof to);
}
template <class V, unsigned N> inline void parameter_store(const V (&from)[N], u64 address) {
    std::memcpy(host(address), from, sizeof from);
}
inline bool in_space(const Thread& t, u64 generic, Space space) {
    const Space own = in_shared(t, generic) ? Space::Shared
        : in_local(t, generic)              ? Space::Local
                                            : Space::Global;
    return own == space;
}

// ---- atom and red (9.7.13.5, 9.7.13.6). Fibers of one address space: reading, then writing, is atomic.
template <class T> inline T combined(Atomic operation, T old, T value) {
    if constexpr (is_pair<T> || is_float<T>) {
        switch (operation) {
            case Atomic::add_: return binary<r_rn, false, false>(std::plus(), old, value);
            case Atomic::min_: return extreme<false, false, false, false>(old, value);
            case Atomic::max_: return extreme<false, false, false, true>(old, value);
            default: return value;  // exch
        }
    } else {
        switch (operation) {
            case Atomic::add_: return old + value;
            case Atomic::min_: return std::min(old, value);
            case Atomic::max_: return std::max(old, value);
            case Atomic::and_: return old & value;
            case Atomic::or_: return old | value;
            case Atomic::xor_: return old ^ value;
            case Atomic::inc_: return old >= value ? 0 : old + 1;
            case Atomic::dec_: return old == 0 || old > value ? value : old - 1;
            default: return value;
        }
    }
}
template <Atomic A, class T> inline T atomic(Thread& t, u64 address, Space space, Site site, T value) {
    void* at = atomic_address(t, address, sizeof(T), space, site);
    T old;
    std::memcpy(&old, at, sizeof old);
    T result = combined(A, old, value);
    std::memcpy(at, &result, sizeof result);
    return old;
}
template <Atomic A, class T>  // atom.cas: `value` where `expected` stood
inline T atomic(Thread& t, u64 address, Space space, Site site, T expected, T value) {
    void* at = atomic_address(t, address, sizeof(T), space, site);
    T old;
    std::memcpy(&old, at, sizeof old);
    if (old == expected) std::memcpy(at, &value, sizeof value);
    return old;
}
template <Atomic A, class T, unsigned N>  // each element is atomic; `values` becomes what stood there
inline void atomic_vector(Thread& t, u64 address, Space space, Site site, T (&values)[N]) {
    if (address % sizeof values) fault(t, "misaligned vector of atomics", site);
    for (unsigned i = 0; i < N; i++)
        values[i] = atomic<A, T>(t, address + i * sizeof(T), space, site, values[i]);
}

// ---- communication of a warp (9.7.9.6, 9.7.13.9 to 9.7.13.14)
enum class Shuffle { up, down, bfly, idx };

inline u32 shuffle(Thread& t, Shuffle mode, u32 value, u32 b, u32 c, u32 mask, Site site, bool& in_range) {
    const Exchange all = warp_exchange(t, mask, &value, 1, site);
    const u32 segment = c >> 8 & 31, clamp = c & 31, offset = b & 31, first = t.lane & segment;
    const u32 last = first | (clamp & ~segment);
    u32 from = 0;
    switch (mode) {
        case Shuffle::up: from = t.lane - offset; break;
        case Shuffle::down: from = t.lane + offset; break;
        case Shuffle::bfly: from = t.lane ^ offset; break;
        case Shuffle::idx: from = first | (offset & ~segment); break;
    }
    in_range = mode == Shuffle::up ? s32(from) >= s32(last) : from <= last;
    if (!in_range) from = t.lane;
    return all.lanes >> from & 1 ? all.words[from][0] : poison_u32;  // without a value where it takes no part
}
struct Ballot {
    u32 yes, lanes;
    bool any() const { return yes != 0; }
    bool all() const { return yes == lanes; }
    bool uni() const { return yes == 0 || yes == lanes; }
};
// Calls f(lane, its words) for the lanes that took part.
template <class F> inline void each_lane(const Exchange& all, F f) {
    for (u32 lane = 0; lane < 32; lane++)
        if (all.lanes >> lane & 1) f(lane, all.words[lane]);
}
inline Ballot ballot(Thread& t, bool vote, u32 mask, Site site) {
    const u32 word = vote;
    const Exchange all = warp_exchange(t, mask, &word, 1, site);
    Ballot out{0, all.lanes};
    each_lane(all, [&](u32 lane, const u32* words) { out.yes |= words[0] << lane; });
    return out;
}
inline u32 match_any(Thread& t, u64 value, u32 mask, Site site, u32* lanes = nullptr) {
    const u32 own[2] = {u32(value), u32(value >> 32)};
    const Exchange all = warp_exchange(t, mask, own, 2, site);
    u32 same = 0;
    each_lane(
        all, [&](u32 lane, const u32* words) { same |= u32(!std::memcmp(words, own, sizeof own)) << lane; });
    if (lanes) *lanes = all.lanes;
    return same;
}
inline u32 match_all(Thread& t, u64 value, u32 mask, Site site, bool& equal) {
    u32 lanes = 0;
    equal = match_any(t, value, mask, site, &lanes) == lanes;
    return equal ? mask : 0;
}
template <Atomic A, class T> inline T reduce_lanes(Thread& t, T value, u32 mask, Site site) {
    const u32 word = u32(value);
    const Exchange all = warp_exchange(t, mask, &word, 1, site);
    T out = T(all.words[__builtin_ctz(all.lanes)][0]);
    each_lane(Exchange{all.words, all.lanes & (all.lanes - 1)},
        [&](u32, const u32* words) { out = combined(A, out, T(words[0])); });
    return out;
}
inline u32 elect_lane(Thread& t, u32 mask, Site site, bool& elected) {
    const u32 leader = __builtin_ctz(warp_exchange(t, mask, nullptr, 0, site).lanes);
    elected = leader == t.lane;
    return leader;
}
inline u32 warps(const Thread& t) { return (t.grid->ntid[0] * t.grid->ntid[1] * t.grid->ntid[2] + 31) / 32; }

// ---- functions (9.7.12.5): pointers to the result's and the parameters' buffers
using Function = void(Thread&, u8* const*);

template <class T> inline T argument(const u8* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}
inline void print_formatted(Thread& t, u8* const* arguments, Site) {
    const s32 count = print(t, argument<u64>(arguments[1]), argument<u64>(arguments[2]));
    std::memcpy(arguments[0], &count, sizeof count);
}
[[noreturn]] inline void assertion_failed(Thread& t, u8* const* given, Site site) {
    const u64 message = argument<u64>(given[0]), file = argument<u64>(given[1]),
              function = argument<u64>(given[3]);
    assert_fail(t, message, file, argument<u32>(given[2]), function, site);
}

}  // namespace emulated
