/*
 * POST /v1/schedule/done: how a request ended that another gateway sent. Its
 * ticket may stand in the header x-conductor-ticket, so that servers that write
 * no JSON can report an end.
 */
#include <string.h>

#include "conductor/front/gateway/report.h"
#include "conductor/front/internal.h"

/* Takes the ticket from the header, if the body has none. */
static void take_header(const struct http_head *head,
                        char ticket[SERVICE_TICKET_BYTES])
{
    const struct http_slice *value = http_find(head, "x-conductor-ticket");

    if (*ticket || !value || value->n >= SERVICE_TICKET_BYTES)
        return;
    memcpy(ticket, value->at, value->n);
    ticket[value->n] = '\0';
}

void schedule_done(const struct front_call *call)
{
    char ticket[SERVICE_TICKET_BYTES];
    struct service_ticket_report report;
    struct openai_error error;
    static const char good[] = "{\"ok\":true}\n";

    if (report_read(call->body, call->n, ticket, &report, &error)) {
        http_reply_error(call->conn, &error);
        return;
    }
    take_header(call->head, ticket);
    if (!*ticket) {
        openai_error_set(&error, 400, "missing_parameter", "ticket",
                         "ticket: missing: neither the body nor the header "
                         "x-conductor-ticket names one");
    } else if (models_report_ticket(call->front->models, ticket, &report)) {
        openai_error_set(&error, 404, "unknown_ticket", "ticket",
                         "ticket: \"%s\": is unknown, or has ended", ticket);
    } else {
        http_reply(call->conn, 200, "application/json", good, sizeof(good) - 1);
        return;
    }
    http_reply_error(call->conn, &error);
}
