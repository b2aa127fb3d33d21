/*
 * Which engine keeps which answer. Of those to /v1/responses an engine is asked
 * again by their id, which stands near their begin: no other has them.
 */
#include <string.h>

#include "conductor/service/engine/engine.h"
#include "conductor/service/sessions.h"

uint64_t forward_kept(const char *id, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)id[i]) * 0x100000001b3u;
    return n == 0 ? 0 : h ? h : 1;
}

/* The number of the first id in some bytes; 0: no whole one. */
static uint64_t find_id(const char *bytes, size_t n)
{
    static const char name[] = "\"id\":";
    const char *at = memmem(bytes, n, name, sizeof(name) - 1);
    const char *end = bytes + n, *quote;

    at = at ? at + sizeof(name) - 1 : end;
    while (at < end && *at == ' ')
        at++;
    if (at == end || *at != '"')
        return 0;
    quote = memchr(at + 1, '"', (size_t)(end - at - 1));
    return quote ? forward_kept(at + 1, (size_t)(quote - at - 1)) : 0;
}

void forward_note_kept(struct service_request *request, const char *bytes,
                       size_t n)
{
    struct forward *f = request->forward;
    uint64_t number;

    if (!f->what.keeps || f->noted || f->refused)
        return;
    if (f->n_bytes == n) /* the first ones */
        number =
            find_id(bytes, n < FORWARD_TAIL_BYTES ? n : FORWARD_TAIL_BYTES);
    else
        number = f->n_bytes == f->n_tail ? find_id(f->tail, f->n_tail) : 0;
    f->noted = number != 0;
    sessions_note(&request->service->kept, number, request->attempt.prefill);
}
