/* The body of POST /v1/schedule/done. */
#include "conductor/front/gateway/report.h"

#include <errno.h>
#include <string.h>

#include "base/json_fields.h"

#define MS_MAX 86400000.0

static const char *const states[] = {
    [SERVICE_TICKET_FIRST_TOKEN] = "first_token",
    [SERVICE_TICKET_DONE] = "done",
    [SERVICE_TICKET_FAILED] = "failed",
};

struct reading {
    char *ticket;
    struct service_ticket_report *out;
};

static void read_state(struct fields *f, const struct fields_object *o,
                       struct service_ticket_report *out)
{
    char text[16];

    fields_text(f, o, "state", text, sizeof(text), "done");
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        if (strcmp(text, states[i]) == 0) {
            out->state = (enum service_ticket_state)i;
            return;
        }
    fields_refuse_value(f, o, "state", "first_token, done or failed");
}

static void read_report(struct fields *f, const struct fields_object *root,
                        void *into)
{
    const struct reading *r = into;
    const int64_t untold = -1;
    const double no_ms = -1;

    if (!json_is_object(root->json)) {
        fields_refuse_got(f, "", "body", "an object", root->json);
        return;
    }
    fields_known(f, root,
                 "ticket state ttft_ms output_tokens prompt_tokens "
                 "cached_tokens ");
    fields_text(f, root, "ticket", r->ticket, SERVICE_TICKET_BYTES, "");
    read_state(f, root, r->out);
    double ms = fields_number(f, root, "ttft_ms", 0, MS_MAX, &no_ms);
    r->out->ttft_us = ms < 0 ? -1 : (int64_t)(ms * 1e3);
    r->out->output_tokens =
        fields_integer(f, root, "output_tokens", 0, INT32_MAX, &untold);
    r->out->prompt_tokens =
        fields_integer(f, root, "prompt_tokens", 0, INT32_MAX, &untold);
    r->out->cached_tokens =
        fields_integer(f, root, "cached_tokens", 0, INT32_MAX, &untold);
}

int report_read(const char *body, size_t n, char ticket[SERVICE_TICKET_BYTES],
                struct service_ticket_report *out, struct openai_error *error)
{
    char err[sizeof(error->message)], param[sizeof(error->param)];
    struct fields f = {"", "", err, sizeof(err), 0};
    struct reading r = {ticket, out};
    size_t at;

    *ticket = '\0';
    *out = (struct service_ticket_report){SERVICE_TICKET_DONE, -1, -1, -1, -1};
    if (n == 0 || fields_read(&f, body, n, read_report, &r) == 0)
        return 0;
    at = strspn(err, "abcdefghijklmnopqrstuvwxyz_");
    snprintf(param, sizeof(param), "%.*s", err[at] == ':' ? (int)at : 0, err);
    if (strncmp(err, "line ", 5) == 0)
        openai_error_set(error, 400, "invalid_json", NULL,
                         "the body isn't valid JSON: %.400s", err);
    else
        openai_error_set(error, 400, "invalid_value", param, "%s", err);
    return -EINVAL;
}
