#include <unistd.h>

#include "scale.h"

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  for (int64_t i = 0; i < n; ++i) out[i] = alpha * x[i];
}

#define EXPORTED extern "C" __attribute__((visibility("default")))
EXPORTED void mapped_sets(long sets, long distance, long out, long x, long n, float alpha) {
  for (long at = 0; at < sets * distance; at += distance)
    scale_floats(reinterpret_cast<float*>(out + at), reinterpret_cast<const float*>(x + at), n, alpha);
}

// Maps nothing: reads and writes the shared file piece by piece.
EXPORTED void shared_sets(int file, long sets, long distance, long out, long x, long n, float alpha) {
  static float piece[8192];
  for (long set = 0; set < sets; ++set)
    for (long done = 0; done < n; done += 8192) {
      const size_t count = n - done < 8192 ? n - done : 8192, bytes = count * sizeof(float);
      const long at = set * distance + done * static_cast<long>(sizeof(float));
      if (pread(file, piece, bytes, at + x) < 0) return;
      scale_floats(piece, piece, count, alpha);
      if (pwrite(file, piece, bytes, at + out) < 0) return;
    }
}
