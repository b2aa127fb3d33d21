/* Prints --help, --version and messages for options_start(). */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/options.h"

#define MESSAGE_BYTES 512
#define DEFAULT_BYTES (ADDRESS_HOST_MAX + 8)
#define LINE_COLUMNS 80
#define TEXT_COLUMN_MAX 27

/* Shows a number; nothing for 0 or a default outside of the range. */
static void show_number(const struct option_spec *spec, char *text, size_t size)
{
    double x = spec->kind == OPTION_NUMBER ? *(const double *)spec->value
               : spec->kind == OPTION_U32
                   ? *(const uint32_t *)spec->value
                   : (double)*(const uint64_t *)spec->value;

    if (x != 0 && x >= spec->min && x <= spec->max)
        snprintf(text, size, "%.15g", x);
}

/* Writes the default as text; "" = not worth showing. */
static void show_default(const struct option_spec *spec,
                         char text[DEFAULT_BYTES])
{
    const struct address *a = spec->value;
    const char *word = NULL;

    *text = '\0';
    if (spec->kind == OPTION_TEXT)
        word = *(const char *const *)spec->value;
    else if (spec->kind == OPTION_STRING)
        word = spec->value;
    else if (spec->kind == OPTION_CHOICE)
        word = option_word(
            spec, (size_t)(*(const uint8_t *)spec->value - (int)spec->min));
    else if (spec->kind == OPTION_ADDRESS && *a->host)
        snprintf(text, DEFAULT_BYTES, "%s:%u", a->host, a->port);
    else if (spec->kind >= OPTION_COUNT)
        show_number(spec, text, DEFAULT_BYTES);
    if (word)
        snprintf(text, DEFAULT_BYTES, "%s", word);
}

void options_print_wrapped(FILE *file, const char *text, int column,
                           const char *prefix)
{
    int at = column;

    for (const char *word = text + strspn(text, " \n"); *word;) {
        int n = (int)strcspn(word, " \n");

        if (at > column && at + 1 + n > LINE_COLUMNS) {
            fprintf(file, "\n%-*s", column, prefix);
            at = column;
        }
        at += fprintf(file, "%s%.*s", at > column ? " " : "", n, word);
        word += n;
        word += strspn(word, " \n");
    }
    fputc('\n', file);
}

void option_help(const struct option_spec *spec, char *text, size_t size)
{
    size_t n = strlen(spec->help);
    const char *word;

    snprintf(text, size, "%s", spec->help);
    if (n == 0 || spec->help[n - 1] != ':')
        return;
    for (size_t i = 0; n < size && (word = option_word(spec, i)); i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s",
                              i == 0                     ? " "
                              : option_word(spec, i + 1) ? ", "
                                                         : " or ",
                              word);
}

static void print_option(FILE *file, const struct option_spec *spec,
                         bool letters, int column)
{
    char left[64], shown[DEFAULT_BYTES], what[4096], help[4352];
    char letter[8] = "";

    if (letters)
        snprintf(letter, sizeof(letter), spec->letter ? "-%c, " : "    ",
                 spec->letter);
    int n =
        snprintf(left, sizeof(left), "  %s--%s%s%s", letter, spec->name,
                 spec->metavar ? " " : "", spec->metavar ? spec->metavar : "");
    show_default(spec, shown);
    bool add = *shown && !strstr(spec->help, "default");
    option_help(spec, what, sizeof(what));
    snprintf(help, sizeof(help), "%s%s%s%s", what, add ? " (default " : "",
             add ? shown : "", add ? ")" : "");
    fputs(left, file);
    if (n + 1 > column)
        fprintf(file, "\n%*s", column, "");
    else
        fprintf(file, "%*s", column - n, "");
    options_print_wrapped(file, help, column, "");
}

#define ALL_SECTIONS "all"

/* Returns the section of row i, given the section of the row before it. */
static const char *section_of(const struct option_table *table, size_t i,
                              const char *before)
{
    return table->specs[i].section ? table->specs[i].section : before;
}

static bool has_section(const struct option_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (table->specs[i].section &&
            strcmp(table->specs[i].section, name) == 0)
            return true;
    return false;
}

/* Writes the names of all sections to `text`; "" = there are none. */
static void list_sections(const struct option_table *table, char *text,
                          size_t size)
{
    size_t n = 0;

    *text = '\0';
    for (size_t i = 0; i < table->count && n < size; i++)
        if (table->specs[i].section)
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "",
                                  table->specs[i].section);
}

/* Prints the rows of one section, or of all; NULL = those in front of the
 * first section. */
static void print_options(FILE *file, const struct option_table *table,
                          const char *section)
{
    static const struct option_spec help = {
        .name = "help", .help = "this text", .letter = 'h'};
    static const struct option_spec version = {
        .name = "version", .help = "print the version", .letter = 'V'};
    bool letters = false, all = section && strcmp(section, ALL_SECTIONS) == 0;
    const char *at = NULL;
    int column = 0;

    for (size_t i = 0; i < table->count; i++) {
        const struct option_spec *spec = &table->specs[i];
        int width = (int)(strlen(spec->name) +
                          (spec->metavar ? strlen(spec->metavar) + 1 : 0));

        letters = letters || spec->letter;
        column = width > column ? width : column;
    }
    column += letters ? 10 : 6;
    column = column < TEXT_COLUMN_MAX ? column : TEXT_COLUMN_MAX;
    for (size_t i = 0; i < table->count; i++) {
        at = section_of(table, i, at);
        bool here = section && at ? strcmp(at, section) == 0 : at == section;

        if (*table->specs[i].name && (all || here))
            print_option(file, &table->specs[i], letters, column);
    }
    if (section && !all)
        return;
    print_option(file, &help, letters, column);
    print_option(file, &version, letters, column);
}

int options_complain(const char *program, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s: ", program);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return OPTIONS_EXIT_USAGE;
}

static void say_try(const char *program)
{
    fprintf(stderr, "try %s --help\n", program);
}

void options_missing(const char *program, const char *option)
{
    options_complain(program, "%s is missing", option);
    say_try(program);
}

/* Returns the first required option without a value; NULL = none. */
static const struct option_spec *find_missing(const struct option_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct option_spec *spec = &table->specs[i];

        if (spec->required &&
            (spec->kind == OPTION_NUMBER ? *(const double *)spec->value == 0
                                         : !*(const char *const *)spec->value))
            return spec;
    }
    return NULL;
}

/* Returns the topic that --help is asked for; NULL = none. */
static const char *topic_of(char **argv)
{
    while (*argv && strncmp(*argv, "--help", 6) != 0 &&
           strcmp(*argv, "-h") != 0)
        argv++;
    if (*argv && strncmp(*argv, "--help=", 7) == 0)
        return *argv + 7;
    return *argv ? argv[1] : NULL;
}

/* Prints --help, or --help of a topic or section. Returns the exit status. */
static int print_help(const struct option_usage *usage,
                      const struct option_table *table, const char *topic)
{
    bool all = topic && strcmp(topic, ALL_SECTIONS) == 0;
    char sections[MESSAGE_BYTES];

    list_sections(table, sections, sizeof(sections));
    if (topic && usage->topic && strcmp(topic, usage->topic) == 0) {
        usage->explain(stdout);
        return 0;
    }
    if (topic && has_section(table, topic)) {
        printf("%s: options of the section %s\n\n", usage->name, topic);
        print_options(stdout, table, topic);
        return 0;
    }
    if (topic && !all && (usage->topic || *sections))
        return options_complain(
            usage->name, "no help on '%s': there is --help, --help %s%s%s%s%s",
            topic, ALL_SECTIONS, usage->topic ? ", " : "",
            usage->topic ? usage->topic : "", *sections ? ", " : "", sections);
    printf("usage: %s %s\n\n%s\n\n", usage->name, usage->synopsis, usage->text);
    print_options(stdout, table, all ? topic : NULL);
    if (*sections && !all)
        printf("\nMore options, by --help SECTION: %s.\n"
               "--help %s shows every option.\n",
               sections, ALL_SECTIONS);
    printf("\nexamples:\n%s%s", usage->examples,
           usage->footnote ? usage->footnote : "");
    return 0;
}

int options_start(const struct option_usage *usage,
                  const struct option_table *table, int argc, char **argv,
                  int *status)
{
    const struct option_spec *missing;
    char error[MESSAGE_BYTES];
    int rc = options_parse(table, argc, argv, error, sizeof(error));
    const char *topic = topic_of(argv);

    *status = 0;
    if (rc == 1) {
        *status =
            print_help(usage, table, topic && *topic != '-' ? topic : NULL);
    } else if (rc == 2) {
        printf("%.*s %s\n", (int)strcspn(usage->name, " "), usage->name,
               CONDUCTOR_VERSION);
    } else if (rc != 0) {
        *status = options_complain(usage->name, "%s", error);
        say_try(usage->name);
    } else if ((missing = find_missing(table))) {
        char option[64];

        snprintf(option, sizeof(option), "--%s %s", missing->name,
                 missing->metavar);
        options_missing(usage->name, option);
        *status = OPTIONS_EXIT_USAGE;
        return -1;
    }
    return rc == 0 ? 0 : -1;
}
