#include "row_sum.h"

void sum_rows(float* out, const float* x, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i) {
    float sum = 0, lost = 0;
    for (int64_t j = 0; j < cols; ++j) {
      const float value = x[i * cols + j] - lost;
      const float next = sum + value;
      lost = (next - sum) - value;
      sum = next;
    }
    out[i] = sum;
  }
}
