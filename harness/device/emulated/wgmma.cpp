// wgmma (section 9.7.15): recorded when issued, computed for the warpgroup at the first wait that covers it.
#include "matrices.h"
#include "state.h"

namespace emulated {
namespace {

constexpr u32 TOKEN = 0xffc00000, SLOTS = 1u << 13, GROUP = 128;

u32 token(u32 sequence, unsigned i) { return TOKEN | (sequence % SLOTS + 1) << 8 | i; }
bool is_token(u32 bits) { return bits >> 22 == TOKEN >> 22; }

Warpgroup& warpgroup(Thread& t) { return block_of(t).warpgroups[t.warp / 4]; }
u32 place_in_group(const Thread& t) { return t.linear % GROUP; }

f32 value_of(Element type, const u8* p) {
    u32 word = 0;
    std::memcpy(&word, p, bits_of(type) / 8);
    switch (type) {
        case Element::f16: return element<Element::f16>(word, 0);
        case Element::bf16: return element<Element::bf16>(word, 0);
        case Element::tf32: return element<Element::tf32>(word, 0);
        case Element::e4m3: return element<Element::e4m3>(word, 0);
        case Element::e5m2: return element<Element::e5m2>(word, 0);
        case Element::s8: return f32(s8(word));
        default: return f32(word);
    }
}

// ---- operands
// One of a and b: its rows are those of M or N.
struct Operand {
    Element type;
    bool transposed, negated;
    u32 rows, k, bytes;                         // of an element
    u32 start, leading, stride, width, window;  // of the descriptor (section 9.7.15.5.1); bytes

    Operand(const Thread& t, const WgmmaOperation& o, bool is_a)
        : type(is_a ? o.shape.a : o.shape.b),
          transposed(is_a ? o.shape.transpose_a : o.shape.transpose_b),
          negated(is_a ? o.shape.negate_a : o.shape.negate_b),
          rows(is_a ? 64 : o.shape.n),
          k(o.shape.k),
          bytes(bits_of(type) / 8),
          window(t.block->shared_begin - SHARED_RESERVED) {
        const u64 descriptor = is_a ? o.a : o.b;
        start = (descriptor & 0x3fff) << 4;
        leading = (descriptor >> 16 & 0x3fff) << 4;
        stride = (descriptor >> 32 & 0x3fff) << 4;
        width = descriptor >> 62 ? 256 >> (descriptor >> 62) : 0;
    }

    // Shared address of an element.
    u32 address(u32 row, u32 i) const {
        const u32 x = (transposed ? row : i) * bytes,
                  y = transposed ? i : row;  // along and across its storage
        const u32 line = y % 8 * (width ? width : 16);
        u32 at = start + line;
        if (!transposed) at += y / 8 * stride + (width ? x : x / 16 * leading + x % 16);
        else if (width) at += y / 8 * stride + x / width * leading + x % width;
        else at += y / 8 * leading + x / 16 * stride + x % 16;
        return window + swizzled(at, width);
    }
};

// rows x k
std::vector<f32> read_shared(Thread& t, const WgmmaOperation& o, bool is_a) {
    const Operand of(t, o, is_a);
    const Range shared{t.block->shared_begin, t.block->shared_size};
    std::vector<f32> out(of.rows * of.k);
    for (u32 r = 0; r < of.rows; r++)
        for (u32 i = 0; i < of.k; i++) {
            const u32 at = of.address(r, i);
            if (!shared.holds(at, of.bytes)) owner_of(t, at, of.bytes, o.site, false);
            const f32 value = value_of(of.type, t.block->arena + at);
            out[r * of.k + i] = of.negated ? -value : value;
        }
    return out;
}

// A from registers: fragments as of mma (section 9.7.15.5.1.1, figures of matrix A).
std::vector<f32> read_registers(const WgmmaOperation& o) {
    const unsigned bytes = bits_of(o.shape.a) / 8, k = o.shape.k, per_word = 4 / bytes;
    std::vector<f32> out(64 * k);
    for (u32 p = 0; p < GROUP; p++)
        for (unsigned r = 0; r < 4; r++)
            for (unsigned i = 0; i < per_word; i++) {
                const u32 row = p / 32 * 16 + p % 32 / 4 + (r & 1) * 8;
                const u32 column = p % 4 * per_word + i + (r >> 1) * (k / 2);
                const u32 word = o.a_registers[p * 4 + r] >> 8 * bytes * i;
                const f32 value = value_of(o.shape.a, reinterpret_cast<const u8*>(&word));
                out[row * k + column] = o.shape.negate_a ? -value : value;
            }
    return out;
}

void mark_reads(Thread& t, const WgmmaOperation& o, bool is_a) {
    if (!block_of(t).detect || (is_a && o.shape.a_in_registers)) return;
    const Operand of(t, o, is_a);
    const u32 step = 16 / of.bytes;
    for (u32 r = 0; r < of.rows; r += of.transposed ? step : 1)
        for (u32 i = 0; i < of.k; i += of.transposed ? 1 : step)
            asynchronous_read(t, of.address(r, i), 16, o.time, o.site);
}

// ---- accumulators
// The operation that a token stands for.
u32 sequence_of(const Warpgroup& w, u32 token) {
    return w.first + ((token >> 8 & 0x3fff) - 1 - w.first) % SLOTS;
}

// The value of a token whose operation is done; other bits as they are.
u32 resolve(const Warpgroup& w, u32 bits, u32 thread) {
    if (!is_token(bits)) return bits;
    const u32 at = sequence_of(w, bits) - w.first, index = bits & 0xff;
    if (at >= w.operations.size() || index >= w.operations[at].registers) return bits;
    const WgmmaOperation& o = w.operations[at];
    return o.done ? o.accumulators[thread * o.registers + index] : bits;
}

// Calls f(word, element of the word, index in the 64 x n result) for all accumulators (figure of matrix D).
template <class F> void each_accumulator(WgmmaOperation& o, F f) {
    const bool packed = o.shape.accumulator == Element::f16;
    for (u32 p = 0; p < GROUP; p++)
        for (unsigned i = 0; i < o.registers * (packed ? 2 : 1); i++) {
            const u32 row = p / 32 * 16 + p % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + p % 4 * 2 + i % 2;
            u32& word = o.accumulators[p * o.registers + (packed ? i / 2 : i)];
            f(word, packed ? i % 2 : 0, row * o.shape.n + column);
        }
}

// (64 x n) += a (64 x k) x b (n x k)
void multiply(u32 n, u32 k, const std::vector<f32>& a, const std::vector<f32>& b, std::vector<f32>& d) {
    std::vector<f32> columns(k * n);
    for (u32 j = 0; j < n; j++)
        for (u32 i = 0; i < k; i++) columns[i * n + j] = b[j * k + i];
    for (u32 row = 0; row < 64; row++)
        for (u32 i = 0; i < k; i++) {
            const f32 x = a[row * k + i];
            const f32* y = &columns[i * n];
            f32* z = &d[row * n];
            for (u32 j = 0; j < n; j += 8)  // n is a multiple of 8
                for (u32 l = 0; l < 8; l++) z[j + l] += x * y[j + l];
        }
}

void compute(Thread& t, Warpgroup& w, u32 sequence) {
    WgmmaOperation& o = w.operations[sequence - w.first];
    std::vector<f32> d(64 * o.shape.n);
    const Element kind = o.shape.accumulator;
    if (!o.accumulate) std::fill(o.accumulators.begin(), o.accumulators.end(), 0);
    if (kind != Element::s32)
        each_accumulator(o, [&](u32& word, unsigned e, u32 at) {
            d[at] = kind == Element::f16 ? element<Element::f16>(word, e) : as<f32>(word);
        });
    multiply(o.shape.n, o.shape.k, o.shape.a_in_registers ? read_registers(o) : read_shared(t, o, true),
        read_shared(t, o, false), d);
    each_accumulator(o, [&](u32& word, unsigned e, u32 at) {
        if (kind == Element::f32) word = std::bit_cast<u32>(d[at]);
        if (kind == Element::f16) word = (word & ~(0xffffu << 16 * e)) | u32(f16(d[at]).bits) << 16 * e;
        if (kind != Element::s32) return;
        const s64 sum = s64(s32(word)) + s64(d[at]);  // products of 8 bits: below 2^24 per step, exact in f32
        word = u32(o.shape.saturate ? clamped<s32>(sum) : s32(sum));
    });
    o.done = true;
    for (WgmmaOperation& later : w.operations)  // those that add to this result
        if (!later.done && later.first_awaited <= sequence && sequence <= later.last_awaited)
            for (u32 i = 0; i < later.accumulators.size(); i++)
                later.accumulators[i] = resolve(w, later.accumulators[i], i / later.registers);
}

// Sets an accumulator that an operation adds to: a value, or the token of an operation that is not done.
void await(const Warpgroup& w, WgmmaOperation& o, u32 bits, u32 at) {
    o.accumulators[at] = bits;
    if (!is_token(bits)) return;
    o.first_awaited = std::min(o.first_awaited, sequence_of(w, bits));
    o.last_awaited = std::max(o.last_awaited, sequence_of(w, bits));
}

// Operations whose results every thread has taken are forgotten.
void forget(BlockState& b, Warpgroup& w, u32 index) {
    u32 taken = ~0u;
    for (u32 i = index * GROUP; i < std::min(b.threads, (index + 1) * GROUP); i++) {
        const Thread& t = b.group->threads[u64(b.index) * b.threads + i];
        if (!t.done) taken = std::min(taken, t.issued ? t.issued->wgmma_settled : 0);
    }
    for (; !w.operations.empty() && w.operations.front().done && w.first < taken; w.first++)
        w.operations.pop_front();
}

// Registers that anything but wgmma of one shape has touched need wgmma.fence (section 9.7.15.7.1).
void check_fence(Thread& t, const u32* accumulators, unsigned registers, bool accumulate, Site site) {
    if (issued(t).wgmma_fenced) return;
    if (accumulate && std::all_of(accumulators, accumulators + registers, is_token)) return;
    report("race", &t, site, "wgmma.mma_async without wgmma.fence after its registers were used");
}

}  // namespace

void wgmma_fence(Thread& t) { issued(t).wgmma_fenced = true; }

void wgmma_issue(Thread& t, const Wgmma& shape, u32* accumulators, unsigned registers, const u32* a_registers,
    u64 a_descriptor, u64 b_descriptor, bool accumulate, Site site) {
    Warpgroup& w = warpgroup(t);
    const u32 sequence = issued(t).wgmma.issued++;
    check_fence(t, accumulators, registers, accumulate, site);
    if (t.warp / 4 * 4 + 4 > block_of(t).warps)
        fault(t, "wgmma in a warpgroup of less than four warps", site);
    if (sequence == w.first + w.operations.size()) {
        WgmmaOperation o{shape, a_descriptor, b_descriptor, accumulate, false, site, registers};
        o.accumulators.resize(GROUP * registers);
        o.a_registers.resize(shape.a_in_registers ? GROUP * 4 : 0);
        o.time = block_of(t).now++;
        mark_reads(t, o, true);
        mark_reads(t, o, false);
        w.operations.push_back(std::move(o));
    }
    WgmmaOperation& o = w.operations[sequence - w.first];
    if (o.site != site || o.a != a_descriptor || o.b != b_descriptor || o.accumulate != accumulate)
        fault(t, "threads of one warpgroup issue different wgmma operations", site);
    const u32 p = place_in_group(t);
    if (shape.a_in_registers) std::copy_n(a_registers, 4, &o.a_registers[p * 4]);
    for (unsigned i = 0; i < registers; i++) {
        if (accumulate) await(w, o, resolve(w, accumulators[i], p), p * registers + i);
        accumulators[i] = token(sequence, i);
    }
    if (++o.issued == GROUP) w.generation++;
}

void wgmma_commit(Thread& t) { issued(t).wgmma.commit(); }

void wgmma_wait(Thread& t, u32 groups_left, Site site) {
    Issued& i = issued(t);
    Warpgroup& w = warpgroup(t);
    i.wgmma_settled = i.wgmma_waited;
    forget(block_of(t), w, t.warp / 4);
    const u32 through = i.wgmma.wait(groups_left);
    if (!through) return;
    i.wgmma_waited = through;
    i.wgmma_fenced = false;
    for (u32 sequence = w.first; sequence < through;) {
        WgmmaOperation& o = w.operations[sequence - w.first];
        if (o.done) sequence++;
        else if (o.issued == GROUP) compute(t, w, sequence);
        else wait_change(t, w.generation, w.generation, site);
    }
    for (const WgmmaOperation& o : w.operations)
        if (o.done) learn(block_of(t), block_of(t).known[t.warp], block_of(t).asynchronous, o.time);
}

u32 wgmma_settle_slow(Thread& t, u32 bits) { return resolve(warpgroup(t), bits, place_in_group(t)); }

}  // namespace emulated
