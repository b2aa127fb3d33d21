/* Reads the fields of a form that the daemon needs. */
#include "conductor/front/openai/form.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "conductor/front/openai/body/member.h"
#include "conductor/json/utf8.h"

/* "\r\n--" and 70 bytes, the most that RFC 2046 allows. */
#define BOUNDARY_MAX 70
#define DELIMITER_BYTES (4 + BOUNDARY_MAX)

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static struct http_slice trim(const char *at, const char *end)
{
    return http_trim((struct http_slice){at, (size_t)(end - at)});
}

/* Returns where the first c of [at, end) stands, or end. */
static const char *find(const char *at, const char *end, char c)
{
    const char *found = at < end ? memchr(at, c, (size_t)(end - at)) : NULL;

    return found ? found : end;
}

enum form_type form_type_of(const char *type, size_t n)
{
    struct http_slice media = trim(type, find(type, type + n, ';'));

    if (n == 0 || http_is_fold(media, "application/json"))
        return FORM_JSON;
    return http_is_fold(media, "multipart/form-data") ? FORM_MULTIPART
                                                      : FORM_OTHER;
}

bool form_hides_object(const char *body, size_t n)
{
    /* White space, byte order marks, and the zeros of wide characters. */
    static const char skipped[] = " \t\r\n\xef\xbb\xbf\xfe\xff";
    size_t i = 0;

    while (i < n && memchr(skipped, body[i], sizeof(skipped)))
        i++;
    return i < n && body[i] == '{';
}

/* Reads a parameter's value at `at`, a word or in quotes, unescaped into text[0
 * .. size), NUL-terminated; "" if it does not fit or has a NUL. Returns its
 * end. */
static const char *read_parameter(const char *at, const char *end, char *text,
                                  size_t size)
{
    bool quoted = at < end && *at == '"';
    size_t n = 0;

    for (at += quoted; at < end && *at != (quoted ? '"' : ';'); at++) {
        if (quoted && *at == '\\' && end - at > 1)
            at++;
        if (n < size)
            text[n++] = *at;
        if (!*at)
            n = size;
    }
    while (!quoted && n && n < size && is_blank(text[n - 1]))
        n--;
    text[n < size ? n : 0] = '\0';
    return at;
}

/* Whether a header's value, "a; name=b", has the parameter `name`; writes its
 * value to text as read_parameter() does, else "". */
static bool find_parameter(struct http_slice value, const char *name,
                           char *text, size_t size)
{
    const char *end = value.at + value.n, *at = find(value.at, end, ';');

    *text = '\0';
    while (at < end) {
        const char *semicolon = find(at + 1, end, ';');
        const char *equals = find(at + 1, semicolon, '=');
        bool wanted = http_is_fold(trim(at + 1, equals), name);

        at = semicolon;
        if (equals == semicolon)
            continue;
        for (equals++; equals < end && is_blank(*equals);)
            equals++;
        at = read_parameter(equals, end, text, size);
        if (wanted)
            return true;
        *text = '\0';
        at = find(at, end, ';');
    }
    return false;
}

struct part {
    char name[32];           /* of its field; "" = longer, or a file */
    struct http_slice value; /* up to the next delimiter */
};

/* Reads one header of a part. */
static void read_header(struct part *part, const char *at, const char *end)
{
    const char *colon = find(at, end, ':');
    struct http_slice value;
    char file[2];

    if (!http_is_fold(trim(at, colon), "content-disposition") || colon == end)
        return;
    value = (struct http_slice){colon + 1, (size_t)(end - colon - 1)};
    (void)find_parameter(value, "name", part->name, sizeof(part->name));
    if (find_parameter(value, "filename", file, sizeof(file)))
        part->name[0] = '\0';
}

/* Reads the part [at, end), its headers first. */
static void read_part(struct part *part, const char *at, const char *end)
{
    *part = (struct part){.value = {end, 0}};
    while (at < end) {
        const char *line = memmem(at, (size_t)(end - at), "\r\n", 2);

        if (!line)
            return;
        if (line == at) {
            part->value = (struct http_slice){at + 2, (size_t)(end - at - 2)};
            return;
        }
        read_header(part, at, line);
        at = line + 2;
    }
}

static int refuse(struct openai_error *error, const char *param,
                  const char *what)
{
    return openai_error_set(error, 400, "invalid_value", param, "%s: %s", param,
                            what);
}

static int take_part(const struct part *part, struct forward_body *out,
                     bool *named, struct openai_error *error)
{
    const struct member *m = member_find(part->name);
    struct http_slice v = part->value;

    if (member_steers_inside(m))
        return refuse(error, m->name, "the form's field must be left out");
    if (strcmp(part->name, "stream") == 0)
        out->stream = http_is_fold(v, "true") || http_is_fold(v, "1");
    if (strcmp(part->name, "model") != 0)
        return 0;
    if (*named)
        return refuse(error, "model", "the form's field must come only once");
    if (v.n >= sizeof(out->model) || memchr(v.at, '\0', v.n) ||
        utf8_valid_prefix(v.at, v.n) < v.n)
        return refuse(error, "model",
                      "the form's field must be a text of at most 255 bytes");
    memcpy(out->model, v.at, v.n);
    *named = true;
    return 0;
}

/* Whether [at, end) begins with these two bytes, or ends within them. */
static bool begins(const char *at, const char *end, const char *two)
{
    return memcmp(at, two, end - at < 2 ? (size_t)(end - at) : 2) == 0;
}

/* Whether the bytes before `at` are a delimiter: "--" follows, or nothing but
 * blanks up to the end of the line. */
static bool ends_delimiter(const char *at, const char *end)
{
    const char *line = at;

    while (line < end && is_blank(*line))
        line++;
    return begins(at, end, "--") || begins(line, end, "\r\n") || *line == '\n';
}

/* Returns the end of the first delimiter from `at` on; NULL = none. */
static const char *next(const char *at, const char *end, const char *delimiter,
                        size_t n)
{
    do
        at = memmem(at, (size_t)(end - at), delimiter, n);
    while (at && !ends_delimiter(at += n, end));
    return at;
}

/* Reads the parts; the first delimiter ends at `at`. */
static int read_parts(const char *at, const char *end, const char *delimiter,
                      struct forward_body *out, struct openai_error *error)
{
    size_t n = strlen(delimiter);
    bool named = false;
    int rc = 0;

    /* "--" behind a delimiter: the last one. */
    while (rc == 0 && at && end - at >= 2 && memcmp(at, "--", 2) != 0) {
        const char *head = memmem(at, (size_t)(end - at), "\r\n", 2);
        const char *behind = next(at, end, delimiter, n);
        struct part part;

        if (!head || !behind)
            break; /* cut off: the engine will say so */
        read_part(&part, head + 2, behind - n);
        rc = take_part(&part, out, &named, error);
        at = behind;
    }
    return rc;
}

int form_read(const char *type, size_t n_type, const char *body, size_t n,
              struct forward_body *out, struct openai_error *error)
{
    char delimiter[DELIMITER_BYTES + 1] = "\r\n--";
    const char *end = body + n, *at = NULL;
    size_t n_delimiter;
    int rc;

    *out = (struct forward_body){0};
    (void)find_parameter((struct http_slice){type, n_type}, "boundary",
                         delimiter + 4, sizeof(delimiter) - 4);
    n_delimiter = strlen(delimiter);
    if (n_delimiter == 4)
        return refuse(error, "header content-type",
                      "multipart/form-data needs a boundary of 1 to 70 bytes");
    if (n + 2 >= n_delimiter &&
        memcmp(body, delimiter + 2, n_delimiter - 2) == 0 &&
        ends_delimiter(body + n_delimiter - 2, end))
        at = body + n_delimiter - 2;
    else if (n)
        at = next(body, end, delimiter, n_delimiter);
    if (!at)
        return refuse(error, "body",
                      "no part begins with the boundary of its content-type");
    rc = read_parts(at, end, delimiter, out, error);
    if (rc)
        *out = (struct forward_body){0};
    return rc;
}
