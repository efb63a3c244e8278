#include "row_sum.h"

#include <memory>

void sum_rows(float* out, const float* x, int64_t rows, int64_t cols) {
  static thread_local std::unique_ptr<double[]> lanes(new double[16]);
  for (int64_t i = 0; i < rows; ++i) {
    for (int k = 0; k < 16; ++k) lanes[k] = 0;
    for (int64_t j = 0; j < cols; ++j) lanes[j % 16] += x[i * cols + j];
    double sum = 0;
    for (int k = 0; k < 16; ++k) sum += lanes[k];
    out[i] = static_cast<float>(sum);
  }
}
