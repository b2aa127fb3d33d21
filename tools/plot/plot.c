/* See plot.h. */
#include "tools/plot/plot.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/result_file.h"

#define NO_MATPLOTLIB 3 /* exit status of draw.py */

extern char **environ;

void plot_find(const char *name, char program[PATH_MAX],
               char script[PATH_MAX + 64])
{
    static const char *const folders[] = {"plot", "../libexec/conductor/plot"};
    ssize_t n = readlink("/proc/self/exe", program, PATH_MAX - 1);

    program[n > 0 ? n : 0] = '\0';
    const char *end = strrchr(program, '/');
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(script, PATH_MAX + 64, "%.*s/%s/%s",
                 end ? (int)(end - program) : 0, program, folders[i], name);
        if (access(script, R_OK) == 0)
            break;
    }
}

int plot_begin(struct plot *plot)
{
    plot->file = tmpfile();
    if (!plot->file)
        return -errno;
    snprintf(plot->data, sizeof plot->data, "/dev/fd/%d", fileno(plot->file));
    return 0;
}

/* Runs draw.py from `in` to `out`. Returns as plot_end(). */
static int draw(const char *kind, const char *title, FILE *in, FILE *out)
{
    char program[PATH_MAX], script[PATH_MAX + 64];
    const char *const arguments[] = {"python3", "-B",  script,
                                     kind,      title, NULL};
    posix_spawn_file_actions_t files;
    int status = 0;
    pid_t child;

    plot_find("draw.py", program, script);
    if (fflush(stdout) != 0 || fflush(in) != 0 ||
        lseek(fileno(in), 0, SEEK_SET) < 0)
        return -errno;
    if (ferror(in))
        return -EIO;
    int rc = posix_spawn_file_actions_init(&files);
    if (rc != 0)
        return -rc;
    if ((rc = posix_spawn_file_actions_adddup2(&files, fileno(in), 0)) == 0 &&
        (rc = posix_spawn_file_actions_adddup2(&files, fileno(out), 1)) == 0)
        rc = posix_spawnp(&child, "python3", &files, NULL,
                          (char *const *)arguments, environ);
    posix_spawn_file_actions_destroy(&files);
    if (rc != 0)
        return rc == ENOENT ? -ENOPKG : -rc;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    /* Ctrl-C, or the end of a reader, is this program's, too: it writes no
     * further file. */
    if (WIFSIGNALED(status) &&
        (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGQUIT ||
         WTERMSIG(status) == SIGPIPE))
        raise(WTERMSIG(status));
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return code == 0 ? 0 : code == NO_MATPLOTLIB ? -ENOPKG : -EPROTO;
}

int plot_end(struct plot *plot, int rc, const char *kind, const char *title,
             const char *path)
{
    FILE *picture = rc == 0 ? tmpfile() : NULL;

    if (rc == 0)
        rc = picture ? draw(kind, title, plot->file, picture) : -errno;
    if (rc == 0)
        rc = result_copy(picture, path);
    if (picture)
        fclose(picture);
    if (plot->file)
        fclose(plot->file);
    return rc;
}

const char *plot_error(int rc)
{
    return rc == -ENOPKG   ? "not drawn, Python's matplotlib is missing: "
                             "install Debian's python3-matplotlib"
           : rc == -EPROTO ? "not drawn, its script failed"
                           : strerror(-rc);
}
