// What arithmetic, comparison and bit instructions compute (9.7.1 to 9.7.8).
#pragma once
#include <functional>

#include "numbers.h"

namespace emulated {

enum class Part { lo, hi };
enum class Edge { clamp, wrap };
enum class Logic { and_, or_, xor_ };

// ---- integers (9.7.1)
template <class T> constexpr bool is_signed = std::is_signed_v<T>;
template <class T> using Unsigned = std::make_unsigned_t<T>;
template <class T> using Double =
    std::conditional_t<sizeof(T) == 8, std::conditional_t<is_signed<T>, s128, u128>,
        std::conditional_t<sizeof(T) == 4, std::conditional_t<is_signed<T>, s64, u64>,
            std::conditional_t<is_signed<T>, s32, u32>>>;

template <class T> inline Double<T> wide_product(T a, T b) { return Double<T>(a) * Double<T>(b); }
template <class T> inline T low_product(T a, T b) { return T(u64(a) * u64(b)); }
template <class T> inline T high_product(T a, T b) { return T(wide_product(a, b) >> (8 * sizeof(T))); }
template <class T> inline T part_of_product(T a, T b, Part part) {
    return part == Part::lo ? low_product(a, b) : high_product(a, b);
}
template <class T>
inline T product24(T a, T b, Part part) {  // bits 0 to 31 or 16 to 47 of the product of two 24-bit numbers
    auto low24 = [](T x) { return Double<T>(T(x << 8) >> 8); };
    return T(low24(a) * low24(b) >> (part == Part::lo ? 0 : 16));
}
template <class T> inline T quotient(T a, T b) {  // by zero: all ones, as on hardware
    if (b == 0 || (is_signed<T> && b == T(-1))) return b == 0 ? T(-1) : T(0 - u64(a));
    return a / b;
}
template <class T> inline T remainder_of(T a, T b) {
    if (b == 0 || (is_signed<T> && b == T(-1))) return b == 0 ? a : 0;
    return a % b;
}
constexpr auto smaller = [](auto a, auto b) { return std::min(a, b); };
constexpr auto larger = [](auto a, auto b) { return std::max(a, b); };
template <class H, class Operation> inline u32 packed(u32 a, u32 b, Operation operation, bool relu = false) {
    H low = operation(H(a), H(b)), high = operation(H(a >> 16), H(b >> 16));
    if (relu) low = std::max<H>(low, 0), high = std::max<H>(high, 0);
    return u16(low) | u32(u16(high)) << 16;
}

inline u32 leading_zeros(u32 a) { return a ? __builtin_clz(a) : 32; }
inline u32 leading_zeros(u64 a) { return a ? __builtin_clzll(a) : 64; }
template <bool Shift, class T> inline u32 leading_bit(T a) {
    auto bits = Unsigned<T>(a < 0 ? ~a : a);
    if (bits == 0) return ~0u;
    u32 zeros = leading_zeros(bits);
    return Shift ? zeros : 8 * sizeof(T) - 1 - zeros;
}
inline u32 nth_set_bit(u32 mask, u32 base, s32 offset) {
    if (offset == 0) return mask >> base & 1 ? base : ~0u;
    int step = offset > 0 ? 1 : -1, left = std::abs(offset);
    for (int at = int(base); at >= 0 && at < 32; at += step)
        if (mask >> at & 1 && --left == 0) return at;
    return ~0u;
}
template <class T> inline T reversed_bits(T a) {
    T out = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); i++) out |= (a >> i & 1) << (8 * sizeof(T) - 1 - i);
    return out;
}
template <class T> inline T bit_field(T a, u32 position, u32 length) {
    constexpr u32 width = 8 * sizeof(T);
    u32 begin = position & 255, count = length & 255;
    if (count == 0) return 0;
    T sign = is_signed<T> && a >> std::min(begin + count - 1, width - 1) & 1 ? T(-1) : 0;
    if (begin >= width) return sign;
    auto field = Unsigned<T>(a) >> begin;
    count = std::min(count, width);
    auto mask = count == width ? ~Unsigned<T>(0) : (Unsigned<T>(1) << count) - 1;
    if (begin + count > width) mask = Unsigned<T>(-1) >> begin;
    return T((field & mask) | (sign & ~mask));
}
template <class T> inline T with_bit_field(T from, T into, u32 position, u32 length) {
    constexpr u32 width = 8 * sizeof(T);
    u32 begin = position & 255, count = length & 255;
    if (begin >= width) return into;
    T mask = (count >= width ? ~T(0) : (T(1) << count) - 1) << begin;
    return (into & ~mask) | (from << begin & mask);
}
inline u32 count_of(u32 count, Edge edge) { return edge == Edge::clamp ? std::min(count, 32u) : count & 31; }
inline u32 bit_mask(u32 position, u32 length, Edge edge) {
    return u32(((1ull << count_of(length, edge)) - 1) << count_of(position, edge));
}
template <class T> inline T extended(T a, u32 length, Edge edge) {
    const u32 unused = 32 - count_of(length, edge);
    return unused == 32 ? 0 : T(a << unused) >> unused;
}
template <class A, class B> inline u32 dot4(A, B, u32 a, u32 b, u32 c) {
    using SmallA = std::conditional_t<is_signed<A>, s8, u8>;
    using SmallB = std::conditional_t<is_signed<B>, s8, u8>;
    for (int i = 0; i < 4; i++) c += s32(SmallA(a >> 8 * i)) * SmallB(b >> 8 * i);
    return c;
}
template <class A, class B> inline u32 dot2(A, B, u32 a, u32 b, u32 c, Part part) {
    using SmallA = std::conditional_t<is_signed<A>, s16, u16>;
    using SmallB = std::conditional_t<is_signed<B>, s8, u8>;
    const u32 half = part == Part::lo ? b : b >> 16;
    for (int i = 0; i < 2; i++) c += s32(SmallA(a >> 16 * i)) * SmallB(half >> 8 * i);
    return c;
}

// ---- with carry (9.7.2)
template <class T> inline T add_carry(T a, T b, bool in, bool& out) {
    const Unsigned<T> sum = Unsigned<T>(a) + Unsigned<T>(b), all = sum + in;
    out = sum < Unsigned<T>(a) || all < sum;
    return T(all);
}
template <class T> inline T subtract_borrow(T a, T b, bool in, bool& out) {
    const T result = a - b - in;
    out = a < b || (a == b && in);
    return result;
}

// ---- logic and shifts (9.7.8)
template <u32 Table> inline u32 lop3(u32 a, u32 b, u32 c) {
    u32 out = 0;
    for (u32 row = 0; row < 8; row++)
        if (Table >> row & 1) out |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
    return out;
}
template <u32 Table> inline u32 lop3_test(u32 a, u32 b, u32 c, Logic logic, bool given, bool& second) {
    u32 out = lop3<Table>(a, b, c);
    second = logic == Logic::and_ ? out != 0 && given : out != 0 || given;
    return out;
}
inline u32 funnel_left(u32 low, u32 high, u32 count, Edge edge) {
    return u32((u64(high) << 32 | low) << count_of(count, edge) >> 32);
}
inline u32 funnel_right(u32 low, u32 high, u32 count, Edge edge) {
    return u32((u64(high) << 32 | low) >> count_of(count, edge));
}
template <class T> inline T shifted_left(T a, u32 count) {
    return count >= 8 * sizeof(T) ? 0 : T(a << count);
}
template <class T> inline T shifted_right(T a, u32 count) {
    return count < 8 * sizeof(T) ? T(a >> count) : a < 0 ? T(-1) : 0;
}
inline u32 permuted(u32 a, u32 b, u32 selector) {  // 9.7.9.7
    u64 bytes = u64(b) << 32 | a;
    u32 out = 0;
    for (int i = 0; i < 4; i++) {
        u32 choice = selector >> 4 * i & 15, byte = bytes >> 8 * (choice & 7) & 255;
        if (choice & 8) byte = byte & 128 ? 255 : 0;  // its sign
        out |= byte << 8 * i;
    }
    return out;
}
enum class Permute { f4e, b4e, rc8, ecl, ecr, rc16 };
inline u32 permuted(u32 a, u32 b, u32 selector, Permute mode) {
    constexpr u32 tables[6][4] = {{0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
        {0x0000, 0x1111, 0x2222, 0x3333}, {0x3210, 0x3211, 0x3222, 0x3333}, {0x0000, 0x1110, 0x2210, 0x3210},
        {0x1010, 0x3232, 0x1010, 0x3232}};
    return permuted(a, b, tables[int(mode)][selector & 3]);
}

// ---- floating point (9.7.3, 9.7.4): one rounding, in the direction R
template <class T> inline bool is_nan(T a) {
    if constexpr (is_float<T>) return std::isnan(f64(a));
    else return false;
}
// Applies an operation to both halves of pairs.
template <class F, class T, class... More> inline T each(F operation, T a, More... more) {
    if constexpr (is_pair<T>) return {operation(a.low, more.low...), operation(a.high, more.high...)};
    else return operation(a, more...);
}
// The operation in a type in which it is exact, or whose second rounding does no harm: f32 itself, or f64.
template <Rounding R, bool Ftz, bool Sat, class T, class F, class... More>
inline T basic(F operation, T a, More... more) {
    T result;
    if constexpr (is_small<T>) result = T(operation(f64(flush<Ftz>(a)), f64(flush<Ftz>(more))...));
    else result = rounding<R>(operation, flush<Ftz>(a), flush<Ftz>(more)...);
    return saturated<Sat>(flush<Ftz>(result));
}
template <Rounding R, bool Ftz, bool Sat, class F, class T> inline T binary(F operation, T a, T b) {
    return each([&](auto x, auto y) { return basic<R, Ftz, Sat>(operation, x, y); }, a, b);
}
// x + y in f64 rounded to odd, so that a later rounding to fewer bits is the only one.
inline f64 odd_sum(f64 x, f64 y) {
    f64 sum = x + y;
    if (!std::isfinite(sum)) return sum;
    f64 part = sum - x, error = (x - (sum - part)) + (y - part);
    u64 bits = std::bit_cast<u64>(sum);
    if (error == 0 || bits & 1) return sum;
    return std::bit_cast<f64>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}
template <Rounding R, bool Ftz, bool Sat, class T> inline T fused(T a, T b, T c) {
    auto one = [](auto x, auto y, auto z) {
        if constexpr (is_small<decltype(x)>)
            return basic<R, Ftz, Sat>([](f64 p, f64 q, f64 r) { return odd_sum(p * q, r); }, x, y, z);
        else return basic<R, Ftz, Sat>([](auto p, auto q, auto r) { return std::fma(p, q, r); }, x, y, z);
    };
    return each(one, a, b, c);
}
constexpr auto root = [](auto a) { return std::sqrt(a); };
enum class Divide { approx, full };
template <bool Ftz> inline f32 divide_approximate(f32 a, f32 b, Divide kind) {
    if (kind == Divide::approx && std::fabs(b) > 0x1p126f && std::isfinite(b))
        return std::isinf(a) ? NAN : 0.0f * a * b;
    return binary<r_rn, Ftz, false>(std::divides(), a, b);
}
template <bool Ftz, class T> inline T reciprocal_root(T a) {
    return flush<Ftz>(T(1 / std::sqrt(f64(flush<Ftz>(a)))));
}
inline f64 upper_word(f64 a) { return std::bit_cast<f64>(std::bit_cast<u64>(a) & ~0xffffffffull); }
template <bool Ftz, class T> inline T power_of_two(T a) {
    return each([](auto x) { return flush<Ftz>(decltype(x)(std::exp2(f32(flush<Ftz>(x))))); }, a);
}
template <class T> inline T hyperbolic_tangent(T a) {
    return each([](auto x) { return decltype(x)(std::tanh(f32(x))); }, a);
}

template <class T> inline T with_sign(T a, bool negative) {
    if constexpr (is_small<T>) return std::bit_cast<T>(u16((a.bits & 0x7fff) | negative << 15));
    else return std::copysign(a, negative ? T(-1) : T(1));
}
template <class T> inline bool sign_of(T a) { return std::signbit(f64(a)); }
template <bool Ftz, class T> inline T magnitude(T a) {
    return each([](auto x) { return with_sign(flush<Ftz>(x), false); }, a);
}
template <bool Ftz, class T> inline T negated(T a) {
    return each([](auto x) { return with_sign(flush<Ftz>(x), !sign_of(x)); }, a);
}
template <bool On, class T> inline T relu(T a) {  // NaN stays NaN, negative numbers become +0
    if constexpr (!On) return a;
    else return each([](auto x) { return !is_nan(x) && sign_of(x) ? decltype(x)(0.0f) : x; }, a);
}
template <class T> inline T canonical_nan() {
    if constexpr (is_small<T>) return std::bit_cast<T>(u16(0x7fff));
    else if constexpr (std::is_same_v<T, f32>) return std::bit_cast<f32>(0x7fffffffu);
    else return std::numeric_limits<T>::quiet_NaN();
}
// -0 is less than +0. NaN: the other operand, or with `Nan` a NaN.
template <bool Ftz, bool Nan, bool XorSign, bool Greater, class T> inline T extreme(T left, T right) {
    auto one = [](auto x, auto y) {
        using E = decltype(x);
        E a = flush<Ftz>(x), b = flush<Ftz>(y);
        bool negative = sign_of(a) != sign_of(b);
        if (XorSign) a = with_sign(a, false), b = with_sign(b, false);
        const bool less = a < b || (a == b && sign_of(a) && !sign_of(b));
        E out = less == Greater ? b : a;
        if (is_nan(a) || is_nan(b))
            out = Nan || (is_nan(a) && is_nan(b)) ? canonical_nan<E>() : is_nan(a) ? b : a;
        return XorSign && !is_nan(out) ? with_sign(out, negative) : out;
    };
    return each(one, left, right);
}
enum class Class { finite, infinite, number, notanumber, normal, subnormal };
template <class T> inline bool is_class(T a, Class kind) {
    switch (kind) {
        case Class::finite: return std::isfinite(a);
        case Class::infinite: return std::isinf(a);
        case Class::number: return !std::isnan(a);
        case Class::notanumber: return std::isnan(a);
        case Class::normal: return std::isnormal(a);
        default: return std::fpclassify(a) == FP_SUBNORMAL;
    }
}

// ---- comparison (9.7.6, 9.7.7). Ordered relations are false for NaN, unordered ones true.
enum class Relation { eq, ne, lt, le, gt, ge, lo, ls, hi, hs, equ, neu, ltu, leu, gtu, geu, num, nan };
template <Relation C, bool Ftz, class T> inline bool compare(T left, T right) {
    using enum Relation;
    T a = flush<Ftz>(left), b = flush<Ftz>(right);
    constexpr bool unordered_is_true = C == equ || C == neu || C == ltu || C == leu || C == gtu || C == geu;
    if constexpr (is_float<T>) {
        if (is_nan(a) || is_nan(b)) return unordered_is_true || C == nan;
        if (C == num || C == nan) return C == num;
    }
    if constexpr (C == eq || C == equ) return a == b;
    else if constexpr (C == ne || C == neu) return a != b;
    else if constexpr (C == lt || C == ltu || C == lo) return a < b;
    else if constexpr (C == le || C == leu || C == ls) return a <= b;
    else if constexpr (C == gt || C == gtu || C == hi) return a > b;
    else return a >= b;
}
inline bool outcome(bool value, Logic logic, bool given) {
    return logic == Logic::and_ ? value && given : logic == Logic::or_ ? value || given : value != given;
}
inline bool outcome(bool value, Logic logic, bool given, bool& second) {
    second = outcome(!value, logic, given);
    return outcome(value, logic, given);
}
template <class T> inline T truth(bool value) {
    if constexpr (is_float<T>) return T(value ? 1.0f : 0.0f);
    else return value ? T(-1) : 0;
}
struct Two { bool low, high; };
template <Relation C, bool Ftz, class H> inline Two compare_pair(Pair<H> a, Pair<H> b) {
    return {compare<C, Ftz>(a.low, b.low), compare<C, Ftz>(a.high, b.high)};
}
inline bool low_of(Two both, bool& second) {
    second = both.high;
    return both.low;
}
template <class D> inline u32 truth_of_pair(Two both) {
    if constexpr (is_pair<D>)
        return std::bit_cast<u32>(D{truth<decltype(D::low)>(both.low), truth<decltype(D::low)>(both.high)});
    else return (both.low ? 0xffff : 0) | (both.high ? 0xffff0000 : 0);
}

}  // namespace emulated
