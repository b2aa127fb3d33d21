/* Orders to copy and to drop, as operators get them. */
#include <event2/buffer.h>
#include <jansson.h>

#include "conductor/service/worker/notes.h"
#include "tests/unit/suite.h"

/* What is in its place is that text. */
static void check_text(const json_t *note, const char *key, const char *text)
{
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(note, key)), text);
}

/* Names of models and instances may hold what JSON escapes. */
static void test_names(void)
{
    const struct replication_action copy = {.kind = REPLICATION_COPY};
    static struct notes notes;
    struct evbuffer *out = evbuffer_new();
    const char *comma = "";
    json_t *note;

    (void)notes_take(&notes, &copy, "\"a\\", "b\"", 0);
    CU_ASSERT_EQUAL(notes_write(&notes, "m\"\\", 0, &comma, out), 0);
    note = json_loadb((const char *)evbuffer_pullup(out, -1),
                      evbuffer_get_length(out), 0, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(note);
    check_text(note, "model", "m\"\\");
    check_text(note, "from", "\"a\\");
    check_text(note, "to", "b\"");
    json_decref(note);
    evbuffer_free(out);
}

static const struct suite_test tests[] = {
    {"names", test_names},
};
SUITE("notes", tests)
