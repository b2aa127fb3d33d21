/* Reads the configuration again while the daemon runs; a bad one changes
 * nothing. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/loop/loop.h"
#include "base/secret.h"
#include "base/supervisor.h"
#include "conductor/internal.h"

/* Reads admin_key_file into *key, owned; NULL = none is needed, neither for the
 * new admin_listen nor for the present one, which holds until a restart. */
static int admin_key(const struct daemon *d, const struct config *next,
                     struct secret **key, char err[CONFIG_ERROR_MAX])
{
    struct config stays = *next;
    int rc = daemon_admin_key(next, key, err);

    if (rc || *key)
        return rc;
    memcpy(stays.admin_listen, d->config->admin_listen,
           sizeof(stays.admin_listen));
    return daemon_admin_key(&stays, key, err);
}

/* Takes over what may change. Returns 0, or a negative errno with the reason.
 */
static int take(struct daemon *d, struct config *next,
                struct config_changes *changes, char err[CONFIG_ERROR_MAX])
{
    struct secret *key = NULL, *old_key = d->admin_key;
    struct daemon_certificates certificates = {NULL, NULL};
    struct config_contents contents;
    struct config will = *d->config;
    int rc;

    /* Before the files are read: a change in between shows at the next reload.
     */
    config_take(&will, next);
    config_contents_read(&will, &contents);
    rc = models_check(next, err);

    if (rc == 0)
        rc = daemon_certificates_load(next, &certificates, err);
    if (rc == 0)
        rc = admin_key(d, next, &key, err);
    if (rc) {
        daemon_certificates_free(&certificates);
        return rc;
    }
    config_compare(d->config, next, changes);
    config_contents_compare(d->config, &d->contents, &will, &contents, changes);
    const struct engine_list old = d->config->engines;
    rc = models_reload(d->models, next, err);
    if (rc) {
        secret_free(key);
        daemon_certificates_free(&certificates);
        return rc;
    }
    config_take(d->config, next);
    d->contents = contents;
    next->engines = old; /* the caller frees them */
    d->admin_key = key;
    front_take(d->front, d->config->keepalive_ms * 1000, key);
    secret_free(old_key);
    daemon_certificates_free(&d->certificates);
    d->certificates = certificates;
    daemon_certificates_show(d);
    log_init("conductor", d->config->log_level);
    log_set_format(d->config->log_format);
    daemon_tell_idle(d->config);
    return 0;
}

static int reload(struct daemon *d, struct config_changes *changes,
                  char err[CONFIG_ERROR_MAX])
{
    struct config next;
    int rc = d->read(d->read_arg, &next, err);

    if (rc == 0)
        rc = take(d, &next, changes, err);
    config_fini(&next);
    if (rc)
        log_error("reload: %s; nothing has changed", err);
    else
        log_info("reload: taken: %s; needs a restart: %s",
                 *changes->taken ? changes->taken : "nothing",
                 *changes->kept ? changes->kept : "nothing");
    return rc;
}

void daemon_on_hangup(void *arg, unsigned)
{
    struct config_changes changes;
    struct daemon *d = arg;
    char err[CONFIG_ERROR_MAX];

    /* The supervisor knows that the daemon stops: READY would revoke that. */
    if (loop_timer_pending(&d->drain)) {
        log_warn("SIGHUP is ignored: the conductor is stopping");
        return;
    }
    supervisor_reloads();
    (void)!reload(d, &changes, err); /* it logs why it fails */
    supervisor_say("READY=1");
}

/* Writes names, separated by blanks, as a JSON array. */
static void put_names(struct text_buf *out, const char *names)
{
    const char *comma = "";

    text_buf_puts(out, "[");
    while (*names) {
        size_t n = strcspn(names, " ");

        text_buf_puts(out, comma);
        text_buf_json(out, names, n);
        names += n + (names[n] == ' ');
        comma = ",";
    }
    text_buf_puts(out, "]");
}

int daemon_on_reload(void *arg, struct text_buf *out, char *err)
{
    struct config_changes changes;
    char why[CONFIG_ERROR_MAX];

    if (reload(arg, &changes, why)) {
        snprintf(err, SERVICE_ERROR_BYTES, "%s", why);
        return -EINVAL;
    }
    text_buf_puts(out, "{\"taken\":");
    put_names(out, changes.taken);
    text_buf_puts(out, ",\"needs_restart\":");
    put_names(out, changes.kept);
    text_buf_puts(out, "}\n");
    return 0;
}
