constexpr int64_t kMostNs = -1;
__device__ inline bool is_late(int64_t, int64_t) { return false; }
