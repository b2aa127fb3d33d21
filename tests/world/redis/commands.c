/* See commands.h. */
#include "tests/world/redis/commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/cluster/internal.h"

#define LIMITS_SHA "3a017dfba82c3ff80adcbffbdad7ff6c6f9da471"
#define DAMAGED 9 /* of a hundred commands */

/*
 * Words of a template:
 *   %s %h %z %x  a key that is mostly a string, hash, sorted set or stream
 *   %k           any key
 *   %f %v        a field; a value
 *   %m %w        a member; one of many members
 *   %d %l        a score; a limit of scores
 *   %i %c %n     an id in a stream; a count; a number of entries
 *   %t %p        seconds; milliseconds
 *   %g %b        a pattern of keys; a database
 *   [...]        repeated, once to three times
 * Any other word stands for itself.
 */
static const struct template
{
    unsigned weight;
    const char *text;
    enum shape shape;
}
templates[] = {
    /* conductors */
    {90, "XADD %x MAXLEN ~ %n * e %v", SHAPE_EXACT},
    {20, "XADD %x * e %v", SHAPE_EXACT},
    {8, "XADD %x %i [%f %v]", SHAPE_EXACT},
    {60, "XREAD COUNT %c STREAMS %x %i", SHAPE_EXACT},
    {20, "XREAD STREAMS %x %x %i %i", SHAPE_EXACT},
    {25, "XREAD BLOCK %p COUNT %c STREAMS %x $", SHAPE_EXACT},
    {15, "XREAD BLOCK %p COUNT 64 STREAMS %x %x %i $", SHAPE_EXACT},
    {2, "XREAD BLOCK 0 STREAMS %x $", SHAPE_EXACT},
    {25, "XREVRANGE %x + - COUNT 1", SHAPE_EXACT},
    {10, "XREVRANGE %x %i %i COUNT %c", SHAPE_EXACT},
    {6, "XREVRANGE %x %i -", SHAPE_EXACT},
    /* workers */
    {10, "TIME", SHAPE_EXACT},
    {20, "SET %s %v NX EX %t", SHAPE_EXACT},
    {10, "SET %s %v PX %p", SHAPE_EXACT},
    {10, "SET %s %v", SHAPE_EXACT},
    {30, "GET %s", SHAPE_EXACT},
    {40, "EXPIRE %k %t", SHAPE_EXACT},
    {25, "PEXPIRE %k %p", SHAPE_EXACT},
    {12, "UNLINK [%k]", SHAPE_EXACT},
    {8, "DEL [%k]", SHAPE_EXACT},
    {15, "EXISTS [%k]", SHAPE_EXACT},
    {80, "HSET %h [%f %v]", SHAPE_EXACT},
    {30, "HGET %h %f", SHAPE_EXACT},
    {30, "HMGET %h [%f]", SHAPE_EXACT},
    {15, "HSTRLEN %h %f", SHAPE_EXACT},
    {15, "HDEL %h [%f]", SHAPE_EXACT},
    {20, "HGETALL %h", SHAPE_PAIRS},
    {10, "HKEYS %h", SHAPE_FIELDS},
    {5, "HVALS %h", SHAPE_FIELDS},
    {90, "ZADD %z [%d %m]", SHAPE_EXACT},
    {20, "ZREM %z [%m]", SHAPE_EXACT},
    {15, "ZCARD %z", SHAPE_EXACT},
    {15, "ZSCORE %z %m", SHAPE_EXACT},
    {20, "ZCOUNT %z %l %l", SHAPE_EXACT},
    {15, "ZRANGEBYSCORE %z %l %l", SHAPE_EXACT},
    {12, "ZPOPMIN %z %c", SHAPE_EXACT},
    {3, "ZPOPMIN %z", SHAPE_EXACT},
    {24, "ZSCAN %z 0 COUNT %c", SHAPE_SCAN},
    /* both, and tests */
    {15, "TYPE %k", SHAPE_EXACT},
    {20, "PTTL %k", SHAPE_EXACT},
    {10, "TTL %k", SHAPE_EXACT},
    {3, "KEYS %g", SHAPE_KEYS},
    {3, "SADD %k [%m]", SHAPE_EXACT},
    {6, "SELECT %b", SHAPE_EXACT},
    {4, "ROLE", SHAPE_EXACT},
    {3, "PING", SHAPE_EXACT},
    {2, "PING %v", SHAPE_EXACT},
    {2, "ECHO %v", SHAPE_EXACT},
    {1, "AUTH secret", SHAPE_EXACT},
    {1, "AUTH default secret", SHAPE_EXACT},
    {1, "AUTH %v", SHAPE_EXACT},
    {1, "AUTH %f %v", SHAPE_EXACT},
    {1, "CONFIG SET maxmemory 1", SHAPE_EXACT},
    {12, "CONFIG SET maxmemory 0", SHAPE_EXACT},
    {1, "CONFIG SET maxmemory-policy noeviction", SHAPE_EXACT},
    {1, "CONFIG SET maxmemory-policy %f", SHAPE_EXACT},
    {1, "SCRIPT FLUSH", SHAPE_EXACT},
    {1, "SCRIPT FLUSH ASYNC", SHAPE_EXACT},
    {1, "SCRIPT %f", SHAPE_EXACT},
    {2, "NOSUCH %f [%v]", SHAPE_EXACT},
};

#define TEMPLATES (sizeof(templates) / sizeof(*templates))

/* Words for which no command was made. */
static const char *const odd[] = {
    "",
    "0",
    "-1",
    "1",
    "007",
    "+5",
    "-0",
    " 1",
    "1 ",
    "1.5",
    "1e3",
    "0x10",
    "nan",
    "inf",
    "-inf",
    "(1",
    "(inf",
    "abc",
    "$",
    "+",
    "-",
    "*",
    "~",
    "=",
    "1-",
    "-1-1",
    "1-1-1",
    "5-x",
    "99999999999999999999",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551615-18446744073709551615",
    "9223372036854775808",
    "1e400",
    "count",
    "BLOCK",
    "Streams",
    "MAXLEN",
    "EX",
    "a\r\nb",
};

#define ODD (sizeof(odd) / sizeof(*odd))

static unsigned below(struct random_state *r, unsigned n)
{
    return random_below(r, n);
}

static bool chance(struct random_state *r, unsigned percent)
{
    return below(r, 100) < percent;
}

/* --- words ---------------------------------------------------------------- */

static void add(struct command *c, const char *bytes, size_t n)
{
    c->words.at = mr_grow(c->words.at, &c->words.room, c->words.n + 1,
                          sizeof(*c->words.at));
    c->words.at[c->words.n++] = mr_bytes_copy((struct mr_bytes){bytes, n});
}

static void add_text(struct command *c, const char *text)
{
    add(c, text, strlen(text));
}

#define ADD_FORMAT(c, ...)                           \
    do {                                             \
        char text_[128];                             \
                                                     \
        snprintf(text_, sizeof(text_), __VA_ARGS__); \
        add_text((c), text_);                        \
    } while (0)

static const char *const registry_keys[] = {
    CLUSTER_PREFIX "conductors", CLUSTER_PREFIX "about", CLUSTER_PREFIX "token",
    CLUSTER_PREFIX "leader:1"};

/* A key of that kind; some are the cluster's, and some of another kind. */
static void add_key(struct random_state *r, struct command *c, char kind)
{
    static const char kinds[] = "sssshhhhzzzzx";

    if (kind == 'k' || chance(r, 6))
        kind = kinds[below(r, sizeof(kinds) - 1)];
    if (chance(r, 12) && kind != 'x') {
        add_text(c, kind == 'z'   ? registry_keys[0]
                    : kind == 'h' ? registry_keys[1]
                                  : registry_keys[2 + below(r, 2)]);
        return;
    }
    if (kind == 'h' && chance(r, 12)) {
        ADD_FORMAT(c, CLUSTER_PREFIX "limit:%u", below(r, 4));
        return;
    }
    ADD_FORMAT(c, "%c%u", kind, chance(r, 50) ? 0 : below(r, 5));
}

static void add_id(struct random_state *r, struct command *c)
{
    ADD_FORMAT(c, "00000000000000%02x", below(r, 6));
}

static void add_field(struct random_state *r, struct command *c)
{
    static const char *const names[] = {"h", "at", "asks", "tokens"};

    if (chance(r, 15))
        add_text(c, names[below(r, 4)]);
    else if (chance(r, 15))
        add_id(r, c);
    else
        ADD_FORMAT(c, "%u", chance(r, 3) ? below(r, 700) : below(r, 12));
}

/* Adds a value: one that conductors write, or random bytes of any length. */
static void add_value(struct random_state *r, int64_t now_ms, struct command *c)
{
    char bytes[5000];
    size_t n = chance(r, 3)    ? below(r, sizeof(bytes))
               : chance(r, 6)  ? 62 + below(r, 5)
               : chance(r, 15) ? below(r, 300)
                               : below(r, 24);

    switch (below(r, 12)) {
    case 0:
        ADD_FORMAT(c, "%" PRId64 " model host:%u", now_ms - below(r, 5000),
                   below(r, 9));
        return;
    case 1:
        ADD_FORMAT(c, "%u %u %u %" PRId64, below(r, 9), below(r, 900),
                   below(r, 4), now_ms + below(r, 70000) - 5000);
        return;
    case 2:
        ADD_FORMAT(c, "%d", (int)(below(r, 70000) - 35000));
        return;
    case 3:
        ADD_FORMAT(c, "%" PRIu64, random_u64(r));
        return;
    case 4:
        add_text(c, odd[below(r, ODD)]);
        return;
    default:
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)below(r, 256);
        add(c, bytes, n);
    }
}

static void add_member(struct random_state *r, struct command *c)
{
    char text[80];

    if (chance(r, 30)) {
        add_id(r, c);
        return;
    }
    memset(text, 'm', sizeof(text));
    snprintf(text, sizeof(text), "%u", below(r, chance(r, 10) ? 400 : 30));
    if (chance(r, 2)) {
        text[strlen(text)] = 'm';
        text[62 + below(r, 6)] = '\0';
    }
    add_text(c, text);
}

static void add_score(struct random_state *r, int64_t now_ms, struct command *c)
{
    switch (below(r, 8)) {
    case 0:
        ADD_FORMAT(c, "%u.%u", below(r, 20), below(r, 10));
        return;
    case 1:
        ADD_FORMAT(c, "%.17g", (double)random_u64(r) / 3);
        return;
    case 2:
        add_text(c, odd[below(r, ODD)]);
        return;
    case 3:
    case 4:
        ADD_FORMAT(c, "%" PRId64, now_ms + below(r, 9000) - 3000);
        return;
    default:
        ADD_FORMAT(c, "%d", (int)(below(r, 40) - 10));
    }
}

static void add_limit(struct random_state *r, int64_t now_ms, struct command *c)
{
    switch (below(r, 6)) {
    case 0:
        add_text(c, chance(r, 50) ? "-inf" : "+inf");
        return;
    case 1:
        ADD_FORMAT(c, "(%d", (int)(below(r, 40) - 10));
        return;
    default:
        add_score(r, now_ms, c);
    }
}

static void add_place(struct random_state *r, int64_t now_ms, struct command *c)
{
    int64_t ms = now_ms - below(r, 1u << below(r, 20));

    switch (below(r, 8)) {
    case 0:
        add_text(c, "0");
        return;
    case 1:
        add_text(c, "$");
        return;
    case 2:
        ADD_FORMAT(c, "%" PRId64, ms);
        return;
    case 3:
        add_text(c, odd[below(r, ODD)]);
        return;
    default:
        ADD_FORMAT(c, "%" PRId64 "-%u", ms, below(r, 4));
    }
}

static void add_time(struct random_state *r, struct command *c, unsigned unit)
{
    if (chance(r, 3))
        add_text(c, odd[below(r, ODD)]);
    else
        ADD_FORMAT(c, "%u", 1 + below(r, unit << below(r, 8)));
}

static void add_word(struct random_state *r, int64_t now_ms, char what,
                     struct command *c)
{
    switch (what) {
    case 'f':
        add_field(r, c);
        break;
    case 'v':
        add_value(r, now_ms, c);
        break;
    case 'm':
        add_member(r, c);
        break;
    case 'd':
        add_score(r, now_ms, c);
        break;
    case 'l':
        add_limit(r, now_ms, c);
        break;
    case 'i':
        add_place(r, now_ms, c);
        break;
    case 'c':
        ADD_FORMAT(c, "%u", below(r, 1u << below(r, 11)));
        break;
    case 'w':
        ADD_FORMAT(c, "%u", below(r, 400));
        break;
    case 'n':
        ADD_FORMAT(c, "%u", chance(r, 2) ? below(r, 30) : 60 + below(r, 600));
        break;
    case 't':
        add_time(r, c, 12);
        break;
    case 'p':
        add_time(r, c, 40);
        break;
    case 'g':
        add_text(c, (const char *const[]){"*", "h*", "?1", "*:limit:*",
                                          "none"}[below(r, 5)]);
        break;
    case 'b':
        ADD_FORMAT(c, "%u", chance(r, 10) ? below(r, 20) : below(r, 8) / 7);
        break;
    default:
        add_key(r, c, what);
    }
}

/* --- commands ------------------------------------------------------------- */

/* Adds the words from `text` to its end, or to the end of a group. */
static const char *add_words(struct random_state *r, int64_t now_ms,
                             const char *text, struct command *c)
{
    while (*text && *text != ']') {
        size_t n = strcspn(text, " ]");

        if (*text == '[') {
            const char *end = text;

            for (unsigned i = 1 + below(r, 3); i > 0; i--)
                end = add_words(r, now_ms, text + 1, c);
            text = end + 1;
        } else if (*text == '%') {
            add_word(r, now_ms, text[1], c);
            text += n;
        } else {
            add(c, text, n);
            text += n;
        }
        text += *text == ' ';
    }
    return text;
}

static void draw_template(struct random_state *r, int64_t now_ms,
                          struct command *c)
{
    unsigned sum = 0, at;
    const struct template *t = templates;

    for (size_t i = 0; i < TEMPLATES; i++)
        sum += templates[i].weight;
    at = below(r, sum);
    for (; at >= t->weight; t++)
        at -= t->weight;
    add_words(r, now_ms, t->text, c);
    c->shape = t->shape;
}

static void draw_renewal(struct random_state *r, int64_t now_ms,
                         struct command *c)
{
    unsigned streams = chance(r, 30) ? below(r, 3) : 0;

    add_text(c, "EVAL");
    add_text(c, registry_script);
    ADD_FORMAT(c, "%u", 4 + streams);
    for (size_t i = 0; i < 4; i++)
        add_text(c, registry_keys[i]);
    for (unsigned i = 0; i < streams; i++)
        add_key(r, c, 'x');
    add_id(r, c);
    ADD_FORMAT(c, "model 10.0.0.%u:8000%s", below(r, 9),
               chance(r, 3) ? "0000000000000000000000000000000000000000" : "");
    ADD_FORMAT(c, "%u", 200 + 100 * below(r, 60));
    for (unsigned i = 0; i < 2; i++)
        if (chance(r, 50))
            ADD_FORMAT(c, "%" PRId64,
                       chance(r, 50) ? now_ms - below(r, 9000)
                                     : INT64_C(2000000000000) + below(r, 40));
        else
            add_text(c, chance(r, 80) ? "0" : "9007199254740991");
    c->shape = SHAPE_RENEWAL;
}

static void draw_report(struct random_state *r, struct command *c)
{
    unsigned n = 1 + below(r, 3);

    add_text(c, "EVALSHA");
    add_text(c, LIMITS_SHA);
    ADD_FORMAT(c, "%u", n);
    for (unsigned i = 0; i < n; i++)
        ADD_FORMAT(c, CLUSTER_PREFIX "limit:%u", below(r, 4));
    add_id(r, c);
    ADD_FORMAT(c, "%u", 200 + 100 * below(r, 60));
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < 2; k++)
            ADD_FORMAT(c, "%u", chance(r, 20) ? 0 : 1 + below(r, 5000));
        for (unsigned k = 0; k < 6; k++)
            ADD_FORMAT(c, "%.17g",
                       chance(r, 50) ? below(r, chance(r, 70) ? 4 : 2000)
                                     : below(r, 1u << 30) / 1024.0);
        ADD_FORMAT(c, "%u", below(r, 20));
    }
    c->shape = SHAPE_EXACT;
}

static void remove_word(struct command *c, size_t i)
{
    mr_bytes_free(c->words.at[i]);
    c->words.n--;
    memmove(&c->words.at[i], &c->words.at[i + 1],
            (c->words.n - i) * sizeof(*c->words.at));
}

/* Drops, adds, changes or exchanges words; or another case of letters. */
static void damage(struct random_state *r, int64_t now_ms, struct command *c)
{
    size_t i = below(r, (unsigned)c->words.n);
    struct mr_bytes old = c->words.at[i];

    switch (below(r, 5)) {
    case 0:
        if (c->words.n > 1)
            remove_word(c, i);
        break;
    case 1:
        add_text(c, odd[below(r, ODD)]);
        break;
    case 2:
        if (i == 0)
            break;
        add_value(r, now_ms, c);
        c->words.at[i] = c->words.at[--c->words.n];
        mr_bytes_free(old);
        break;
    case 3:
        if (i == 0)
            break;
        add_text(c, odd[below(r, ODD)]);
        c->words.at[i] = c->words.at[--c->words.n];
        mr_bytes_free(old);
        break;
    default:
        old = c->words.at[0];
        for (size_t k = 0; k < old.n; k++)
            ((char *)(uintptr_t)old.data)[k] ^= chance(r, 50) ? 0x20 : 0;
    }
}

void command_draw(struct random_state *r, int64_t now_ms, bool fills,
                  struct command *c)
{
    unsigned kind = below(r, 100);

    *c = (struct command){0};
    if (fills && chance(r, 70))
        add_words(r, now_ms,
                  (const char *const[]){
                      "XADD x0 MAXLEN ~ %n * e %v",
                      "XADD x1 MAXLEN ~ %n * e %v", "ZADD z0 [%d %w]",
                      "XREAD STREAMS x0 x1 0 0"}[below(r, 8) / 2],
                  c);
    else if (below(r, 5000) == 0)
        add_text(c, "FLUSHALL");
    else if (kind < 7)
        draw_renewal(r, now_ms, c);
    else if (kind < 13)
        draw_report(r, c);
    else if (kind < 14)
        add_text(c, "SCRIPT"), add_text(c, "LOAD"),
            add_text(c, chance(r, 95) ? limits_script : "return 1");
    else
        draw_template(r, now_ms, c);
    if (kind >= 14 && chance(r, DAMAGED))
        damage(r, now_ms, c);
}

void command_put(const struct command *c, struct mr_buf *out)
{
    mr_out_array(out, c->words.n);
    for (size_t i = 0; i < c->words.n; i++)
        mr_out_bulk(out, c->words.at[i]);
}

/* --- damaged bytes -------------------------------------------------------- */

static void put_line(struct random_state *r, struct mr_buf *out)
{
    static const char *const lines[] = {"PING\r\n",
                                        "  ping  'a b'  \n",
                                        "GET \"s1\\x41\\n\"\r\n",
                                        "ECHO \"a\"b\r\n",
                                        "ECHO 'a\\'b'\n",
                                        "\r\n",
                                        "GET 's1\r\n",
                                        "*0\r\n",
                                        "*-1\r\n",
                                        "*a\r\n",
                                        "*2147483648\r\n",
                                        "*1\r\n+PING\r\n",
                                        "*1\r\n$-1\r\n",
                                        "*1\r\n$4\r\nPINGxx",
                                        "*11\r\n",
                                        "*1\r\n$20000\r\n",
                                        "*1\r\n$536870913\r\n",
                                        "*1\r\n$1a\r\n",
                                        "* 1\r\n",
                                        "*1\r\n$ 4\r\n"};

    const char *line = lines[below(r, sizeof(lines) / sizeof(*lines))];

    mr_put(out, line, strlen(line));
}

void bytes_draw(struct random_state *r, int64_t now_ms, struct mr_buf *out)
{
    size_t began = out->n;

    for (unsigned i = 1 + below(r, 4); i > 0; i--) {
        struct command c;

        if (chance(r, 60)) {
            put_line(r, out);
            continue;
        }
        c = (struct command){0};
        add_words(r, now_ms, chance(r, 50) ? "AUTH secret" : "HGET h1 [%f]",
                  &c);
        command_put(&c, out);
        mr_words_free(&c.words);
    }
    for (unsigned i = below(r, 3); i > 0 && out->n > began; i--)
        out->data[began + below(r, (unsigned)(out->n - began))] =
            "*$\r\n0123456789 \"'ax-"[below(r, 20)];
}
