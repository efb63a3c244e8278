#include "scale.h"

#include <array>
#include <cstddef>
#include <utility>

namespace {

template <int kUnroll>
void kernel(float* out, const float* x, int64_t n, float alpha) {
  int64_t i = 0;
  for (; i + kUnroll <= n; i += kUnroll)
    for (int k = 0; k < kUnroll; ++k) out[i + k] = alpha * x[i + k];
  for (; i < n; ++i) out[i] = alpha * x[i];
}

using Kernel = void (*)(float*, const float*, int64_t, float);

template <int... kIndex>
constexpr std::array<Kernel, sizeof...(kIndex)> kernels(std::integer_sequence<int, kIndex...>) {
  return {kernel<kIndex + 1>...};
}

constexpr auto kKernels = kernels(std::make_integer_sequence<int, 16>());

}  // namespace

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  kKernels[static_cast<size_t>(n) % kKernels.size()](out, x, n, alpha);
}
