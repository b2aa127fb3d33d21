/* Lists the prefills and decodes booked on instances, by this conductor and, as
 * they have published, by others. */
#include <errno.h>
#include <inttypes.h>

#include "conductor/json/text_buf.h"
#include "conductor/service/models.h"

struct list {
    struct service *service;
    const struct pool_instance *instance;
    const char *comma;
    struct text_buf *out;
    int bad;
};

static void put(struct list *l, const char *part, uint64_t attempt)
{
    const struct service_request *own =
        service_request_find(l->service, attempt);
    char model[2 * ENGINE_MODEL_MAX], name[2 * POOL_NAME_BYTES];
    const char *quote = own ? "\"" : "";

    metrics_escape(l->service->model.name, model);
    metrics_escape(l->instance->name, name);
    l->bad |= text_buf_printf(
                  l->out,
                  "%s{\"model\":\"%s\",\"instance\":\"%s\",\"part\":\"%s\","
                  "\"booking\":\"%016" PRIx64 "\",\"request_id\":%s%s%s}",
                  l->comma, model, name, part, attempt, quote,
                  own ? own->request_id : "null", quote) < 0;
    l->comma = ",";
}

static void put_instance(struct list *l)
{
    const struct pool_instance *in = l->instance;

    for (size_t i = 0; i < in->n_waiting; i++)
        put(l, "prefill", in->waiting[i].request_id);
    for (size_t i = 0; i < in->n_running; i++)
        put(l, "prefill", in->running[i].request_id);
    for (size_t i = 0; i < in->n_decodes; i++)
        put(l, "decode", in->decodes[i].request_id);
}

int models_bookings(const struct models *models, struct text_buf *out)
{
    struct list l = {.comma = "", .out = out};

    l.bad = text_buf_printf(out, "{\"bookings\":[") < 0;
    for (l.service = models->first; l.service; l.service = l.service->next)
        for (uint32_t i = 0; i < pool_slots(l.service->pool); i++) {
            l.instance = pool_at(l.service->pool, i);
            if (l.instance)
                put_instance(&l);
        }
    l.bad |= text_buf_printf(out, "]}\n") < 0;
    return l.bad ? -ENOMEM : 0;
}
