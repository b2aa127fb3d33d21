/*
 * The file of engines that is watched: what it holds is wanted, and read again
 * when it has changed. A file that cannot be read or used changes nothing.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json_fields.h"
#include "conductor/service/fleet.h"
#include "conductor/service/models.h"

#define FILE_MAX_BYTES (4u << 20)

struct fleet_file {
    const char *path;  /* of the configuration */
    struct stat state; /* when it was last read; zero: it was not there */
};

static void read_root(struct fields *f, const struct fields_object *root,
                      void *into)
{
    fields_known(f, root, "engines");
    engine_list_read(f, json_object_get(root->json, "engines"), into);
}

static int read_file(struct fleet *fleet, char err[CONFIG_ERROR_MAX])
{
    const char *path = fleet->file->path;
    struct fields f = {"", path, err, CONFIG_ERROR_MAX, 0};
    struct engine_list list = {0};
    char why[CONFIG_ERROR_MAX];
    int rc = fields_read(&f, NULL, FILE_MAX_BYTES, read_root, &list);

    if (rc)
        return rc;
    rc = engine_list_anchor(&list, path);
    if (rc)
        snprintf(why, sizeof(why), "engines: the path of a file is too long");
    else
        rc = fleet_set(fleet, FLEET_FILE, &list, why);
    if (rc)
        snprintf(err, CONFIG_ERROR_MAX, "%.200s: %.300s", path, why);
    engine_list_free(&list);
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

void fleet_file_look(struct fleet *fleet)
{
    struct fleet_file *file = fleet->file;
    char err[CONFIG_ERROR_MAX];
    struct stat now;

    if (!file)
        return;
    look_at(file->path, &now);
    if (same(&now, &file->state))
        return;
    file->state = now;
    int rc = read_file(fleet, err);
    if (rc == 0) {
        log_info("%s was read again", file->path);
        return;
    }
    if (rc != -EAGAIN)
        fleet->readings_failed++;
    log_error("%s%s", err,
              rc == -EAGAIN ? "" : "; the engines stay as they were");
}

int fleet_file_start(struct fleet *fleet, char err[CONFIG_ERROR_MAX])
{
    const char *path = fleet->models->config.engines_file;
    struct fleet_file *file = *path ? calloc(1, sizeof(*file)) : NULL;

    if (!*path)
        return 0;
    snprintf(err, CONFIG_ERROR_MAX, "out of memory");
    if (!file)
        return -ENOMEM;
    fleet->file = file;
    file->path = path;
    look_at(path, &file->state);
    return read_file(fleet, err);
}

void fleet_file_stop(struct fleet *fleet)
{
    free(fleet->file);
}
