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

/* Looks for the module beside the program, where it was built, and where it was
 * installed.
 */
static void *load(char *err, size_t err_bytes)
{
    static const char *const folders[] = {"", RDMA_MODULE_BUILT,
                                          RDMA_MODULE_INSTALLED};
    char program[PATH_MAX], path[2 * PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    void *module = NULL;

    if (n > 0) {
        program[n] = '\0';
        *strrchr(program, '/') = '\0';
        for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
            snprintf(path, sizeof(path), "%s/%s" MODULE, program, folders[i]);
            if (access(path, R_OK) == 0)
                break;
        }
        module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
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
