/*
 * engines_file: the engines that it lists are wanted, and changes of the file
 * are followed. A file that cannot be read or used changes nothing. A thread
 * reads it, and the key and CA files that it names: for a thousand engines this
 * takes tens of milliseconds.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/json_fields.h"
#include "conductor/service/fleet/fleet.h"
#include "conductor/service/models.h"

#define FILE_MAX_BYTES (4u << 20)

struct fleet_file {
    const char *path;  /* of the configuration */
    struct stat state; /* as last read; zeros = there was no file */
    bool reading;      /* `thread` runs and owns the fields below */
    atomic_bool done;  /* the thread has set `list`, `rc` and `err` */
    pthread_t thread;
    struct engine_list list;
    int rc;
    char err[CONFIG_ERROR_MAX];
};

static void read_root(struct fields *f, const struct fields_object *root,
                      void *into)
{
    fields_known(f, root, "engines");
    engine_list_read(f, json_object_get(root->json, "engines"), into);
}

int fleet_file_read(const char *path, struct engine_list *out,
                    char err[CONFIG_ERROR_MAX])
{
    struct fields f = {"", path, err, CONFIG_ERROR_MAX, 0};
    char why[CONFIG_ERROR_MAX] = "engines: the path of a file is too long";

    *out = (struct engine_list){0};
    int rc = fields_read(&f, NULL, FILE_MAX_BYTES, read_root, out);
    if (rc)
        return rc;
    rc = engine_list_anchor(out, path);
    if (rc == 0)
        rc = engines_check(out->at, out->n, why);
    if (rc == 0)
        return 0;
    snprintf(err, CONFIG_ERROR_MAX, "%.200s: %.300s", path, why);
    engine_list_free(out);
    return rc;
}

/* Makes the engines of the file the wanted ones. */
static int take(struct fleet *fleet, char err[CONFIG_ERROR_MAX])
{
    struct fleet_file *file = fleet->file;
    char why[CONFIG_ERROR_MAX];
    int rc = file->rc;

    if (rc) {
        memcpy(err, file->err, CONFIG_ERROR_MAX);
        return rc;
    }
    rc = fleet_set(fleet, FLEET_FILE, &file->list, why);
    if (rc)
        snprintf(err, CONFIG_ERROR_MAX, "%.200s: %.300s", file->path, why);
    engine_list_free(&file->list);
    return rc;
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_size == b->st_size && a->st_ino == b->st_ino &&
           a->st_dev == b->st_dev;
}

static void look_at(const char *path, struct stat *out)
{
    if (stat(path, out))
        *out = (struct stat){0};
}

static void *read_on_thread(void *arg)
{
    struct fleet_file *file = arg;

    file->rc = fleet_file_read(file->path, &file->list, file->err);
    atomic_store(&file->done, true);
    return NULL;
}

void fleet_file_look(struct fleet *fleet)
{
    struct fleet_file *file = fleet->file;
    struct stat now;

    if (!file || file->reading)
        return;
    look_at(file->path, &now);
    if (same(&now, &file->state))
        return;
    file->done = false;
    /* Without a thread the next look tries again. */
    file->reading = !pthread_create(&file->thread, NULL, read_on_thread, file);
    if (file->reading)
        file->state = now;
}

void fleet_file_take(struct fleet *fleet)
{
    struct fleet_file *file = fleet->file;
    char err[CONFIG_ERROR_MAX];

    if (!file || !file->reading || !atomic_load(&file->done))
        return;
    pthread_join(file->thread, NULL);
    file->reading = false;
    int rc = take(fleet, err);
    if (rc == 0) {
        log_info("%s was read again", file->path);
        return;
    }
    if (rc == -ENOMEM)
        file->state = (struct stat){0}; /* the next look reads it again */
    fleet->readings_failed++;
    log_error("%s; the engines stay as they were", err);
}

int fleet_file_start(struct fleet *fleet, char err[CONFIG_ERROR_MAX])
{
    const char *path = fleet->models->config.engines_file;
    struct fleet_file *file = *path ? calloc(1, sizeof(*file)) : NULL;
    char why[CONFIG_ERROR_MAX];

    if (!*path)
        return 0;
    snprintf(err, CONFIG_ERROR_MAX, "out of memory");
    if (!file)
        return -ENOMEM;
    fleet->file = file;
    file->path = path;
    look_at(path, &file->state);
    file->rc = fleet_file_read(path, &file->list, file->err);
    return take(fleet, why) ? fleet_file_say(err, why) : 0;
}

int fleet_file_say(char err[CONFIG_ERROR_MAX], const char *why)
{
    return error_say(err, CONFIG_ERROR_MAX, -EINVAL, "engines_file: %.400s",
                     why);
}

void fleet_file_stop(struct fleet *fleet)
{
    if (fleet->file && fleet->file->reading) {
        pthread_join(fleet->file->thread, NULL);
        engine_list_free(&fleet->file->list);
    }
    free(fleet->file);
}
