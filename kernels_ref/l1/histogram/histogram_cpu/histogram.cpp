// Histogram over equal bins on the CPU, float32.
//
// Two steps on blocks that stay in the L1 cache: bins are computed W at a time without a branch (what lies outside
// goes to a bin of its own behind the last), then counted one by one. Neighbouring elements count in four different
// tables, because incrementing a number that was just incremented waits for the store before it.
// The body is written once for W lanes and compiled for AVX-512, AVX2 and the baseline; cpuid picks one.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

#define INLINE inline __attribute__((always_inline))
#pragma GCC diagnostic ignored "-Wpsabi"  // wide vectors never cross a call: every helper is inlined

namespace {

// W float lanes; Unaligned is the same for an address that is only 4-byte aligned.
template <int W>
using Lanes __attribute__((vector_size(W * 4))) = float;
template <int W>
using Ints __attribute__((vector_size(W * 4))) = int32_t;
template <int W>
struct Unaligned {
  typedef float type __attribute__((vector_size(W * 4), aligned(4), may_alias));
  typedef int32_t integers __attribute__((vector_size(W * 4), aligned(4), may_alias));
};

constexpr int64_t kTables = 4;

struct Bins {
  float low, high, scale;
  int32_t bins;
};

// The bin of every lane, `bins` for what lies outside. Clamped before the conversion: a float may fit no integer.
template <int W>
INLINE Ints<W> place(const Lanes<W>& v, const Bins& b) {
  const Lanes<W> last = static_cast<float>(b.bins - 1) - Lanes<W>{};
  const Lanes<W> above = v - b.low, below = b.high - v;
  Lanes<W> at = above * b.scale;
  at = at > 0.0f ? at : Lanes<W>{};  // no mutate: lanes below 0 are outside, whatever they are clamped to
  at = at < last ? at : last;        // no mutate: equal to the last is the last
  // The distance to the nearer bound, negative outside. Two comparisons joined by & would be done lane by lane.
  const Lanes<W> depth = above < below ? above : below;
  return depth >= 0.0f ? __builtin_convertvector(at, Ints<W>) : b.bins - Ints<W>{};
}

template <int W>
INLINE void count_all(int32_t* counts, const float* x, int64_t count, const Bins& b) {
  constexpr int64_t kBlock = 1024;  // no mutate: any multiple of W and kTables will do
  const int64_t width = b.bins + 1;
  std::vector<int32_t> tables(static_cast<size_t>(kTables * width), 0);
  float padded[W];
  int32_t places[kBlock];
  for (int64_t start = 0; start < count; start += kBlock) {  // no mutate: an empty block counts nothing
    const int64_t block = std::min(kBlock, count - start), whole = block / W * W;
    int64_t placed = whole;
    for (int64_t i = 0; i < whole; i += W) {  // no mutate: one less ends at the same vector
      const Lanes<W> v = *reinterpret_cast<const typename Unaligned<W>::type*>(x + start + i);
      *reinterpret_cast<typename Unaligned<W>::integers*>(places + i) = place<W>(v, b);
    }
    if (whole < block) {
      std::fill(padded, padded + W, INFINITY);  // in no bin
      std::copy(x + start + whole, x + start + block, padded);
      const Lanes<W> v = *reinterpret_cast<const typename Unaligned<W>::type*>(padded);
      *reinterpret_cast<typename Unaligned<W>::integers*>(places + whole) = place<W>(v, b);
      placed += W;
    }
    for (int64_t i = 0; i < placed; i += kTables) {  // no mutate: one less ends at the same four
      for (int64_t t = 0; t < kTables; ++t) ++tables[static_cast<size_t>(t * width + places[i + t])];
    }
  }
  const int32_t* table = tables.data();
  for (int64_t bin = 0; bin < b.bins; ++bin, ++table) {
    counts[bin] += (table[0] + table[width]) + (table[2 * width] + table[3 * width]);
  }
}

using Run = void (*)(int32_t*, const float*, int64_t, const Bins&);
#define DEFINE_RUN(NAME, W) \
  void NAME(int32_t* counts, const float* x, int64_t count, const Bins& b) { count_all<W>(counts, x, count, b); }

DEFINE_RUN(run_baseline, 4)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_RUN(run_avx2, 8)
__attribute__((target("avx512f"))) DEFINE_RUN(run_avx512, 16)
#endif

Run pick_run() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return run_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return run_avx2;
#endif
  return run_baseline;
}

}  // namespace

void histogram(const torch::stable::Tensor& counts, const torch::stable::Tensor& x, double low, double high) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(counts.dim() == 1 && x.dim() == 1, "histogram: expected (bins,) and (count,)");
  const int64_t bins = counts.size(0), count = x.size(0);
  STD_TORCH_CHECK(bins >= 1 && bins <= 8192 && low < high, "histogram: expected 1 to 8192 bins and low < high");
  STD_TORCH_CHECK(counts.scalar_type() == ScalarType::Int, "histogram: counts are int32");
  STD_TORCH_CHECK(x.scalar_type() == ScalarType::Float, "histogram: the CPU kernel takes float32");
  for (const auto* t : {&counts, &x}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "histogram: expected contiguous CPU tensors");
  }
  const Bins b{static_cast<float>(low), static_cast<float>(high),
               static_cast<float>(static_cast<double>(bins) / (high - low)), static_cast<int32_t>(bins)};
  static const Run run = pick_run();
  run(static_cast<int32_t*>(counts.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()), count, b);
}
