/* The judge's kernels on the host: their sources, with what they use of CUDA, one thread after another. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <utility>

struct Index { unsigned x; };
static thread_local Index blockIdx, blockDim, gridDim, threadIdx;
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __syncthreads()
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
static inline float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }

#include "../../harness/device/known.cu"
#include "../../harness/judge/device_kernels.cu"

template <class... A, size_t... I>
static void run(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++) kernel(*(A *)arguments[I]...);
}
template <class... A> static void run(void (*kernel)(A...), void **arguments) {
    run(kernel, arguments, std::index_sequence_for<A...>());
}

/* Whether there is a kernel of that name. All but the known one step over the grid, so that one thread does. */
extern "C" int fake_cuda_run(const char *name, unsigned blocks, unsigned threads, void **arguments) {
    int known = !strcmp(name, "liftbench_known");
    gridDim.x = known ? blocks : 1;
    blockDim.x = known ? threads : 1;
#define RUN(kernel) if (!strcmp(name, #kernel)) return run(kernel, arguments), 1
    RUN(liftbench_known);
    RUN(liftbench_gather);
    RUN(liftbench_fill);
    RUN(liftbench_copy);
    RUN(liftbench_words);
    RUN(liftbench_uniform);
    RUN(liftbench_normal);
    RUN(liftbench_integers);
    return 0;
}
