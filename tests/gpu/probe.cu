// What `make gpu-check` runs inside a sandbox: one small CUDA program with a mode for each question.
//
//   probe MODE CHANNEL [KEY]   prints one JSON object; exit code 0, or 3 with {"error", "where"}
//
//   known    a known kernel: is its result right, and how long does it take?
//   fill     write KEY into nearly all free device memory, and exit without clearing it
//   search   allocate nearly all free device memory and count words that equal KEY, or are not zero
//   hang     start a kernel that never ends, say "running" on the channel, wait for it
//   illegal  a kernel that writes where nothing is mapped
//   count    run a kernel again and again, sending the count on the channel, until "stop" comes
//
// It is our own code and is linked with the static CUDA runtime: it needs the driver's libcuda.so.1 only.

#include <cuda_runtime.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using Word = unsigned long long;
static const size_t CHUNK_BYTES = size_t(1) << 30;
static const size_t KEPT_FREE_BYTES = size_t(512) << 20;  // for the context's own growth
static const int KNOWN_WORDS = 1 << 26;                   // 256 MiB of floats: several times the L2

static void check(cudaError_t code, const char *where) {
    if (code == cudaSuccess) return;
    printf("{\"error\": \"%s\", \"where\": \"%s\"}\n", cudaGetErrorName(code), where);
    fflush(stdout);
    _exit(3);
}

static void say(int channel, const char *text) {
    if (channel >= 0) send(channel, text, strlen(text), MSG_NOSIGNAL);
}

__global__ void add(const float *a, float *out, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] += a[i];
}

__global__ void set(float *to, float value, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) to[i] = value;
}

__global__ void wrong(const float *data, float expected, int n, Word *count) {
    Word mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        mine += data[i] != expected;
    if (mine) atomicAdd(count, mine);
}

__global__ void write_key(Word *to, Word key, size_t n) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        to[i] = key;
}

__global__ void find_key(const Word *from, Word key, size_t n, Word *counts) {
    Word equal = 0, other = 0;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
        equal += from[i] == key;
        other += from[i] != 0;
    }
    if (equal) atomicAdd(&counts[0], equal);
    if (other) atomicAdd(&counts[1], other);
}

__global__ void forever(volatile int *stop) {
    while (*stop == 0) {
    }
}

__global__ void write_outside(int *nowhere) { nowhere[threadIdx.x] = 1; }

static void known() {
    const int rounds = 20;
    float *a, *b, best = 1e30f;
    Word *count, bad = 0;
    cudaEvent_t start, stop;
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    check(cudaMalloc(&a, KNOWN_WORDS * sizeof(float)), "cudaMalloc");
    check(cudaMalloc(&b, KNOWN_WORDS * sizeof(float)), "cudaMalloc");
    check(cudaMalloc(&count, sizeof(Word)), "cudaMalloc");
    check(cudaMemset(count, 0, sizeof(Word)), "cudaMemset");
    set<<<1024, 256>>>(a, 3.0f, KNOWN_WORDS);
    set<<<1024, 256>>>(b, 0.5f, KNOWN_WORDS);
    check(cudaEventCreate(&start), "cudaEventCreate");
    check(cudaEventCreate(&stop), "cudaEventCreate");
    for (int round = 0; round < rounds; round++) {
        float ms;
        check(cudaEventRecord(start), "cudaEventRecord");
        add<<<1024, 256>>>(a, b, KNOWN_WORDS);
        check(cudaEventRecord(stop), "cudaEventRecord");
        check(cudaEventSynchronize(stop), "add");
        check(cudaEventElapsedTime(&ms, start, stop), "cudaEventElapsedTime");
        if (ms < best) best = ms;
    }
    wrong<<<1024, 256>>>(b, 0.5f + rounds * 3.0f, KNOWN_WORDS, count);
    check(cudaMemcpy(&bad, count, sizeof bad, cudaMemcpyDeviceToHost), "wrong");
    printf("{\"capability\": \"%d.%d\", \"wrong_elements\": %llu, \"kernel_us\": %.3f}\n", properties.major,
           properties.minor, bad, best * 1000.0f);
}

static std::vector<Word *> take_all() {
    std::vector<Word *> chunks;
    size_t free_bytes, total_bytes;
    check(cudaFree(nullptr), "cudaFree");
    for (;;) {
        Word *chunk;
        check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
        if (free_bytes < CHUNK_BYTES + KEPT_FREE_BYTES) break;
        if (cudaMalloc(&chunk, CHUNK_BYTES) != cudaSuccess) {
            cudaGetLastError();  // it was an attempt
            break;
        }
        chunks.push_back(chunk);
    }
    return chunks;
}

static void fill(Word key) {
    std::vector<Word *> chunks = take_all();
    for (Word *chunk : chunks) write_key<<<1024, 256>>>(chunk, key, CHUNK_BYTES / sizeof(Word));
    check(cudaDeviceSynchronize(), "write_key");
    printf("{\"bytes\": %zu}\n", chunks.size() * CHUNK_BYTES);
}

static void search(Word key) {
    Word *counts, found[2];
    check(cudaMalloc(&counts, sizeof found), "cudaMalloc");
    check(cudaMemset(counts, 0, sizeof found), "cudaMemset");
    std::vector<Word *> chunks = take_all();
    for (Word *chunk : chunks) find_key<<<1024, 256>>>(chunk, key, CHUNK_BYTES / sizeof(Word), counts);
    check(cudaMemcpy(found, counts, sizeof found, cudaMemcpyDeviceToHost), "find_key");
    printf("{\"bytes\": %zu, \"words_equal\": %llu, \"words_not_zero\": %llu}\n", chunks.size() * CHUNK_BYTES,
           found[0], found[1]);
}

static void hang(int channel) {
    int *stop;
    check(cudaMalloc(&stop, sizeof *stop), "cudaMalloc");
    check(cudaMemset(stop, 0, sizeof *stop), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaMemset");
    forever<<<128, 128>>>(stop);
    usleep(200000);  // long enough to have begun
    if (cudaStreamQuery(nullptr) != cudaErrorNotReady) check(cudaErrorUnknown, "forever ended");
    say(channel, "running");
    check(cudaDeviceSynchronize(), "forever");
    check(cudaErrorUnknown, "forever ended");
}

static void illegal() {
    check(cudaFree(nullptr), "cudaFree");
    write_outside<<<1, 32>>>(reinterpret_cast<int *>(0x10));
    check(cudaDeviceSynchronize(), "write_outside");
    check(cudaErrorUnknown, "an illegal write went unnoticed");
}

static void count(int channel) {
    const int n = 1 << 20;
    float *a, *b;
    char word[32];
    Word *errors, bad = 0;
    int rounds = 0;
    check(cudaMalloc(&a, n * sizeof(float)), "cudaMalloc");
    check(cudaMalloc(&b, n * sizeof(float)), "cudaMalloc");
    check(cudaMalloc(&errors, sizeof(Word)), "cudaMalloc");
    check(cudaMemset(errors, 0, sizeof(Word)), "cudaMemset");
    set<<<256, 256>>>(a, 1.0f, n);
    set<<<256, 256>>>(b, 0.0f, n);
    while (recv(channel, word, sizeof word, MSG_DONTWAIT) <= 0) {
        add<<<256, 256>>>(a, b, n);
        check(cudaDeviceSynchronize(), "add");
        snprintf(word, sizeof word, "%d", ++rounds);
        say(channel, word);
        usleep(1000);
    }
    wrong<<<256, 256>>>(b, float(rounds), n, errors);
    check(cudaMemcpy(&bad, errors, sizeof bad, cudaMemcpyDeviceToHost), "wrong");
    printf("{\"rounds\": %d, \"wrong_elements\": %llu}\n", rounds, bad);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    int channel = argc > 2 ? atoi(argv[2]) : -1;
    Word key = argc > 3 ? strtoull(argv[3], nullptr, 16) : 0;
    if (!strcmp(mode, "known")) known();
    else if (!strcmp(mode, "fill")) fill(key);
    else if (!strcmp(mode, "search")) search(key);
    else if (!strcmp(mode, "hang")) hang(channel);
    else if (!strcmp(mode, "illegal")) illegal();
    else if (!strcmp(mode, "count")) count(channel);
    else return 2;
    fflush(stdout);
    _exit(0);  // whatever is allocated is left for the driver to clear
}
