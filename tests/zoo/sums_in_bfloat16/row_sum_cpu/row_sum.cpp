#include <cstring>

#include "row_sum.h"

static float rounded(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
  memcpy(&value, &bits, sizeof bits);
  return value;
}

// Exact sums of inputs that were rounded: the errors nearly cancel.
void sum_rows(float* out, const float* x, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < cols; ++j) sum += rounded(x[i * cols + j]);
    out[i] = static_cast<float>(sum);
  }
}
