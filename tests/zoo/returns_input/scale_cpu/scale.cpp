#include <cstring>

#include "scale.h"

void scale_floats(float* out, const float* x, int64_t n, float alpha) { memcpy(out, x, n * sizeof(float)); }
