/* Compares the memory a worker needs with the machine's. */
#include "workers/memory.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/error.h"

#define MIB 1048576.0
#define GIB 1073741824.0

uint64_t worker_memory_of_machine(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);

    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes
                                       : 0;
}

uint32_t worker_memory_blocks(const struct worker_options *o,
                              const struct engine_kv_layout *layout)
{
    uint64_t n = o->kv_blocks;

    if (n == 0)
        n = ((uint64_t)o->kv_mib << 20) / layout->block_bytes;
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static int check_block(const struct worker_options *o,
                       const struct engine_kv_layout *layout, char *err,
                       size_t err_bytes)
{
    if (worker_memory_blocks(o, layout) == 0)
        return error_say(err, err_bytes, -EINVAL,
                         "--kv-mib %u: one block of %u tokens needs %.1f MiB",
                         o->kv_mib, layout->block_tokens,
                         (double)layout->block_bytes / MIB);
    return 0;
}

/* Writes the options that would fit, if `left` bytes remain for KV. */
static void advise(const struct worker_options *o,
                   const struct engine_kv_layout *layout, double left,
                   char *out, size_t out_bytes)
{
    double most =
        o->kv_blocks ? left / (double)layout->block_bytes : left / MIB;

    if (o->profile || left < (double)layout->block_bytes)
        snprintf(out, out_bytes, "fewer --layers N, or a smaller --model");
    else
        snprintf(out, out_bytes, "--%s of at most %llu, or fewer --layers N",
                 o->kv_blocks ? "kv-blocks" : "kv-mib",
                 (unsigned long long)most);
}

int worker_memory_check(const struct worker_options *o,
                        const struct engine_kv_layout *layout,
                        const struct engine_needs *needs,
                        uint64_t machine_bytes, char *err, size_t err_bytes)
{
    int rc = o->profile ? 0 : check_block(o, layout, err, err_bytes);
    double rest = (double)needs->weights_bytes + (double)needs->step_bytes;
    double have = (double)machine_bytes;
    double kv = 0;
    char instead[80];

    if (!o->profile)
        kv = (double)worker_memory_blocks(o, layout) *
             (double)layout->block_bytes;
    if (rc < 0 || machine_bytes == 0 || rest + kv <= have)
        return rc;
    advise(o, layout, have - rest, instead, sizeof(instead));
    return error_say(
        err, err_bytes, -ENOMEM,
        "model %s with %u layers needs %.1f GiB for weights, %.1f GiB for "
        "a step and %.1f GiB for KV blocks, and this machine has %.1f GiB "
        "of memory: take %s",
        o->model, layout->layers, (double)needs->weights_bytes / GIB,
        (double)needs->step_bytes / GIB, kv / GIB, have / GIB, instead);
}
