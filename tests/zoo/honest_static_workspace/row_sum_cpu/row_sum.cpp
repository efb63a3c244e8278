#include "row_sum.h"

#include <vector>

void sum_rows(float* out, const float* x, int64_t rows, int64_t cols) {
  static std::vector<float> partial;
  constexpr int64_t kWidth = 64;
  const int64_t chunks = (cols + kWidth - 1) / kWidth;
  if (static_cast<int64_t>(partial.size()) < chunks) partial.resize(chunks);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t last = (c + 1) * kWidth < cols ? (c + 1) * kWidth : cols;
      float sum = 0;
      for (int64_t j = c * kWidth; j < last; ++j) sum += x[i * cols + j];
      partial[c] = sum;
    }
    float sum = 0;
    for (int64_t c = 0; c < chunks; ++c) sum += partial[c];
    out[i] = sum;
  }
}
