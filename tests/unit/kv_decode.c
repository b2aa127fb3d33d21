/*
 * Decodes KV events for tests in other languages. Reads messages as hex, one a
 * line, and prints what each says: a line for each event, "rank N" or "rank
 * nil", "unknown N", and "." at the end; "error OFFSET EXPECTED" and "." for a
 * message that is malformed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conductor/link/events/batch.h"

static uint8_t digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static size_t from_hex(const char *line, uint8_t *out)
{
    size_t n = 0;

    for (; line[0] != '\n' && line[1] != '\n'; line += 2)
        out[n++] = (uint8_t)(digit(line[0]) << 4 | digit(line[1]));
    return n;
}

static void print_text(const char *name, struct unpack_text text)
{
    printf(" %s=", name);
    for (uint32_t i = 0; i < text.n; i++)
        printf("%02x", (uint8_t)text.bytes[i]);
}

static void print_event(const struct kv_event *e)
{
    static const char *const kinds[] = {"stored", "removed", "cleared"};

    printf("%s tier=%d%s%s%s%s groups=%" PRIx64, kinds[e->kind], e->tier,
           e->has_tier ? " named" : "", e->unknown_medium ? " medium?" : "",
           e->windowed ? " windowed" : "", e->odd ? " odd" : "", e->groups);
    if (e->has_parent)
        printf(" parent=%" PRIu64, e->parent);
    if (e->part)
        printf(" part=%u", e->part);
    printf(" size=%u hashes=", e->block_size);
    for (uint32_t i = 0; i < e->n_hashes; i++)
        printf("%" PRIu64 ",", e->hashes[i]);
    printf(" tokens=");
    for (uint32_t i = 0; i < e->n_tokens && !e->odd; i++)
        printf("%u,", e->tokens[i]);
    print_text("adapter", e->adapter);
    print_text("salt", e->salt);
    printf(" extras=");
    for (uint32_t i = 0; i < e->n_hashes && e->extras; i++)
        printf("%d", e->extras[i] != 0);
    printf("\n");
}

static void print_batch(struct kv_decoder *decoder, const uint8_t *bytes,
                        size_t n)
{
    struct kv_batch_error error;
    struct kv_batch batch;

    if (kv_decoder_batch(decoder, bytes, n, &batch, &error)) {
        printf("error %zu %s\n.\n", error.offset, error.expected);
        return;
    }
    for (uint32_t i = 0; i < batch.n_events; i++)
        print_event(&batch.events[i]);
    if (batch.has_rank)
        printf("rank %" PRIu64 "\n", batch.rank);
    else
        printf("rank nil\n");
    printf("unknown %u\n.\n", batch.n_unknown);
}

int main(void)
{
    struct kv_decoder *decoder = kv_decoder_new();
    char *line = NULL;
    size_t room = 0;

    while (decoder && getline(&line, &room, stdin) > 0) {
        uint8_t *bytes = malloc(strlen(line) / 2 + 1);

        if (!bytes)
            break;
        print_batch(decoder, bytes, from_hex(line, bytes));
        free(bytes);
    }
    free(line);
    kv_decoder_free(decoder);
    return 0;
}
