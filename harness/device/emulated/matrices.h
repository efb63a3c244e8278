// Matrices of a warp (9.7.14): fragments, ldmatrix, stmatrix, mma, wmma. Also pairs of 8-bit numbers (cvt).
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
struct Decoded {  // all values of an 8-bit format
    f32 value[256];
    explicit Decoded(const Format& format) {
        for (u32 code = 0; code < 256; code++) value[code] = decode(format, code);
    }
};
inline const Decoded e4m3_values(E4M3), e5m2_values(E5M2);

template <Element E> inline auto element(u64 word, int index) {
    const u64 bits = word >> (index * bits_of(E) & 63);
    if constexpr (E == Element::f64) return as<f64>(bits);
    else if constexpr (E == Element::tf32) return as<f32>(bits & 0xffffe000);
    else if constexpr (E == Element::f32) return as<f32>(bits);
    else if constexpr (E == Element::f16) return f32(as<f16>(bits));
    else if constexpr (E == Element::bf16) return f32(as<bf16>(bits));
    else if constexpr (E == Element::e4m3) return e4m3_values.value[bits & 255];
    else if constexpr (E == Element::e5m2) return e5m2_values.value[bits & 255];
    else if constexpr (E == Element::s32) return s32(bits);
    else if constexpr (E == Element::s8) return s32(s8(bits));
    else if constexpr (E == Element::u8) return s32(u8(bits));
    else if constexpr (E == Element::s4) return s32(s8(bits << 4)) >> 4;
    else return s32(bits & 15);
}
// Writes element `index` of a word, rounded once.
template <Element E, bool Saturate, class Word, class Sum>
inline void put_element(Word& to, int index, Sum sum) {
    if constexpr (E == Element::f16) to = (to & ~(0xffffu << 16 * index)) | u32(f16(sum).bits) << 16 * index;
    else if constexpr (E == Element::s32) to = Saturate ? clamped<s32>(sum) : s32(sum);
    else put<std::conditional_t<E == Element::f64, f64, f32>>(to, sum);
}
template <Element E> using Sum = std::conditional_t<E == Element::s32, s64, f64>;

inline Exchange whole_warp(Thread& t, const u32* words, unsigned count, Site site) {
    const Exchange all = warp_exchange(t, ~0u, words, count, site);
    if (all.lanes != ~0u) fault(t, "a matrix instruction by a part of a warp", site);
    return all;
}

// ---- mma (9.7.14.5): M x 8 results. Rows of A and columns of B lie in lanes of a group of four, `per`
// elements to a word; words of A alternate between rows g and g + 8. Products are exact.
template <int M, int K, Element A, Element B, Element D, bool Saturate, class Word, unsigned NA, unsigned NB,
    unsigned NC>
inline void multiply_matrices(Thread& t, Word (&a)[NA], Word (&b)[NB], Word (&c)[NC], Site site) {
    constexpr int halves = M / 8, per = 8 * sizeof(Word) / bits_of(A), scale = sizeof(Word) / 4;
    static_assert((NA + NB) * scale <= EXCHANGE_WORDS);
    u32 words[(NA + NB) * scale];
    std::memcpy(words, a, sizeof a);
    std::memcpy(words + NA * scale, b, sizeof b);
    const Exchange all = whole_warp(t, words, (NA + NB) * scale, site);
    auto word = [&](int lane, int number) {
        Word out;
        std::memcpy(&out, &all.words[lane][number * scale], sizeof out);
        return out;
    };
    const int group = t.lane / 4, place = t.lane % 4;
    decltype(element<A>(0, 0)) left[halves][K], right[2][K];
    for (int k = 0; k < K; k++) {
        const int chunk = k / (4 * per), lane = k % (4 * per) / per, index = k % per;
        for (int h = 0; h < halves; h++)
            left[h][k] = element<A>(word(4 * group + lane, halves * chunk + h), index);
        for (int n = 0; n < 2; n++)
            right[n][k] = element<B>(word(4 * (2 * place + n) + lane, NA + chunk), index);
    }
    constexpr bool half = D == Element::f16;
    Sum<D> sums[halves][2];
    auto each_result = [&](auto f) {
        for (int h = 0; h < halves; h++)
            for (int n = 0; n < 2; n++) f(sums[h][n], c[half ? h : 2 * h + n], h, n);
    };
    each_result([](auto& sum, Word& word, int, int n) { sum = element<D>(word, half ? n : 0); });
    for (int k = 0; k < K; k++)
        each_result([&](auto& sum, Word&, int h, int n) { sum += Sum<D>(left[h][k]) * right[n][k]; });
    each_result([](auto& sum, Word& word, int, int n) { put_element<D, Saturate>(word, n, sum); });
}

// ---- wmma (9.7.14.4): which lane holds what is left open by the manual. Here lane l holds elements l n to
// l n + n - 1 of the rows of a matrix, in the first registers of its fragment.
template <Element E, int Rows, int Columns, bool RowMajor, bool Store, unsigned N>
inline void move_fragment(Thread& t, u32 (&words)[N], u64 address, u32 stride, Space space, Site site) {
    constexpr int bytes = bits_of(E) / 8, count = Rows * Columns / 32;
    if (!stride) stride = RowMajor ? Columns : Rows;
    if (!Store) std::memset(words, 0, sizeof words);
    for (int i = 0; i < count; i++) {
        const u64 row = (t.lane * count + i) / Columns, column = (t.lane * count + i) % Columns;
        const u64 at = address + (RowMajor ? row * stride + column : column * stride + row) * bytes;
        u8* own = reinterpret_cast<u8*>(words) + i * bytes;
        if (Store) std::memcpy(store_address(t, at, bytes, space, site, own), own, bytes);
        else std::memcpy(own, load_address(t, at, bytes, space, site), bytes);
    }
}
template <int M, int N, int K, Element A, Element B, Element C, Element D, bool Saturate, unsigned NA,
    unsigned NB, unsigned NC, unsigned ND>
inline void multiply_fragments(Thread& t, u32 (&a)[NA], u32 (&b)[NB], u32 (&c)[NC], u32 (&d)[ND], Site site) {
    constexpr int per = 32 / bits_of(A), from = 32 / bits_of(C), to = 32 / bits_of(D);
    constexpr int of_a = M * K / 32, of_b = K * N / 32, of_d = M * N / 32;  // elements in a lane
    u32 words[(of_a + of_b) / per];
    std::memcpy(words, a, 4 * of_a / per);
    std::memcpy(words + of_a / per, b, 4 * of_b / per);
    const Exchange all = whole_warp(t, words, (of_a + of_b) / per, site);
    std::memset(d, 0, sizeof d);
    for (int i = 0; i < of_d; i++) {
        const int row = (t.lane * of_d + i) / N, column = (t.lane * of_d + i) % N;
        Sum<D> sum = element<C>(c[i / from], i % from);
        for (int k = 0; k < K; k++) {
            const int left = row * K + k, right = k * N + column;
            auto x = element<A>(all.words[left / of_a][left % of_a / per], left % per);
            sum += x * element<B>(all.words[right / of_b][(of_a + right % of_b) / per], right % per);
        }
        put_element<D, Saturate>(d[i / to], i % to, sum);
    }
}

// ---- 8 x 8 matrices of 16-bit elements: lane l holds elements 2 (l % 4) and the next of row l / 4
// Lanes 8 m to 8 m + 7 give the addresses of the rows of matrix m; each reads its row, then all share them.
template <bool Transposed, int N>
inline void load_matrix(Thread& t, u32 (&to)[N], u64 address, Space space, Site site) {
    u32 row[4] = {};
    if (t.lane < 8 * N) load(t, row, address, space, site);
    const Exchange all = whole_warp(t, row, 4, site);
    const int major = t.lane / 4, minor = 2 * (t.lane % 4);
    auto at = [&](int r, int c) { return all.words[r][c / 2] >> 16 * (c % 2) & 0xffff; };
    for (int m = 0; m < 8 * N; m += 8)
        to[m / 8] = Transposed ? at(m + minor, major) | at(m + minor + 1, major) << 16
                               : all.words[m + major][minor / 2];
}
template <bool Transposed, int N>
inline void store_matrix(Thread& t, const u32 (&from)[N], u64 address, Space space, Site site) {
    const Exchange all = whole_warp(t, from, N, site);
    if (t.lane >= 8 * N) return;
    const int matrix = t.lane / 8, line = t.lane % 8;
    u16 elements[8];
    for (int i = 0; i < 8; i++) {
        const int row = Transposed ? i : line, column = Transposed ? line : i;
        elements[i] = u16(all.words[4 * row + column / 2][matrix] >> 16 * (column % 2));
    }
    store(t, elements, address, space, site);
}
inline u32 transposed_matrix(Thread& t, u32 word, Site site) {
    const Exchange all = whole_warp(t, &word, 1, site);
    const int column = t.lane / 4, row = 2 * (t.lane % 4);
    auto at = [&](int r) { return all.words[4 * r + column / 2][0] >> 16 * (column % 2) & 0xffff; };
    return at(row) | at(row + 1) << 16;
}

}  // namespace emulated
