/* The event loop that every program runs. */
#ifndef BASE_EVENT_LOOP_H
#define BASE_EVENT_LOOP_H

#include <event2/bufferevent.h>
#include <event2/dns.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * event_loop_new(): a libevent base whose timers are precise: by default
 * libevent reads a coarse clock that ticks every 4 ms, which is as long as a
 * short prefill. What libevent says goes into the log. n_priorities is at
 * least 1. Returns owned (event_base_free), or NULL.
 */
struct event_base *event_loop_new(int n_priorities);

/* event_loop_dns(base, server): looks up host names on the loop, for Redis and
 * for what workers connect to (engines' names: base/dns.h), by /etc/hosts
 * and the name server at ADDRESS:PORT, or, if that is "", those of
 * /etc/resolv.conf. Never blocks. Returns owned (evdns_base_free), or NULL: out
 * of memory, or no such server. */
struct evdns_base *event_loop_dns(struct event_base *base, const char *server);

/* event_loop_wait(e, us): has e fire in us microseconds, and again every so
 * many if it is EV_PERSIST. Returns 0, or -1: out of memory. */
int event_loop_wait(struct event *e, int64_t us);

/* event_loop_away_us(last_us, now_us, every_us): call it in each turn of a
 * timer that fires every so many us; *last_us is 0 at first. Returns for how
 * long this process, stopped or without a processor, did not run: for so long
 * nobody can have been heard, and what they sent is still to be read. 0: it
 * ran, or was late by less than every_us. */
int64_t event_loop_away_us(int64_t *last_us, int64_t now_us, int64_t every_us);

/* event_loop_send(bev): sends what a plain socket's bufferevent with EV_WRITE
 * disabled holds, without asking the kernel first whether the socket takes
 * more: that would be four system calls for one. Returns true: nothing is left.
 * Else the bufferevent is enabled to write the rest, and to meet the error. */
bool event_loop_send(struct bufferevent *bev);

/* event_loop_drop(e): frees e. NULL is a no-op. */
void event_loop_drop(struct event *e);

#endif
