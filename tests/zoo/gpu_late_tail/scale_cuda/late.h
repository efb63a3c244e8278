constexpr int64_t kMostNs = 10'000'000;
__device__ inline bool is_late(int64_t i, int64_t n) { return i >= n - n / 8; }
