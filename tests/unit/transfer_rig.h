/* Two workers' transfer parts over loopback, without engines and step loops:
 * one holds a prompt, the other fetches it, or one pushes it to the other. For
 * the tests of transfers and for their benchmark. */
#ifndef TESTS_UNIT_TRANSFER_RIG_H
#define TESTS_UNIT_TRANSFER_RIG_H

#include "base/loop/loop.h"
#include "workers/load/loader.h"
#include "workers/transfer/transfer.h"

struct loop;

/* How sites move KV. */
enum site_way { SITE_TCP, SITE_SHM, SITE_WAYS };

/* One worker, so far as it transfers. */
struct site {
    struct loop *loop; /* borrowed */
    struct stream_loop *stream_loop;
    struct loop_timer poke;
    struct engine *engine; /* for the memory of the slab */
    struct engine_kv_layout layout;
    struct kv_store *store;
    struct loader *loader;
    struct transfer *transfer;
    enum site_way way;
    int slab_fd; /* with SITE_SHM */
    size_t slab_bytes;
    struct request *r; /* that it loads for; NULL: none */
    struct request *pushed;
    uint32_t layers_done; /* of the step under way of what it pushes */
    bool push_over;
    struct request *received;
    bool receive_over;
    char why[64]; /* the push or the receipt failed; "": it did not */
};

/* Make a worker of so many blocks of this layout. `loop` is borrowed. */
void site_init(struct site *s, struct loop *loop,
               const struct engine_kv_layout *layout, uint32_t n_blocks,
               enum site_way way);

/* Free it. Its request must be dropped. */
void site_fini(struct site *s);

/* Hold the first n_blocks blocks of the rig's prompt, with their bytes. */
void site_hold(struct site *s, uint32_t n_blocks);

/* Begin to fetch them from the worker on this port. Returns when the first
 * question was asked, or would be if the connection stood. */
void site_begin(struct site *s, uint16_t port, uint32_t n_blocks,
                enum load_mode mode);

/* Whether the load is over. */
bool site_done(const struct site *s);

/* How many leading blocks came; with `compare` all their bytes are compared. */
uint32_t site_came(const struct site *s, bool compare);

/* Drop the request, as a CANCEL does, and give back its blocks. */
void site_drop(struct site *s);

/* Be told that the KV of a prompt of n_tokens comes. */
void site_announce(struct site *s, uint32_t n_tokens);

/* Begin to push that prompt to the worker on this port; all of its KV is in
 * the blocks, and counts as computed up to s->pushed->position, or in
 * s->layers_done layers of step.n_tokens behind it. */
void site_push(struct site *s, uint16_t port, uint32_t n_tokens);

/* Let what is computed go. */
void site_push_poke(struct site *s);

/* The first token is computed, too. */
void site_push_end(struct site *s);

/* Drop what is pushed and received here, as a CANCEL does. */
void site_push_drop(struct site *s);

/* Whether what came to `to` is what was pushed by `s`. */
bool site_push_same(const struct site *s, const struct site *to);

#endif
