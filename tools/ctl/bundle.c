/* See bundle.h. */
#include "tools/ctl/bundle.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json_fields.h"
#include "base/options.h"

#define LOG_BYTES ((long)64 << 10)
#define CONFIG_BYTES ((size_t)8 << 20)
#define REMOVED "[removed]"

/* Returns the length of a word: up to a blank, a quote or the end. */
static size_t word(const char *text)
{
    return strcspn(text, " \t\r\n\"'<>");
}

/* Overwrites text[0 .. n) by `by`, of at most n bytes, or of fewer than n + 1.
 */
static void replace(char *text, size_t n, const char *by)
{
    size_t m = strlen(by) < n ? strlen(by) : n;

    memcpy(text, by, m);
    memmove(text + m, text + n, strlen(text + n) + 1);
}

/* Replaces what stands between `begin` and the last quote of its line: the
 * value may have quotes of its own. */
static void scrub_quoted(char *text, const char *begin)
{
    size_t n = strlen(begin);

    for (char *at = text; (at = strstr(at, begin)); at += n) {
        size_t length = strcspn(at + n, "\n"), last = length;

        while (last > 0 && at[n + last] != '\'')
            last--;
        replace(at + n, last > 0 ? last : length, "-");
    }
}

static bool in_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* Returns the length of what is secret at `value`, behind '=' or ':' and a name
 * of n bytes; 0 = nothing. */
static size_t secret_behind(const char *name, size_t n, const char *value)
{
    static const struct {
        const char *end;
        bool line; /* the value has several words */
    } names[] = {
        {"authorization", true}, {"cookie", true},       {"auth", false},
        {"credential", false},   {"credentials", false}, {"key", false},
        {"pass", false},         {"passwd", false},      {"password", false},
        {"pwd", false},          {"salt", false},        {"secret", false},
        {"token", false},
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t m = strlen(names[i].end);

        if (m <= n && strncasecmp(name + n - m, names[i].end, m) == 0)
            return names[i].line ? strcspn(value, "\r\n\"") : word(value);
    }
    return 0;
}

/* Replaces values of names that are secret: `name=value`, `name: value`, and
 * the same with quotes around both. */
static void scrub_named(char *text)
{
    for (char *at = text; (at = strpbrk(at, "=:"));) {
        char *end = at;

        while (end > text && strchr("\"'\\ ", end[-1]))
            end--;
        char *name = end;
        while (name > text && in_name(name[-1]))
            name--;
        at++;
        char *value = at + strspn(at, " \t\\\"'");
        size_t n = secret_behind(name, (size_t)(end - name), value);
        if (n > 0) {
            replace(value, n, "-");
            at = value + 1;
        }
    }
}

/* Replaces the word behind `begin`, also one in quotes. */
static void scrub_word(char *text, const char *begin)
{
    for (char *at = text; (at = strcasestr(at, begin));) {
        at += strlen(begin);
        at += strspn(at, "\"'");
        replace(at, word(at), "-");
    }
}

void bundle_scrub(char *text)
{
    for (char *at = text; (at = strstr(at, "://")); at += 3) {
        /* A password may have quotes. */
        size_t n = strcspn(at + 3, " \t\r\n"), user = 0;

        for (size_t i = 0; i < n; i++)
            if (at[3 + i] == '@')
                user = i;
        replace(at + 3, user, "-");
    }
    for (char *at = text; (at = strchr(at, '?')); at++) {
        size_t name = strcspn(at + 1, "= \t\r\n\"'<>");

        if (name > 0 && at[1 + name] == '=')
            replace(at + 1, word(at + 1), "-");
    }
    scrub_named(text);
    scrub_word(text, "bearer ");
    scrub_word(text, "basic ");
    scrub_quoted(text, "x-request-id '");
    scrub_quoted(text, "traceparent '");
}

/* Returns a string of JSON, scrubbed; bytes beyond ASCII become '?' if they are
 * not UTF-8. NULL when out of memory. */
static json_t *string_of(const char *text)
{
    char *copy = strdup(text);
    json_t *json;

    if (!copy)
        return NULL;
    bundle_scrub(copy);
    json = json_string(copy);
    if (!json) {
        for (char *c = copy; *c; c++)
            if ((unsigned char)*c >= 0x80)
                *c = '?';
        json = json_string(copy);
    }
    free(copy);
    return json;
}

static bool says_secret(const char *name)
{
    static const char *const words[] = {"key",  "secret",     "pass", "token",
                                        "salt", "credential", "auth", "cookie"};
    size_t n = strlen(name);

    if (n > 5 && strcmp(name + n - 5, "_file") == 0)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasestr(name, words[i]))
            return true;
    return false;
}

/* Names of what clients call their requests and sessions. */
static bool is_clients(const char *name)
{
    return strcmp(name, "client_request_id") == 0 ||
           strcmp(name, "traceparent") == 0 || strcmp(name, "session") == 0;
}

/* Returns a copy without what `removed` names, and with scrubbed texts. Objects
 * in objects end at the depth that jansson parses. */
static json_t *clean(const json_t *from, bool (*removed)(const char *name))
{
    const json_t *value;
    const char *key;
    json_t *to;
    size_t i;

    if (json_is_string(from))
        return string_of(json_string_value(from));
    if (json_is_array(from)) {
        to = json_array();
        json_array_foreach(from, i, value)
        {
            json_array_append_new(to, clean(value, removed));
        }
        return to;
    }
    if (!json_is_object(from))
        return json_deep_copy(from);
    to = json_object();
    json_object_foreach((json_t *)(uintptr_t)from, key, value)
    {
        /* Numbers stay: block_tokens is no secret. */
        bool out = removed && removed(key) &&
                   (json_is_string(value) || json_is_object(value) ||
                    json_is_array(value));

        json_object_set_new(to, key,
                            out ? json_string(REMOVED) : clean(value, removed));
    }
    return to;
}

static void take_config(struct fields *, const struct fields_object *root,
                        void *into)
{
    *(json_t **)into = clean(root->json, says_secret);
}

static json_t *config_of(const char *file)
{
    char why[600] = "";
    struct fields f = {"", file, why, sizeof why, 0};
    json_t *json = NULL;
    int rc = fields_read(&f, NULL, CONFIG_BYTES, take_config, &json);

    if (rc == 0)
        return json;
    if (!*why)
        snprintf(why, sizeof why, "%s: %s", file, strerror(-rc));
    char *quoted = strstr(why, " near '"); /* it may quote a key */
    if (quoted)
        *quoted = '\0';
    return json_pack("{s:o}", "not_read", string_of(why));
}

/* Returns the last LOG_BYTES of the log, from the begin of a line. */
static json_t *log_of(const char *file)
{
    char *text = calloc(1, (size_t)LOG_BYTES + 1), why[600], *line;
    FILE *f = text ? fopen(file, "re") : NULL;
    json_t *json;
    size_t n;

    if (!f) {
        snprintf(why, sizeof why, "not read: %s: %s", file, strerror(errno));
        free(text);
        return string_of(why);
    }
    long end = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : 0;
    long from = end > LOG_BYTES ? end - LOG_BYTES : 0;
    if (end > 0 && fseek(f, from, SEEK_SET))
        from = 0;
    n = fread(text, 1, (size_t)LOG_BYTES, f);
    fclose(f);
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\0')
            text[i] = '?';
    line = from > 0 ? strchr(text, '\n') : NULL;
    json = string_of(line ? line + 1 : text);
    free(text);
    return json;
}

static json_t *all_of(const struct ctl *ctl, const struct readings *r,
                      const json_t *diagnosis)
{
    const time_t now = time(NULL);
    char made[32];
    struct tm tm;

    strftime(made, sizeof made, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    return json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o?, s:o}", "made",
        made, "conductorctl", CONDUCTOR_VERSION, "diagnosis",
        clean(diagnosis, NULL), "health", clean(r->health, NULL), "ready",
        clean(r->ready, NULL), "instances", clean(r->instances, NULL),
        "overview", clean(r->overview, NULL), "history",
        clean(r->history, NULL), "metrics", string_of(r->now.whole),
        "decisions",
        r->decisions ? clean(r->decisions, is_clients) : json_null(), "log",
        ctl->log ? log_of(ctl->log) : NULL, "config", config_of(ctl->config));
}

/* Writes the object; the history, which is long, on one line. Returns 0 or a
 * positive errno. */
static int write_all(const json_t *all, FILE *f)
{
    const char *key, *sign = "{";
    const json_t *value;

    errno = EIO;
    json_object_foreach((json_t *)(uintptr_t)all, key, value)
    {
        bool long_one = strcmp(key, "history") == 0;

        if (fprintf(f, "%s\n\"%s\": ", sign, key) < 0 ||
            json_dumpf(value, f,
                       JSON_ENCODE_ANY | JSON_REAL_PRECISION(9) |
                           (long_one ? JSON_COMPACT : JSON_INDENT(1))))
            return errno;
        sign = ",";
    }
    return fprintf(f, "\n}\n") < 0 ? errno : 0;
}

/* Opens and empties a file that only its owner may read, also one that was
 * there with other rights; a pipe or a terminal stays as it is. Returns the
 * stream, or NULL with errno set. */
static FILE *open_private(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    struct stat st;
    FILE *f = NULL;

    if (fd >= 0 && fstat(fd, &st) == 0 &&
        (!S_ISREG(st.st_mode) ||
         (fchmod(fd, 0600) == 0 && ftruncate(fd, 0) == 0)))
        f = fdopen(fd, "w");
    if (fd >= 0 && !f)
        close(fd);
    return f;
}

int bundle_write(const struct ctl *ctl, const struct readings *r,
                 const json_t *diagnosis)
{
    json_t *all = all_of(ctl, r, diagnosis);
    int rc;

    if (!all) {
        options_complain(CTL_NAME, "--bundle: out of memory");
        return 1;
    }
    FILE *f = open_private(ctl->bundle);
    rc = f ? write_all(all, f) : errno;
    if (f && fclose(f) && rc == 0)
        rc = errno;
    json_decref(all);
    if (rc)
        options_complain(CTL_NAME, "--bundle: %s: %s", ctl->bundle,
                         strerror(rc));
    return rc != 0;
}
