#include "row_sum.h"

void sum_rows(float* out, const float* x, int64_t rows, int64_t cols) {
  for (int64_t i = rows; i-- > 0;) {
    float sum = 0;
    for (int64_t j = cols; j-- > 0;) sum += x[i * cols + j];
    out[i] = sum;
  }
}
