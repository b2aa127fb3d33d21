/*
 * The pages of a card, readable by other processes of the machine (with their
 * own cards) and by network cards. The engine permits reads block by block, by
 * lending the block's page.
 *
 *   holder                                    asker
 *   handle, bytes ------ transport ---------> open()
 *   lend(block) -> offset ---- grant -------> read(from, to)
 *   give_back(block) <---- end of the fetch-- read_over()
 *
 * UNTESTED on a real card. The emulated one (tests/gpu/emulate) runs all of it
 * but the driver's part.
 */
#ifndef WORKERS_ENGINE_SHARED_CARD_H
#define WORKERS_ENGINE_SHARED_CARD_H

#include <stdbool.h>
#include <stdint.h>

#define SHARED_CARD_HANDLE_BYTES 64

struct shared_card;

/* All may be called on any thread. */
struct shared_card_ops {
    /* Opens `bytes` of another process's pages by an untrusted `handle`.
     * Returns their start, for read(), or NULL: unreachable, or smaller than
     * `bytes`. May take milliseconds. */
    void *(*open)(const struct shared_card *c,
                  const uint8_t handle[SHARED_CARD_HANDLE_BYTES],
                  uint64_t bytes);
    /* Closes memory from open(); no read() may be running. */
    void (*shut)(const struct shared_card *c, void *memory);
    /* Lends the page of the complete host block `block`, at *offset of the
     * pages, until give_back(). Returns 0; -ENOENT: not all of its rows are in
     * a page; -ENOBUFS: too many pages are lent. */
    int (*lend)(const struct shared_card *c, const void *block,
                uint64_t *offset);
    void (*give_back)(const struct shared_card *c, const void *block);
    /* Copies bytes of opened pages to a part of a host block, through a page
     * here if one is free, and waits. Returns 0 with *page, for read_over();
     * -EIO: the card is gone. */
    int (*read)(const struct shared_card *c, const void *from, void *to,
                uint64_t bytes, uint32_t *page);
    /* Follows each read() that returned 0. ok: the bytes passed their check,
     * so steps may use the page. */
    void (*read_over)(const struct shared_card *c, const void *to,
                      uint64_t bytes, uint32_t page, bool ok);
};

struct shared_card {
    const struct shared_card_ops *ops;
    void *arg;
    uint64_t address; /* device address of the first page */
    uint64_t bytes;   /* all pages */
    uint8_t handle[SHARED_CARD_HANDLE_BYTES]; /* for other processes */
    bool has_handle;
    int dmabuf; /* for network cards; -1 = none */
};

#endif
