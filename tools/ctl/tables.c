/* conductorctl instances and explain: answers as tables. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "predictor/learned.h"
#include "tools/ctl/ctl.h"

#define N(rows) (sizeof(rows) / sizeof((rows)[0]))

/* Rows of cells, printed in columns as wide as their longest cell. */
#define TABLE_COLUMNS_MAX 16

struct table {
    size_t columns;
    char **cells; /* (n) owned, row by row */
    size_t n;
    int failed; /* out of memory for a cell */
};

/* Adds a copy of a cell's text. The first row names the columns. */
static void table_add(struct table *t, const char *text)
{
    char **cells = realloc(t->cells, (t->n + 1) * sizeof(*cells));

    if (!cells) {
        t->failed = 1;
        return;
    }
    t->cells = cells;
    cells[t->n] = strdup(text);
    if (cells[t->n])
        t->n++;
    else
        t->failed = 1;
}

/* Prints the table to stdout and frees its cells. Returns 0, or 1 when out of
 * memory. */
static int table_print(struct table *t)
{
    size_t width[TABLE_COLUMNS_MAX] = {0};

    for (size_t i = 0; i < t->n; i++) {
        size_t n = strlen(t->cells[i]), c = i % t->columns;

        width[c] = n > width[c] ? n : width[c];
    }
    for (size_t i = 0; i < t->n && !t->failed; i++) {
        size_t c = i % t->columns;

        if (c + 1 == t->columns)
            printf("%s\n", t->cells[i]);
        else
            printf("%-*s  ", (int)width[c], t->cells[i]);
    }
    for (size_t i = 0; i < t->n; i++)
        free(t->cells[i]);
    free(t->cells);
    return t->failed;
}

static const char *kv_of(const json_t *instance, char *text, size_t size)
{
    double used =
        json_number_value(json_object_get(instance, "kv_used_tokens"));
    double all =
        json_number_value(json_object_get(instance, "kv_capacity_tokens"));

    if (all > 0.0)
        snprintf(text, size, "%.0f%%", 100.0 * used / all);
    else
        snprintf(text, size, "-");
    return text;
}

static const struct {
    const char *title, *key;
    /* Formats the column; NULL = print the member `key`. */
    const char *(*show)(const json_t *instance, char *text, size_t size);
} of_instances[] = {
    {"NAME", "name", NULL},
    {"MODEL", "model", NULL},
    {"KIND", "kind", NULL},
    {"ROLE", "role", NULL},
    {"STATE", .show = ctl_state},
    {"PREFILLS", "prefills", NULL},
    {"DECODES", "decodes", NULL},
    {"KV", .show = kv_of},
    {"BLOCKS", "blocks", NULL},
    {"OBSERVED/PREDICTED", "prefill_ratio", NULL},
    {"LINK-MB/S", "link_mb_per_s", NULL},
};

int ctl_instances(struct ctl *ctl, const struct option_list *)
{
    struct table table = {.columns = N(of_instances)};
    char text[256];
    json_t *json;
    const json_t *one;
    size_t i;

    if (ctl_ask(ctl, CTL_GET, "/admin/instances", &json))
        return 1;
    if (ctl->json) {
        ctl_print_json(json);
        json_decref(json);
        return 0;
    }
    for (size_t c = 0; c < N(of_instances); c++)
        table_add(&table, of_instances[c].title);
    json_array_foreach(json_object_get(json, "instances"), i, one)
    {
        for (size_t c = 0; c < N(of_instances); c++)
            table_add(&table, of_instances[c].show
                                  ? of_instances[c].show(one, text, sizeof text)
                                  : ctl_show(one, of_instances[c].key, text,
                                             sizeof text));
    }
    json_decref(json);
    return table_print(&table);
}

struct column {
    const char *title, *key;
};

static const struct column of_prefill[] = {
    {"INSTANCE", "instance"},
    {"MODE", "mode"},
    {"TTFT-MS", "ttft_ms"},
    {"TESTED-MS", "tested_ttft_ms"},
    {"QUEUE-MS", "queue_ms"},
    {"LOAD-MS", "load_ms"},
    {"PREFILL-MS", "prefill_ms"},
    {"SCORE-MS", "score_ms"},
    {"LOCAL", "local_blocks"},
    {"USED", "used_blocks"},
    {"LATE", "late"},
    {"FULL", "queue_full"},
    {"TOO-LONG", "too_long"},
};

static const struct column of_decode[] = {
    {"INSTANCE", "instance"},       {"TBT-MS", "tbt_ms"},
    {"LOAD-MS", "load_ms"},         {"PUSH-MS", "push_ms"},
    {"ROOM-TOKENS", "room_tokens"}, {"NO-ROOM", "no_room"},
    {"TOO-LONG", "too_long"},
};

static const struct column of_request[] = {
    {"request", "request_id"},
    {"client's id", "client_request_id"},
    {"traceparent", "traceparent"},
    {"tenant", "tenant"},
    {"state", "state"},
    {"reason", "reason"},
    {"policy", "policy"},
    {"verdict", "verdict"},
    {"attempt", "attempt"},
    {"prompt tokens", "prompt_tokens"},
    {"max_tokens", "max_tokens"},
    {"TTFT limit, ms", "slo_ttft_ms"},
    {"TBT limit, ms", "slo_tbt_ms"},
    {"prefill", "prefill"},
    {"decode", "decode"},
    {"cost", "cost"},
};

static const struct column of_times[] = {
    {"TTFT, ms", "total_ttft_ms"}, {"p50, ms", "p50_ttft_ms"},
    {"p90, ms", "p90_ttft_ms"},    {"queue, ms", "queue_ms"},
    {"load, ms", "load_ms"},       {"prefill, ms", "prefill_ms"},
    {"TBT, ms", "tbt_ms"},         {"tested, ms", "tested_ttft_ms"},
};

static const struct column of_actual[] = {
    {"TTFT, ms", "ttft_ms"},
    {"queue, ms", "queue_ms"},
    {"load, ms", "load_ms"},
    {"prefill, ms", "prefill_ms"},
    {"prompt", "prompt_tokens"},
    {"here", "local_tokens"},
    {"fetched", "fetched_tokens"},
    {"from disk", "disk_tokens"},
    {"from the store", "shared_tokens"},
    {"computed", "computed_tokens"},
};

static bool is(const json_t *object, const char *key, const char *value)
{
    return strcmp(ctl_member(object, key), value) == 0;
}

/* Whether a number of tokens is a guess: of the prompt, by its bytes; of its
 * parts also by the index, where the engine does not tell what was cached. */
static bool is_guess(const json_t *object, const char *key)
{
    const char *tokens = strstr(key, "_tokens");

    return tokens && strncmp(key, "max_", 4) != 0 &&
           (is(object, "known_by", "bytes") ||
            is(object, "prompt_known_by", "bytes") ||
            (strcmp(key, "prompt_tokens") != 0 &&
             is(object, "cached_known_by", "index")));
}

static void print_members(const json_t *object)
{
    char text[256];

    for (size_t i = 0; i < N(of_request); i++) {
        const char *key = of_request[i].key;
        bool guess = is_guess(object, key);

        if (!json_is_null(json_object_get(object, key)))
            printf("%-15s %s%s%s\n", of_request[i].title, guess ? "≈" : "",
                   ctl_show(object, key, text, sizeof text),
                   guess ? ", guessed by bytes" : "");
    }
}

/* Prints the known times and counts on one line. */
static void print_line(const char *title, const json_t *object,
                       const struct column *rows, size_t n)
{
    const char *comma = "";
    char text[64];

    printf("%-15s ", title);
    for (size_t i = 0; i < n; i++)
        if (json_is_number(json_object_get(object, rows[i].key))) {
            printf("%s%s %s%s", comma, rows[i].title,
                   is_guess(object, rows[i].key) ? "≈" : "",
                   ctl_show(object, rows[i].key, text, sizeof text));
            comma = "; ";
        }
    if (is(object, "prompt_known_by", "bytes"))
        printf("; prompt guessed by bytes");
    if (is(object, "cached_known_by", "index"))
        printf("; cached guessed by the index");
    printf("%s\n", *comma ? "" : "-");
}

/* An engine whose KV capacity is not known reports more room than this. */
#define ROOM_MAX (INT64_MAX / 8192)

static const char *show_cell(const json_t *candidate, const char *key,
                             char text[132])
{
    const json_t *value = json_object_get(candidate, key);
    bool bound = json_is_true(json_object_get(candidate, "at_least")) &&
                 json_is_number(value) && strcmp(key, "ttft_ms") == 0;

    strcpy(text, bound ? ">=" : "");
    if (strcmp(key, "room_tokens") == 0 && json_integer_value(value) > ROOM_MAX)
        strcpy(text, "no limit");
    else
        ctl_show(candidate, key, text + strlen(text), 128);
    return text;
}

/* Prints the candidates, with a mark at the one named `chosen`. */
static int print_candidates(const char *title, const json_t *list,
                            const char *chosen, const struct column *rows,
                            size_t n)
{
    struct table table = {.columns = n + 1};
    const json_t *one;
    char cell[132];
    size_t i;

    if (json_array_size(list) == 0)
        return 0;
    printf("\n%s (* is the chosen one; >= a lower bound)\n", title);
    table_add(&table, "");
    for (size_t c = 0; c < n; c++)
        table_add(&table, rows[c].title);
    json_array_foreach(list, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "instance"));

        table_add(&table,
                  name && chosen && strcmp(name, chosen) == 0 ? "*" : "");
        for (size_t c = 0; c < n; c++)
            table_add(&table, show_cell(one, rows[c].key, cell));
    }
    return table_print(&table);
}

/* Prints the workers lent to the request. No candidate has the group's
 * times. */
static void print_lent(const json_t *list)
{
    const json_t *one;
    char name[64];
    size_t i;

    json_array_foreach(list, i, one)
    {
        snprintf(name, sizeof name, "%s",
                 json_is_string(one) ? json_string_value(one) : "?");
        printf(i ? ", %s" : "lent            %s", ctl_tame(name));
    }
    if (json_array_size(list) > 0)
        printf(": predicted for the group; a candidate's times are its own\n");
}

/* Prints why the reused blocks had been copied there in advance. */
static void print_copied(const json_t *copied)
{
    char a[32], b[32], c[128], d[32];

    if (json_is_object(copied))
        printf("copied          blocks %s to %s, from %s, %s s before\n",
               ctl_show(copied, "first_block", a, sizeof a),
               ctl_show(copied, "end_block", b, sizeof b),
               ctl_show(copied, "from", c, sizeof c),
               ctl_show(copied, "age_s", d, sizeof d));
}

/* Whether nothing kept the policy from choosing the candidate. */
static bool is_free(const json_t *candidate)
{
    static const char *const bars[] = {"late", "queue_full", "too_long",
                                       "spared"};

    for (size_t i = 0; i < N(bars); i++)
        if (json_is_true(json_object_get(candidate, bars[i])))
            return false;
    return true;
}

/* Prints the rule by which a candidate with a lower score than the chosen one,
 * the first, has lost; nothing if there is none. */
static void print_equal(const json_t *json)
{
    const json_t *list = json_object_get(json, "candidates"), *one;
    const json_t *chosen = json_array_get(list, 0);
    const json_t *plan = json_object_get(json, "plan");
    double score = json_number_value(json_object_get(chosen, "score_ms"));
    bool lower = false;
    char text[32];
    size_t i;

    json_array_foreach(list, i, one)
    {
        const json_t *other = json_object_get(one, "score_ms");

        lower = lower || (json_is_number(other) && is_free(one) &&
                          json_number_value(other) < score);
    }
    if (lower && is(json, "verdict", "accept") &&
        json_is_number(json_object_get(plan, "equal_ms")) &&
        json_array_size(json_object_get(json, "lent")) == 0)
        printf("\nScores that differ by at most %s ms count as equal. Of equal "
               "ones an instance is\nchosen that need not evict blocks for the "
               "request, then the one whose last prefill\nis longest ago.\n",
               ctl_show(plan, "equal_ms", text, sizeof text));
}

/* Prints what the columns mean, and why the times are missing. */
static void print_legend(const json_t *json)
{
    char text[32];

    printf("\nTESTED-MS: TTFT from arrival if all accepted work goes first, "
           "compared with the\nlimit; LATE: over it. LOCAL, USED: blocks of %s "
           "tokens that the instance has, and\nthat are reused. FULL: its "
           "queue. NO-ROOM, TOO-LONG: for its KV or window.\n",
           ctl_show(json, "block_tokens", text, sizeof text));
    if (is(json, "cost", "guess"))
        printf("No times: no cost is known yet (%u prefills needed).\n",
               LEARNED_ENOUGH);
    else if (is(json, "cost", "counts"))
        printf("No times: there is no cost model.\n");
}

static int print_all(const json_t *json)
{
    int failed;

    print_members(json);
    print_lent(json_object_get(json, "lent"));
    if (json_is_true(json_object_get(json, "warmed")))
        printf("warmed          to be computed in the background\n");
    print_copied(json_object_get(json, "copied"));
    print_line("predicted", json_object_get(json, "predicted"), of_times,
               N(of_times));
    print_line("actual", json_object_get(json, "actual"), of_actual,
               N(of_actual));
    failed =
        print_candidates("Prefill", json_object_get(json, "candidates"),
                         json_string_value(json_object_get(json, "prefill")),
                         of_prefill, N(of_prefill)) |
        print_candidates("Decode", json_object_get(json, "decode_candidates"),
                         json_string_value(json_object_get(json, "decode")),
                         of_decode, N(of_decode));
    print_equal(json);
    print_legend(json);
    return failed;
}

int ctl_explain(struct ctl *ctl, const struct option_list *words)
{
    const char *id = words->items[1];
    char path[128];
    json_t *json;
    int rc;

    for (const char *c = id; *c; c++)
        if (*c <= ' ' || *c > '~' || strchr("?#%", *c) || c - id > 62)
            return options_complain(
                CTL_NAME,
                "ID: \"%.80s\": must be a request's id, of up to 63 characters",
                id);
    snprintf(path, sizeof path, "/admin/explain/%s", id);
    if (ctl_ask(ctl, CTL_GET, path, &json))
        return 1;
    if (ctl->json)
        ctl_print_json(json);
    rc = ctl->json ? 0 : print_all(json);
    json_decref(json);
    return rc;
}
