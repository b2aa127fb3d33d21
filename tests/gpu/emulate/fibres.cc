/* The threads of a block as fibres, and what they do together. */
#include <memory>
#include <vector>

#include "emulate.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#define EMULATE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATE_ASAN 1
#endif
#endif
#ifdef EMULATE_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#define STACK_BYTES ((size_t)64 << 10)
#define MAX_THREADS 1024
#define WARP 32

emulate_place emulate_here;

namespace
{

struct copy {
    void *to;
    unsigned char bytes[16];
};

struct fibre {
    std::unique_ptr<unsigned char[]> stack;
#if defined(__x86_64__)
    void *sp;
#else
    ucontext_t context;
#endif
    void *fake_stack; /* ASan's */
    bool over;
    const unsigned long *gate; /* waits while *gate == gate_value */
    unsigned long gate_value;
    std::vector<std::vector<copy>> groups; /* of cp.async; the last is open */
};

struct warp {
    unsigned arrived;
    unsigned long generation;
    emulate_warp_fn *fn;
    void *lanes[WARP];
};

struct block_state {
    std::vector<fibre> fibres;
    std::vector<warp> warps;
    std::vector<unsigned char> shared;
    const std::function<void()> *thread;
    unsigned n, alive, running;
    unsigned arrived;
    unsigned long generation;
#if defined(__x86_64__)
    void *scheduler_sp;
#else
    ucontext_t scheduler;
#endif
    void *scheduler_fake;
    const void *scheduler_bottom;
    size_t scheduler_size;
} b;

fibre &me()
{
    return b.fibres[b.running];
}

#if defined(__x86_64__)
extern "C" void emulate_switch(void **save, void *load);
asm(".text\n"
    ".globl emulate_switch\n"
    ".type emulate_switch, @function\n"
    "emulate_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
    "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    movq %rsp, (%rdi)\n    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n"
    "    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n"
    ".size emulate_switch, .-emulate_switch\n");
#endif

void to_scheduler(bool for_good)
{
    fibre &f = me();
#ifdef EMULATE_ASAN
    __sanitizer_start_switch_fiber(for_good ? nullptr : &f.fake_stack,
                                   b.scheduler_bottom, b.scheduler_size);
#endif
    (void)for_good;
#if defined(__x86_64__)
    emulate_switch(&f.sp, b.scheduler_sp);
#else
    swapcontext(&f.context, &b.scheduler);
#endif
#ifdef EMULATE_ASAN
    __sanitizer_finish_switch_fiber(f.fake_stack, nullptr, nullptr);
#endif
}

void fibre_main()
{
#ifdef EMULATE_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &b.scheduler_bottom,
                                    &b.scheduler_size);
#endif
    (*b.thread)();
    fibre &f = me();
    for (const auto &group : f.groups)
        if (!group.empty())
            emulate_die("a thread ended without waiting for its cp.async");
    f.over = true;
    b.alive--;
    to_scheduler(true);
}

void to_fibre(unsigned i)
{
    fibre &f = b.fibres[i];

    b.running = i;
    emulate_here.thread.x = i % emulate_here.block_size.x;
    emulate_here.thread.y = i / emulate_here.block_size.x;
#ifdef EMULATE_ASAN
    __sanitizer_start_switch_fiber(&b.scheduler_fake, f.stack.get(),
                                   STACK_BYTES);
#endif
#if defined(__x86_64__)
    emulate_switch(&b.scheduler_sp, f.sp);
#else
    swapcontext(&b.scheduler, &f.context);
#endif
#ifdef EMULATE_ASAN
    __sanitizer_finish_switch_fiber(b.scheduler_fake, nullptr, nullptr);
#endif
}

void prepare(fibre &f)
{
    if (!f.stack)
        f.stack.reset(new unsigned char[STACK_BYTES]);
    f.over = false;
    f.gate = nullptr;
    f.fake_stack = nullptr;
    f.groups.assign(1, {});
#if defined(__x86_64__)
    void **top = (void **)(f.stack.get() + STACK_BYTES);
    *--top = nullptr; /* keeps the stack aligned as after a call */
    *--top = (void *)fibre_main;
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    f.sp = top;
#else
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.get();
    f.context.uc_stack.ss_size = STACK_BYTES;
    f.context.uc_link = nullptr;
    makecontext(&f.context, fibre_main, 0);
#endif
}

void wait_at(const unsigned long *gate)
{
    me().gate = gate;
    me().gate_value = *gate;
    to_scheduler(false);
}

void run_block()
{
    for (unsigned i = 0; i < b.n; i++)
        prepare(b.fibres[i]);
    b.alive = b.n;
    b.arrived = 0;
    for (warp &w : b.warps)
        w = warp{};
    memset(b.shared.data(), 0xff, b.shared.size());
    while (b.alive > 0) {
        bool moved = false;
        unsigned first = emulate_random(b.n);

        for (unsigned k = 0; k < b.n; k++) {
            unsigned i = (first + k) % b.n;

            fibre &f = b.fibres[i];
            if (f.over || (f.gate && *f.gate == f.gate_value))
                continue;
            f.gate = nullptr;
            moved = true;
            to_fibre(i);
        }
        if (!moved)
            emulate_die("the threads of a block wait for each other");
    }
}

__attribute__((always_inline)) inline uint32_t bf16_bits(uint32_t pair,
                                                         unsigned i)
{
    return i ? pair & 0xffff0000u : pair << 16;
}

struct mma_args {
    float d[4];
    uint32_t a[4], b[2];
};

/* All that it touches are copies of fixed size: checking each access would take
 * a third of the time of the tests in a sanitized build. */
__attribute__((no_sanitize("address", "undefined"))) void
mma_all(void *lanes[WARP])
{
    float a[16][16], x[16][8];

    for (unsigned l = 0; l < WARP; l++) {
        const mma_args *m = (const mma_args *)lanes[l];
        unsigned g = l / 4, t = l % 4 * 2;

        for (unsigned i = 0; i < 2; i++) {
            a[g][t + i] = __uint_as_float(bf16_bits(m->a[0], i));
            a[g + 8][t + i] = __uint_as_float(bf16_bits(m->a[1], i));
            a[g][t + 8 + i] = __uint_as_float(bf16_bits(m->a[2], i));
            a[g + 8][t + 8 + i] = __uint_as_float(bf16_bits(m->a[3], i));
            x[t + i][g] = __uint_as_float(bf16_bits(m->b[0], i));
            x[t + 8 + i][g] = __uint_as_float(bf16_bits(m->b[1], i));
        }
    }
    for (unsigned l = 0; l < WARP; l++) {
        float *d = ((mma_args *)lanes[l])->d;

        for (unsigned i = 0; i < 4; i++) {
            unsigned row = l / 4 + i / 2 * 8, column = l % 4 * 2 + i % 2;
            float sum = d[i];

            for (unsigned k = 0; k < 16; k++)
                sum += a[row][k] * x[k][column];
            d[i] = sum;
        }
    }
}

struct ldmatrix_args {
    uint32_t *out;
    const void *row;
    bool transposed;
};

void ldmatrix_all(void *lanes[WARP])
{
    uint16_t m[4][8][8];

    for (unsigned l = 0; l < WARP; l++) {
        const void *row = ((const ldmatrix_args *)lanes[l])->row;

        if ((uintptr_t)row % 16)
            emulate_die("ldmatrix: a row is not aligned to 16 bytes");
        memcpy(m[l / 8][l % 8], row, 16);
    }
    for (unsigned l = 0; l < WARP; l++) {
        const ldmatrix_args *a = (const ldmatrix_args *)lanes[l];

        for (unsigned j = 0; j < 4; j++) {
            unsigned r = l / 4, c = l % 4 * 2;

            a->out[j] = a->transposed
                            ? m[j][c][r] | (uint32_t)m[j][c + 1][r] << 16
                            : m[j][r][c] | (uint32_t)m[j][r][c + 1] << 16;
        }
    }
}

struct shuffle_args {
    uint32_t in, out;
    int from;
};

void shuffle_all(void *lanes[WARP])
{
    for (unsigned l = 0; l < WARP; l++) {
        shuffle_args *a = (shuffle_args *)lanes[l];

        a->out = ((const shuffle_args *)lanes[a->from & 31])->in;
    }
}

uint32_t shuffle(unsigned mask, uint32_t value, int from)
{
    shuffle_args a = {value, 0, from};

    if (mask != 0xffffffffu)
        emulate_die("a shuffle of less than a warp");
    emulate_warp(shuffle_all, &a);
    return a.out;
}

int lane()
{
    return (int)(b.running % WARP);
}

void nothing_all(void *[WARP])
{
}

} // namespace

void emulate_run(dim3 grid, dim3 block, size_t shared_bytes,
                 const std::function<void()> &thread)
{
    unsigned n = block.x * block.y * block.z;

    if (n == 0 || n > MAX_THREADS || n % WARP || block.z != 1)
        emulate_die("a block must be whole warps of at most 1024 threads");
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 ||
        grid.z > 65535)
        emulate_die("a grid is empty, or too large in y or z");
    if (b.fibres.size() < n)
        b.fibres.resize(n);
    b.warps.resize(n / WARP);
    b.shared.resize(shared_bytes + 128);
    b.thread = &thread;
    b.n = n;
    emulate_here.block_size = block;
    emulate_here.grid = grid;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                emulate_here.block = dim3(x, y, z);
                run_block();
            }
}

unsigned char *emulate_shared()
{
    uintptr_t p = (uintptr_t)b.shared.data();

    return (unsigned char *)((p + 127) / 128 * 128);
}

void __syncthreads()
{
    if (++b.arrived == b.alive) {
        b.arrived = 0;
        b.generation++;
        return;
    }
    wait_at(&b.generation);
}

void emulate_warp(emulate_warp_fn *all, void *mine)
{
    warp &w = b.warps[b.running / WARP];

    if (w.arrived > 0 && w.fn != all)
        emulate_die("the lanes of a warp are at different operations");
    w.fn = all;
    w.lanes[lane()] = mine;
    if (++w.arrived < WARP) {
        wait_at(&w.generation);
        return;
    }
    all(w.lanes);
    w.arrived = 0;
    w.generation++;
}

void __syncwarp(unsigned)
{
    emulate_warp(nothing_all, nullptr);
}

float __shfl_xor_sync(unsigned mask, float value, int lanes)
{
    return __uint_as_float(
        shuffle(mask, __float_as_uint(value), lane() ^ lanes));
}

float __shfl_sync(unsigned mask, float value, int from)
{
    return __uint_as_float(shuffle(mask, __float_as_uint(value), from));
}

int __shfl_sync(unsigned mask, int value, int from)
{
    return (int)shuffle(mask, (uint32_t)value, from);
}

void emulate_mma(float d[4], const uint32_t a[4], const uint32_t x[2])
{
    mma_args m = {
        {d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {x[0], x[1]}};

    emulate_warp(mma_all, &m);
    for (unsigned i = 0; i < 4; i++)
        d[i] = m.d[i];
}

void emulate_ldmatrix(uint32_t out[4], const void *row, bool transposed)
{
    ldmatrix_args a = {out, row, transposed};

    emulate_warp(ldmatrix_all, &a);
}

void emulate_cp_async(void *shared, const void *from, unsigned bytes)
{
    copy c = {shared, {0}};

    if (bytes > 16 || (uintptr_t)shared % 16 ||
        (bytes > 0 && (uintptr_t)from % 16))
        emulate_die("cp.async: 16 bytes, aligned to 16");
    if (bytes > 0)
        memcpy(c.bytes, from, bytes);
    memset(shared, 0xff, 16);
    me().groups.back().push_back(c);
}

void emulate_cp_commit()
{
    me().groups.emplace_back();
}

void emulate_cp_wait(unsigned groups_left)
{
    auto &groups = me().groups;

    while (groups.size() > groups_left + 1) {
        for (const copy &c : groups.front())
            memcpy(c.to, c.bytes, 16);
        groups.erase(groups.begin());
    }
}
