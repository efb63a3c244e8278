// Instructions that use memory, other lanes or the machine; translated kernels include this file only.
#pragma once
#include "arithmetic.h"
#include "machine.h"
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
    std::memcpy(to, reinterpret_cast<const void*>(address), sizeof to);
}
template <class V, unsigned N> inline void parameter_store(const V (&from)[N], u64 address) {
    std::memcpy(reinterpret_cast<void*>(address), from, sizeof from);
}
inline bool in_space(const Thread& t, u64 generic, Space space) {
    if (space == Space::Shared) return in_shared(t, generic);
    if (space == Space::Local) return in_local(t, generic);
    return space == Space::Global && !in_shared(t, generic) && !in_local(t, generic);
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
    Exchange all = warp_exchange(t, mask, &value, 1, site);
    u32 lane = t.lane, segment = c >> 8 & 31, clamp = c & 31, last = (lane & segment) | (clamp & ~segment),
        from = 0;
    u32 first = lane & segment, offset = b & 31;
    switch (mode) {
        case Shuffle::up: from = lane - offset, in_range = s32(from) >= s32(last); break;
        case Shuffle::down: from = lane + offset, in_range = from <= last; break;
        case Shuffle::bfly: from = lane ^ offset, in_range = from <= last; break;
        case Shuffle::idx: from = first | (offset & ~segment), in_range = from <= last; break;
    }
    if (!in_range) from = lane;
    return all.lanes >> from & 1 ? all.words[from][0]
                                 : poison_u32;  // a lane that does not take part has no value
}
struct Ballot {
    u32 yes, lanes;
    bool any() const { return yes != 0; }
    bool all() const { return yes == lanes; }
    bool uni() const { return yes == 0 || yes == lanes; }
};
inline Ballot ballot(Thread& t, bool vote, u32 mask, Site site) {
    u32 word = vote;
    Exchange all = warp_exchange(t, mask, &word, 1, site);
    Ballot out{0, all.lanes};
    for (u32 lane = 0; lane < 32; lane++)
        if (all.lanes >> lane & 1) out.yes |= all.words[lane][0] << lane;
    return out;
}
inline u32 match_any(Thread& t, u64 value, u32 mask, Site site) {
    u32 words[2] = {u32(value), u32(value >> 32)}, same = 0;
    Exchange all = warp_exchange(t, mask, words, 2, site);
    for (u32 lane = 0; lane < 32; lane++)
        if (all.lanes >> lane & 1 && all.words[lane][0] == words[0] && all.words[lane][1] == words[1])
            same |= 1u << lane;
    return same;
}
inline u32 match_all(Thread& t, u64 value, u32 mask, Site site, bool& equal) {
    u32 words[2] = {u32(value), u32(value >> 32)};
    Exchange all = warp_exchange(t, mask, words, 2, site);
    equal = true;
    for (u32 lane = 0; lane < 32; lane++)
        if (all.lanes >> lane & 1 && (all.words[lane][0] != words[0] || all.words[lane][1] != words[1]))
            equal = false;
    return equal ? mask : 0;
}
template <Atomic A, class T> inline T reduce_lanes(Thread& t, T value, u32 mask, Site site) {
    u32 word = u32(value);
    Exchange all = warp_exchange(t, mask, &word, 1, site);
    bool first = true;
    T out = 0;
    for (u32 lane = 0; lane < 32; lane++) {
        if (!(all.lanes >> lane & 1)) continue;
        T one = T(all.words[lane][0]);
        out = first ? one : combined(A, out, one);
        first = false;
    }
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
    s32 count = print(t, argument<u64>(arguments[1]), argument<u64>(arguments[2]));
    std::memcpy(arguments[0], &count, sizeof count);
}
[[noreturn]] inline void assertion_failed(Thread& t, u8* const* arguments, Site site) {
    assert_fail(t, argument<u64>(arguments[0]), argument<u64>(arguments[1]), argument<u32>(arguments[2]),
        argument<u64>(arguments[3]), site);
}

}  // namespace emulated
