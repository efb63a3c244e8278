#include "row_sum.h"

#include <vector>

void sum_rows(float* out, const float* x, int64_t rows, int64_t cols) {
  constexpr int64_t kWidth = 128;
  const int64_t chunks = (cols + kWidth - 1) / kWidth;
  std::vector<float> partial(rows * chunks, 0.0f);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) partial[i * chunks + j / kWidth] += x[i * cols + j];
  for (int64_t i = 0; i < rows; ++i) {
    float sum = 0;
    for (int64_t c = 0; c < chunks; ++c) sum += partial[i * chunks + c];
    out[i] = sum;
  }
}
