/* The access log's line of a request. */
#ifndef CONDUCTOR_SERVICE_ACCESS_ACCESS_H
#define CONDUCTOR_SERVICE_ACCESS_ACCESS_H

struct service_request;

/* access_ended(request, how, reason, status): writes an ended request's line,
 * if there is a log. how, reason: as explain_ended(). status: of the answer; 0
 * = none was given, or it is the engine's. O(blocks). */
void access_ended(const struct service_request *request, const char *how,
                  const char *reason, int status);

#endif
