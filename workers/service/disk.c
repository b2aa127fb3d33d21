/* Opens the worker's disk tier, and connects it to the loop. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "workers/disk/source.h"
#include "workers/disk/write_behind.h"
#include "workers/memory.h"
#include "workers/service/internal.h"

/* Most events on disk blocks between two reports. */
#define EVENTS_MAX 65536u
#define READS_MAX 4096u

struct worker_disk {
    struct worker *w;
    struct disk_tier *tier;
    struct write_behind *writer;
    struct loop_watch watch; /* of the tier's descriptor */
};

static void on_released(void *arg)
{
    struct worker_disk *d = arg;

    worker_poke(d->w);
}

static void on_disk(void *arg, unsigned)
{
    struct worker_disk *d = arg;

    disk_tier_poll(d->tier);
    write_behind_resume(d->writer);
    worker_poke(d->w); /* there may be events */
}

static void say_hello(const struct worker *w, const struct disk_tier *tier)
{
    struct disk_tier_stats s;

    disk_tier_stats(tier, &s);
    log_info("worker %s: disk tier %s: %u blocks of %.2f MiB, %u of them in "
             "use (%s)",
             w->options->name, w->options->disk_path, s.capacity_blocks,
             (double)w->layout->block_bytes / 1048576.0, s.held_blocks,
             disk_tier_way(tier));
}

static int open_tier(struct worker *w, struct disk_tier **tier, char *err,
                     size_t err_bytes)
{
    char why[400];
    struct disk_tier_config c = {
        .loop = w->loop,
        .now_us = loop_now_us,
        .random = loop_random,
        .path = w->options->disk_path,
        .bytes = (uint64_t)w->options->disk_mib << 20,
        .geometry = {.fingerprint = w->layout->fingerprint,
                     .block_bytes = w->layout->block_bytes,
                     .block_tokens = w->layout->block_tokens,
                     .layers = w->layout->layers},
        .max_reads = READS_MAX,
        .max_writes =
            write_behind_max(worker_memory_blocks(w->options, w->layout)),
        .event_capacity = EVENTS_MAX,
        .direct = true,
        .uring = true,
    };
    int rc = disk_tier_open(&c, tier, why, sizeof(why));
    if (rc < 0)
        snprintf(err, err_bytes, "--disk-path, --disk-mib %u: %s",
                 w->options->disk_mib, why);
    return rc;
}

int worker_disk_open(struct worker *w, char *err, size_t err_bytes)
{
    if (!w->options->disk_path)
        return 0;
    struct worker_disk *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    w->disk = d;
    d->w = w;
    return open_tier(w, &d->tier, err, err_bytes);
}

int worker_disk_start(struct worker *w)
{
    struct worker_disk *d = w->disk;

    if (!d)
        return 0;
    d->writer = write_behind_new(w->store, d->tier, on_released, d);
    loop_watch_init(w->loop, &d->watch, disk_tier_fd(d->tier), LOOP_READ,
                    on_disk, d);
    if (!d->writer || loop_watch_start(&d->watch, 0))
        return -ENOMEM;
    say_hello(w, d->tier);
    return 0;
}

void worker_disk_close(struct worker *w)
{
    struct worker_disk *d = w->disk;

    if (!d)
        return;
    loop_watch_stop(&d->watch);
    disk_tier_close(d->tier);
    write_behind_free(d->writer);
    free(d);
    w->disk = NULL;
}

void worker_disk_stored(struct worker *w, uint64_t key)
{
    if (w->disk)
        write_behind_stored(w->disk->writer, key);
}

void worker_disk_poke(struct worker *w)
{
    if (!w->disk)
        return;
    /* Retries I/O that the kernel had no resources for. */
    disk_tier_poll(w->disk->tier);
    write_behind_resume(w->disk->writer);
}

struct disk_tier *worker_disk_tier(const struct worker *w)
{
    return w->disk ? w->disk->tier : NULL;
}

uint64_t worker_disk_bytes_per_s(const struct worker *w)
{
    const struct loader_source *s =
        w->disk ? disk_source(w->loader, w->disk->tier) : NULL;

    return s ? (uint64_t)loader_source_bytes_per_s(s) : 0;
}
