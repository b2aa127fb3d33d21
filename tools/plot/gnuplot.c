/* See gnuplot.h. */
#include "tools/plot/gnuplot.h"

#include <errno.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

int gnuplot_run(FILE *script, FILE *picture)
{
    char *const argv[] = {"gnuplot", "-d", NULL}; /* -d: no file of the user */
    posix_spawn_file_actions_t actions;
    pid_t pid = 0;
    int status = 0;

    if (fflush(script) != 0 || fseek(script, 0, SEEK_SET) != 0)
        return -errno;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0)
        return -rc;
    rc = posix_spawn_file_actions_adddup2(&actions, fileno(script), 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&actions, fileno(picture), 1);
    if (rc == 0)
        rc = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0)
        return rc == ENOENT ? -ENOPKG : -rc;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EPROTO;
}
