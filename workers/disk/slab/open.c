/* Opens the slab, or names the fault of a file that it refuses. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "workers/disk/slab/internal.h"

/* After a worker was killed, the kernel may keep its file locked until its I/O
 * is over: retry for 3 s. */
#define LOCK_TRIES 60
#define LOCK_PAUSE_NS 50000000

static int open_file(struct disk_opening *o)
{
    const char *path = o->config->path;
    struct stat st;

    if (stat(path, &st) == 0) {
        if (!S_ISREG(st.st_mode))
            return disk_slab_fail(o, -EINVAL, " is no regular file");
        /* Respect a read-only mode even as root. */
        if (!(st.st_mode & (S_IWUSR | S_IWGRP | S_IWOTH)))
            return disk_slab_fail(
                o, -EACCES,
                " is read-only: make it writable, or name another "
                "file");
        o->slab.fd = open(path, O_RDWR | O_CLOEXEC);
    } else if (errno == ENOENT) {
        o->slab.fd = open(path, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0600);
        o->created = o->slab.fd >= 0;
    }
    if (o->slab.fd < 0)
        return disk_slab_fail(
            o, -errno,
            " cannot be opened for writing: %s; name a file in a "
            "folder that can be written",
            strerror(errno));
    return 0;
}

static int lock_file(struct disk_opening *o)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};

    for (int i = 0; flock(o->slab.fd, LOCK_EX | LOCK_NB) < 0; i++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return disk_slab_error(o, -errno, " cannot be locked");
        if (i == LOCK_TRIES)
            return disk_slab_fail(
                o, -EBUSY,
                " is in use by another process: each worker needs "
                "a file of its own");
        nanosleep(&pause, NULL);
    }
    return 0;
}

static bool parse_header(const uint8_t *page, struct disk_header *h)
{
    struct codec c = codec_reader(page, DISK_ALIGN_BYTES);

    disk_header_fields(&c, h);
    return disk_slab_sealed(page, DISK_ALIGN_BYTES) &&
           h->magic == DISK_FILE_MAGIC;
}

static int compare(struct disk_opening *o, const struct disk_header *h)
{
    const struct disk_geometry *want = &o->slab.geometry;
    const struct disk_geometry *has = &h->geometry;

    if (h->version != DISK_FILE_VERSION)
        return disk_slab_fail(
            o, -EINVAL,
            " has format %u, this program knows %u: delete it, or "
            "name another file",
            h->version, DISK_FILE_VERSION);
    if (has->fingerprint != want->fingerprint)
        return disk_slab_fail(
            o, -EINVAL,
            " holds KV of another model, seed or number of layers "
            "(fingerprint %016llx, here %016llx): delete it, or name "
            "another file",
            (unsigned long long)has->fingerprint,
            (unsigned long long)want->fingerprint);
    if (has->block_tokens != want->block_tokens ||
        has->layers != want->layers || has->block_bytes != want->block_bytes)
        return disk_slab_fail(
            o, -EINVAL,
            " holds blocks of %u tokens, %u layers and %llu bytes, "
            "here they are of %u, %u and %llu: delete it, or name "
            "another file",
            has->block_tokens, has->layers,
            (unsigned long long)has->block_bytes, want->block_tokens,
            want->layers, (unsigned long long)want->block_bytes);
    if (h->slots != o->slab.slots)
        return disk_slab_fail(
            o, -EINVAL,
            " was made for %u blocks (%.0f MiB), and %u (%.0f MiB) "
            "are asked for: ask for the same size, or delete it",
            h->slots, disk_slab_mib(disk_slab_bytes(has, h->slots)),
            o->slab.slots, disk_slab_mib(o->slab.file_bytes));
    o->slab.file_id = h->file_id;
    return 0;
}

/* Compares the first undamaged header with the configuration. */
static int check_headers(struct disk_opening *o)
{
    uint8_t pages[2 * DISK_ALIGN_BYTES] = {0};
    bool ours = false;
    struct disk_header h;

    ssize_t n = pread(o->slab.fd, pages, sizeof(pages), 0);
    if (n < 0)
        return disk_slab_error(o, -errno, " cannot be read");
    for (uint32_t i = 0; i < 2; i++) {
        const uint8_t *page = pages + i * DISK_ALIGN_BYTES;

        if (parse_header(page, &h))
            return compare(o, &h);
        ours = ours || wire_u64_at(page, 0) == DISK_FILE_MAGIC;
    }
    if (!ours)
        return disk_slab_fail(o, -EINVAL,
                              " exists and is not a slab of KV blocks: delete "
                              "it, or name another file");
    log_warn("%s: both headers are damaged; all of it counts as empty",
             o->config->path);
    o->fresh = true;
    return 0;
}

/* Turns O_DIRECT on if one read with it works. */
static void go_direct(struct disk_opening *o)
{
    struct disk_slab *s = &o->slab;
    uint64_t layer_bytes = s->geometry.block_bytes / s->geometry.layers;
    const char *why = "layers are no multiple of 4096 bytes";
    int flags = fcntl(s->fd, F_GETFL);
    void *page = aligned_alloc(DISK_ALIGN_BYTES, DISK_ALIGN_BYTES);

    if (layer_bytes % DISK_ALIGN_BYTES == 0 && page) {
        s->direct = fcntl(s->fd, F_SETFL, flags | O_DIRECT) == 0 &&
                    pread(s->fd, page, DISK_ALIGN_BYTES, 0) >= 0;
        why = strerror(errno);
    }
    free(page);
    if (s->direct)
        return;
    log_info("%s: read through the page cache, without O_DIRECT: %s",
             o->config->path, why);
    if (fcntl(s->fd, F_SETFL, flags & ~O_DIRECT) < 0)
        log_warn("%s: %s", o->config->path, strerror(errno));
}

static int open_all(struct disk_opening *o)
{
    struct stat st;
    int rc = open_file(o);

    if (rc == 0)
        rc = lock_file(o);
    if (rc < 0)
        return rc;
    if (fstat(o->slab.fd, &st) < 0)
        return disk_slab_error(o, -errno, "");
    o->size_bytes = (uint64_t)st.st_size;
    o->fresh = st.st_size == 0;
    if (!o->fresh)
        rc = check_headers(o);
    if (rc == 0)
        rc = disk_slab_fill(o);
    if (rc == 0 && o->config->direct)
        go_direct(o);
    return rc;
}

/* Fails with the smallest possible size, in whole MiB as options take it. */
static int too_small(struct disk_opening *o)
{
    const struct disk_geometry *g = &o->config->geometry;
    uint64_t need = disk_slab_bytes(g, 1);

    return disk_slab_fail(
        o, -EINVAL,
        ": %.1f MiB do not hold one block of %.1f MiB, which needs "
        "%.2f MiB with its headers: ask for at least %llu MiB",
        disk_slab_mib(o->config->bytes), disk_slab_mib(g->block_bytes),
        disk_slab_mib(need), (unsigned long long)((need + 0xfffff) >> 20));
}

int disk_slab_open(const struct disk_slab_config *config, struct disk_slab *out,
                   char *err, size_t err_bytes)
{
    struct disk_opening o = {
        .config = config, .slab.fd = -1, .err = err, .err_bytes = err_bytes};
    uint32_t slots = disk_slab_slots(&config->geometry, config->bytes);

    if (slots == 0)
        return too_small(&o);
    disk_slab_lay_out(&o.slab, &config->geometry, slots);
    int rc = open_all(&o);
    if (rc == 0) {
        *out = o.slab;
        return 0;
    }
    if (o.created)
        unlink(config->path);
    if (o.slab.fd >= 0)
        close(o.slab.fd);
    return rc;
}

void disk_slab_close(struct disk_slab *slab)
{
    if (slab->fd >= 0)
        close(slab->fd);
    slab->fd = -1;
}
