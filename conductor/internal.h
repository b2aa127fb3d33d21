/* What daemon.c and reload.c share. */
#ifndef CONDUCTOR_INTERNAL_H
#define CONDUCTOR_INTERNAL_H

#include <event2/event.h>

#include "conductor/config/contents.h"
#include "conductor/daemon.h"
#include "conductor/front/front.h"
#include "conductor/service/setup.h"

struct ssl_ctx_st;

/* What is shown; NULL: no TLS. */
struct daemon_certificates {
    struct ssl_ctx_st *clients, *workers;
};

struct daemon {
    struct event_base *base;
    struct config *config;
    struct config_contents contents; /* of its files, as they were read */
    daemon_read *read;               /* the configuration, again */
    void *read_arg;
    struct secret *admin_key; /* NULL: none */
    struct daemon_certificates certificates;
    struct models *models;
    struct front *front;
    struct event *on_term, *on_int, *on_hup, *drain;
    struct event *watchdog; /* NULL: nobody asks */
    struct event *hold;     /* NULL: nobody has waited */
    int64_t hold_until_us;
    int64_t max_connections;             /* that descriptors are there for */
    int handed_over;                     /* the socket of clients; 0: none */
    int64_t closes_us, cuts_us, ends_us; /* of the drain; 0: not the next */
    int64_t told_us; /* until when spans are sent then; 0: not yet */
};

/* daemon_admin_key(c, key, err): the key of admin_key_file, owned, or NULL
 * where none is needed. Returns 0, or -EINVAL with the reason. */
[[nodiscard]] int daemon_admin_key(const struct config *c, struct secret **key,
                                   char err[CONFIG_ERROR_MAX]);

/* daemon_certificates_load(c, out, err): reads the files that the options
 * name, and warns of each certificate that has expired or soon will. Returns 0
 * with *out owned, or -EINVAL with the reason. */
[[nodiscard]] int daemon_certificates_load(const struct config *c,
                                           struct daemon_certificates *out,
                                           char err[CONFIG_ERROR_MAX]);
void daemon_certificates_free(struct daemon_certificates *all);

/* daemon_certificates_show(d): new connections are shown those that it has. */
void daemon_certificates_show(struct daemon *d);

/* daemon_tell_who_may(c, host): logs who may ask, look and change, where that
 * is more than an operator may think. host: of `listen`. */
void daemon_tell_who_may(const struct config *c, const char *host);

/* daemon_tell_idle(c): logs a warning where no request can be served, as there
 * is neither an engine nor a place for workers to register. */
void daemon_tell_idle(const struct config *c);

/* SIGHUP; arg: the daemon. */
void daemon_on_hangup(evutil_socket_t, short, void *arg);

/* POST /admin/reload: see struct front_options. arg: the daemon. */
int daemon_on_reload(void *arg, struct text_buf *out, char *err);

#endif
