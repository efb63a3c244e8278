// Matrices of a warp (9.7.14): fragments, ldmatrix, stmatrix, mma. Also pairs of 8-bit floating-point numbers
// (cvt).
#pragma once
#include "arithmetic.h"
#include "machine.h"

namespace emulated {

constexpr Format e4m3x2_format = E4M3, e5m2x2_format = E5M2;

template <bool Relu> inline u32 encode_pair(const Format& format, f32 low, f32 high) {
    return encode(format, relu<Relu>(low), r_rn, true) | encode(format, relu<Relu>(high), r_rn, true) << 8;
}
inline f16x2 decode_pair(const Format& format, u32 codes) {
    return {f16(decode(format, codes & 255)), f16(decode(format, codes >> 8))};
}

// ---- elements of fragments
constexpr int bits_of(Element element) {
    using enum Element;
    if (element == s4 || element == u4) return 4;
    if (element == f64 || element == u64 || element == s64) return 64;
    if (element == f16 || element == bf16 || element == u16 || element == s16) return 16;
    return element == e4m3 || element == e5m2 || element == s8 || element == u8 ? 8 : 32;
}
// All values of an 8-bit format.
struct Decoded {
    f32 value[256];
    explicit Decoded(const Format& format) {
        for (u32 code = 0; code < 256; code++) value[code] = decode(format, code);
    }
};
inline const Decoded e4m3_values(E4M3), e5m2_values(E5M2);

template <Element E> inline auto element(u64 word, int index) {
    u64 bits = word >> (index * bits_of(E) & 63);
    if constexpr (E == Element::f64) return std::bit_cast<f64>(word);
    else if constexpr (E == Element::tf32) return std::bit_cast<f32>(u32(bits) & 0xffffe000);
    else if constexpr (E == Element::f32) return std::bit_cast<f32>(u32(bits));
    else if constexpr (E == Element::s32) return s32(bits);
    else if constexpr (E == Element::f16) return f32(as<f16>(bits));
    else if constexpr (E == Element::bf16) return f32(as<bf16>(bits));
    else if constexpr (E == Element::e4m3) return e4m3_values.value[bits & 255];
    else if constexpr (E == Element::e5m2) return e5m2_values.value[bits & 255];
    else if constexpr (E == Element::s8) return s32(s8(bits));
    else if constexpr (E == Element::u8) return s32(u8(bits));
    else if constexpr (E == Element::s4) return s32(s8(bits << 4)) >> 4;
    else return s32(bits & 15);
}

// ---- mma (9.7.14.5): M x 8 results. Rows of A and columns of B lie in lanes of a group of four, `per`
// elements to a word; words of A alternate between rows g and g + 8. Products are exact, sums are kept in f64
// (or s64) and rounded once.
template <int M, int K, Element A, Element B, Element D, bool Saturate, class Word, unsigned NA, unsigned NB,
    unsigned NC>
inline void multiply_matrices(Thread& t, Word (&a)[NA], Word (&b)[NB], Word (&c)[NC], Site site) {
    constexpr int halves = M / 8, per = 8 * sizeof(Word) / bits_of(A), scale = sizeof(Word) / 4;
    static_assert((NA + NB) * scale <= EXCHANGE_WORDS);
    u32 words[(NA + NB) * scale];
    std::memcpy(words, a, sizeof a);
    std::memcpy(words + NA * scale, b, sizeof b);
    Exchange all = warp_exchange(t, ~0u, words, (NA + NB) * scale, site);
    if (all.lanes != ~0u) fault(t, "mma by a part of a warp", site);
    using Value = decltype(element<A>(0, 0));
    using Sum = std::conditional_t<D == Element::s32, s64, f64>;
    int group = t.lane / 4, place = t.lane % 4;
    Value left[halves][K], right[2][K];
    auto word = [&](int lane, int number) {
        Word out;
        std::memcpy(&out, &all.words[lane][number * scale], sizeof out);
        return out;
    };
    for (int k = 0; k < K; k++) {
        int chunk = k / (4 * per), lane = k % (4 * per) / per, index = k % per;
        for (int h = 0; h < halves; h++)
            left[h][k] = element<A>(word(4 * group + lane, halves * chunk + h), index);
        for (int n = 0; n < 2; n++)
            right[n][k] = element<B>(word(4 * (2 * place + n) + lane, NA + chunk), index);
    }
    Sum sums[halves][2];
    constexpr bool half = D == Element::f16;
    for (int h = 0; h < halves; h++) {
        for (int n = 0; n < 2; n++) {
            Word from = c[half ? h : 2 * h + n];
            if constexpr (half) sums[h][n] = f32(as<f16>(from >> 16 * n));
            else if constexpr (D == Element::s32) sums[h][n] = s32(from);
            else sums[h][n] = as<std::conditional_t<D == Element::f64, f64, f32>>(from);
        }
    }
    for (int k = 0; k < K; k++)
        for (int h = 0; h < halves; h++)
            for (int n = 0; n < 2; n++) sums[h][n] += Sum(left[h][k]) * right[n][k];
    for (int h = 0; h < halves; h++) {
        for (int n = 0; n < 2; n++) {
            Word& to = c[half ? h : 2 * h + n];
            if constexpr (half) to = (to & ~(0xffffu << 16 * n)) | u32(f16(sums[h][n]).bits) << 16 * n;
            else if constexpr (D == Element::s32) to = Saturate ? clamped<s32>(sums[h][n]) : s32(sums[h][n]);
            else put<std::conditional_t<D == Element::f64, f64, f32>>(to, sums[h][n]);
        }
    }
}

// ---- wmma (9.7.14.4): which lane holds what is left open by the manual. Here lane l holds elements l n to l
// n + n - 1 of the rows of a matrix, in the first registers of its fragment.
template <Element E, int Rows, int Columns, bool RowMajor, bool Store, unsigned N>
inline void move_fragment(Thread& t, u32 (&words)[N], u64 address, u32 stride, Space space, Site site) {
    constexpr int bytes = bits_of(E) / 8, count = Rows * Columns / 32;
    if (!stride) stride = RowMajor ? Columns : Rows;
    auto* elements = reinterpret_cast<u8*>(words);
    if (!Store) std::memset(words, 0, sizeof words);
    for (int i = 0; i < count; i++) {
        u64 row = (t.lane * count + i) / Columns, column = (t.lane * count + i) % Columns;
        u64 at = address + (RowMajor ? row * stride + column : column * stride + row) * bytes;
        if (Store)
            std::memcpy(
                store_address(t, at, bytes, space, site, elements + i * bytes), elements + i * bytes, bytes);
        else std::memcpy(elements + i * bytes, load_address(t, at, bytes, space, site), bytes);
    }
}
template <int M, int N, int K, Element A, Element B, Element C, Element D, bool Saturate, unsigned NA,
    unsigned NB, unsigned NC, unsigned ND>
inline void multiply_fragments(Thread& t, u32 (&a)[NA], u32 (&b)[NB], u32 (&c)[NC], u32 (&d)[ND], Site site) {
    constexpr int per = 32 / bits_of(A), of_a = M * K / 32, of_b = K * N / 32, words_a = of_a / per,
                  words_b = of_b / per;
    u32 words[words_a + words_b];
    std::memcpy(words, a, 4 * words_a);
    std::memcpy(words + words_a, b, 4 * words_b);
    Exchange all = warp_exchange(t, ~0u, words, words_a + words_b, site);
    if (all.lanes != ~0u) fault(t, "wmma by a part of a warp", site);
    std::memset(d, 0, sizeof d);
    for (int i = 0; i < M * N / 32; i++) {
        int place = t.lane * (M * N / 32) + i, row = place / N, column = place % N, from = 32 / bits_of(C),
            to = 32 / bits_of(D);
        std::conditional_t<D == Element::s32, s64, f64> sum = element<C>(c[i / from], i % from);
        for (int k = 0; k < K; k++) {
            int left = row * K + k, right = k * N + column;
            auto x = element<A>(all.words[left / of_a][left % of_a / per], left % per);
            sum += x * element<B>(all.words[right / of_b][words_a + right % of_b / per], right % per);
        }
        if constexpr (D == Element::f16)
            d[i / to] = (d[i / to] & ~(0xffffu << 16 * (i % 2))) | f16(sum).bits << 16 * (i % 2);
        else if constexpr (D == Element::s32) d[i] = Saturate ? clamped<s32>(sum) : s32(sum);
        else d[i] = std::bit_cast<u32>(f32(sum));
    }
}

// ---- 8 x 8 matrices of 16-bit elements: lane l holds elements 2 (l % 4) and the next of row l / 4
inline u16 half_of(const u32 (&words)[EXCHANGE_WORDS], int column) {
    return u16(words[column / 2] >> 16 * (column % 2));
}

// Lanes 8 m to 8 m + 7 give the addresses of the rows of matrix m; each reads its row, then all share them.
template <bool Transposed, int N>
inline void load_matrix(Thread& t, u32 (&to)[N], u64 address, Space space, Site site) {
    u32 row[4] = {};
    if (t.lane < 8 * N) load(t, row, address, space, site);
    Exchange all = warp_exchange(t, ~0u, row, 4, site);
    if (all.lanes != ~0u) fault(t, "ldmatrix by a part of a warp", site);
    int major = t.lane / 4, minor = 2 * (t.lane % 4);
    for (int m = 0; m < N; m++) {
        auto at = [&](int r, int c) { return u32(half_of(all.words[8 * m + r], c)); };
        to[m] = Transposed ? at(minor, major) | at(minor + 1, major) << 16
                           : at(major, minor) | at(major, minor + 1) << 16;
    }
}
template <bool Transposed, int N>
inline void store_matrix(Thread& t, const u32 (&from)[N], u64 address, Space space, Site site) {
    Exchange all = warp_exchange(t, ~0u, from, N, site);
    if (all.lanes != ~0u) fault(t, "stmatrix by a part of a warp", site);
    if (t.lane >= 8 * N) return;
    int matrix = t.lane / 8, row = t.lane % 8;
    u16 elements[8];
    for (int c = 0; c < 8; c++) {
        int r = Transposed ? c : row, k = Transposed ? row : c;
        elements[c] = u16(all.words[4 * r + k / 2][matrix] >> 16 * (k % 2));
    }
    store(t, elements, address, space, site);
}
inline u32 transposed_matrix(Thread& t, u32 word, Site site) {
    Exchange all = warp_exchange(t, ~0u, &word, 1, site);
    if (all.lanes != ~0u) fault(t, "movmatrix by a part of a warp", site);
    int column = t.lane / 4, row = 2 * (t.lane % 4);
    auto at = [&](int r) { return all.words[4 * r + column / 2][0] >> 16 * (column % 2) & 0xffff; };
    return at(row) | at(row + 1) << 16;
}

}  // namespace emulated
