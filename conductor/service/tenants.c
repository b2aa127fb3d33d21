/* Keys, their names, and what is counted of each. See tenants.h. */
#include "conductor/service/tenants.h"

#include <errno.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_fields.h"
#include "base/secret.h"

#define FILE_MAX_BYTES (1u << 20)
#define NAME_BYTES 64
#define DIGEST_BYTES PROTO_PROOF_BYTES
/* As many have a place of their own in the shares. */
#define NAMES_MAX (SHARE_TENANTS - 1)
#define KEYS_MAX 1024u
#define WEIGHT_LEAST 0.01
#define WEIGHT_MOST 100.0

struct tenant {
    char name[NAME_BYTES];
    uint64_t number;
    double weight;
    uint64_t requests[METRICS_OUTCOMES], tokens;
    /* As of tenants_weigh(). */
    uint64_t waiting;
    double standing; /* the lowest; below 0: it has not asked */
};

struct tenant_key {
    uint8_t digest[DIGEST_BYTES];
    uint32_t tenant; /* its place in `all` */
};

struct tenants {
    char path[CONFIG_STRING_MAX];     /* "": every key is a tenant */
    struct tenant all[NAMES_MAX + 1]; /* (n + 1), the first one is the others */
    size_t n;
    struct tenant_key *keys; /* (n_keys) */
    size_t n_keys;
};

static uint64_t number_of(const uint8_t digest[DIGEST_BYTES])
{
    uint64_t number;

    memcpy(&number, digest, sizeof(number));
    return number ? number : 1;
}

static int digit(char c)
{
    const char *hex = "0123456789abcdef", *at = c ? strchr(hex, c) : NULL;

    return at ? (int)(at - hex) : -1;
}

static bool read_digest(const json_t *value, uint8_t out[DIGEST_BYTES])
{
    const char *hex = json_string_value(value);

    if (!hex || json_string_length(value) != (size_t)2 * DIGEST_BYTES)
        return false;
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

static bool has_key(const struct tenants *t, const uint8_t digest[DIGEST_BYTES])
{
    for (size_t i = 0; i < t->n_keys; i++)
        if (memcmp(t->keys[i].digest, digest, DIGEST_BYTES) == 0)
            return true;
    return false;
}

/* What is no digest may be a key itself: little of it is shown. */
static void refuse_digest(struct fields *f, const char *path, size_t i,
                          const json_t *value)
{
    const char *text = json_string_value(value);

    fields_refuse(
        f, path, "sha256",
        "number %zu: \"%.4s...\" of %zu bytes: must be 64 hexadecimal "
        "digits in lower case, as of: printf %%s KEY | sha256sum",
        i + 1, text ? text : "", json_string_length(value));
}

static void read_keys(struct fields *f, const struct fields_object *o,
                      struct tenants *t)
{
    const json_t *keys = json_object_get(o->json, "sha256");
    size_t n = json_array_size(keys);

    if (n == 0) {
        fields_refuse_value(f, o, "sha256", "an array of at least one SHA-256");
        return;
    }
    for (size_t i = 0; i < n && f->rc == 0; i++) {
        struct tenant_key key = {.tenant = (uint32_t)t->n};

        if (!read_digest(json_array_get(keys, i), key.digest))
            refuse_digest(f, o->path, i, json_array_get(keys, i));
        else if (has_key(t, key.digest))
            fields_refuse(f, o->path, "sha256", "number %zu: comes twice",
                          i + 1);
        else if (t->n_keys == KEYS_MAX)
            fields_refuse(f, o->path, "sha256", "more than %u keys", KEYS_MAX);
        else
            t->keys[t->n_keys++] = key;
    }
}

/* A name is a label of metrics. */
static void check_name(struct fields *f, const struct fields_object *o,
                       const struct tenants *t)
{
    const char *name = t->all[t->n].name;

    for (const char *c = name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                    "0123456789._-",
                    *c))
            fields_refuse_value(f, o, "name", "letters, digits, '.', '_', '-'");
    if (strcmp(t->all[0].name, name) == 0)
        fields_refuse(f, o->path, "name",
                      "\"%s\": is the name of all that are not listed", name);
    for (size_t i = 1; i < t->n; i++)
        if (strcmp(t->all[i].name, name) == 0)
            fields_refuse(f, o->path, "name", "\"%s\": comes twice", name);
}

static void read_tenant(struct fields *f, const struct fields_object *o,
                        struct tenants *t)
{
    static const double usual = 1.0;
    uint8_t digest[DIGEST_BYTES] = {0};
    struct tenant *one = &t->all[++t->n];

    one->standing = -1.0;

    if (!json_is_object(o->json)) {
        fields_refuse_got(f, o->path, "", "an object", o->json);
        return;
    }
    fields_known(f, o, "name weight sha256");
    fields_text(f, o, "name", one->name, sizeof(one->name), NULL);
    one->weight =
        fields_number(f, o, "weight", WEIGHT_LEAST, WEIGHT_MOST, &usual);
    if (f->rc)
        return;
    check_name(f, o, t);
    read_keys(f, o, t);
    /* All keys of a name are one tenant. */
    if (secret_digest(one->name, strlen(one->name), digest))
        fields_refuse(f, o->path, "name", "SHA-256 failed");
    one->number = number_of(digest);
}

static void read_root(struct fields *f, const struct fields_object *root,
                      void *into)
{
    struct tenants *t = into;
    const json_t *all = json_object_get(root->json, "tenants");
    char path[32], must[48];

    fields_known(f, root, "tenants");
    if (!json_is_array(all) || json_array_size(all) > NAMES_MAX) {
        snprintf(must, sizeof(must), "an array of at most %u objects",
                 NAMES_MAX);
        fields_refuse_value(f, root, "tenants", must);
        return;
    }
    t->keys = calloc(KEYS_MAX, sizeof(*t->keys));
    if (!t->keys)
        fields_refuse(f, "", "tenants", "out of memory");
    for (size_t i = 0; i < json_array_size(all) && f->rc == 0; i++) {
        snprintf(path, sizeof(path), "tenants[%zu].", i);
        read_tenant(f, &(struct fields_object){json_array_get(all, i), path},
                    t);
    }
}

int tenants_new(const char *path, struct tenants **out,
                char err[CONFIG_ERROR_MAX])
{
    struct fields f = {"", path, err, CONFIG_ERROR_MAX, 0};
    struct tenants *t = calloc(1, sizeof(*t));
    int rc = 0;

    *out = NULL;
    if (!t)
        return error_say(err, CONFIG_ERROR_MAX, -ENOMEM, "out of memory");
    snprintf(t->path, sizeof(t->path), "%s", path);
    t->all[0] =
        (struct tenant){.name = "other", .weight = 1.0, .standing = -1.0};
    if (*path)
        rc = fields_read(&f, NULL, FILE_MAX_BYTES, read_root, t);
    if (rc)
        tenants_free(t);
    else
        *out = t;
    return rc;
}

void tenants_free(struct tenants *t)
{
    if (t)
        free(t->keys);
    free(t);
}

/* Its place in `all`. */
static size_t place_of(const struct tenants *t, uint64_t number)
{
    for (size_t i = 1; number && i <= t->n; i++)
        if (t->all[i].number == number)
            return i;
    return 0;
}

static void add(struct tenant *into, const struct tenant *from)
{
    for (size_t i = 0; i < METRICS_OUTCOMES; i++)
        into->requests[i] += from->requests[i];
    into->tokens += from->tokens;
}

int tenants_reload(struct tenants *t, char err[CONFIG_ERROR_MAX])
{
    struct tenants *next;
    int rc = tenants_new(t->path, &next, err);

    if (rc)
        return rc;
    for (size_t i = 0; i <= t->n; i++)
        add(&next->all[place_of(next, t->all[i].number)], &t->all[i]);
    free(t->keys);
    *t = *next;
    free(next);
    return 0;
}

size_t tenants_size(const struct tenants *t)
{
    return t->n;
}

void tenants_find(const struct tenants *t, const char *key, size_t n,
                  int32_t priority, struct dispatch_request *request)
{
    uint8_t digest[DIGEST_BYTES];

    request->tenant = 0;
    request->weight = 1.0;
    request->priority = *t->path ? 0 : priority;
    if (n == 0 || secret_digest(key, n, digest))
        return;
    if (!*t->path)
        request->tenant = number_of(digest);
    for (size_t i = 0; i < t->n_keys; i++)
        if (memcmp(t->keys[i].digest, digest, DIGEST_BYTES) == 0) {
            const struct tenant *one = &t->all[t->keys[i].tenant];

            request->tenant = one->number;
            request->weight = one->weight;
            request->priority = priority;
            return;
        }
}

const char *tenants_name(const struct tenants *t, uint64_t tenant)
{
    return t->all[place_of(t, tenant)].name;
}

void tenants_count(struct tenants *t, uint64_t tenant,
                   enum metrics_outcome outcome)
{
    t->all[place_of(t, tenant)].requests[outcome]++;
}

void tenants_sent(struct tenants *t, uint64_t tenant, uint64_t tokens)
{
    t->all[place_of(t, tenant)].tokens += tokens;
}

void tenants_weigh(struct tenants *t, struct dispatch *d, int64_t now_us)
{
    struct share *share = &d->share;

    for (uint32_t i = 0; i < SHARE_TENANTS; i++) {
        struct tenant *one = &t->all[place_of(t, share->tenants[i].name)];
        double standing;

        one->waiting += share->tenants[i].waiting;
        if (!share_is_active(share, i, now_us))
            continue;
        standing = share_standing(share, i, now_us);
        if (one->standing < 0.0 || standing < one->standing)
            one->standing = standing;
    }
}

static int put_help(struct evbuffer *out, const char *name, const char *type,
                    const char *help)
{
    return evbuffer_add_printf(out,
                               "# HELP conductor_tenant_%s %s\n"
                               "# TYPE conductor_tenant_%s %s\n",
                               name, help, name, type) < 0;
}

static int put_requests(const struct tenants *t, struct evbuffer *out)
{
    static const char *const names[METRICS_OUTCOMES] = {
        [METRICS_COMPLETED] = "completed",
        [METRICS_REJECTED] = "rejected",
        [METRICS_FAILED] = "failed",
        [METRICS_CANCELLED] = "cancelled",
    };
    int bad = put_help(out, "requests_total", "counter",
                       "Requests of a tenant by how they ended.");

    for (size_t i = 0; i <= t->n; i++)
        for (size_t k = 0; k < METRICS_OUTCOMES; k++)
            bad |= evbuffer_add_printf(
                       out,
                       "conductor_tenant_requests_total{tenant=\"%s\","
                       "outcome=\"%s\"} %llu\n",
                       t->all[i].name, names[k],
                       (unsigned long long)t->all[i].requests[k]) < 0;
    return bad;
}

static int put_line(struct evbuffer *out, const char *metric,
                    const struct tenant *one, double value)
{
    return evbuffer_add_printf(out,
                               "conductor_tenant_%s{tenant=\"%s\"} %.15g\n",
                               metric, one->name, value) < 0;
}

int tenants_write(struct tenants *t, struct evbuffer *out)
{
    int bad = put_requests(t, out);

    bad |= put_help(out, "computed_tokens_total", "counter",
                    "Prompt tokens that instances were given to compute.");
    for (size_t i = 0; i <= t->n; i++)
        bad |= put_line(out, "computed_tokens_total", &t->all[i],
                        (double)t->all[i].tokens);
    bad |= put_help(out, "waiting", "gauge",
                    "Requests that no instance was given yet.");
    for (size_t i = 0; i <= t->n; i++)
        bad |= put_line(out, "waiting", &t->all[i], (double)t->all[i].waiting);
    bad |= put_help(out, "standing_ratio", "gauge",
                    "Of the last minute's work what a tenant had, over its "
                    "share: below 1 less; the lowest of several models. Only "
                    "those that asked then.");
    for (size_t i = 0; i <= t->n; i++)
        if (t->all[i].standing >= 0.0)
            bad |=
                put_line(out, "standing_ratio", &t->all[i], t->all[i].standing);
    for (size_t i = 0; i <= t->n; i++) {
        t->all[i].waiting = 0;
        t->all[i].standing = -1.0;
    }
    return bad ? -ENOMEM : 0;
}
