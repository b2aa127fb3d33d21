/* What a pair holds: the reply of its prefill leg, and its memory. */
#include <errno.h>
#include <stdlib.h>

#include "conductor/service/pair/state.h"

int pair_read_reply(struct pair *p)
{
    if (p->reply.error || pair_reply_read(p->reply.data ? p->reply.data : "",
                                          p->reply.len, &p->told))
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
    text_buf_fini(&p->reply);
    text_buf_fini(&p->empty);
    free(p->method);
    free(p->path);
    free(p->key);
    free(p->host);
    free(p->id);
    free(p->headers);
    free(p);
}
