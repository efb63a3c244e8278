// wgmma (section 9.7.15): recorded when issued, computed for the whole warpgroup at the first wait that covers it.
#include <algorithm>
#include <array>
#include <cmath>

#include "errors.h"
#include "state.h"
#include "tensor_map.h"

namespace emulated {
namespace {

constexpr uint32_t TOKEN = 0xffc00000, SLOTS = 1u << 13, GROUP = 128;

uint32_t token(uint32_t sequence, unsigned i) { return TOKEN | (sequence % SLOTS + 1) << 8 | i; }

Warpgroup& warpgroup(Thread& t) { return t.state->block->warpgroups[t.warp / 4]; }

uint32_t place_in_group(const Thread& t) { return t.linear % GROUP; }

unsigned element_bytes(Type type) {
  switch (type) {
    case Type::TF32: return 4;
    case Type::F16: case Type::BF16: return 2;
    default: return 1;
  }
}

float e4m3_value(uint8_t b) {
  const int exponent = b >> 3 & 15, mantissa = b & 7;
  float v = exponent ? std::ldexp(float(8 + mantissa), exponent - 10) : std::ldexp(float(mantissa), -9);
  if (exponent == 15 && mantissa == 7) v = NAN;
  return b & 0x80 ? -v : v;
}

float e4m3(uint8_t b) {
  static const auto table = [] {
    std::array<float, 256> values;
    for (int i = 0; i < 256; i++) values[i] = e4m3_value(uint8_t(i));
    return values;
  }();
  return table[b];
}

float half_value(uint16_t bits) {
  _Float16 h;
  std::memcpy(&h, &bits, 2);
  return float(h);
}

float word_value(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

float element(Type type, const uint8_t* p) {
  uint16_t half = 0;
  uint32_t word = 0;
  switch (type) {
    case Type::F16: std::memcpy(&half, p, 2); return half_value(half);
    case Type::BF16: std::memcpy(&half, p, 2); return word_value(uint32_t(half) << 16);
    case Type::TF32: std::memcpy(&word, p, 4); return word_value(word & 0xffffe000u);
    case Type::E4M3: return e4m3(*p);
    case Type::E5M2: return half_value(uint16_t(*p << 8));
    case Type::S8: return float(int8_t(*p));
    default: return float(*p);
  }
}

// Shared address of element (row, k) of an operand: rows are M or N. Section 9.7.15.5.1.
struct Operand {
  uint32_t start, leading, stride, width, window;
  bool transposed;
  unsigned size;

  Operand(uint64_t descriptor, uint32_t shared_window, bool mn_major, unsigned bytes)
      : start((descriptor & 0x3fff) << 4), leading((descriptor >> 16 & 0x3fff) << 4),
        stride((descriptor >> 32 & 0x3fff) << 4), width(0), window(shared_window), transposed(mn_major), size(bytes) {
    static const uint32_t widths[] = {0, 128, 64, 32};
    width = widths[descriptor >> 62];
  }
  uint32_t address(uint32_t row, uint32_t k) const {
    uint32_t at = start;
    if (!transposed && width)
      at += row / 8 * stride + row % 8 * width + k * size;
    else if (!transposed)
      at += row / 8 * stride + row % 8 * 16 + k * size / 16 * leading + k * size % 16;
    else if (width)
      at += row * size / width * leading + row * size % width + k / 8 * stride + k % 8 * width;
    else
      at += row * size / 16 * stride + row * size % 16 + k / 8 * leading + k % 8 * 16;
    return window + swizzled(at, width);
  }
};

void read_operand(Thread& t, const WgmmaOperation& o, bool is_a, uint32_t rows, std::vector<float>& to) {
  const Type type = is_a ? o.shape.a : o.shape.b;
  const unsigned size = element_bytes(type), k = o.shape.k;
  const float sign = (is_a ? o.shape.negate_a : o.shape.negate_b) ? -1.0f : 1.0f;
  const uint32_t window = t.block->shared_begin - SHARED_RESERVED;
  const Operand operand(is_a ? o.a : o.b, window, is_a ? o.shape.transpose_a : o.shape.transpose_b, size);
  to.resize(rows * k);
  for (uint32_t r = 0; r < rows; r++)
    for (uint32_t i = 0; i < k; i++) {
      const uint32_t at = operand.address(r, i);
      const uint32_t offset = at - t.block->shared_begin;
      if (offset >= t.block->shared_size || size > t.block->shared_size - offset)
        owner_of(t, at, size, o.site, "wgmma");
      to[r * k + i] = sign * element(type, t.block->arena + at);
    }
}

// A from registers: fragments as of mma (section 9.7.15.5.1.1, figures of matrix A).
void read_registers(const WgmmaOperation& o, std::vector<float>& to) {
  const unsigned size = element_bytes(o.shape.a), k = o.shape.k, per_word = 4 / size;
  to.assign(64 * k, 0);
  for (uint32_t p = 0; p < GROUP; p++)
    for (unsigned r = 0; r < 4; r++)
      for (unsigned i = 0; i < per_word; i++) {
        const uint32_t row = p / 32 * 16 + p % 32 / 4 + (r & 1) * 8;
        const uint32_t column = p % 4 * per_word + i + (r >> 1) * (k / 2);
        uint8_t bytes[4];
        std::memcpy(bytes, &o.a_registers[p * 4 + r], 4);
        to[row * k + column] = (o.shape.negate_a ? -1.0f : 1.0f) * element(o.shape.a, bytes + i * size);
      }
}

// The value of a token whose operation is done; other bits as they are.
uint32_t resolve(const Warpgroup& w, uint32_t bits, uint32_t thread) {
  if (bits >> 22 != TOKEN >> 22) return bits;
  const uint32_t slot = (bits >> 8 & 0x3fff) - 1, index = bits & 0xff;
  const uint32_t at = (slot - w.first % SLOTS) % SLOTS;
  if (at >= w.operations.size() || index >= w.operations[at].registers) return bits;
  const WgmmaOperation& o = w.operations[at];
  return o.done ? o.accumulators[thread * o.registers + index] : bits;
}

// (64 x n) += a (64 x k) x b (n x k)
void multiply(uint32_t n, uint32_t k, const std::vector<float>& a, const std::vector<float>& b, std::vector<float>& d) {
  std::vector<float> columns(k * n);
  for (uint32_t j = 0; j < n; j++)
    for (uint32_t i = 0; i < k; i++) columns[i * n + j] = b[j * k + i];
  for (uint32_t row = 0; row < 64; row++)
    for (uint32_t i = 0; i < k; i++) {
      const float x = a[row * k + i];
      const float* y = &columns[i * n];
      float* z = &d[row * n];
      for (uint32_t j = 0; j < n; j++) z[j] += x * y[j];
    }
}

// Row and column of element `e` of accumulator register `i` of a thread (figure of matrix D).
struct Position {
  uint32_t row, column;
};
Position position(uint32_t thread, unsigned i, unsigned e, bool packed) {
  const unsigned pair = packed ? i / 2 : i / 4;
  const unsigned half = packed ? i % 2 : i / 2 % 2;
  return {thread / 32 * 16 + thread % 32 / 4 + 8 * half, pair * 8 + thread % 4 * 2 + (packed ? e : i % 2)};
}

void get_accumulators(const WgmmaOperation& o, std::vector<float>& d) {
  const bool packed = o.shape.accumulator == Type::F16;
  for (uint32_t p = 0; p < GROUP; p++)
    for (unsigned i = 0; i < o.registers; i++)
      for (unsigned e = 0; e < (packed ? 2u : 1u); e++) {
        const Position at = position(p, i, e, packed);
        const uint32_t bits = o.accumulators[p * o.registers + i];
        float& to = d[at.row * o.shape.n + at.column];
        if (packed)
          to = half_value(uint16_t(bits >> 16 * e));
        else
          to = word_value(bits);
      }
}

void put_accumulators(WgmmaOperation& o, const std::vector<float>& d) {
  const bool packed = o.shape.accumulator == Type::F16;
  for (uint32_t p = 0; p < GROUP; p++)
    for (unsigned i = 0; i < o.registers; i++) {
      uint32_t& bits = o.accumulators[p * o.registers + i];
      uint32_t word = 0;
      for (unsigned e = 0; e < (packed ? 2u : 1u); e++) {
        const Position at = position(p, i, e, packed);
        const float value = d[at.row * o.shape.n + at.column];
        if (packed) {
          const _Float16 half = _Float16(value);
          uint16_t raw;
          std::memcpy(&raw, &half, 2);
          word |= uint32_t(raw) << 16 * e;
        } else {
          std::memcpy(&word, &value, 4);
        }
      }
      bits = word;
    }
}

// 8-bit integers: sums below 2^24 per step are exact in float; the running sum is kept in 32 bits.
void add_integers(WgmmaOperation& o, const std::vector<float>& d) {
  for (uint32_t p = 0; p < GROUP; p++)
    for (unsigned i = 0; i < o.registers; i++) {
      const Position at = position(p, i, 0, false);
      uint32_t& bits = o.accumulators[p * o.registers + i];
      const int64_t sum = int64_t(int32_t(bits)) + int64_t(d[at.row * o.shape.n + at.column]);
      bits = o.shape.saturate ? uint32_t(std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX)) : uint32_t(sum);
    }
}

void compute(Thread& t, Warpgroup& w, WgmmaOperation& o) {
  std::vector<float> a, b, d(64 * o.shape.n, 0.0f);
  if (o.shape.a_in_registers)
    read_registers(o, a);
  else
    read_operand(t, o, true, 64, a);
  read_operand(t, o, false, o.shape.n, b);
  for (uint32_t p = 0; p < GROUP; p++)
    for (unsigned i = 0; i < o.registers; i++) {
      uint32_t& bits = o.accumulators[p * o.registers + i];
      if (!o.accumulate) bits = 0;
    }
  const bool integers = o.shape.accumulator == Type::S32;
  if (!integers) get_accumulators(o, d);
  multiply(o.shape.n, o.shape.k, a, b, d);
  if (integers)
    add_integers(o, d);
  else
    put_accumulators(o, d);
  o.done = true;
  for (WgmmaOperation& later : w.operations)  // those that add to this result
    for (uint32_t i = 0; i < later.accumulators.size() && !later.done; i++)
      later.accumulators[i] = resolve(w, later.accumulators[i], i / later.registers);
}

void mark_reads(Thread& t, const WgmmaOperation& o, bool is_a) {
  if (!t.block->shadow || (is_a && o.shape.a_in_registers)) return;
  const unsigned size = element_bytes(is_a ? o.shape.a : o.shape.b);
  const bool transposed = is_a ? o.shape.transpose_a : o.shape.transpose_b;
  const uint32_t window = t.block->shared_begin - SHARED_RESERVED;
  const Operand operand(is_a ? o.a : o.b, window, transposed, size);
  const uint32_t rows = is_a ? 64 : o.shape.n, step = 16 / size;
  for (uint32_t r = 0; r < rows; r += transposed ? step : 1)
    for (uint32_t k = 0; k < o.shape.k; k += transposed ? 1 : step) asynchronous_read(t, operand.address(r, k), 16, o.time, o.site);
}

// Operations whose results every thread has taken are forgotten.
void forget(BlockState& b, Warpgroup& w, uint32_t index) {
  uint32_t taken = ~0u;
  for (uint32_t i = 0; i < GROUP && index * GROUP + i < b.threads; i++) {
    const ThreadState& s = b.group->thread_states[uint64_t(b.index) * b.threads + index * GROUP + i];
    taken = std::min(taken, s.done ? ~0u : s.issued ? s.issued->wgmma_settled : 0u);
  }
  while (!w.operations.empty() && w.operations.front().done && w.first < taken) {
    w.operations.pop_front();
    w.first++;
  }
}

}  // namespace

void wgmma_fence(Thread& t, Site) { issued(t).wgmma_fenced = true; }

// Registers that anything but wgmma of one shape has touched need wgmma.fence (section 9.7.15.7.1).
static void check_fence(Thread& t, const uint32_t* accumulators, unsigned registers, bool accumulate, Site site) {
  bool in_flight = accumulate;
  for (unsigned i = 0; i < registers && in_flight; i++) in_flight = accumulators[i] >> 22 == TOKEN >> 22;
  if (issued(t).wgmma_fenced || in_flight) return;
  report("race", &t, site, "wgmma.mma_async without wgmma.fence after its registers were used");
}

void wgmma_issue(Thread& t, const Wgmma& shape, uint32_t* accumulators, unsigned registers, const uint32_t* a_registers,
                 uint64_t a_descriptor, uint64_t b_descriptor, bool accumulate, Site site) {
  Warpgroup& w = warpgroup(t);
  const uint32_t sequence = issued(t).wgmma_issued++;
  check_fence(t, accumulators, registers, accumulate, site);
  if (t.warp / 4 * 4 + 4 > t.state->block->warps) fault(t, "wgmma in a warpgroup of less than four warps", site);
  if (sequence == w.first + w.operations.size()) {
    WgmmaOperation o{};
    o.shape = shape;
    o.a = a_descriptor;
    o.b = b_descriptor;
    o.accumulate = accumulate;
    o.site = site;
    o.registers = registers;
    o.accumulators.resize(GROUP * registers);
    if (shape.a_in_registers) o.a_registers.resize(GROUP * 4);
    o.time = t.state->block->now++;
    mark_reads(t, o, true);
    mark_reads(t, o, false);
    w.operations.push_back(std::move(o));
  }
  WgmmaOperation& o = w.operations[sequence - w.first];
  if (o.site != site || o.a != a_descriptor || o.b != b_descriptor || o.accumulate != accumulate)
    fault(t, "threads of one warpgroup issue different wgmma operations", site);
  const uint32_t p = place_in_group(t);
  for (unsigned i = 0; i < registers && accumulate; i++) o.accumulators[p * registers + i] = resolve(w, accumulators[i], p);
  if (shape.a_in_registers) std::copy_n(a_registers, 4, &o.a_registers[p * 4]);
  for (unsigned i = 0; i < registers; i++) accumulators[i] = token(sequence, i);
  if (++o.issued == GROUP) w.generation++;
}

void wgmma_commit(Thread& t, Site) { issued(t).wgmma_groups.push_back(issued(t).wgmma_issued); }

void wgmma_wait(Thread& t, uint32_t groups_left, Site site) {
  Issued& i = issued(t);
  Warpgroup& w = warpgroup(t);
  i.wgmma_settled = i.wgmma_waited;
  forget(*t.state->block, w, t.warp / 4);
  if (i.wgmma_groups.size() <= groups_left) return;
  const auto last = i.wgmma_groups.end() - groups_left;
  const uint32_t through = last[-1];
  i.wgmma_groups.erase(i.wgmma_groups.begin(), last);
  i.wgmma_waited = through;
  i.wgmma_fenced = false;
  while (w.first < through) {
    uint32_t at = 0;
    const uint32_t end = through - w.first;
    while (at < end && w.operations[at].done) at++;
    if (at == end) break;
    WgmmaOperation& o = w.operations[at];
    if (o.issued < GROUP)
      wait_change(t, w.generation, w.generation, site);
    else
      compute(t, w, o);
  }
  for (const WgmmaOperation& o : w.operations)
    if (o.done) know_asynchronous(t, o.time);
}

uint32_t wgmma_settle_slow(Thread& t, uint32_t bits) { return resolve(warpgroup(t), bits, place_in_group(t)); }

}  // namespace emulated
