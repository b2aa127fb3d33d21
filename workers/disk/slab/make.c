/* Makes the slab: writes its headers, gives it its size, and erases headers of
 * blocks that a truncated file has lost. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "workers/disk/slab/internal.h"

double disk_slab_mib(uint64_t bytes)
{
    return (double)bytes / 1048576.0;
}

void disk_header_fields(struct codec *c, struct disk_header *h)
{
    codec_u64(c, &h->magic);
    codec_u32(c, &h->version);
    codec_u32(c, &h->slots);
    codec_u64(c, &h->file_id);
    codec_u64(c, &h->geometry.fingerprint);
    codec_u64(c, &h->geometry.block_bytes);
    codec_u32(c, &h->geometry.block_tokens);
    codec_u32(c, &h->geometry.layers);
}

static int write_headers(struct disk_opening *o)
{
    const struct disk_slab *s = &o->slab;
    struct disk_header h = {DISK_FILE_MAGIC, DISK_FILE_VERSION, s->slots,
                            s->file_id, s->geometry};
    uint8_t pages[2 * DISK_ALIGN_BYTES];
    struct wire_buf b;
    struct codec c = codec_writer(&b);

    wire_buf_init(&b, DISK_ALIGN_BYTES);
    disk_header_fields(&c, &h);
    int rc = disk_slab_seal(&b, pages, DISK_ALIGN_BYTES);
    wire_buf_fini(&b);
    if (rc < 0)
        return disk_slab_fail(o, rc, ": out of memory");
    memcpy(pages + DISK_ALIGN_BYTES, pages, DISK_ALIGN_BYTES);
    ssize_t n = pwrite(s->fd, pages, sizeof(pages), 0);
    if (n != (ssize_t)sizeof(pages))
        return disk_slab_error(o, n < 0 ? -errno : -ENOSPC,
                               " cannot be written");
    return 0;
}

/* Syncs the headers and the file's entry in its folder. */
static int sync_new(struct disk_opening *o)
{
    const char *path = o->config->path;
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX] = ".";

    if (slash)
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path) + 1, path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 || fsync(o->slab.fd) < 0 || fsync(fd) < 0 ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return rc < 0 ? disk_slab_error(o, rc, " cannot be synced") : 0;
}

/* Returns how large the file can get: its present and the free bytes. */
static uint64_t room(const struct disk_opening *o)
{
    struct statvfs fs;
    struct stat st;

    if (fstatvfs(o->slab.fd, &fs) < 0 || fstat(o->slab.fd, &st) < 0)
        return 0;
    return (uint64_t)fs.f_bavail * fs.f_frsize + (uint64_t)st.st_blocks * 512;
}

/* Allocates all of the file's space now, so that no write fails for lack of it
 * later. Doesn't try a size that cannot fit: ext4 would fill up before it
 * fails, and meanwhile other processes could not write there. */
static int allocate(struct disk_opening *o)
{
    const struct disk_slab *s = &o->slab;
    uint64_t most = room(o);
    int rc = most < s->file_bytes
                 ? ENOSPC
                 : posix_fallocate(s->fd, 0, (off_t)s->file_bytes);

    if (rc == 0)
        return 0;
    if (rc == EFBIG && most >= s->file_bytes)
        return disk_slab_fail(
            o, -rc,
            ": the file system has no files of %.0f MiB: ask for "
            "less",
            disk_slab_mib(s->file_bytes));
    if (rc != ENOSPC && rc != EFBIG)
        return disk_slab_fail(o, -rc, ": %.0f MiB cannot be allocated: %s",
                              disk_slab_mib(s->file_bytes), strerror(rc));
    return disk_slab_fail(
        o, -rc,
        ": %.0f MiB are more than the file system has room for: it "
        "may be at most %llu MiB",
        disk_slab_mib(o->config->bytes), (unsigned long long)(most >> 20));
}

/* Progress of drop_tail(). */
struct tail {
    const struct disk_opening *o;
    uint32_t lost; /* blocks */
    int rc;
};

/* Erases the header of `slot` if the file ends before the block's data do. */
static void lose(void *arg, uint32_t slot, const struct disk_slot *)
{
    struct tail *t = arg;
    const struct disk_slab *slab = &t->o->slab;
    uint64_t end = disk_slab_data_offset(slab, slot);

    if (end + slab->geometry.block_bytes <= t->o->size_bytes || t->rc < 0)
        return;
    t->rc = disk_slab_erase(slab, slot);
    t->lost += t->rc == 0;
}

/* Erases headers of blocks whose data a truncated file has lost. Must run
 * before the file grows again: a file of full size is not checked. */
static int drop_tail(struct disk_opening *o)
{
    const struct disk_slab *s = &o->slab;
    struct tail t = {.o = o};
    bool headers_cut = o->size_bytes < s->data_offset;

    /* Restore the space of the headers, so that they can be read. */
    if (headers_cut && ftruncate(s->fd, (off_t)s->data_offset) < 0)
        return disk_slab_error(o, -errno, " cannot be written");
    int64_t damaged = disk_slab_scan(s, lose, &t);
    if (damaged < 0 || t.rc < 0) {
        int rc = t.rc < 0 ? t.rc : (int)damaged;

        return disk_slab_error(o, rc,
                               ": the blocks that it lost cannot be dropped");
    }
    log_warn("%s: truncated to %llu of %llu bytes: %s%u blocks lost",
             o->config->path, (unsigned long long)o->size_bytes,
             (unsigned long long)s->file_bytes, headers_cut ? "at least " : "",
             t.lost);
    return 0;
}

int disk_slab_fill(struct disk_opening *o)
{
    if (o->fresh)
        o->slab.file_id = o->config->file_id;
    /* Sync the headers before the file grows. After a crash a short slab is
     * filled up and an empty file is made again, but a file of full size
     * without a header would look foreign. Write them in an old file, too: one
     * of them may be damaged. */
    int rc = write_headers(o);
    if (rc == 0 && o->fresh)
        rc = sync_new(o);
    if (rc < 0)
        return rc;
    if (!o->fresh && o->size_bytes < o->slab.file_bytes)
        rc = drop_tail(o);
    if (rc == 0)
        rc = allocate(o);
    if (rc < 0 && ftruncate(o->slab.fd, (off_t)o->size_bytes) < 0)
        log_warn("%s: %s", o->config->path, strerror(errno));
    return rc;
}
