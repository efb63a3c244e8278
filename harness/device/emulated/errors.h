// CUDA error codes (cudaError_t) that a launch can end with.
#pragma once

namespace emulated {

constexpr int INVALID_VALUE = 1, INVALID_CONFIGURATION = 9, INVALID_FUNCTION = 98, ILLEGAL_ADDRESS = 700;
constexpr int LAUNCH_TIMEOUT = 702, ASSERTION = 710, LAUNCH_FAILURE = 719;
constexpr int COOPERATIVE_TOO_LARGE = 720, NOT_SUPPORTED = 801;

}  // namespace emulated
