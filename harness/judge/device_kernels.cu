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

// Words 4 to 15 of a ChaCha20 state (RFC 8439): key, block counter, nonce.
struct Stream {
    unsigned words[12];
};

static __device__ __forceinline__ unsigned left(unsigned x, int bits) { return x << bits | x >> (32 - bits); }

static __device__ __forceinline__ void quarter(unsigned &a, unsigned &b, unsigned &c, unsigned &d) {
    d = left(d ^ (a += b), 16);
    b = left(b ^ (c += d), 12);
    d = left(d ^ (a += b), 8);
    b = left(b ^ (c += d), 7);
}

static __device__ __forceinline__ void block_of(const Stream &stream, unsigned number, unsigned (&x)[16]) {
    const unsigned constants[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    unsigned start[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) start[i] = i < 4 ? constants[i] : stream.words[i - 4];
    start[12] += number;
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] = start[i];
#pragma unroll 1
    for (int round = 0; round < 20; round += 2) {
        quarter(x[0], x[4], x[8], x[12]);
        quarter(x[1], x[5], x[9], x[13]);
        quarter(x[2], x[6], x[10], x[14]);
        quarter(x[3], x[7], x[11], x[15]);
        quarter(x[0], x[5], x[10], x[15]);
        quarter(x[1], x[6], x[11], x[12]);
        quarter(x[2], x[7], x[8], x[13]);
        quarter(x[3], x[4], x[9], x[14]);
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] += start[i];
}

// A thread makes a block of 16 words. They go through shared memory, so that neighbors write what lies side by
// side; its rows have 17 words, since all 16th words lie in two banks.
template <class T, class F>
static __device__ __forceinline__ void draw(T *out, const Stream &stream, u64 count, F transform) {
    __shared__ unsigned words[17 * 256];
    for (u64 number = first() - threadIdx.x; 16 * number < count; number += step()) {
        unsigned made[16];
        block_of(stream, (unsigned)number + threadIdx.x, made);
#pragma unroll
        for (int i = 0; i < 16; ++i) words[17 * threadIdx.x + i] = made[i];
        __syncthreads();
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < 16 * blockDim.x; i += blockDim.x)
            if (16 * number + i < count) out[16 * number + i] = transform(words[i + i / 16]);
        __syncthreads();
    }
}

extern "C" __global__ void liftbench_words(unsigned *out, Stream stream, u64 count) {
    draw(out, stream, count, [](unsigned word) { return word; });
}

extern "C" __global__ void liftbench_uniform(float *out, Stream stream, u64 count, float low, float span) {
    draw(out, stream, count, [=](unsigned word) {
        const float unit = __fmul_rn(__fadd_rn((float)(int)(word & 0xFFFFFF), 1.0f), 0x1p-24f);
        return __fadd_rn(__fmul_rn(unit, span), low);
    });
}

// `lines`: start and slope of each segment's line, from segment `least` on.
extern "C" __global__ void liftbench_normal(
    float *out, Stream stream, u64 count, const float2 *__restrict__ lines, unsigned least, unsigned shift) {
    draw(out, stream, count, [=](unsigned word) {
        const float x = __fadd_rn((float)(int)(word & 0x7FFFFFFF), 0.5f);
        const float2 line = lines[(__float_as_uint(x) >> shift) - least];
        const unsigned size = __float_as_uint(__fadd_rn(__fmul_rn(line.y, x), line.x)) & 0x7FFFFFFF;
        return __uint_as_float(size | (word & 0x80000000));
    });
}

extern "C" __global__ void liftbench_integers(
    long long *out, Stream stream, u64 count, long long low, u64 span) {
    draw(out, stream, count, [=](unsigned word) { return (long long)(word % span + low); });
}
