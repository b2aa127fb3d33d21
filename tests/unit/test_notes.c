/* Orders to copy and to drop, as operators get them. */
#include <jansson.h>

#include "conductor/json/text_buf.h"
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
    struct text_buf out;
    const char *comma = "";
    json_t *note;

    text_buf_init(&out, SIZE_MAX);
    (void)notes_take(&notes, &copy, "\"a\\", "b\"", 0);
    CU_ASSERT_EQUAL(notes_write(&notes, "m\"\\", 0, &comma, &out), 0);
    note = json_loadb(out.data, out.len, 0, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(note);
    check_text(note, "model", "m\"\\");
    check_text(note, "from", "\"a\\");
    check_text(note, "to", "b\"");
    json_decref(note);
    text_buf_fini(&out);
}

static const struct suite_test tests[] = {
    {"names", test_names},
};
SUITE("notes", tests)
