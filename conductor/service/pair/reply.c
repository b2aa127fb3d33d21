/* The reply of the prefill leg; frees a pair. */
#include <errno.h>
#include <stdlib.h>

#include "conductor/service/models.h"
#include "conductor/service/pair/state.h"

/* Frees the reply, whose bytes count no longer towards the bound on all
 * replies. */
static void drop_reply(struct pair *p)
{
    p->service->models->reply_bytes -= p->reply.len;
    text_buf_fini(&p->reply);
}

void pair_keep_reply(struct pair *p, const char *bytes, size_t n)
{
    struct models *m = p->service->models;
    size_t had = p->reply.len;

    if (p->crowded)
        return;
    p->crowded = m->reply_bytes + n > (size_t)m->config.max_body_total_bytes;
    if (p->crowded) {
        drop_reply(p);
        return;
    }
    text_buf_add(&p->reply, bytes, n);
    m->reply_bytes += p->reply.len - had;
}

int pair_read_reply(struct pair *p)
{
    if (p->crowded || p->reply.error ||
        pair_reply_read(p->reply.data ? p->reply.data : "", p->reply.len,
                        &p->told))
        return -EINVAL;
    p->usage.cached_tokens = p->told.cached_tokens;
    p->held = p->protocol->leased && !p->asked &&
              (p->told.params || p->protocol->meets);
    return 0;
}

void pair_free(struct pair *p)
{
    if (!p)
        return;
    upstream_cancel(p->leg);
    text_buf_fini(&p->body);
    text_buf_fini(&p->answering);
    drop_reply(p);
    text_buf_fini(&p->empty);
    free(p->method);
    free(p->path);
    free(p->key);
    free(p->host);
    free(p->id);
    free(p->headers);
    free(p);
}
