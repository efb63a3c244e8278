#include "row_sum.h"

void sum_rows(float* out, const float* x, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < cols; ++j) sum += x[i * cols + j];
    out[i] = static_cast<float>(sum);
  }
}
