/* Loads blocks of a prompt from the shared store.
 *
 * A session first reads the heads of the prompt's blocks behind the worker's
 * own. A head is accepted if its chain is the prompt's: then all tokens up to
 * it are equal, including earlier blocks, which the store need not have. A read
 * checks each layer against the head's sums. */
#include "workers/shared/source.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct session {
    struct shared_job job; /* the heads */
    struct shared_tier *tier;
    struct load_run *run;      /* NULL = closed */
    uint32_t refs;             /* held by the run, the job and running reads */
    uint32_t first;            /* block of heads[0] */
    uint32_t n;                /* blocks of the prompt looked for */
    uint32_t found;            /* blocks found from `first` on */
    uint64_t *keys;            /* (n) */
    uint32_t *tokens;          /* (n, block_tokens) */
    struct shared_head *heads; /* (n - first) */
};

struct read {
    struct shared_job job;
    struct session *session;
    struct loader_piece *piece;
    atomic_bool cancelled;
};

/* Renews used blocks. */
struct touch {
    struct shared_job job;
    uint32_t n;
    struct shared_known blocks[];
};

static void drop(struct session *s)
{
    if (--s->refs > 0)
        return;
    free(s->keys);
    free(s->tokens);
    free(s->heads);
    free(s);
}

/* --- heads -------------------------------------------------------------- */

static struct session *session_of(struct shared_job *j)
{
    return (struct session *)(void *)((char *)j -
                                      offsetof(struct session, job));
}

/* Shortens `found` to the blocks whose chains are this prompt's. */
static int compare(struct session *s, uint32_t block_tokens)
{
    uint8_t chain[SHARED_CHAIN_BYTES];

    for (uint32_t i = 0; i < s->first + s->found; i++) {
        int rc = shared_chain(i > 0 ? chain : NULL,
                              s->tokens + (size_t)i * block_tokens,
                              block_tokens, chain);

        if (rc < 0)
            return rc;
        if (i >= s->first &&
            memcmp(chain, s->heads[i - s->first].chain, sizeof(chain)) != 0)
            s->found = i - s->first;
    }
    return 0;
}

static int find_run(struct shared_job *j, struct shared_store *store)
{
    struct session *s = session_of(j);
    int rc = shared_heads(store, s->keys + s->first, s->n - s->first, s->heads,
                          &s->found);

    return rc ? rc : compare(s, store->shape.block_tokens);
}

static void touch_done(struct shared_job *j)
{
    free((char *)j - offsetof(struct touch, job));
}

static int touch_run(struct shared_job *j, struct shared_store *store)
{
    const struct touch *t =
        (struct touch *)(void *)((char *)j - offsetof(struct touch, job));

    return shared_touch(store, t->blocks, t->n);
}

static void touch_found(const struct session *s)
{
    struct touch *t = calloc(1, sizeof(*t) + s->found * sizeof(t->blocks[0]));

    if (!t)
        return; /* heads already read expire sooner */
    t->job.run = touch_run;
    t->job.done = touch_done;
    for (; t->n < s->found; t->n++)
        t->blocks[t->n] = (struct shared_known){s->heads[t->n].key,
                                                s->heads[t->n].parent_key};
    shared_tier_do(s->tier, SHARED_WRITES, &t->job);
}

static void find_done(struct shared_job *j)
{
    struct session *s = session_of(j);

    if (j->rc < 0)
        s->found = 0;
    if (j->rc == 0 && s->first + s->found < s->n) {
        shared_tier_stats(s->tier)->missed_blocks++;
        shared_tier_gone(s->tier, &s->keys[s->first + s->found], 1);
    }
    if (s->found > 0 && s->run)
        touch_found(s);
    if (s->run)
        loader_opened(s->run, s->found > 0 ? s->first + s->found : 0);
    drop(s);
}

/* Copies the prompt: the request may end before the heads arrive. */
static int copy_prompt(struct session *s, const struct request *r,
                       const struct shared_shape *shape)
{
    size_t tokens = (size_t)s->n * shape->block_tokens;

    s->keys = malloc(s->n * sizeof(*s->keys));
    s->tokens = malloc(tokens * sizeof(*s->tokens));
    s->heads = shared_heads_new(shape, s->n - s->first);
    if (!s->keys || !s->tokens || !s->heads)
        return -ENOMEM;
    memcpy(s->keys, r->prompt.keys, s->n * sizeof(*s->keys));
    memcpy(s->tokens, r->prompt.tokens, tokens * sizeof(*s->tokens));
    return 0;
}

static void *source_open(void *arg, struct load_run *run,
                         const struct request *r, uint32_t to_block)
{
    struct shared_tier *tier = arg;
    struct session *s;

    if (!shared_tier_is_up(tier) || to_block <= r->blocks.n_chained ||
        !(s = calloc(1, sizeof(*s))))
        return NULL;
    s->refs = 1;
    s->tier = tier;
    s->run = run;
    s->first = r->blocks.n_chained;
    s->n = to_block;
    if (copy_prompt(s, r, &shared_tier_config(tier)->shape) < 0) {
        drop(s);
        return NULL;
    }
    s->refs++;
    s->job.run = find_run;
    s->job.done = find_done;
    shared_tier_do(tier, SHARED_READS, &s->job);
    return s;
}

static void source_close(void *, void *session)
{
    struct session *s = session;

    s->run = NULL;
    drop(s);
}

/* --- reads -------------------------------------------------------------- */

static struct read *read_of(struct shared_job *j)
{
    return (struct read *)(void *)((char *)j - offsetof(struct read, job));
}

static int read_run(struct shared_job *j, struct shared_store *store)
{
    const struct read *r = read_of(j);
    const struct session *s = r->session;
    const struct loader_piece *p = r->piece;

    if (atomic_load(&r->cancelled))
        return -ECANCELED;
    return shared_read(store, &s->heads[p->block - s->first], p->from_layer,
                       p->n_layers, p->data);
}

static void read_done(struct shared_job *j)
{
    struct read *r = read_of(j);
    struct session *s = r->session;
    struct shared_tier_stats *stats = shared_tier_stats(s->tier);

    if (j->rc == 0)
        stats->read_bytes += r->piece->bytes;
    stats->missed_blocks += j->rc == -ENOENT;
    stats->damaged_blocks += j->rc == -EBADMSG;
    if (j->rc == -ENOENT || j->rc == -EBADMSG)
        shared_tier_gone(s->tier, &s->keys[r->piece->block], 1);
    loader_done(r->piece, j->rc);
    drop(s);
    free(r);
}

static int source_read(void *arg, void *session, struct loader_piece *piece)
{
    struct session *s = session;
    struct read *r;

    if (piece->block < s->first || piece->block >= s->first + s->found)
        return -ENOENT;
    if (!shared_tier_is_up(arg))
        return -ENOTCONN;
    r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->session = s;
    r->piece = piece;
    r->job.run = read_run;
    r->job.done = read_done;
    piece->own = r;
    s->refs++;
    shared_tier_do(arg, SHARED_READS, &r->job);
    return 0;
}

static void source_cancel(void *, struct loader_piece *piece)
{
    struct read *r = piece->own;

    atomic_store(&r->cancelled, true);
}

static const struct loader_source_ops source_ops = {
    .origin = BLOCK_FROM_SHARED,
    .open = source_open,
    .read = source_read,
    .cancel = source_cancel,
    .close = source_close,
};

struct loader_source *shared_source(struct loader *loader,
                                    struct shared_tier *tier)
{
    static const char name[] = "the shared store";
    struct loader_source *s = loader_find_source(loader, name);

    return s ? s : loader_add_source(loader, name, &source_ops, tier);
}
