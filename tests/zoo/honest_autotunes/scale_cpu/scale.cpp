#include "scale.h"

#include <chrono>
#include <map>

namespace {

using Variant = void (*)(float*, const float*, int64_t, float);

void plain(float* out, const float* x, int64_t n, float alpha) {
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
}

void unrolled(float* out, const float* x, int64_t n, float alpha) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    out[i] = alpha * x[i];
    out[i + 1] = alpha * x[i + 1];
    out[i + 2] = alpha * x[i + 2];
    out[i + 3] = alpha * x[i + 3];
  }
  for (; i < n; ++i) out[i] = alpha * x[i];
}

double seconds(Variant variant, float* out, const float* x, int64_t n, float alpha) {
  variant(out, x, n, alpha);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) variant(out, x, n, alpha);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  static std::map<int64_t, Variant> chosen;
  Variant& variant = chosen[n];
  if (variant == nullptr)
    variant = seconds(plain, out, x, n, alpha) <= seconds(unrolled, out, x, n, alpha) ? plain : unrolled;
  variant(out, x, n, alpha);
}
