/* The one-pass body scanner: forms, errors, and the same answers as jansson
 * on random documents. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/json/scan.h"
#include "conductor/json/text.h"
#include "conductor/json/text_buf.h"
#include "conductor/json/utf8.h"
#include "conductor/json/walk.h"
#include "tests/unit/cases.h"
#include "tests/unit/suite.h"

static const struct json_scan_limits limits = {64, 1 << 20, 32, 0, 0};

/* Scan a copy without slack, so that a read beyond the end shows. */
static int scan(const char *body, enum json_scan_kind kind,
                struct json_scan *out)
{
    size_t n = strlen(body);
    char *copy = malloc(n ? n : 1);
    int rc;

    memcpy(copy, body, n);
    rc = json_scan(copy, n, kind, &limits, out);
    free(copy);
    return rc;
}

static bool rest_is(const struct json_scan *s, const char *text)
{
    return s->rest_bytes == strlen(text) &&
           memcmp(s->rest, text, s->rest_bytes) == 0;
}

static bool span_is(const struct json_scan *s, size_t i, const char *text)
{
    return i < s->n_spans && s->spans[i].count == strlen(text) &&
           memcmp(s->bytes + s->spans[i].start, text, s->spans[i].count) == 0;
}

static void test_ids(void)
{
    struct json_scan s;

    CU_ASSERT_EQUAL(scan("{\"a\":1,\"prompt\":[0,7,65535,4294967295, 12345678 "
                         ",\n1],\"b\":[1,{}]}",
                         JSON_SCAN_PROMPT, &s),
                    0);
    CU_ASSERT_EQUAL(s.form, JSON_FORM_IDS);
    CU_ASSERT_EQUAL_FATAL(s.n_ids, 6);
    CU_ASSERT_EQUAL(s.ids[0], 0);
    CU_ASSERT_EQUAL(s.ids[1], 7);
    CU_ASSERT_EQUAL(s.ids[2], 65535);
    CU_ASSERT_EQUAL(s.ids[3], 4294967295u);
    CU_ASSERT_EQUAL(s.ids[4], 12345678);
    CU_ASSERT_EQUAL(s.ids[5], 1);
    CU_ASSERT_EQUAL(s.n_spans, 1);
    CU_ASSERT(rest_is(&s, "{\"a\":1,\"prompt\":null,\"b\":[1,{}]}"));
    json_scan_fini(&s);
    CU_ASSERT_EQUAL(scan("{\"prompt\":[ ]}", JSON_SCAN_PROMPT, &s), 0);
    CU_ASSERT_EQUAL(s.form, JSON_FORM_IDS);
    CU_ASSERT_EQUAL(s.n_ids, 0);
    json_scan_fini(&s);
}

static void test_batches(void)
{
    struct json_scan s;

    CU_ASSERT_EQUAL(
        scan("{\"prompt\" : [[1,2] , [], [3]] }", JSON_SCAN_PROMPT, &s), 0);
    CU_ASSERT_EQUAL(s.form, JSON_FORM_ID_ARRAYS);
    CU_ASSERT_EQUAL(s.n_spans, 3);
    CU_ASSERT_EQUAL(s.spans[1].count, 0);
    CU_ASSERT_EQUAL(s.spans[2].start, 2);
    CU_ASSERT_EQUAL(s.ids[2], 3);
    json_scan_fini(&s);
    CU_ASSERT_EQUAL(
        scan("{\"prompt\":[\"a\",\"\", \"bc\"]}", JSON_SCAN_PROMPT, &s), 0);
    CU_ASSERT_EQUAL(s.form, JSON_FORM_TEXTS);
    CU_ASSERT_EQUAL(s.n_spans, 3);
    CU_ASSERT(span_is(&s, 0, "a"));
    CU_ASSERT(span_is(&s, 1, ""));
    CU_ASSERT(span_is(&s, 2, "bc"));
    json_scan_fini(&s);
}

static void test_text(void)
{
    struct json_scan s;

    /* The member's name may be written with escapes, too. */
    CU_ASSERT_EQUAL(
        scan("{\"pro\\u006dpt\":\"a\\n\\\"\\u00e9\\ud83d\\ude00\\/\"}",
             JSON_SCAN_PROMPT, &s),
        0);
    CU_ASSERT_EQUAL(s.form, JSON_FORM_TEXT);
    CU_ASSERT(span_is(&s, 0, "a\n\"\xc3\xa9\xf0\x9f\x98\x80/"));
    CU_ASSERT(rest_is(&s, "{\"pro\\u006dpt\":null}"));
    json_scan_fini(&s);
    CU_ASSERT_EQUAL(scan("{\"prompt\":null}", JSON_SCAN_PROMPT, &s), 0);
    CU_ASSERT_EQUAL(s.form, JSON_FORM_NONE);
    json_scan_fini(&s);
}

static void test_messages(void)
{
    struct json_scan s;

    CU_ASSERT_EQUAL(
        scan("{\"messages\":[{\"content\":\"one\",\"role\":\"user\"},"
             "{\"role\":\"user\",\"content\":[{\"type\":\"text\","
             "\"text\":\"two\"},{\"text\":\"three\"}]},[7]]}",
             JSON_SCAN_MESSAGES, &s),
        0);
    CU_ASSERT_EQUAL(s.form, JSON_FORM_MESSAGES);
    CU_ASSERT_EQUAL(s.n_spans, 3);
    CU_ASSERT(span_is(&s, 0, "one"));
    CU_ASSERT(span_is(&s, 1, "two"));
    CU_ASSERT(span_is(&s, 2, "three"));
    CU_ASSERT(rest_is(&s, "{\"messages\":[{\"content\":true,\"role\":\"user\"},"
                          "{\"role\":\"user\",\"content\":[{\"type\":\"text\","
                          "\"text\":true},{\"text\":true}]},[7]]}"));
    json_scan_fini(&s);
}

static size_t told_bytes; /* of the last member's name */

static int take_name(struct json_walk *, const char *key)
{
    told_bytes = strlen(key);
    return 0;
}

/* A member's name may have 256 bytes, wherever it stands. */
static void test_long_names(void)
{
    for (int n = JSON_WALK_KEY_BYTES; n <= JSON_WALK_KEY_BYTES + 1; n++) {
        struct json_walk w = {
            .max_depth = 8, .strict = true, .on_name = take_name};
        bool fits = n == JSON_WALK_KEY_BYTES;
        struct json_scan s;
        char body[300];

        snprintf(body, sizeof(body), "{\"%0*d\":1}", n, 0);
        CU_ASSERT_EQUAL(scan(body, JSON_SCAN_PROMPT, &s), fits ? 0 : -EINVAL);
        CU_ASSERT_EQUAL(!strstr(s.error, "longer than 256 bytes"), fits);
        json_scan_fini(&s);
        w.p = w.body = body;
        w.end = body + strlen(body);
        told_bytes = 0;
        CU_ASSERT_EQUAL(json_walk_check(&w), 0);
        CU_ASSERT_EQUAL(told_bytes, fits ? JSON_WALK_KEY_BYTES : 0);
    }
}

/* A document, and a part of the message that refuses it. */
static void test_errors(void)
{
    static const struct {
        const char *body, *message;
    } cases[] = {
        {"", "ends at byte 0; expected an object"},
        {"[]", "must be a JSON object; it begins with ["},
        {" x", "byte 1: expected an object"},
        {"{", "ends at byte 1; expected a member's name"},
        {"{\"a\":1", "expected ',' or '}'"},
        {"{\"a\":1}x", "byte 7: expected the end"},
        {"{\"a\":}", "expected a value"},
        {"{\"prompt\":", "ends at byte 10; expected a value"},
        {"{\"a\" 1}", "expected ':'"},
        {"{\"a\":1,}", "expected a member's name"},
        {"{\"a\":\"x}", "expected a closing quote"},
        {"{\"prompt\":5}", "prompt: 5: must be a text, an array"},
        {"{\"prompt\":{}}", "prompt: {: must be a text, an array"},
        {"{\"prompt\":true}", "prompt: true: must be a text, an array"},
        {"{\"prompt\":[1,-5]}", "prompt[1]: -5: must be a token id, a whole"},
        {"{\"prompt\":[1.5]}", "prompt[0]: 1.5: must be a token id"},
        {"{\"prompt\":[1,2,1e3]}", "prompt[2]: 1e3: must"},
        {"{\"prompt\":[4294967296]}", "prompt[0]: 4294967296: must"},
        {"{\"prompt\":[99999999999999999999]}", "prompt[0]: 999999"},
        {"{\"prompt\":[1,007]}", "prompt[1]: 007: must"},
        {"{\"prompt\":[1,00000000,2,3,4,5]}", "prompt[1]: 00000000: must"},
        {"{\"prompt\":[1,\"a\"]}", "prompt[1]: \"a\": must"},
        {"{\"prompt\":[1,]}", "prompt[1]: ]: must"},
        {"{\"prompt\":[1 2]}", "prompt[1]: 2: expected ',' or ']'"},
        {"{\"prompt\":[1,2", "prompt[2]: : expected ','"},
        {"{\"prompt\":[[1],[2,x]]}", "prompt[1][1]: x: must"},
        {"{\"prompt\":[[1],2]}", "prompt[1]: 2: must be an array of token ids"},
        {"{\"prompt\":[\"a\",2]}", "prompt[1]: 2: must be a text"},
        {"{\"prompt\":\"a", "a string without its closing quote"},
        {"{\"prompt\":\"\\x\"}", "unknown escape"},
        {"{\"prompt\":\"\\u12g4\"}", "four hexadecimal digits"},
        {"{\"prompt\":\"\\ud800\"}", "surrogate without its other half"},
        {"{\"prompt\":\"\\ud800\\ud800\"}", "surrogate without its other"},
        {"{\"prompt\":\"\\udc00\\ud800\"}", "surrogate without its other"},
        {"{\"prompt\":\"\n\"}", "raw control character"},
        {"{\"prompt\":\"\xff\"}", "isn't valid UTF-8"},
        {"{\"prompt\":\"\xe2\x82\"}", "isn't valid UTF-8"},
        {"{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]}", "nested deeper"},
        {"{\"a\\u0000\":1}", "NUL character"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct json_scan s;
        int rc = scan(cases[i].body, JSON_SCAN_PROMPT, &s);

        CU_ASSERT_EQUAL(rc, -EINVAL);
        if (rc == -EINVAL && !strstr(s.error, cases[i].message)) {
            printf("\n  %s: %s", cases[i].body, s.error);
            CU_FAIL("wrong message");
        }
        json_scan_fini(&s);
    }
}

static void test_message_errors(void)
{
    struct json_scan s;

    CU_ASSERT_EQUAL(
        scan("{\"messages\":[{},{\"content\":true}]}", JSON_SCAN_MESSAGES, &s),
        -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(s.error, "messages[1].content"));
    CU_ASSERT_STRING_EQUAL(s.error_param, "messages");
    json_scan_fini(&s);
    CU_ASSERT_EQUAL(scan("{\"messages\":[{\"content\":[{\"text\":1}]}]}",
                         JSON_SCAN_MESSAGES, &s),
                    -EINVAL);
    json_scan_fini(&s);
}

static void test_bounds(void)
{
    const struct json_scan_limits tight = {2, 40, 32, 0, 0};
    const char *three = "{\"prompt\":[[1],[2],[3]]}";
    const char *large =
        "{\"prompt\":[1],\"a\":\"0123456789012345678901234567890\"}";
    struct json_scan s;

    CU_ASSERT_EQUAL(
        json_scan(three, strlen(three), JSON_SCAN_PROMPT, &tight, &s), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(s.error, "prompt: must hold at most 2"));
    json_scan_fini(&s);
    CU_ASSERT_EQUAL(
        json_scan(large, strlen(large), JSON_SCAN_PROMPT, &tight, &s), -EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(s.error, "more than 40 bytes"));
    json_scan_fini(&s);
}

/* A prompt that is longer than it may be is not read to its end: that there is
 * none is not found out. */
static void test_long_prompts(void)
{
    const struct json_scan_limits tight = {2, 400, 32, 100, 0};
    static const char *const heads[] = {"{\"prompt\":\"", "{\"prompt\":[",
                                        "{\"prompt\":[\"", "{\"prompt\":[[",
                                        "{\"messages\":[{\"content\":\""};
    static const char *const pieces[] = {"a", "1,", "\\u00e9", "12345, ", "a"};
    struct json_scan s;
    char text[1000];

    for (size_t i = 0; i < 5; i++)
        for (size_t n = 0; n < 300; n++) {
            size_t at = (size_t)sprintf(text, "%s", heads[i]);

            for (size_t k = 0; k < n && at < sizeof(text) - 10; k++)
                at += (size_t)sprintf(text + at, "%s", pieces[i]);
            CU_ASSERT_EQUAL(
                json_scan(text, at,
                          i == 4 ? JSON_SCAN_MESSAGES : JSON_SCAN_PROMPT,
                          &tight, &s),
                -EINVAL);
            if (at > strlen(heads[i]) + 101)
                CU_ASSERT_PTR_NOT_NULL(strstr(s.error, "longer than 100"));
            json_scan_fini(&s);
        }
}

/* Random documents, sound and broken, against jansson. */

static void add_space(uint64_t *r, struct text_buf *b)
{
    static const char *const spaces[] = {"", "", "", " ", "\n", " \t\r\n"};

    text_buf_puts(b, spaces[draw_u64(r) % 6]);
}

static void add_id(uint64_t *r, struct text_buf *b)
{
    static const char *const odd[] = {"-1", "1.0", "01", "1e2",  "4294967296",
                                      "x",  "",    "0",  "\"1\""};

    if (draw_u64(r) % 3000 == 0)
        text_buf_puts(b, odd[draw_u64(r) % 9]);
    else
        text_buf_printf(b, "%u", (uint32_t)draw_u64(r) >> draw_u64(r) % 32);
}

static void add_ids(uint64_t *r, struct text_buf *b)
{
    size_t n = draw_u64(r) % 40;
    bool spaced = draw_u64(r) % 2, ragged = draw_u64(r) % 4 == 0;

    text_buf_puts(b, "[");
    for (size_t i = 0; i < n; i++) {
        if (i)
            text_buf_puts(b, spaced ? ", " : ",");
        if (ragged)
            add_space(r, b);
        add_id(r, b);
        if (ragged)
            add_space(r, b);
    }
    text_buf_puts(b, "]");
}

static void add_text(uint64_t *r, struct text_buf *b)
{
    size_t n = draw_u64(r) % (draw_u64(r) % 8 ? 20 : 300);
    char c[4];

    text_buf_puts(b, "\"");
    for (size_t i = 0; i < n; i++) {
        uint32_t code = (uint32_t)draw_u64(r) >> (11 + draw_u64(r) % 20);

        if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
            code = 'a';
        switch (draw_u64(r) % 12) {
        case 0:
            text_buf_puts(b, "\\n");
            break;
        case 1:
            text_buf_printf(b, "\\u%04x", (uint32_t)draw_u64(r) % 0xd800);
            break;
        case 2:
            if (draw_u64(r) % 40 == 0)
                text_buf_printf(b, "\\u%04X", (uint32_t)draw_u64(r) % 0x10000);
            else
                text_buf_puts(b, "\\ud83d\\uDE00");
            break;
        case 3:
            if (draw_u64(r) % 60 == 0) {
                c[0] = (char)draw_u64(r);
                text_buf_add(b, c, 1);
            }
            break;
        default:
            if (code < 0x20 || code == '"' || code == '\\')
                code = 'b';
            text_buf_add(b, c, utf8_put(c, code));
        }
    }
    text_buf_puts(b, "\"");
}

static void add_prompt(uint64_t *r, struct text_buf *b)
{
    size_t n = draw_u64(r) % 5;
    bool texts = draw_u64(r) % 2, mixed = draw_u64(r) % 50 == 0;

    if (n == 0) {
        (texts ? add_text : add_ids)(r, b);
        return;
    }
    text_buf_puts(b, "[");
    for (size_t i = 0; i < n; i++) {
        if (i)
            text_buf_puts(b, ",");
        add_space(r, b);
        (texts != (mixed && i) ? add_text : add_ids)(r, b);
        add_space(r, b);
    }
    text_buf_puts(b, "]");
}

static void add_document(uint64_t *r, struct text_buf *b)
{
    static const char *const others[] = {"\"a\":[1,{\"b\":\"}]\"}]",
                                         "\"c\":-1.5e3", "\"d\":\"\\\"\"",
                                         "\"e\":{}", "\"f\" : null"};
    size_t n = draw_u64(r) % 4, at = draw_u64(r) % (n + 1);

    text_buf_puts(b, "{");
    for (size_t i = 0; i <= n; i++) {
        add_space(r, b);
        if (i == at) {
            text_buf_puts(b, "\"prompt\":");
            add_space(r, b);
            add_prompt(r, b);
        } else {
            text_buf_puts(b, others[draw_u64(r) % 5]);
        }
        add_space(r, b);
        if (i < n)
            text_buf_puts(b, ",");
    }
    text_buf_puts(b, "}");
    if (draw_u64(r) % 4 == 0 && b->len) /* break something anywhere */
        b->data[draw_u64(r) % b->len] = "{}[],:\"\\ 1x"[draw_u64(r) % 11];
}

static bool is_ids(const json_t *v)
{
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_t *id = json_array_get(v, i);

        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > UINT32_MAX)
            return false;
    }
    return json_is_array(v);
}

static bool all(const json_t *v, bool (*test)(const json_t *))
{
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!test(json_array_get(v, i)))
            return false;
    return json_array_size(v) > 0;
}

static bool is_text(const json_t *v)
{
    return json_is_string(v);
}

/* Whether jansson's tree is a prompt that the scanner should take. */
static bool is_prompt(const json_t *v)
{
    return json_is_null(v) || is_text(v) || is_ids(v) || all(v, is_text) ||
           all(v, is_ids);
}

static void expect_span(const struct json_scan *s, size_t i, const json_t *v)
{
    const struct json_span *span = &s->spans[i];

    CU_ASSERT_FATAL(i < s->n_spans);
    if (json_is_string(v)) {
        CU_ASSERT_EQUAL_FATAL(span->count, json_string_length(v));
        CU_ASSERT(memcmp(s->bytes + span->start, json_string_value(v),
                         span->count) == 0);
        return;
    }
    CU_ASSERT_EQUAL_FATAL(span->count, json_array_size(v));
    for (size_t k = 0; k < span->count; k++)
        CU_ASSERT_EQUAL(s->ids[span->start + k],
                        json_integer_value(json_array_get(v, k)));
}

static void expect_same(const struct json_scan *s, json_t *tree)
{
    json_t *prompt = json_incref(json_object_get(tree, "prompt"));
    json_t *rest = json_loadb(s->rest, s->rest_bytes, JSON_ALLOW_NUL, NULL);
    bool batch = s->form == JSON_FORM_TEXTS || s->form == JSON_FORM_ID_ARRAYS;

    if (s->form == JSON_FORM_NONE)
        CU_ASSERT(!prompt || json_is_null(prompt));
    for (size_t i = 0; s->form != JSON_FORM_NONE && i < s->n_spans; i++)
        expect_span(s, i, batch ? json_array_get(prompt, i) : prompt);
    if (batch)
        CU_ASSERT_EQUAL(s->n_spans, json_array_size(prompt));
    if (prompt)
        json_object_set_new(tree, "prompt", json_null());
    CU_ASSERT(json_equal(rest, tree));
    json_decref(rest);
    json_decref(prompt);
}

static void test_against_jansson(void)
{
    uint64_t seed = cases_seed(20250601);
    struct text_buf doc;
    unsigned sound = 0, broken = 0;

    for (unsigned round = 0; round < 60000; round++) {
        uint64_t r = seed + round;
        struct json_scan s;
        json_t *tree, *rest = NULL;
        bool ours;

        text_buf_init(&doc, SIZE_MAX);
        add_document(&r, &doc);
        tree = json_loadb(doc.data, doc.len,
                          JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
        ours = json_scan(doc.data, doc.len, JSON_SCAN_PROMPT, &limits, &s) == 0;
        if (ours)
            rest = json_loadb(s.rest, s.rest_bytes,
                              JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
        ours = rest;
        if (tree && (!json_object_get(tree, "prompt") ||
                     is_prompt(json_object_get(tree, "prompt")))) {
            if (!ours)
                printf("\n  round %u: %.*s: %s", round, (int)doc.len, doc.data,
                       s.error);
            CU_ASSERT_FATAL(ours);
            expect_same(&s, tree);
            sound++;
        } else {
            if (ours)
                printf("\n  round %u: %.*s", round, (int)doc.len, doc.data);
            CU_ASSERT_FALSE_FATAL(ours);
            broken++;
        }
        json_decref(tree);
        json_decref(rest);
        json_scan_fini(&s);
        text_buf_fini(&doc);
    }
    printf(": %u sound, %u broken ", sound, broken);
    CU_ASSERT(sound > 10000 && broken > 5000);
}

/* The check against jansson's. */
static void test_utf8(void)
{
    uint64_t r = 7;
    char text[400];

    for (unsigned round = 0; round < 200000; round++) {
        size_t n = 0, cut;

        while (n < 300) {
            uint32_t code = (uint32_t)draw_u64(&r) >> (11 + draw_u64(&r) % 20);

            if (code <= 0x10ffff)
                n += utf8_put(text + n, code); /* surrogates too */
        }
        cut = n - draw_u64(&r) % 100;
        if (draw_u64(&r) % 2)
            text[draw_u64(&r) % cut] = (char)draw_u64(&r);
        size_t valid = utf8_valid_prefix(text, cut);
        json_t *whole = json_stringn(text, cut);
        json_t *prefix = json_stringn(text, valid);
        CU_ASSERT_EQUAL_FATAL(!whole, valid < cut);
        CU_ASSERT_PTR_NOT_NULL_FATAL(prefix);
        json_decref(whole);
        json_decref(prefix);
    }
}

/* Quotes behind backslashes, against a walk byte by byte. */
static void test_skip(void)
{
    uint64_t r = 7;
    char text[24];

    for (int i = 0; i < 200000; i++) {
        size_t n = draw_u64(&r) % sizeof(text), at = 0;
        const char *end;

        for (size_t k = 0; k < n; k++)
            text[k] = "\\\\\"a"[draw_u64(&r) % 4];
        end = json_text_skip(text, text + n);
        while (at < n && text[at] != '"')
            at += text[at] == '\\' && at + 1 < n ? 2 : 1;
        CU_ASSERT_PTR_EQUAL(end, at < n ? text + at + 1 : NULL);
    }
}

static const struct suite_test tests[] = {
    {"ids", test_ids},
    {"batches", test_batches},
    {"text", test_text},
    {"messages", test_messages},
    {"errors", test_errors},
    {"long names", test_long_names},
    {"errors in messages", test_message_errors},
    {"bounds", test_bounds},
    {"same as jansson", test_against_jansson},
    {"long prompts", test_long_prompts},
    {"utf8", test_utf8},
    {"strings that are skipped", test_skip},
};
SUITE("json_scan", tests)
