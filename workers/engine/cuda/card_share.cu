/* Shares the card's pages: a handle for other processes (CUDA IPC), a dmabuf
 * for network cards (GPUDirect), and copies from the pages of another process.
 * UNTESTED on a card. */
#include <cuda.h>
#include <errno.h>
#include <string.h>

#include "workers/engine/cuda/card.h"

static_assert(sizeof(cudaIpcMemHandle_t) == CUDA_HANDLE_BYTES, "a handle");

/* Finds a driver function by name: the program does not link the driver, so
 * that it starts without one. */
static void *driver_entry(const char *name)
{
    cudaDriverEntryPointQueryResult found;
    void *entry = NULL;
#if CUDART_VERSION >= 12050
    cudaError_t rc = cudaGetDriverEntryPointByVersion(
        name, &entry, 11070, cudaEnableDefault, &found);
#else
    cudaError_t rc =
        cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &found);
#endif

    if (rc == cudaSuccess && found == cudaDriverEntryPointSuccess)
        return entry;
    (void)cudaGetLastError();
    return NULL;
}

uint64_t cuda_card_pages(const struct cuda_card *c, uint64_t *bytes)
{
    *bytes = (uint64_t)c->limits.pages * c->page_bytes;
    return (uint64_t)(uintptr_t)c->pages;
}

int cuda_card_handle(struct cuda_card *c, uint8_t handle[CUDA_HANDLE_BYTES])
{
    cudaIpcMemHandle_t h;

    if (cudaIpcGetMemHandle(&h, c->pages) != cudaSuccess) {
        (void)cudaGetLastError();
        return -ENOTSUP;
    }
    memcpy(handle, &h, sizeof(h));
    return 0;
}

int cuda_card_dmabuf(const struct cuda_card *c)
{
    typedef CUresult get_handle(void *, CUdeviceptr, size_t,
                                CUmemRangeHandleType, unsigned long long);
    get_handle *get =
        (get_handle *)driver_entry("cuMemGetHandleForAddressRange");
    int fd = -1;

    if (!get || get(&fd, (CUdeviceptr)(uintptr_t)c->pages, card_pages_bytes(c),
                    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) != CUDA_SUCCESS)
        return -1;
    return fd;
}

/* Whether opened memory is as long as its owner claims: reading beyond its end
 * would make this process lose its card. */
static bool is_as_long(void *memory, uint64_t bytes)
{
    typedef CUresult get_range(CUdeviceptr *, size_t *, CUdeviceptr);
    get_range *get = (get_range *)driver_entry("cuMemGetAddressRange");
    CUdeviceptr begin = (CUdeviceptr)(uintptr_t)memory, base = 0;
    size_t size = 0;

    return get && get(&base, &size, begin) == CUDA_SUCCESS && base <= begin &&
           bytes <= size - (begin - base);
}

void *cuda_card_open_peer(struct cuda_card *c,
                          const uint8_t handle[CUDA_HANDLE_BYTES],
                          uint64_t bytes)
{
    cudaIpcMemHandle_t h;
    void *memory = NULL;

    memcpy(&h, handle, sizeof(h));
    if (cudaIpcOpenMemHandle(&memory, h, cudaIpcMemLazyEnablePeerAccess) !=
        cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    if (is_as_long(memory, bytes))
        return memory;
    cuda_card_shut_peer(c, memory);
    return NULL;
}

void cuda_card_shut_peer(struct cuda_card *, void *memory)
{
    if (cudaIpcCloseMemHandle(memory) != cudaSuccess)
        (void)cudaGetLastError();
}

int cuda_card_read_peer(struct cuda_card *c, const void *from, uint32_t page,
                        uint64_t offset, void *to, uint64_t bytes)
{
    const void *here = from;
    int rc = 0;

    if (page != CUDA_NO_PAGE) {
        unsigned char *at = c->pages + page * c->page_bytes + offset;

        rc = card_check(c,
                        cudaMemcpyAsync(at, from, bytes,
                                        cudaMemcpyDeviceToDevice, c->share),
                        "a copy from another process");
        here = at;
    }
    if (rc == 0)
        rc = card_check(
            c,
            cudaMemcpyAsync(to, here, bytes, cudaMemcpyDeviceToHost, c->share),
            "a copy of another process's blocks");
    if (rc == 0)
        rc = card_check(c, cudaStreamSynchronize(c->share),
                        "a copy from another process");
    return rc;
}

int cuda_card_adopt(struct cuda_card *c, void *memory, size_t bytes)
{
    cudaError_t rc = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);

    if (rc == cudaSuccess)
        return 0;
    (void)card_check(c, rc, "locking shared memory");
    return -ENOMEM;
}

void cuda_card_disown(struct cuda_card *, void *memory)
{
    if (cudaHostUnregister(memory) != cudaSuccess)
        (void)cudaGetLastError();
}
