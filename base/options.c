/* See options.h. */
#include "base/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/error.h"
#include "base/text.h"

#define VALUE_SHOWN 200
#define MESSAGE_BYTES 512
#define WHOLE_MAX 0x1p53 /* whole numbers are exact in a double up to here */

/* Writes "a whole number from 1 to 9, a multiple of 3". */
static void range_of(const struct option_spec *spec, char *text, size_t size)
{
    int n = spec->kind != OPTION_NUMBER &&
                    spec->max >= 0x1p64 /* UINT64_MAX as a double */
                ? snprintf(text, size, "a whole number from %.15g to %" PRIu64,
                           spec->min, UINT64_MAX)
                : snprintf(text, size, "a%s number from %.15g to %.15g",
                           spec->kind == OPTION_NUMBER ? "" : " whole",
                           spec->min, spec->max);

    if (spec->step > 0 && n >= 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, ", a multiple of %g", spec->step);
}

static int set_number(const struct option_spec *spec, const char *text,
                      char *why, size_t size)
{
    char *end = NULL;
    bool digits = strspn(text, "0123456789") == strlen(text);
    bool whole = spec->kind != OPTION_NUMBER;
    double x = strtod(text, &end);
    char range[128];

    errno = 0;
    uint64_t count = digits ? strtoull(text, NULL, 10)
                            : (uint64_t)fmin(fmax(x, 0), WHOLE_MAX);
    if (end == text || *end || !(x >= spec->min && x <= spec->max) ||
        (whole && (digits ? errno != 0 : (double)count != x)) ||
        (spec->step > 0 && fmod(x, spec->step) != 0)) {
        range_of(spec, range, sizeof(range));
        return error_say(why, size, -EINVAL, "must be %s", range);
    }
    if (spec->kind == OPTION_NUMBER)
        *(double *)spec->value = x;
    else if (spec->kind == OPTION_U32)
        *(uint32_t *)spec->value = (uint32_t)count;
    else
        *(uint64_t *)spec->value = count;
    return 0;
}

const char *option_word(const struct option_spec *spec, size_t i)
{
    return spec->words ? spec->words[i] : spec->choice ? spec->choice(i) : NULL;
}

static int find_choice(const struct option_spec *spec, const char *text,
                       char *why, size_t size, uint8_t *index)
{
    const char *word, *nearest = NULL;
    size_t bytes = strcspn(text, " ,"), least = bytes / 3 + 1;
    size_t n = (size_t)snprintf(why, size, "%sis not one of",
                                text[bytes] ? "takes one word, and this " : "");

    for (uint8_t i = 0; (word = option_word(spec, i)); i++) {
        if (strcmp(word, text) == 0) {
            *index = i;
            return 0;
        }
        if (text_nearer(text, bytes, word, strlen(word), &least))
            nearest = word;
        if (n < size)
            n += (size_t)snprintf(why + n, size - n, " %s", word);
    }
    if (nearest && n < size)
        snprintf(why + n, size - n, ": did you mean %s?", nearest);
    return -EINVAL;
}

static int check_length(const struct option_spec *spec, size_t n, char *why,
                        size_t size)
{
    double most = spec->kind == OPTION_STRING ? (double)spec->size - 1 : 1e9;

    if (spec->max > 0 && spec->max < most)
        most = spec->max;
    if ((double)n >= spec->min && (double)n <= most)
        return 0;
    return error_say(why, size, -EINVAL, "must be %.0f to %.0f bytes long",
                     spec->min, most);
}

static int set_text(const struct option_spec *spec, const char *text, char *why,
                    size_t size)
{
    uint8_t index;
    const char *must = spec->check ? spec->check(text) : NULL;

    if (option_word(spec, 0) && find_choice(spec, text, why, size, &index))
        return -EINVAL;
    if (must || (spec->kind != OPTION_STRING && !*text))
        return error_say(why, size, -EINVAL, "must %s%s",
                         must ? "be " : "not be empty", must ? must : "");
    if (spec->kind != OPTION_STRING) {
        *(const char **)spec->value = text;
        return 0;
    }
    int rc = check_length(spec, strlen(text), why, size);
    if (rc == 0)
        memcpy(spec->value, text, strlen(text) + 1);
    return rc;
}

static int set_address(const struct option_spec *spec, const char *text,
                       char *why, size_t size)
{
    struct address a;

    if (address_parse(text, &a) || a.port < spec->min)
        return error_say(why, size, -EINVAL,
                         "must be HOST:PORT with a port from %g to 65535",
                         spec->min);
    *(struct address *)spec->value = a;
    return 0;
}

int option_set(const struct option_spec *spec, const char *text, char *why,
               size_t size)
{
    struct option_list *list = spec->value;
    uint8_t index;
    int rc;

    switch (spec->kind) {
    case OPTION_FLAG:
        *(bool *)spec->value = true;
        return 0;
    case OPTION_TEXT:
    case OPTION_OUTPUT:
    case OPTION_STRING:
        return set_text(spec, text, why, size);
    case OPTION_LIST:
        list->items[list->count++] = text;
        return 0;
    case OPTION_ADDRESS:
        return set_address(spec, text, why, size);
    case OPTION_CHOICE:
        rc = find_choice(spec, text, why, size, &index);
        if (rc == 0)
            *(uint8_t *)spec->value = (uint8_t)(index + spec->min);
        return rc;
    default:
        return set_number(spec, text, why, size);
    }
}

const struct option_spec *option_find(const struct option_table *table,
                                      const char *name, size_t bytes)
{
    for (size_t i = 0; i < table->count; i++) {
        const char *known = table->specs[i].name;

        if (strlen(known) == bytes && memcmp(known, name, bytes) == 0)
            return &table->specs[i];
    }
    return NULL;
}

const char *option_nearest(const struct option_table *table, const char *name,
                           size_t bytes)
{
    const char *nearest = NULL;
    size_t least = bytes / 3 + 1;

    for (size_t i = 0; i < table->count; i++) {
        const char *known = table->specs[i].name;

        if (text_nearer(name, bytes, known, strlen(known), &least))
            nearest = known;
    }
    return nearest;
}

/* Refuses a word that is no option of the table. */
static int refuse_unknown(const struct option_table *table, const char *word,
                          char *error, size_t size)
{
    const char *name = word + strspn(word, "-");
    const char *nearest = option_nearest(table, name, strcspn(name, "="));

    if (*word != '-')
        return error_say(error, size, -EINVAL, "unexpected argument '%s'",
                         word);
    return error_say(error, size, -EINVAL, "unknown option '%s'%s%s%s", word,
                     nearest ? ": did you mean --" : "", nearest ? nearest : "",
                     nearest ? "?" : "");
}

/* A word of the command line, split into option and value. */
struct argument {
    const struct option_spec *spec; /* NULL = unknown */
    const char *value;              /* NULL = not in this word */
};

static struct argument split(const struct option_table *table, const char *word)
{
    const char *equals = strchr(word, '=');
    struct argument a = {NULL, NULL};

    if (word[0] != '-' || !word[1]) {
        a.spec = option_find(table, "", 0);
        a.value = word;
    } else if (word[1] == '-' && word[2] && word[2] != '=') {
        a.spec = option_find(table, word + 2,
                             equals ? (size_t)(equals - word - 2)
                                    : strlen(word + 2));
        a.value = equals ? equals + 1 : NULL;
    } else {
        for (size_t i = 0; i < table->count && !a.spec; i++)
            if (table->specs[i].letter == word[1])
                a.spec = &table->specs[i];
        a.value = word[2] ? word + 2 : NULL;
    }
    return a;
}

static int is_question(const char *word)
{
    if (strcmp(word, "--help") == 0 || strncmp(word, "--help=", 7) == 0 ||
        strcmp(word, "-h") == 0)
        return 1;
    return strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0 ? 2 : 0;
}

int options_parse(const struct option_table *table, int argc, char **argv,
                  char *error, size_t size)
{
    for (size_t i = 0; i < table->count; i++)
        if (table->specs[i].initial && /* a right value */
            option_set(&table->specs[i], table->specs[i].initial, error, size))
            return -EINVAL;
    for (int i = 1; i < argc; i++) {
        struct argument a = split(table, argv[i]);
        char why[MESSAGE_BYTES];

        if (is_question(argv[i]))
            return is_question(argv[i]);
        if (!a.spec)
            return refuse_unknown(table, argv[i], error, size);
        bool flag = a.spec->kind == OPTION_FLAG;
        if (flag && a.value)
            return error_say(error, size, -EINVAL, "--%s takes no value",
                             a.spec->name);
        if (!flag && !a.value && !argv[++i])
            return error_say(error, size, -EINVAL, "--%s needs a value",
                             a.spec->name);
        const char *value = a.value ? a.value : argv[i];
        /* Quotes show where a value with blanks, or without anything, ends. */
        const char *quote = *value && !strpbrk(value, " \t") ? "" : "\"";
        if (option_set(a.spec, value, why, sizeof(why)))
            return error_say(error, size, -EINVAL, "--%s %s%.*s%s: %s",
                             a.spec->name, quote, VALUE_SHOWN, value, quote,
                             why);
    }
    return 0;
}
