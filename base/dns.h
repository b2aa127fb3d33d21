/*
 * Looks host names up on the event loop, by c-ares: in /etc/hosts, then at name
 * servers, with EDNS0, and over TCP where an answer is truncated. Never blocks
 * but to read /etc/hosts.
 *
 *   IPv4 and IPv6 addresses are two questions. Where one of them has found
 *   addresses, the other one's answer is waited for DNS_SKEW_US more.
 */
#ifndef BASE_DNS_H
#define BASE_DNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define DNS_SKEW_US 3000000
/* Time-out of the first try in ms; each further try doubles it: a question
 * without an answer fails after 2 + 4 + 8 s. */
#define DNS_TIMEOUT_MS 2000
#define DNS_TRIES 3
/* Largest UDP answer in bytes, told by EDNS0: small enough that no network
 * fragments it. Longer answers come over TCP. */
#define DNS_UDP_BYTES 1232

struct event_base;
struct dns;
struct dns_lookup;

struct dns_address {
    int family; /* AF_INET or AF_INET6 */
    unsigned char bytes[16];
    uint32_t scope; /* the interface of an IPv6 address; 0: none */
};

/* The addresses of one family. */
struct dns_half {
    const char *why_not;     /* the question failed; NULL: it was answered */
    struct dns_address *all; /* (n); an answer may have none */
    size_t n;
};

struct dns_answer {
    struct dns_half v4, v6;
};

/* The look-up ended. Comes once, from the loop; the answer is borrowed. */
typedef void dns_done(void *arg, const struct dns_answer *answer);

/* By the name server at ADDRESS:PORT or, if that is "", those of
 * /etc/resolv.conf. Borrows the base. Returns it owned, or NULL: out of memory,
 * or no such server. */
[[nodiscard]] struct dns *dns_new(struct event_base *base, const char *server);

/* All its look-ups have ended or were cancelled. NULL is a no-op. */
void dns_free(struct dns *dns);

/* Looks a name up, or an address in numbers; copied. Returns the look-up, which
 * is gone when done has come, or NULL: out of memory. */
[[nodiscard]] struct dns_lookup *dns_look_up(struct dns *dns, const char *host,
                                             dns_done *done, void *arg);

/* No callback comes any more. NULL is a no-op. */
void dns_cancel(struct dns_lookup *lookup);

/* Whether the host is an address in numbers; *out is written then. */
bool dns_numeric(const char *host, struct dns_address *out);

/* The first address, IPv4 before IPv6; NULL: there is none. */
const struct dns_address *dns_first(const struct dns_answer *answer);

/* Why there is no address; NULL: the name has none. Borrowed from the answer.
 */
const char *dns_why_not(const struct dns_answer *answer);

/* The address with a port; returns its size. */
socklen_t dns_sockaddr(const struct dns_address *address, uint16_t port,
                       struct sockaddr_storage *out);

#endif
