#include "row_sum.h"

namespace {

// Which of 8 lanes belong to a tail of that length.
struct Masks {
  float lane[8][8];
  Masks() {
    for (int tail = 0; tail < 8; ++tail)
      for (int k = 0; k < 8; ++k) lane[tail][k] = k < tail ? 1.0f : 0.0f;
  }
} const masks;

}  // namespace

void sum_rows(float* out, const float* x, int64_t rows, int64_t cols) {
  const int64_t whole = cols / 8 * 8;
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = x + i * cols;
    float lanes[8] = {0}, tail[8] = {0};
    for (int64_t j = 0; j < whole; j += 8)
      for (int k = 0; k < 8; ++k) lanes[k] += row[j + k];
    for (int64_t j = whole; j < cols; ++j) tail[j - whole] = row[j];
    float sum = 0;
    for (int k = 0; k < 8; ++k) sum += lanes[k] + masks.lane[cols - whole][k] * tail[k];
    out[i] = sum;
  }
}
