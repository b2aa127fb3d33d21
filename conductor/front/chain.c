/* See chain.h. */
#include "conductor/front/chain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_fields.h"

#define SHOWN 40

/* State of reading. */
struct reading {
    struct chain *chain;
    struct openai_error *error;
    bool copies;
    bool no_memory;
};

static int refuse(const struct reading *r, struct http_slice name,
                  struct http_slice value, const char *must)
{
    char cut[SHOWN];
    size_t n = name.n < SHOWN - 1 ? name.n : SHOWN - 1;

    memcpy(cut, name.at, n);
    cut[n] = '\0';
    return openai_error_set(
        r->error, 400, "invalid_value", cut, "%s: \"%.*s\": must be %s", cut,
        value.n < SHOWN ? (int)value.n : SHOWN, value.at, must);
}

static int no_memory(const struct reading *r)
{
    openai_error_set(r->error, 500, "out_of_memory", NULL, "out of memory");
    return -ENOMEM;
}

/* Allocates n tokens. NULL: sets no_memory. */
static uint32_t *make_tokens(struct reading *r, size_t n)
{
    r->chain->tokens = malloc((n + 1) * sizeof(*r->chain->tokens));
    r->no_memory |= !r->chain->tokens;
    return r->chain->tokens;
}

/* Each byte of a text is a token. */
static void take_text(struct reading *r, const char *text, size_t n)
{
    uint32_t *tokens = make_tokens(r, n);

    for (size_t i = 0; tokens && i < n; i++)
        tokens[i] = (unsigned char)text[i];
    r->chain->n = tokens ? n : 0;
}

/* 1 to 16 hexadecimal digits; 0: not a key. */
static uint64_t read_key(struct http_slice text)
{
    uint64_t key = 0;

    for (size_t i = 0; i < text.n; i++) {
        int digit = http_hex(text.at[i]);

        if (digit < 0 || text.n > 16)
            return 0;
        key = key << 4 | (uint64_t)digit;
    }
    return key;
}

/* A text in the query, with a blank as + or %20. */
static void read_prompt(struct reading *r, struct http_slice text)
{
    char *bytes = malloc(text.n + 1);

    r->no_memory |= !bytes;
    if (!bytes)
        return;
    for (size_t i = 0; i < text.n; i++)
        bytes[i] = text.at[i] == '+' ? ' ' : text.at[i];
    take_text(r, bytes, http_unescape(bytes, text.n, bytes, text.n + 1));
    free(bytes);
}

/* Token ids with commas between them; reads none if one is wrong. */
static void read_tokens(struct reading *r, struct http_slice text)
{
    uint32_t *tokens = make_tokens(r, text.n / 2 + 1);
    size_t count = 0, digits = 0;
    uint64_t id = 0;

    for (size_t i = 0; tokens && i <= text.n; i++) {
        char c = i < text.n ? text.at[i] : ',';

        if (c >= '0' && c <= '9' && digits++ < 10) {
            id = id * 10 + (uint64_t)(c - '0');
            continue;
        }
        if (c != ',' || digits == 0 || id > UINT32_MAX)
            return;
        tokens[count++] = (uint32_t)id;
        digits = 0;
        id = 0;
    }
    r->chain->n = count;
}

/* 1 to CHAIN_COPIES_MAX; 0: not such a number. */
static uint32_t read_copies(struct http_slice text)
{
    int64_t n = http_number(text, CHAIN_COPIES_MAX);

    return n > 0 ? (uint32_t)n : 0;
}

/* Reads the next member of a query from *at on: its name, and its value, not
 * unescaped, empty without one. Returns false: there is none. */
static bool next_member(const char **at, const char *end,
                        struct http_slice *name, struct http_slice *value)
{
    const char *next, *equals;

    while (*at < end && (**at == '?' || **at == '&'))
        (*at)++;
    if (*at == end)
        return false;
    next = memchr(*at, '&', (size_t)(end - *at));
    next = next ? next : end;
    equals = memchr(*at, '=', (size_t)(next - *at));
    *name = (struct http_slice){*at, (size_t)((equals ? equals : next) - *at)};
    *value = equals
                 ? (struct http_slice){equals + 1, (size_t)(next - equals) - 1}
                 : (struct http_slice){next, 0};
    *at = next;
    return true;
}

/* Takes a member of the query that says which blocks. */
static int take_member(struct reading *r, struct http_slice name,
                       struct http_slice value)
{
    struct chain *c = r->chain;

    if (http_is(name, "key") && !r->copies) {
        c->key = read_key(value);
        return c->key ? 0
                      : refuse(r, name, value,
                               "1 to 16 hexadecimal digits, not all 0");
    }
    if (http_is(name, "prompt"))
        read_prompt(r, value);
    else if (http_is(name, "tokens"))
        read_tokens(r, value);
    else
        return refuse(r, name, value,
                      r->copies
                          ? "left out: only copies, prompt and tokens are known"
                          : "left out: only key, prompt and tokens are known");
    if (r->no_memory)
        return no_memory(r);
    if (c->n == 0 && http_is(name, "tokens"))
        return refuse(r, name, value, "token ids with commas between them");
    if (c->n == 0 && r->copies)
        return refuse(r, name, value, "a text");
    return 0;
}

static int read_query(struct reading *r, struct http_slice query)
{
    const char *at = query.at, *end = query.at + query.n;
    struct http_slice name, value, copies = {"", 0};
    bool which = false;
    int rc = 0;

    while (rc == 0 && next_member(&at, end, &name, &value)) {
        if (r->copies && http_is(name, "copies")) {
            copies = value;
            continue;
        }
        if (which)
            return refuse(
                r, name, value,
                "left out: only one of key, prompt and tokens may be given");
        rc = take_member(r, name, value);
        which = true;
    }
    if (rc)
        return rc;
    r->chain->copies = read_copies(copies);
    if (r->copies && r->chain->copies == 0)
        return refuse(r, (struct http_slice){"copies", 6}, copies, "1 to 1024");
    if (which)
        return 0;
    return refuse(
        r, (struct http_slice){r->copies ? "prompt" : "key", r->copies ? 6 : 3},
        (struct http_slice){"", 0},
        r->copies ? "given, or tokens, in a JSON body or as "
                    "/admin/replicas?copies=N&prompt=TEXT"
                  : "given, or prompt, or tokens, in a JSON body or as "
                    "/admin/blocks?key=HEX");
}

/* An array of token ids. */
static void take_ids(struct fields *f, const struct fields_object *o,
                     struct reading *r, const json_t *array)
{
    size_t n = json_array_size(array);
    uint32_t *tokens = n > 0 ? make_tokens(r, n) : NULL;

    for (size_t i = 0; tokens && i < n; i++) {
        const json_t *one = json_array_get(array, i);
        json_int_t id = json_integer_value(one);

        if (!json_is_integer(one) || id < 0 || id > UINT32_MAX) {
            tokens = NULL;
            break;
        }
        tokens[i] = (uint32_t)id;
    }
    if (tokens)
        r->chain->n = n;
    else if (!r->no_memory)
        fields_refuse_value(f, o, "tokens", "an array of token ids");
}

static void read_members(struct fields *f, const struct fields_object *o,
                         void *into)
{
    struct reading *r = into;
    const json_t *key = json_object_get(o->json, "key");
    const json_t *prompt = json_object_get(o->json, "prompt");
    const json_t *tokens = json_object_get(o->json, "tokens");
    const char *text = json_string_value(key);

    fields_known(f, o,
                 r->copies ? "copies prompt tokens" : "key prompt tokens");
    if (r->copies)
        r->chain->copies =
            (uint32_t)fields_integer(f, o, "copies", 1, CHAIN_COPIES_MAX, NULL);
    if (!!key + !!prompt + !!tokens != 1)
        fields_refuse(f, "", "", "prompt, tokens%s: must be one of them",
                      r->copies ? "" : ", key");
    if (f->rc)
        return;
    if (key)
        r->chain->key =
            text ? read_key((struct http_slice){text, strlen(text)}) : 0;
    if (key && r->chain->key == 0)
        fields_refuse_value(f, o, "key",
                            "1 to 16 hexadecimal digits, not all 0");
    if (prompt && json_string_length(prompt) == 0)
        fields_refuse_value(f, o, "prompt", "a text");
    else if (prompt)
        take_text(r, json_string_value(prompt), json_string_length(prompt));
    if (tokens)
        take_ids(f, o, r, tokens);
}

static int read_body(struct reading *r, struct http_slice query,
                     const char *body, size_t n)
{
    char why[300], param[SHOWN];
    struct fields f = {
        .what = "", .file = "", .err = why, .err_size = sizeof(why)};
    bool bad;

    if (query.n > 0)
        return refuse(r, (struct http_slice){"query", 5}, query,
                      "empty if there is a body");
    if (fields_read(&f, body, n, read_members, r) == 0)
        return r->no_memory ? no_memory(r) : 0;
    bad = strncmp(why, "line ", 5) == 0;
    size_t length = strspn(why, "abcdefghijklmnopqrstuvwxyz_");
    length = !bad && why[length] == ':' && length < SHOWN ? length : 0;
    memcpy(param, why, length);
    param[length] = '\0';
    return openai_error_set(
        r->error, 400, bad ? "invalid_json" : "invalid_value", param, "%s%s",
        bad ? "the body isn't valid JSON: " : "", why);
}

int chain_read(struct http_slice query, const char *body, size_t n, bool copies,
               struct chain *chain, struct openai_error *error)
{
    struct reading r = {.chain = chain, .error = error, .copies = copies};
    int rc;

    *chain = (struct chain){.key = 0};
    rc = n > 0 ? read_body(&r, query, body, n) : read_query(&r, query);
    if (rc)
        chain_fini(chain);
    return rc;
}

void chain_fini(struct chain *chain)
{
    free(chain->tokens);
    *chain = (struct chain){.key = 0};
}
