/*
 * Which engine keeps which answer. Of those to /v1/responses an engine is asked
 * again by their id: that of the object that the answer is, or, in a stream, of
 * the response in its first event. No id that stands elsewhere in it, as an
 * engine may put there what the client said.
 */
#include <errno.h>
#include <string.h>

#include "conductor/front/json/text.h"
#include "conductor/front/json/walk.h"
#include "conductor/service/engine/engine.h"

#define MAX_DEPTH 64

struct finder {
    struct json_walk walk; /* first, so that the walk's pointer is ours */
    const char *id;        /* (n); NULL: not found yet */
    size_t n;
};

/* Ends the walk once the id is there. */
static int read_member(struct json_walk *w, const char *key)
{
    struct finder *f = (struct finder *)(void *)w;
    char first = json_walk_peek(w);

    if (strcmp(key, "response") == 0 && first == '{')
        return json_walk_object(w, read_member);
    if (strcmp(key, "id") == 0 && first == '"') {
        const char *end = json_text_skip(w->p + 1, w->end);

        if (!end)
            return -EINVAL;
        f->id = w->p + 1;
        f->n = (size_t)(end - 1 - f->id);
        return -EALREADY;
    }
    return json_walk_skip(w);
}

/* The id that the first object in some bytes has, of which more may come.
 * Returns whether it is there. */
static bool find_id(struct finder *f, const char *bytes, size_t n)
{
    const char *at = memchr(bytes, '{', n);

    *f = (struct finder){
        .walk = {
            .p = at, .body = bytes, .end = bytes + n, .max_depth = MAX_DEPTH}};
    if (at)
        (void)!json_walk_object(&f->walk, read_member);
    return f->id;
}

void forward_note_kept(struct service_request *request, const char *bytes,
                       size_t n)
{
    struct forward *f = request->forward;
    struct finder id;

    if (!f->what.keeps || f->noted || f->refused)
        return;
    if (f->n_bytes == n) /* the first ones */
        f->noted = find_id(&id, bytes,
                           n < FORWARD_TAIL_BYTES ? n : FORWARD_TAIL_BYTES);
    else
        f->noted = f->n_bytes == f->n_tail && find_id(&id, f->tail, f->n_tail);
    if (f->noted)
        kept_note(&request->service->kept, f->what.owner, id.id, id.n,
                  request->attempt.prefill);
}
