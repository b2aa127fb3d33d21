/* Writes a request's line to the access log. */
#ifndef CONDUCTOR_SERVICE_ACCESS_ACCESS_H
#define CONDUCTOR_SERVICE_ACCESS_ACCESS_H

struct request_outcome;
struct service_request;

/* access_ended(request, end): writes the request's line, if there is a log.
 * O(blocks). */
void access_ended(struct service_request *request,
                  const struct request_outcome *end);

#endif
