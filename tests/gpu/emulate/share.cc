/* Memory of the emulated card that other processes open: it is a file without a
 * name, which a handle tells the process and the number of. */
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda.h"
#include "emulate.h"

namespace
{

struct handle {
    int pid, fd;
    size_t bytes;
};

CUresult get_handle(void *out, CUdeviceptr begin, size_t bytes,
                    CUmemRangeHandleType, unsigned long long)
{
    emulate_piece piece = emulate_piece_of((void *)begin);

    if (piece.fd < 0 || bytes != piece.bytes || bytes % 4096 != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *(int *)out = fcntl(piece.fd, F_DUPFD_CLOEXEC, 0);
    return CUDA_SUCCESS;
}

CUresult get_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr at)
{
    *base = at;
    *bytes = emulate_piece_of((void *)at).bytes;
    return *bytes > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

} // namespace

cudaError_t
cudaGetDriverEntryPointByVersion(const char *symbol, void **entry, unsigned,
                                 unsigned long long,
                                 cudaDriverEntryPointQueryResult *found)
{
    *found = cudaDriverEntryPointSuccess;
    if (strcmp(symbol, "cuMemGetHandleForAddressRange") == 0)
        *entry = (void *)get_handle;
    else if (strcmp(symbol, "cuMemGetAddressRange") == 0)
        *entry = (void *)get_range;
    else
        *found = cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p)
{
    emulate_piece piece = emulate_piece_of(p);
    handle own = {getpid(), piece.fd, piece.bytes};

    memset(h, 0, sizeof(*h));
    memcpy(h, &own, sizeof(own));
    return piece.fd >= 0 ? cudaSuccess : cudaErrorInvalidValue;
}

/* With EMULATE_NO_IPC in the environment, one card cannot reach another. */
cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned)
{
    handle their;

    memcpy(&their, &h, sizeof(their));
    std::string path = "/proc/" + std::to_string(their.pid) + "/fd/" +
                       std::to_string(their.fd);
    struct stat st;
    int fd = getenv("EMULATE_NO_IPC") ? -1 : open(path.c_str(), O_RDONLY);
    void *at = MAP_FAILED;

    if (fd >= 0 && fstat(fd, &st) == 0 && (size_t)st.st_size == their.bytes)
        at = mmap(NULL, their.bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (at == MAP_FAILED)
        return cudaErrorInvalidValue;
    emulate_add_piece(at, {their.bytes, -1});
    *p = at;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *p)
{
    emulate_piece piece = emulate_piece_of(p);

    emulate_remove_piece(p);
    munmap(p, piece.bytes);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *, size_t, unsigned)
{
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *)
{
    return cudaSuccess;
}
