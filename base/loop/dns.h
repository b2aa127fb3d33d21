/* Host names for Redis and for workers, by libevent's resolver. The conductor
 * looks up engines by base/dns.h. */
#ifndef BASE_LOOP_DNS_H
#define BASE_LOOP_DNS_H

#include <stdbool.h>

struct loop;
struct loop_dns;

/* Makes a resolver on a loop of loop_new(). Uses /etc/hosts and the name server
 * ADDRESS:PORT, or, if `server` is "", the servers in /etc/resolv.conf. Never
 * blocks. Returns it owned, or NULL: out of memory, or `server` is no
 * address. */
[[nodiscard]] struct loop_dns *loop_dns_new(struct loop *loop,
                                            const char *server);

/* Frees it. fail: the look-ups under way end with an error, in the loop's next
 * turn; else they never end. NULL is a no-op. */
void loop_dns_free(struct loop_dns *dns, bool fail);

#endif
