// The known kernel: its result has a closed form, so a device that computes it wrongly is found.
// known.ptx is made from this file by ptx.sh.
//
// Two linear congruential generators per thread, one in 32-bit integers and one modulo 2^20 in fp32 (all its
// values are integers below 2^23, so fma, trunc and the product are exact), then one word of memory.
extern "C" __global__ void liftbench_known(unsigned *words, unsigned count, unsigned rounds) {
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= count) return;
    unsigned x = index;
    float f = (float)(index & 0xFFFFFu);
    for (unsigned round = 0; round < rounds; ++round) {
        x = x * 1664525u + 1013904223u;
        const float next = fmaf(f, 5.0f, 12345.0f);
        f = fmaf(-1048576.0f, truncf(__fmul_rn(next, 0x1p-20f)), next);
    }
    words[index] ^= x ^ (unsigned)f;
}
