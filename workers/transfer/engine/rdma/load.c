/* Loads the module of the transport rdma on demand. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "workers/transfer/engine/rdma/rdma.h"

#define MODULE "conductor-rdma.so"

/* Looks for the module next to the program, as built, or where it is installed.
 */
static void *load(char *err, size_t err_bytes)
{
    char program[PATH_MAX], path[PATH_MAX + sizeof(RDMA_MODULE_BUILT MODULE)];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    void *module = NULL;

    if (n > 0) {
        program[n] = '\0';
        *strrchr(program, '/') = '\0';
        snprintf(path, sizeof(path), "%s/" RDMA_MODULE_BUILT MODULE, program);
        if (access(path, R_OK) != 0)
            snprintf(path, sizeof(path), "%s/" MODULE, program);
        if (access(path, R_OK) == 0)
            module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        else
            module = dlopen(RDMA_MODULE_INSTALLED MODULE, RTLD_NOW);
    }
    if (!module)
        error_say(err, err_bytes, 0, "%s", dlerror());
    return module;
}

int rdma_transport_load(const struct rdma_config *config,
                        struct transport **out, char *err, size_t err_bytes)
{
    const struct rdma_module *module;
    void *loaded = load(err, err_bytes);

    if (!loaded)
        return -ENOTSUP;
    module = dlsym(loaded, RDMA_MODULE_SYMBOL);
    if (!module || module->version != RDMA_MODULE_VERSION) {
        dlclose(loaded);
        return error_say(err, err_bytes, -ENOTSUP,
                         MODULE " has another version");
    }
    /* Never unloaded: its code runs until the program ends. */
    return module->make(config, out, err, err_bytes);
}
