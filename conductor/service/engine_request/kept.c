/* Notes which engine keeps an answer of /v1/responses: requests that name the
 * answer's id must go there (answer_id.h). */
#include "conductor/service/engine/engine.h"

void forward_note_kept(struct service_request *request, const char *bytes,
                       size_t n)
{
    struct forward *f = request->forward;

    if (!f->what.keeps || f->refused)
        return;
    if (answer_id_read(&f->read.id, bytes, n))
        kept_note(&request->service->requests.kept, f->what.owner,
                  f->read.id.json.value, f->read.id.json.n,
                  request->attempt.prefill);
}
