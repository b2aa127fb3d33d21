/* Memory, streams and events of the emulated card. Work waits in its stream
 * until somebody synchronises; then whatever may run next, by streams and
 * events, runs in a random order. */
#include <cstdlib>
#include <ctime>
#include <deque>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "emulate.h"

struct emulate_event {
    unsigned long recorded, completed;
};

namespace
{

struct work {
    std::function<void()> run;
    emulate_event *event; /* waits for it, if run is empty */
    unsigned long version;
};

} // namespace

struct emulate_stream {
    std::deque<work> queue;
};

namespace
{

std::recursive_mutex lock;
std::vector<emulate_stream *> streams;
std::map<uintptr_t, emulate_piece> pieces;
size_t memory_bytes = (size_t)1 << 30;
size_t used_bytes;
long calls_left = -1;
thread_local cudaError_t last_error;
uint64_t random_state;

typedef std::lock_guard<std::recursive_mutex> guard;

bool on_card(const void *p, size_t bytes)
{
    auto it = pieces.upper_bound((uintptr_t)p);

    if (it == pieces.begin())
        return false;
    --it;
    return (uintptr_t)p + bytes <= it->first + it->second.bytes;
}

void check_copy(const void *to, const void *from, size_t bytes,
                cudaMemcpyKind kind)
{
    bool to_card = kind != cudaMemcpyDeviceToHost;
    bool from_card = kind != cudaMemcpyHostToDevice;

    if (on_card(to, bytes) != to_card || on_card(from, bytes) != from_card)
        emulate_die("a copy whose direction is not that of its pointers");
}

bool can_run(const emulate_stream *s)
{
    if (s->queue.empty())
        return false;
    const work &w = s->queue.front();
    return w.run || w.event->completed >= w.version;
}

/* Runs one piece of work that may run now. */
void advance()
{
    unsigned n = (unsigned)streams.size(), first = emulate_random(n);

    for (unsigned i = 0; i < n; i++) {
        emulate_stream *s = streams[(first + i) % n];

        if (!can_run(s))
            continue;
        work w = std::move(s->queue.front());
        s->queue.pop_front();
        if (w.run)
            w.run();
        return;
    }
    emulate_die("streams wait for events that never come");
}

cudaError_t fail(cudaError_t e)
{
    last_error = e;
    return e;
}

} // namespace

unsigned emulate_random(unsigned below)
{
    if (random_state == 0) {
        const char *given = getenv("CONDUCTOR_SEED");

        random_state =
            given ? strtoull(given, NULL, 0) | 1 : (uint64_t)time(NULL) | 1;
    }
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((random_state >> 33) % below);
}

/* Memory of the card as the environment says, for whole programs. */
static size_t given_memory()
{
    const char *mib = getenv("EMULATE_MEMORY_MIB");

    return mib ? (size_t)strtoull(mib, NULL, 0) << 20 : memory_bytes;
}

/* The same for a card that disappears: when this file appears. */
static bool lose_now()
{
    static const char *const file = getenv("EMULATE_LOSE_FILE");

    return file && access(file, F_OK) == 0;
}

cudaError_t emulate_call()
{
    if (lose_now())
        calls_left = 0;
    if (calls_left > 0)
        calls_left--;
    return calls_left == 0 ? fail(cudaErrorLaunchFailure) : cudaSuccess;
}

#define CALL()                         \
    guard g(lock);                     \
    if (emulate_call() != cudaSuccess) \
    return cudaErrorLaunchFailure

cudaError_t emulate_enqueue(cudaStream_t s, std::function<void()> run)
{
    CALL();
    s->queue.push_back({std::move(run), nullptr, 0});
    return cudaSuccess;
}

void emulate_launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t s,
                    std::function<void()> thread)
{
    /* A launch returns nothing: cudaGetLastError() has what went wrong. */
    (void)emulate_enqueue(
        s, [=] { emulate_run(grid, block, shared_bytes, thread); });
}

cudaError_t emulate_set_shared(size_t bytes)
{
    CALL();
    return bytes <= (size_t)160 << 10 ? cudaSuccess
                                      : fail(cudaErrorInvalidValue);
}

cudaError_t cudaGetDeviceCount(int *n)
{
    CALL();
    memory_bytes = given_memory();
    *n = memory_bytes > 0;
    return *n ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
    CALL();
    memset(p, 0, sizeof(*p));
    strcpy(p->name, "emulated card");
    p->major = 8;
    p->multiProcessorCount = 4;
    p->sharedMemPerBlockOptin = (size_t)160 << 10;
    p->totalGlobalMem = memory_bytes;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int)
{
    CALL();
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    CALL();
    *free_bytes = memory_bytes > used_bytes ? memory_bytes - used_bytes : 0;
    *total_bytes = memory_bytes;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    CALL();
    if (used_bytes + bytes > memory_bytes)
        return fail(cudaErrorMemoryAllocation);
    emulate_piece piece = {bytes, memfd_create("emulated card", MFD_CLOEXEC)};
    *p = MAP_FAILED;
    if (piece.fd >= 0 && ftruncate(piece.fd, (off_t)bytes) == 0)
        *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, piece.fd, 0);
    if (*p == MAP_FAILED) {
        close(piece.fd);
        return fail(cudaErrorMemoryAllocation);
    }
    memset(*p, 0xff, bytes);
    emulate_add_piece(*p, piece);
    used_bytes += bytes;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    guard g(lock);

    if (!p)
        return cudaSuccess;
    emulate_piece piece = emulate_piece_of(p);
    if (piece.fd < 0)
        emulate_die("cudaFree of what was not allocated");
    cudaDeviceSynchronize();
    used_bytes -= piece.bytes;
    emulate_remove_piece(p);
    munmap(p, piece.bytes);
    close(piece.fd);
    return cudaSuccess;
}

emulate_piece emulate_piece_of(const void *p)
{
    guard g(lock);
    auto it = pieces.find((uintptr_t)p);

    return it == pieces.end() ? emulate_piece{0, -1} : it->second;
}

void emulate_add_piece(const void *p, emulate_piece piece)
{
    guard g(lock);

    pieces[(uintptr_t)p] = piece;
}

void emulate_remove_piece(const void *p)
{
    guard g(lock);

    pieces.erase((uintptr_t)p);
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    CALL();
    *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *p ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t s)
{
    guard g(lock);

    check_copy(to, from, bytes, kind);
    return emulate_enqueue(s, [=] { memcpy(to, from, bytes); });
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes,
                       cudaMemcpyKind kind)
{
    CALL();
    check_copy(to, from, bytes, kind);
    cudaDeviceSynchronize();
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from,
                              size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t s)
{
    guard g(lock);

    if (width > to_pitch || width > from_pitch)
        return fail(cudaErrorInvalidValue);
    check_copy(to, from,
               (height - 1) * (to_pitch < from_pitch ? to_pitch : from_pitch) +
                   width,
               kind);
    return emulate_enqueue(s, [=] {
        for (size_t i = 0; i < height; i++)
            memcpy((char *)to + i * to_pitch,
                   (const char *)from + i * from_pitch, width);
    });
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s)
{
    guard g(lock);

    if (!on_card(p, bytes))
        emulate_die("a memset outside of the card's memory");
    return emulate_enqueue(s, [=] { memset(p, value, bytes); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    CALL();
    *s = new emulate_stream();
    streams.push_back(*s);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    guard g(lock);

    if (calls_left != 0)
        cudaStreamSynchronize(s);
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == s)
            streams.erase(streams.begin() + (ptrdiff_t)i);
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    CALL();
    while (!s->queue.empty())
        advance();
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize()
{
    CALL();
    for (size_t i = 0; i < streams.size(); i++)
        while (!streams[i]->queue.empty())
            advance();
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    CALL();
    *e = new emulate_event();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    guard g(lock);
    unsigned long version = ++e->recorded;

    return emulate_enqueue(s, [=] { e->completed = version; });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    CALL();
    s->queue.push_back({nullptr, e, e->recorded});
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    CALL();
    for (unsigned i = emulate_random(4); i > 0; i--)
        if (e->completed < e->recorded)
            advance();
    /* No failure, and yet cudaGetLastError() has it, as on a card. */
    return e->completed >= e->recorded ? cudaSuccess : fail(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    CALL();
    while (e->completed < e->recorded)
        advance();
    return cudaSuccess;
}

cudaError_t cudaGetLastError()
{
    cudaError_t e = last_error;

    last_error = cudaSuccess;
    return e;
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    default:
        return "an error of the emulated card";
    }
}

void emulate_set_memory(size_t bytes)
{
    guard g(lock);

    memory_bytes = bytes;
}

void emulate_lose_card(long after_calls)
{
    guard g(lock);

    calls_left = after_calls;
    last_error = cudaSuccess;
    /* Nobody will wait for what a lost card still had to do. */
    if (after_calls < 0)
        for (emulate_stream *s : streams)
            s->queue.clear();
}
