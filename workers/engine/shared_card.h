/*
 * The pages of a card, for others: other processes of the machine, with cards
 * of their own, and cards of the network. Which bytes they may read the engine
 * says block by block, by lending its page.
 *
 *   holder                                    asker
 *   handle, bytes ------ transport ---------> open()
 *   lend(block) -> offset ---- grant -------> read(from, to)
 *   give_back(block) <---- end of the fetch-- read_over()
 *
 * UNTESTED on a card: none was in reach. The emulated one runs all of it but
 * what the driver does (tests/gpu/emulate).
 */
#ifndef WORKERS_ENGINE_SHARED_CARD_H
#define WORKERS_ENGINE_SHARED_CARD_H

#include <stdbool.h>
#include <stdint.h>

#define SHARED_CARD_HANDLE_BYTES 64

struct shared_card;

/* All may be called on any thread. */
struct shared_card_ops {
    /* Open another process's pages: `bytes` by a `handle` that is not trusted.
     * Returns where they begin, for read(), or NULL: it cannot reach them, or
     * they are fewer. May take milliseconds. */
    void *(*open)(const struct shared_card *c,
                  const uint8_t handle[SHARED_CARD_HANDLE_BYTES],
                  uint64_t bytes);
    /* Close what open() returned; nothing reads from it. */
    void (*shut)(const struct shared_card *c, void *memory);
    /* All rows of the host block `block`, which is complete and stays so, lie
     * in a page that keeps them until give_back(): it begins at *offset of the
     * pages. 0; -ENOENT: they do not; -ENOBUFS: too many are lent. */
    int (*lend)(const struct shared_card *c, const void *block,
                uint64_t *offset);
    void (*give_back)(const struct shared_card *c, const void *block);
    /* Copy bytes of opened pages to a part of a host block, by way of its page
     * here, if it can have one. Waits for it. 0 with *page, for read_over();
     * -EIO: the card is gone. */
    int (*read)(const struct shared_card *c, const void *from, void *to,
                uint64_t bytes, uint32_t *page);
    /* Behind each read() that returned 0. ok: they are what was asked for, so
     * that steps may use what is in the page. */
    void (*read_over)(const struct shared_card *c, const void *to,
                      uint64_t bytes, uint32_t page, bool ok);
};

struct shared_card {
    const struct shared_card_ops *ops;
    void *arg;
    uint64_t address; /* of the first page, for the card */
    uint64_t bytes;   /* of all */
    uint8_t handle[SHARED_CARD_HANDLE_BYTES]; /* for processes */
    bool has_handle;
    int dmabuf; /* for cards of the network; -1: none */
};

#endif
