/* Engine "cuda": builds it, and handles host memory and uploads. Steps are in
 * step.c, the card is behind cuda_engine.h. */
#include "workers/engine/cuda/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static void cuda_destroy(struct engine *base)
{
    struct cuda_engine *e = (struct cuda_engine *)base;

    cuda_share_fini(e);
    cuda_card_close(e->card);
    page_cache_free(e->pages);
    pthread_mutex_destroy(&e->lock);
    free(e->group.uses);
    free(e->use_of);
    free(e->answer_of);
    free(e->answers);
    free(e);
}

static int allocate(struct cuda_engine *e)
{
    const struct cuda_card_limits *limits = cuda_card_limits(e->card);

    e->pages =
        page_cache_new(limits->pages, e->layers, e->base.layout.block_tokens);
    e->group.uses = calloc(limits->pages, sizeof(*e->group.uses));
    e->use_of = calloc(limits->pages, sizeof(*e->use_of));
    e->answer_of = calloc(limits->rows, sizeof(*e->answer_of));
    e->answers = calloc(limits->rows, sizeof(*e->answers));
    return e->pages && e->group.uses && e->use_of && e->answer_of && e->answers
               ? 0
               : -ENOMEM;
}

static struct engine *cuda_create(const struct engine_config *config,
                                  struct engine_kv_layout *layout, char *err,
                                  size_t err_bytes)
{
    const struct cuda_card_config c = {
        .shape = config->shape,
        .seed = config->seed,
        .layers = config->layers,
        .block_tokens = config->block_tokens,
        .step_tokens = config->step_tokens,
        .page_bytes = config->device_kv_bytes,
    };
    struct cuda_engine *e = calloc(1, sizeof(*e));

    if (!e)
        return error_null(err, err_bytes, "cuda: %s", strerror(ENOMEM));
    pthread_mutex_init(&e->lock, NULL);
    e->base.layout = *layout;
    e->layers = config->layers;
    e->group_heads = config->shape->heads / config->shape->kv_heads;
    e->card = cuda_card_open(&c, err, err_bytes);
    if (!e->card)
        goto fail;
    if (allocate(e) < 0) {
        snprintf(err, err_bytes, "cuda: %s", strerror(ENOMEM));
        goto fail;
    }
    cuda_share_init(e);
    /* One request must fit even while all lendable pages are lent. */
    uint64_t room =
        ((uint64_t)cuda_card_limits(e->card)->pages - cuda_lent_max(e)) *
        layout->block_tokens;
    if (layout->window_tokens > room)
        layout->window_tokens = (uint32_t)room;
    snprintf(e->base.device, sizeof(e->base.device), "%s, %u pages of KV, %s",
             cuda_card_name(e->card), cuda_card_limits(e->card)->pages,
             cuda_card_multiply(e->card));
    return &e->base;

fail:
    cuda_destroy(&e->base);
    return NULL;
}

/* Records an allocation, within which copies of blocks may be joined. */
static void know_host(struct cuda_engine *e, void *memory, size_t bytes)
{
    for (size_t i = 0; i < CUDA_HOSTS; i++)
        if (!e->hosts[i].memory) {
            e->hosts[i] = (struct cuda_host){memory, bytes};
            return;
        }
}

static void forget_host(struct cuda_engine *e, const void *memory)
{
    for (size_t i = 0; memory && i < CUDA_HOSTS; i++)
        if (e->hosts[i].memory == memory)
            e->hosts[i].memory = NULL;
}

static int cuda_kv_adopt(struct engine *base, void *memory, size_t bytes)
{
    struct cuda_engine *e = (struct cuda_engine *)base;
    int rc = cuda_card_adopt(e->card, memory, bytes);

    if (rc == 0)
        know_host(e, memory, bytes);
    return rc;
}

static void cuda_kv_disown(struct engine *base, void *memory)
{
    struct cuda_engine *e = (struct cuda_engine *)base;

    forget_host(e, memory);
    cuda_card_disown(e->card, memory);
}

static void *cuda_kv_alloc(struct engine *base, size_t bytes)
{
    struct cuda_engine *e = (struct cuda_engine *)base;
    void *p = cuda_card_host_alloc(e->card, bytes);

    if (!p)
        snprintf(base->error, sizeof(base->error),
                 "%.2f GiB cannot be locked into host memory (%s): use a "
                 "smaller --kv-mib",
                 (double)bytes / 0x1p30, cuda_card_error(e->card));
    if (p)
        know_host(e, p, bytes);
    return p;
}

static void cuda_kv_free(struct engine *base, void *memory)
{
    struct cuda_engine *e = (struct cuda_engine *)base;

    forget_host(e, memory);
    cuda_card_host_free(e->card, memory);
}

static void cuda_kv_forget(struct engine *base, void *block)
{
    struct cuda_engine *e = (struct cuda_engine *)base;

    pthread_mutex_lock(&e->lock);
    page_cache_forget(e->pages, block);
    pthread_mutex_unlock(&e->lock);
}

/* --- pages, under the lock ---------------------------------------------- */

/* Copies dirty rows to their host block, and waits. */
static int write_back(struct cuda_engine *e, const struct page_dirty *d)
{
    const struct cuda_piece piece = {
        .block = d->block,
        .page = d->page,
        .n_blocks = 1,
        .to_layer = e->layers,
        .from_slot = d->from_slot,
        .to_slot = d->to_slot,
    };

    if (cuda_card_download(e->card, &piece) < 0 ||
        cuda_card_wait_stored(e->card) < 0)
        return cuda_lose(e);
    return 0;
}

uint32_t cuda_take_page(struct cuda_engine *e, void *block)
{
    struct page_dirty dirty;
    uint32_t page =
        page_cache_take(e->pages, block, e->ticket_over, false, &dirty);

    if (page == PAGE_NONE)
        return page;
    page_cache_pin(e->pages, page);
    return dirty.block && write_back(e, &dirty) < 0 ? PAGE_NONE : page;
}

/* Whether the page has all of these layers: they were read through it. */
static bool is_there(const struct cuda_engine *e, uint32_t page,
                     uint32_t from_layer, uint32_t to_layer)
{
    for (uint32_t l = from_layer; l < to_layer; l++)
        if (page_cache_rows(e->pages, page, l) < e->base.layout.block_tokens)
            return false;
    return true;
}

/* Copies the layers of one block to its page. */
static int upload_block(struct cuda_engine *e, void *block, uint32_t from_layer,
                        uint32_t to_layer, uint64_t ticket)
{
    struct page_dirty dirty;
    uint32_t bt = e->base.layout.block_tokens;
    uint32_t page =
        page_cache_take(e->pages, block, e->ticket_over, true, &dirty);

    if (page == PAGE_NONE || page_cache_pinned(e->pages, page))
        return -EBUSY;
    if (is_there(e, page, from_layer, to_layer))
        return 0;
    const struct cuda_piece piece = {
        .block = block,
        .page = page,
        .n_blocks = 1,
        .from_layer = from_layer,
        .to_layer = to_layer,
        .to_slot = bt,
    };
    page_cache_set_ticket(e->pages, page, ticket);
    if (cuda_card_upload(e->card, &piece) < 0) {
        cuda_lose(e);
        return -EIO;
    }
    page_cache_set_rows(e->pages, page, from_layer, to_layer, bt);
    return 0;
}

static int upload_blocks(struct cuda_engine *e, void *const *blocks, size_t n,
                         uint32_t from_layer, uint32_t to_layer,
                         uint64_t *ticket)
{
    uint64_t next = e->ticket + 1;
    int rc = 0;

    if (e->lost || cuda_poll_tickets(e, false) < 0)
        return -EIO;
    if (next - e->ticket_over > CUDA_TICKETS)
        return -EBUSY;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = upload_block(e, blocks[i], from_layer, to_layer, next);
    /* Even after an error, uploads that have begun need their ticket: their
     * pages wait for it. */
    if (rc == -EIO ||
        cuda_card_ticket(e->card, (uint32_t)(next % CUDA_TICKETS)) < 0) {
        cuda_lose(e);
        return -EIO;
    }
    e->ticket = next;
    if (rc == 0)
        *ticket = next;
    return rc;
}

static int cuda_kv_upload(struct engine *base, void *const *blocks, size_t n,
                          uint32_t from_layer, uint32_t to_layer,
                          uint64_t *ticket)
{
    struct cuda_engine *e = (struct cuda_engine *)base;

    if (n == 0 || from_layer == to_layer) {
        *ticket = 0;
        return 0;
    }
    pthread_mutex_lock(&e->lock);
    int rc = upload_blocks(e, blocks, n, from_layer, to_layer, ticket);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

static int cuda_kv_upload_done(struct engine *base, uint64_t ticket, bool wait)
{
    struct cuda_engine *e = (struct cuda_engine *)base;
    int rc = 1;

    pthread_mutex_lock(&e->lock);
    if (ticket > e->ticket_over) {
        if (e->lost || cuda_poll_tickets(e, wait) < 0)
            rc = -EIO;
        else
            rc = ticket <= e->ticket_over;
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}

int engine_cuda_flush(struct engine *base)
{
    struct cuda_engine *e = (struct cuda_engine *)base;
    struct page_dirty dirty;
    int rc = 0;

    pthread_mutex_lock(&e->lock);
    for (uint32_t from = 0; rc == 0 && page_cache_clean(e->pages, from, &dirty);
         from = dirty.page + 1)
        rc = write_back(e, &dirty);
    pthread_mutex_unlock(&e->lock);
    return rc;
}

const struct engine_ops engine_cuda_ops = {
    .kind = "cuda",
    .element = MODEL_BFLOAT16,
    .create = cuda_create,
    .destroy = cuda_destroy,
    .step = cuda_step,
    .kv_alloc = cuda_kv_alloc,
    .kv_free = cuda_kv_free,
    .kv_adopt = cuda_kv_adopt,
    .kv_disown = cuda_kv_disown,
    .card = cuda_shared,
    .kv_forget = cuda_kv_forget,
    .kv_upload = cuda_kv_upload,
    .kv_upload_done = cuda_kv_upload_done,
};
