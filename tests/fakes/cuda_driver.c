/* A stand-in for libcuda.so.1: one made-up GPU whose memory is the host's. It is as strict as the documentation
 * says the driver is: sizes and addresses on the granularity, mappings whole, a context current in the thread.
 *
 * LIFTBENCH_FAKE_CUDA  "name=code name=code@3 name=code-2 name=code!": the call fails with that CUresult, from
 *                      the third time on, two times only, and (!) every later call of any name fails with it too.
 * LIFTBENCH_FAKE_CUDA_NO_EXPORT  set: the device says that it cannot export by descriptor.
 * LIFTBENCH_FAKE_CUDA_MPS        set: the device says that MPS shares it.
 * LIFTBENCH_FAKE_CUDA_WRONG      set: the known kernel computes something else.
 * fake_cuda_calls(name) says how often a function was called, fake_cuda_live() what is held,
 * fake_cuda_heal() ends (!).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, UNINITIALISED = 3, BAD_DEVICE = 101, BAD_CONTEXT = 201, NOT_FOUND = 500 };
#define UNIT (2ul << 20)
#define MOST 4096

typedef struct { int type, id; } Location;
typedef struct {
    int type, handle_types;
    Location location;
    void *windows;
    struct { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } flags;
} Properties;
typedef struct { Location location; int flags; } Access;
typedef struct { char reserved[64]; } IpcHandle;
typedef struct { uint64_t address, size; } Range;
typedef struct { char name[64]; int count; } Counter;

static Range reserved[MOST], mapped[MOST], opened[MOST];
static struct { uint64_t address, size; int fd; char path[64]; } allocated[MOST];
static Counter counters[256];
static int initialised, sticky, contexts, descriptors, named;
static __thread void *current;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int fake_cuda_calls(const char *name) {
    for (int i = 0; i < 256 && counters[i].count; i++)
        if (!strcmp(counters[i].name, name)) return counters[i].count;
    return 0;
}
static int held(const Range *ranges) {
    int n = 0;
    for (int i = 0; i < MOST; i++) n += ranges[i].size != 0;
    return n;
}
/* Reservations, mappings, allocations, handles and contexts that nobody gave back. */
int fake_cuda_live(void) {
    int n = held(reserved) + held(mapped) + held(opened) + descriptors + contexts;
    for (int i = 0; i < MOST; i++) n += allocated[i].size != 0;
    return n;
}

void fake_cuda_heal(void) { sticky = 0; }

/* Counts a call, and says whether it is to fail. */
static int enter(const char *name) {
    int result = OK, count = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 256; i++) {
        if (counters[i].count && strcmp(counters[i].name, name)) continue;
        snprintf(counters[i].name, sizeof counters[i].name, "%s", name);
        count = ++counters[i].count;
        break;
    }
    const char *told = getenv("LIFTBENCH_FAKE_CUDA");
    if (sticky) result = sticky;
    while (told && *told && !result) {
        char wanted[64] = "";
        int code = 0, from = 1, most = 1 << 30, length = 0;
        if (sscanf(told, " %63[^=]=%d%n", wanted, &code, &length) < 2) break;
        told += length;
        if (*told == '@') { from = (int)strtol(told + 1, (char **)&told, 10); }
        if (*told == '-') { most = (int)strtol(told + 1, (char **)&told, 10); }
        int stays = *told == '!';
        told += stays;
        if (!strcmp(wanted, name) && count >= from && count < from + most) {
            result = code;
            if (stays) sticky = code;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}
#define ENTER do { int told_ = enter(__func__); if (told_) return told_; } while (0)
#define IN_CONTEXT do { ENTER; if (!initialised) return UNINITIALISED; if (!current) return BAD_CONTEXT; } while (0)

static Range *find(Range *ranges, uint64_t address, uint64_t size) {
    for (int i = 0; i < MOST; i++)
        if (ranges[i].address == address && ranges[i].size == size) return &ranges[i];
    return NULL;
}
static int add(Range *ranges, uint64_t address, uint64_t size) {
    Range *free = find(ranges, 0, 0);
    if (!free) return NO_MEMORY;
    *free = (Range){address, size};
    return OK;
}

/* --- devices and contexts ------------------------------------------------------------------------------ */

int cuInit(unsigned flags) { ENTER; initialised = 1; return flags ? INVALID : OK; }
int cuDriverGetVersion(int *version) { ENTER; *version = 13000; return OK; }
int cuGetErrorName(int code, const char **text) {
    *text = code == 1 ? "CUDA_ERROR_INVALID_VALUE" : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == 201 ? "CUDA_ERROR_INVALID_CONTEXT" : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : code == 801 ? "CUDA_ERROR_NOT_SUPPORTED" : NULL;
    return *text ? OK : INVALID;
}
int cuGetErrorString(int code, const char **text) { *text = "as it was told to"; return code == 4242 ? INVALID : OK; }
int cuDeviceGetCount(int *count) { ENTER; if (!initialised) return UNINITIALISED; *count = 1; return OK; }
int cuDeviceGet(int *device, int ordinal) { ENTER; *device = 0; return ordinal ? BAD_DEVICE : OK; }
int cuDeviceGetUuid_v2(char *uuid, int device) {
    ENTER;
    for (int i = 0; i < 16; i++) uuid[i] = (char)(0x11 * i);
    return device ? BAD_DEVICE : OK;
}
int cuDeviceGetName(char *name, int length, int device) {
    ENTER; snprintf(name, (size_t)length, "Made-up GPU"); return device ? BAD_DEVICE : OK;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    ENTER;
    *value = attribute == 38 ? 50 << 20 : attribute == 16 ? 2 : 1;
    if (attribute == 103 && getenv("LIFTBENCH_FAKE_CUDA_NO_EXPORT")) *value = 0;
    if (attribute == 133) *value = getenv("LIFTBENCH_FAKE_CUDA_MPS") != NULL;
    return device ? BAD_DEVICE : OK;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    ENTER; if (device) return BAD_DEVICE; contexts++; *context = &contexts; return OK;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    ENTER; if (device || !contexts) return BAD_CONTEXT; contexts--; return OK;
}
int cuCtxSetCurrent(void *context) { ENTER; current = context; return OK; }
int cuCtxSynchronize(void) { IN_CONTEXT; return OK; }
int cuCtxResetPersistingL2Cache(void) { IN_CONTEXT; return OK; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { IN_CONTEXT; *free = *total = 4ul << 30; return OK; }

/* --- virtual memory ------------------------------------------------------------------------------------- */

static int right(const Properties *p) {
    return p->type == 1 && p->handle_types == 1 && p->location.type == 1 && p->location.id == 0 && !p->windows;
}
int cuMemGetAllocationGranularity(size_t *size, const Properties *p, int option) {
    IN_CONTEXT; *size = UNIT; return right(p) && option == 0 ? OK : INVALID;
}
int cuMemCreate(uint64_t *handle, size_t size, const Properties *p, unsigned long long flags) {
    IN_CONTEXT;
    if (!right(p) || !size || size % UNIT || flags) return INVALID;
    int fd = memfd_create("device", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)size)) return NO_MEMORY;
    descriptors++;
    *handle = (uint64_t)fd + 1;
    return OK;
}
int cuMemExportToShareableHandle(void *to, uint64_t handle, int type, unsigned long long flags) {
    IN_CONTEXT;
    if (type != 1 || flags) return INVALID;
    int fd = fcntl((int)handle - 1, F_DUPFD_CLOEXEC, 0);
    *(int *)to = fd;
    return fd < 0 ? INVALID : OK;
}
int cuMemImportFromShareableHandle(uint64_t *handle, void *from, int type) {
    IN_CONTEXT;
    struct stat facts;
    int fd = (int)(intptr_t)from;
    if (type != 1 || fstat(fd, &facts) || facts.st_size % (off_t)UNIT) return INVALID;
    fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return INVALID;
    descriptors++;
    *handle = (uint64_t)fd + 1;
    return OK;
}
int cuMemRelease(uint64_t handle) { IN_CONTEXT; descriptors--; return close((int)handle - 1) ? INVALID : OK; }
int cuMemAddressReserve(uint64_t *pointer, size_t size, size_t alignment, uint64_t wish, unsigned long long flags) {
    IN_CONTEXT;
    if (!size || size % UNIT || wish || flags || (alignment & (alignment - 1))) return INVALID;
    char *found = mmap(NULL, size + UNIT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return NO_MEMORY;
    uint64_t start = ((uint64_t)found + UNIT - 1) / UNIT * UNIT;
    if (start > (uint64_t)found) munmap(found, start - (uint64_t)found);
    munmap((void *)(start + size), UNIT - (start - (uint64_t)found));
    *pointer = start;
    return add(reserved, start, size);
}
int cuMemAddressFree(uint64_t pointer, size_t size) {
    IN_CONTEXT;
    Range *range = find(reserved, pointer, size);
    if (!range) return INVALID;
    for (int i = 0; i < MOST; i++)
        if (mapped[i].size && mapped[i].address >= pointer && mapped[i].address < pointer + size) return INVALID;
    *range = (Range){0, 0};
    return munmap((void *)pointer, size) ? INVALID : OK;
}
int cuMemMap(uint64_t pointer, size_t size, size_t offset, uint64_t handle, unsigned long long flags) {
    IN_CONTEXT;
    struct stat facts;
    int inside = 0;
    for (int i = 0; i < MOST; i++)
        inside |= reserved[i].address <= pointer && pointer + size <= reserved[i].address + reserved[i].size;
    if (!inside || pointer % UNIT || offset || flags || fstat((int)handle - 1, &facts)) return INVALID;
    if ((size_t)facts.st_size != size || find(mapped, pointer, size)) return INVALID;
    void *at = mmap((void *)pointer, size, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle - 1, 0);
    return at == MAP_FAILED ? INVALID : add(mapped, pointer, size);
}
int cuMemSetAccess(uint64_t pointer, size_t size, const Access *access, size_t count) {
    IN_CONTEXT;
    if (!find(mapped, pointer, size) || count != 1) return INVALID;
    if (access->location.type != 1 || access->location.id || access->flags != 3) return INVALID;
    return mprotect((void *)pointer, size, PROT_READ | PROT_WRITE) ? INVALID : OK;
}
int cuMemUnmap(uint64_t pointer, size_t size) {
    IN_CONTEXT;
    Range *range = find(mapped, pointer, size);
    if (!range) return INVALID;
    *range = (Range){0, 0};
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    return mmap((void *)pointer, size, PROT_NONE, flags, -1, 0) == MAP_FAILED ? INVALID : OK;
}

/* --- plain memory, IPC ---------------------------------------------------------------------------------- */

int cuMemAlloc_v2(uint64_t *pointer, size_t size) {
    IN_CONTEXT;
    for (int i = 0; i < MOST; i++) {
        if (allocated[i].size) continue;
        int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, (off_t)size)) return NO_MEMORY;
        void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED) return NO_MEMORY;
        *pointer = allocated[i].address = (uint64_t)at;
        allocated[i].size = size;
        allocated[i].fd = fd;
        allocated[i].path[0] = 0;
        return OK;
    }
    return NO_MEMORY;
}
int cuMemFree_v2(uint64_t pointer) {
    IN_CONTEXT;
    for (int i = 0; i < MOST; i++) {
        if (!allocated[i].size || allocated[i].address != pointer) continue;
        munmap((void *)pointer, allocated[i].size);
        close(allocated[i].fd);
        if (allocated[i].path[0]) unlink(allocated[i].path);
        allocated[i].size = 0;
        return OK;
    }
    return INVALID;
}
int cuIpcGetMemHandle(IpcHandle *handle, uint64_t pointer) {
    IN_CONTEXT;
    for (int i = 0; i < MOST; i++) {
        if (!allocated[i].size || allocated[i].address != pointer) continue;
        if (!allocated[i].path[0]) {
            char from[64];
            snprintf(from, sizeof from, "/proc/self/fd/%d", allocated[i].fd);
            snprintf(allocated[i].path, 64, "/dev/shm/liftbench-fake-%d-%d", getpid(), named++);
            /* Another user's worker opens it. */
            if (fchmod(allocated[i].fd, 0666) || linkat(AT_FDCWD, from, AT_FDCWD, allocated[i].path, AT_SYMLINK_FOLLOW)) {
                allocated[i].path[0] = 0;
                return INVALID;
            }
        }
        memset(handle, 0, sizeof *handle);
        strcpy(handle->reserved, allocated[i].path);
        return OK;
    }
    return INVALID;
}
int cuIpcOpenMemHandle_v2(uint64_t *pointer, IpcHandle handle, unsigned flags) {
    IN_CONTEXT;
    struct stat facts;
    handle.reserved[63] = 0;
    int fd = open(handle.reserved, O_RDWR | O_CLOEXEC);
    if (flags != 1 || fd < 0 || fstat(fd, &facts)) return INVALID;
    void *at = mmap(NULL, (size_t)facts.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) return INVALID;
    *pointer = (uint64_t)at;
    return add(opened, *pointer, (uint64_t)facts.st_size);
}
int cuIpcCloseMemHandle(uint64_t pointer) {
    IN_CONTEXT;
    for (int i = 0; i < MOST; i++) {
        if (opened[i].address != pointer || !opened[i].size) continue;
        munmap((void *)pointer, opened[i].size);
        opened[i] = (Range){0, 0};
        return OK;
    }
    return INVALID;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n) { IN_CONTEXT; memcpy(to, (void *)from, n); return OK; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t n) { IN_CONTEXT; memcpy((void *)to, from, n); return OK; }
int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t n, void *stream) {
    IN_CONTEXT;
    (void)stream;
    memset((void *)to, byte, n);
    return OK;
}

/* --- kernels, which run on the host; events ---------------------------------------------------------------- */

int fake_cuda_run(const char *name, unsigned blocks, unsigned threads, void **arguments);

int cuModuleLoadData(void **module, const char *image) {
    IN_CONTEXT;
    *module = strdup(image);
    return strstr(image, ".entry liftbench_") ? OK : INVALID;
}
int cuModuleUnload(void *module) { IN_CONTEXT; free(module); return OK; }
/* A function is its place in the module's text. */
int cuModuleGetFunction(char **function, const char *module, const char *name) {
    IN_CONTEXT;
    char entry[64];
    snprintf(entry, sizeof entry, ".entry %s(", name);
    *function = strstr(module, entry);
    return *function ? OK : NOT_FOUND;
}
int cuLaunchKernel(const char *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    IN_CONTEXT;
    char name[64];
    if (sscanf(function, ".entry %63[a-z_]", name) != 1 || !gx || gy != 1 || gz != 1) return INVALID;
    if (!bx || bx > 1024 || by != 1 || bz != 1 || shared || stream || extra) return INVALID;
    /* "wrong": what a broken device computes. */
    uint32_t more = *(uint32_t *)arguments[2] + 1;
    if (!strcmp(name, "liftbench_known") && getenv("LIFTBENCH_FAKE_CUDA_WRONG")) arguments[2] = &more;
    return fake_cuda_run(name, gx, bx, arguments) ? OK : NOT_FOUND;
}
int cuEventCreate(void **event, unsigned flags) {
    IN_CONTEXT; *event = calloc(1, sizeof(struct timespec)); return flags ? INVALID : OK;
}
int cuEventRecord(void *event, void *stream) { IN_CONTEXT; (void)stream; return clock_gettime(CLOCK_MONOTONIC, event); }
int cuEventQuery(void *event) { IN_CONTEXT; return event ? OK : INVALID; }
int cuEventElapsedTime(float *ms, struct timespec *a, struct timespec *b) {
    IN_CONTEXT;
    *ms = (float)((double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
    return OK;
}
int cuEventDestroy_v2(void *event) { IN_CONTEXT; free(event); return OK; }
