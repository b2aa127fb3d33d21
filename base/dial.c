/* See dial.h. */
#include "base/dial.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/dns.h"
#include "base/loop/net.h"

static void on_connect(void *arg, unsigned)
{
    struct dial *d = arg;
    int fd = d->watch.fd, error = d->error;

    if (d->connecting)
        error = net_error(d->watch.loop, fd);
    if (error) {
        dial_stop(d);
        d->done(d->arg, -error, strerror(error));
        return;
    }
    d->connecting = false;
    d->done(d->arg, fd, NULL);
}

static void watch(struct dial *d, struct loop *loop, int fd)
{
    loop_watch_init(loop, &d->watch, fd, LOOP_WRITE | LOOP_ONCE, on_connect, d);
}

static void fail_soon(struct dial *d, int error)
{
    d->error = error;
    loop_watch_report(&d->watch, LOOP_WRITE);
}

static int connect_to(struct dial *d, const struct dns_address *address)
{
    struct sockaddr_storage at;
    socklen_t n = dns_sockaddr(address, d->port, &at);
    int fd = net_connect(d->watch.loop, (struct sockaddr *)&at, n);

    if (fd < 0) {
        fail_soon(d, -fd);
        return 0;
    }
    d->connecting = true;
    watch(d, d->watch.loop, fd);
    if (loop_watch_start(&d->watch, 0)) {
        dial_stop(d);
        return -ENOMEM;
    }
    return 0;
}

static void on_looked_up(void *arg, const struct dns_answer *answer)
{
    struct dial *d = arg;
    const struct dns_address *first = dns_first(answer);
    const char *why = dns_why_not(answer);
    char text[160];

    d->lookup = NULL;
    if (first) {
        if (connect_to(d, first))
            d->done(d->arg, -ENOMEM, "out of memory");
        return;
    }
    snprintf(text, sizeof(text), "cannot look up the host: %s",
             why ? why : "it has no address");
    d->done(d->arg, -EHOSTUNREACH, text);
}

int dial_start(struct dial *d, struct loop *loop, struct dns *dns,
               const char *host, uint16_t port, dial_done *done, void *arg)
{
    struct dns_address address;

    *d = (struct dial){.port = port, .done = done, .arg = arg};
    watch(d, loop, -1);
    if (dns_numeric(host, &address))
        return connect_to(d, &address);
    if (!dns) {
        fail_soon(d, EHOSTUNREACH);
        return 0;
    }
    d->lookup = dns_look_up_first(dns, host, on_looked_up, d);
    return d->lookup ? 0 : -ENOMEM;
}

void dial_stop(struct dial *d)
{
    dns_cancel(d->lookup);
    d->lookup = NULL;
    loop_watch_stop(&d->watch);
    if (d->connecting)
        net_close(d->watch.loop, d->watch.fd);
    d->connecting = false;
}

bool dial_looks_up(const struct dial *d)
{
    return d->lookup;
}

bool dial_connected(const struct dial *d)
{
    struct sockaddr_storage peer;

    return d->connecting &&
           net_address(d->watch.loop, d->watch.fd, true, &peer) >= 0;
}
