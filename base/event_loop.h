/* The event loop that every program runs. */
#ifndef BASE_EVENT_LOOP_H
#define BASE_EVENT_LOOP_H

#include <event2/bufferevent.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * event_loop_new(): makes a libevent base with precise timers: by default
 * libevent reads a coarse clock that ticks every 4 ms, as long as a short
 * prefill. libevent's messages go to the log. n_priorities is at least
 * 1. Returns owned (event_base_free), or NULL.
 */
struct event_base *event_loop_new(int n_priorities);

/* event_loop_dns(base, server): makes a resolver on the loop for Redis and for
 * workers (the conductor looks up engines by base/dns.h). Uses /etc/hosts and
 * the name server ADDRESS:PORT, or, if `server` is "", the servers in
 * /etc/resolv.conf. Never blocks. Returns owned (evdns_base_free), or NULL: out
 * of memory, or `server` is no address. */
struct evdns_base *event_loop_dns(struct event_base *base, const char *server);

/* event_loop_wait(e, us): makes e fire in us microseconds, and every us
 * microseconds if it is EV_PERSIST. Returns 0, or -1: out of memory. */
int event_loop_wait(struct event *e, int64_t us);

/* event_loop_away_us(last_us, now_us, every_us): call it from a timer that
 * fires every every_us; *last_us is 0 at first. Returns how long (us) this
 * process did not run (stopped, or without a processor): it read nothing then,
 * so the silence of others means nothing. 0 = late by less than every_us. */
int64_t event_loop_away_us(int64_t *last_us, int64_t now_us, int64_t every_us);

/* event_loop_drop(e): frees e. NULL is a no-op. */
void event_loop_drop(struct event *e);

#endif
