// The judge's own kernels on a device. device_kernels.ptx is made from this file by ptx.sh.
typedef unsigned char byte;
typedef unsigned long long u64;

static __device__ __forceinline__ u64 first() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ __forceinline__ u64 step() { return (u64)gridDim.x * blockDim.x; }

// A volatile load reads L2: a line of L1 could be older than what other kernels wrote.
template <class T>
static __device__ __forceinline__ void gather(const byte *base, const long long *offsets, u64 count, byte *out) {
    for (u64 i = first(); i < count; i += step()) ((T *)out)[i] = *(const volatile T *)(base + offsets[i]);
}

extern "C" __global__ void liftbench_gather(
    const byte *base, const long long *offsets, u64 count, unsigned width, byte *out) {
    if (width == 1) gather<byte>(base, offsets, count, out);
    if (width == 2) gather<unsigned short>(base, offsets, count, out);
    if (width == 4) gather<unsigned>(base, offsets, count, out);
    if (width == 8) gather<u64>(base, offsets, count, out);
}

extern "C" __global__ void liftbench_fill(byte *to, unsigned value, u64 size) {
    const u64 before = -(u64)to & 15, head = before < size ? before : size, whole = (size - head) / 16;
    const unsigned word = value * 0x01010101u;
    const uint4 four = {word, word, word, word};
    for (u64 i = first(); i < whole; i += step()) ((uint4 *)(to + head))[i] = four;
    for (u64 i = first(); i < head; i += step()) to[i] = (byte)value;
    for (u64 i = head + 16 * whole + first(); i < size; i += step()) to[i] = (byte)value;
}

extern "C" __global__ void liftbench_copy(byte *to, const byte *from, u64 size) {
    const u64 whole = (((u64)to | (u64)from) & 15) == 0 ? size / 16 : 0;
    for (u64 i = first(); i < whole; i += step()) ((uint4 *)to)[i] = ((const uint4 *)from)[i];
    for (u64 i = 16 * whole + first(); i < size; i += step()) to[i] = from[i];
}
