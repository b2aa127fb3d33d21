/* A gateway's report on a ticket: the body of POST /v1/schedule/done. Pure. */
#ifndef CONDUCTOR_FRONT_GATEWAY_REPORT_H
#define CONDUCTOR_FRONT_GATEWAY_REPORT_H

#include <stddef.h>

#include "conductor/front/openai/error.h"
#include "conductor/service/ticket/gateway.h"

/*
 * Reads body[0 .. n), borrowed; an empty one reports a good end.
 *   ticket  its id; "" = not in the body
 * Returns 0; -EINVAL with *error set.
 */
[[nodiscard]] int report_read(const char *body, size_t n,
                              char ticket[SERVICE_TICKET_BYTES],
                              struct service_ticket_report *out,
                              struct openai_error *error);

#endif
