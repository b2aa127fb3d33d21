/* Shared by the files of the daemon. */
#ifndef CONDUCTOR_INTERNAL_H
#define CONDUCTOR_INTERNAL_H

#include "base/loop/loop.h"
#include "conductor/config/contents.h"
#include "conductor/daemon.h"
#include "conductor/front/front.h"
#include "conductor/service/setup.h"

struct ssl_ctx_st;

/* The certificates of both listeners; NULL = no TLS. */
struct daemon_certificates {
    struct ssl_ctx_st *clients, *workers;
};

struct daemon {
    struct loop *loop;
    struct config *config;
    struct config_contents contents; /* of its files, as last read */
    daemon_read *read;               /* reads the configuration again */
    void *read_arg;
    struct secret *admin_key; /* NULL = none */
    struct daemon_certificates certificates;
    struct models *models;
    struct front *front;
    struct loop_watch on_term, on_int, on_hup;
    struct loop_timer drain;
    struct loop_timer watchdog; /* used if a supervisor asks */
    struct loop_timer hold;     /* pending while clients wait */
    int64_t hold_until_us;
    int64_t max_connections; /* within the limit of descriptors */
    int handed_over;         /* inherited socket for clients; 0 = none */
    int64_t closes_us, cuts_us, ends_us; /* drain; 0 = not next */
    int64_t told_us; /* end of sending spans after the drain; 0 = not begun */
};

/* daemon_admin_key(c, key, err): reads admin_key_file into *key, owned; NULL =
 * none is needed. Returns 0, or -EINVAL with the reason. */
[[nodiscard]] int daemon_admin_key(const struct config *c, struct secret **key,
                                   char err[CONFIG_ERROR_MAX]);

/* daemon_certificates_load(c, out, err): reads the files that the options
 * name, and warns of each certificate that has expired or soon will. Returns 0
 * with *out owned, or -EINVAL with the reason. */
[[nodiscard]] int daemon_certificates_load(const struct config *c,
                                           struct daemon_certificates *out,
                                           char err[CONFIG_ERROR_MAX]);
void daemon_certificates_free(struct daemon_certificates *all);

/* daemon_certificates_show(d): uses d->certificates for new connections. */
void daemon_certificates_show(struct daemon *d);

/* daemon_tell_who_may(c, host): logs access rights that an operator may not
 * expect. host: of `listen`. */
void daemon_tell_who_may(const struct config *c, const char *host);

/* daemon_tell_idle(c): logs a warning if no request can be served: there are no
 * engines, and workers cannot register. */
void daemon_tell_idle(const struct config *c);

/* Handler of SIGHUP; arg: the daemon. */
void daemon_on_hangup(void *arg, unsigned what);

/* Handler of POST /admin/reload: see struct front_options. arg: the daemon. */
int daemon_on_reload(void *arg, struct text_buf *out, char *err);

#endif
