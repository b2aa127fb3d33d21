/* The certificates of the listeners for clients and workers. */
#include <errno.h>
#include <openssl/ssl.h>

#include "base/certificate.h"
#include "base/clock.h"
#include "base/log.h"
#include "conductor/internal.h"

/* Warns only: peers may trust an expired certificate, and an old certificate is
 * better than no conductor. */
static void tell_span(const struct certificate_files *files,
                      const SSL_CTX *certificate)
{
    const struct certificate_span span = certificate_span(certificate);
    char text[160];

    if (certificate_span_warning(&span, clock_wall_us() / 1000000, text,
                                 sizeof(text)))
        log_warn("%s: \"%s\": %s, and reload", files->certificate_option,
                 files->certificate, text);
}

static int load(const struct certificate_files *files, SSL_CTX **out,
                char err[CONFIG_ERROR_MAX])
{
    *out = *files->certificate ? certificate_load(files, err, CONFIG_ERROR_MAX)
                               : NULL;
    if (*out)
        tell_span(files, *out);
    return *out || !*files->certificate ? 0 : -EINVAL;
}

int daemon_certificates_load(const struct config *c,
                             struct daemon_certificates *out,
                             char err[CONFIG_ERROR_MAX])
{
    const struct certificate_files clients = {
        c->tls_certificate, "tls_certificate", c->tls_key, "tls_key"};
    const struct certificate_files workers = {
        c->worker_tls_certificate, "worker_tls_certificate", c->worker_tls_key,
        "worker_tls_key"};
    int rc = load(&clients, &out->clients, err);

    out->workers = NULL;
    if (rc == 0)
        rc = load(&workers, &out->workers, err);
    if (rc)
        daemon_certificates_free(out);
    return rc;
}

void daemon_certificates_free(struct daemon_certificates *all)
{
    SSL_CTX_free(all->clients);
    SSL_CTX_free(all->workers);
    *all = (struct daemon_certificates){NULL, NULL};
}

static int64_t until_s(const SSL_CTX *certificate)
{
    return certificate ? certificate_span(certificate).until_s : 0;
}

void daemon_certificates_show(struct daemon *d)
{
    front_expiry(d->front, until_s(d->certificates.clients),
                 until_s(d->certificates.workers));
    front_tls(d->front, d->certificates.clients, d->config->admin_tls);
    models_tls(d->models, d->certificates.workers);
}
