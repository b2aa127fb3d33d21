/* tenants_file: names, keys, weights. */
#include <stdlib.h>
#include <string.h>

#include "base/json_fields.h"
#include "base/secret.h"
#include "conductor/service/tenant/internal.h"

#define WEIGHT_LEAST 0.01
#define WEIGHT_MOST 100.0
#define SLO_MOST_MS 86400000.0
#define RATE_MOST 1e12
#define OPEN_MOST 1e6

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

/* Shows only the start of a bad digest, which may be a key. */
static void refuse_digest(struct fields *f, const char *path, size_t i,
                          const json_t *value)
{
    const char *text = json_string_value(value);

    fields_refuse(
        f, path, "sha256",
        "number %zu: \"%.4s...\" of %zu bytes: must be 64 hexadecimal digits "
        "in lower case, as printed by: printf %%s KEY | sha256sum",
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
                      "\"%s\": is reserved for the tenants that are not listed",
                      name);
    for (size_t i = 1; i < t->n; i++)
        if (strcmp(t->all[i].name, name) == 0)
            fields_refuse(f, o->path, "name", "\"%s\": comes twice", name);
}

static void read_tenant(struct fields *f, const struct fields_object *o,
                        struct tenants *t)
{
    static const double usual = 1.0, none = 0.0;
    uint8_t digest[DIGEST_BYTES] = {0};
    struct tenant *one = &t->all[++t->n];

    one->standing = -1.0;

    if (!json_is_object(o->json)) {
        fields_refuse_got(f, o->path, "", "an object", o->json);
        return;
    }
    fields_known(f, o,
                 "name weight sha256 slo_ttft_ms slo_tpot_ms "
                 "requests_per_minute tokens_per_minute max_in_flight");
    fields_text(f, o, "name", one->name, sizeof(one->name), NULL);
    one->weight =
        fields_number(f, o, "weight", WEIGHT_LEAST, WEIGHT_MOST, &usual);
    one->slo_ttft_us = (int64_t)(1e3 * fields_number(f, o, "slo_ttft_ms", 0.0,
                                                     SLO_MOST_MS, &none));
    one->slo_tbt_us = (int64_t)(1e3 * fields_number(f, o, "slo_tpot_ms", 0.0,
                                                    SLO_MOST_MS, &none));
    one->asks.per_minute =
        fields_number(f, o, "requests_per_minute", 0.0, RATE_MOST, &none);
    one->tokens.per_minute =
        fields_number(f, o, "tokens_per_minute", 0.0, RATE_MOST, &none);
    one->max_open =
        (uint32_t)fields_number(f, o, "max_in_flight", 0.0, OPEN_MOST, &none);
    if (f->rc)
        return;
    check_name(f, o, t);
    read_keys(f, o, t);
    /* All keys with one name belong to one tenant. */
    if (secret_digest(one->name, strlen(one->name), digest))
        fields_refuse(f, o->path, "name", "SHA-256 failed");
    one->number = tenant_number(digest);
    one->joint = (struct joint_key){.number = one->number,
                                    .asks.per_minute = one->asks.per_minute,
                                    .tokens.per_minute = one->tokens.per_minute,
                                    .max_open = one->max_open};
}

uint64_t tenant_number(const uint8_t digest[DIGEST_BYTES])
{
    uint64_t number;

    memcpy(&number, digest, sizeof(number));
    return number ? number : 1;
}

void tenants_read(struct fields *f, const struct fields_object *root,
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
