/*
 * How fast a request body is read: the scanner alone, the whole request
 * parser, and jansson on the same bytes in the same run.
 *
 *   bench_json [rounds]      default 40; GB/s are medians
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "conductor/front/openai/request.h"
#include "conductor/json/scan.h"
#include "conductor/json/text_buf.h"
#include "conductor/json/utf8.h"

static const struct json_scan_limits scan_limits = {8192, 1 << 20, 32, 0, 8192};
static const struct openai_model model = {"tiny", UINT32_MAX, UINT32_MAX};
static const struct openai_limits limits = {64, 8192, 1 << 20, 8192};

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint32_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* 75,000 ids as a tokeniser of 128k entries gives them. */
static void add_ids(struct text_buf *b, const char *separator)
{
    uint64_t r = 1;

    text_buf_puts(b, "{\"model\":\"tiny\",\"prompt\":[");
    for (int i = 0; i < 75000; i++)
        text_buf_printf(b, "%s%u", i ? separator : "", next(&r) % 128000);
    text_buf_puts(b, "],\"max_tokens\":16}");
}

/* About 80 characters a line; `base` is the first code point used. */
static void add_lines(struct text_buf *b, uint64_t *r, size_t n, uint32_t base)
{
    char c[4];

    for (size_t i = 0; i < n; i++)
        if (i % 80 == 79)
            text_buf_puts(b, "\\n");
        else
            text_buf_add(b, c, utf8_put(c, base + next(r) % 26));
}

static void add_text(struct text_buf *b, size_t n, uint32_t base)
{
    uint64_t r = 2;

    text_buf_puts(b, "{\"model\":\"tiny\",\"prompt\":\"");
    add_lines(b, &r, n, base);
    text_buf_puts(b, "\",\"max_tokens\":16}");
}

static void add_chat(struct text_buf *b)
{
    uint64_t r = 3;

    text_buf_puts(b, "{\"model\":\"tiny\",\"messages\":[");
    for (int i = 0; i < 420; i++) {
        text_buf_printf(b, "%s{\"role\":\"%s\",\"content\":\"", i ? "," : "",
                        i % 2 ? "assistant" : "user");
        add_lines(b, &r, 1200, 'a');
        text_buf_puts(b, "\"}");
    }
    text_buf_puts(b, "],\"max_tokens\":16}");
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

enum method { SCAN, REQUEST, JANSSON };

static bool run(enum method method, const struct text_buf *body, bool chat)
{
    struct openai_request request;
    struct openai_error error;
    struct json_scan scan;
    json_t *tree;
    bool ok;

    switch (method) {
    case SCAN:
        ok = json_scan(body->data, body->len,
                       chat ? JSON_SCAN_MESSAGES : JSON_SCAN_PROMPT,
                       &scan_limits, &scan) == 0;
        json_scan_fini(&scan);
        return ok;
    case REQUEST:
        ok = openai_request_parse(chat ? OPENAI_CHAT : OPENAI_COMPLETION,
                                  body->data, body->len, &model, &limits,
                                  &request, &error) == 0;
        openai_request_fini(&request);
        return ok;
    case JANSSON:
        tree = json_loadb(body->data, body->len, 0, NULL);
        json_decref(tree);
        return tree;
    }
    return false;
}

/* Median seconds of one method; exits when the body isn't taken. */
static double median_s(enum method method, const struct text_buf *body,
                       bool chat, int rounds)
{
    double *s = malloc((size_t)rounds * sizeof(*s)), median;

    for (int i = 0; i < rounds; i++) {
        double start = now_s();

        if (!run(method, body, chat)) {
            fprintf(stderr, "the body was refused\n");
            exit(1);
        }
        s[i] = now_s() - start;
    }
    qsort(s, (size_t)rounds, sizeof(*s), by_value);
    median = s[rounds / 2];
    free(s);
    return median;
}

static void report(const char *name, struct text_buf *body, bool chat,
                   int rounds)
{
    double bytes = (double)body->len;
    double scan = median_s(SCAN, body, chat, rounds);
    double request = median_s(REQUEST, body, chat, rounds);
    double jansson = median_s(JANSSON, body, chat, rounds / 4 + 1);

    printf("%-24s %7zu %6.2f %6.0f %8.2f %6.0f %8.3f %6.0fx %6.0fx\n", name,
           body->len, bytes / scan / 1e9, scan * 1e6, bytes / request / 1e9,
           request * 1e6, bytes / jansson / 1e9, jansson / scan,
           jansson / request);
    text_buf_fini(body);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 40;
    struct text_buf body;

    if (rounds < 1)
        return 1;
    printf("%-24s %7s %6s %6s %8s %6s %8s %7s %7s\n", "body", "bytes", "scan",
           "us", "request", "us", "jansson", "scan", "request");
    printf("%-24s %7s %6s %6s %8s %6s %8s %7s %7s\n", "", "", "GB/s", "",
           "GB/s", "", "GB/s", "ratio", "ratio");
    text_buf_init(&body, SIZE_MAX);
    add_ids(&body, ",");
    report("75,000 ids, compact", &body, false, rounds);
    add_ids(&body, ", ");
    report("75,000 ids, spaced", &body, false, rounds);
    add_text(&body, 500000, 'a');
    report("text, ASCII", &body, false, rounds);
    add_text(&body, 178000, 0x4e00);
    report("text, Chinese", &body, false, rounds);
    add_chat(&body);
    report("chat, 420 messages", &body, true, rounds);
    return 0;
}
